"""`python -m tests.faults.fuzzing COUNT FOLDER CPU_SECONDS [READER ...]`: changed files go through each reader.

Where atheris is installed (`pip install atheris==3.0.0`; nothing else needs it), libFuzzer changes the files and keeps
those that reach other code; otherwise they are changed at random. The first are valid and hostile files of the tests.

A reader may return, or raise an error that names the file; the rest (other errors, 10 s of CPU time, memory of 20 times
the file and 200 MB, a crash) is a finding: its file is kept in FOLDER, and a line of JSON tells it.
"""

import contextlib
import json
import math
import os
import random
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SECONDS, MEGABYTES, TIMES = 10, 200, 20
ROOT = Path(__file__).resolve().parents[2]
INSTRUMENTED = ["bert", "data", "pypdf", "striprtf", "openpyxl", "yaml", "html.parser", "_markupbase", "zipfile"]
COMPILED = [  # modules that Numba compiles, which instrumented code is not for
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in (*ROOT.glob("bert/**/*.py"), *ROOT.glob("data/**/*.py"))
    if any(words in path.read_text() for words in ("arrays.compiled import", "numba import"))
]
TOKENS = (b"\0" * 8, b"\xff" * 8, b"\x7f\xff\xff\xff", b"\x80\x04", b"(lp0\n", b"9" * 30, b"{" * 300, b"[[" * 300)
TOKENS += (b'"', b"<" * 300, b"&a ", b"*a ", b"\r\n", b"\n\n", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"1e999")


def changed(data: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(data) + 1)
    end, token = at + chance.randint(1, 64), chance.choice(TOKENS)
    kind = chance.choice(("flip", "cut out", "repeat", "insert", "insert often", "end here"))
    if kind == "flip":
        return data[:at] + bytes(byte ^ 1 << chance.randrange(8) for byte in data[at : at + 1]) + data[at + 1 :]
    if kind == "cut out":
        return data[:at] + data[end:]
    if kind == "repeat":
        return data[:end] + data[at:end] * chance.randint(1, 256) + data[end:]
    if kind == "end here":
        return data[:at] if chance.random() < 0.25 else data
    return data[:at] + token * (chance.randint(1, 500) if kind == "insert often" else 1) + data[at:]


class OutOfTime(BaseException):
    """Not an Exception, which readers catch."""


def out_of_time(*_: object) -> None:
    raise OutOfTime


def peak_megabytes() -> float:
    """Of this process since /proc/self/clear_refs was written to."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def finding(read: Callable[[Path], Any], path: Path, outcomes: Counter) -> str:
    """What is wrong with reading a file; "" if nothing is."""
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_megabytes()
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS, 0.5)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 6 * SECONDS, resource.RLIM_INFINITY))
    problem = ""
    try:
        read(path)
        outcomes["read"] += 1
    except OutOfTime:
        problem = f"more than {SECONDS} s"
    except (ValueError, OSError) as error:
        outcomes["refused"] += 1
        named = path.name in f"{error} {getattr(error, 'filename', '')}" or path.name == "settings.yaml"
        problem = "" if named else f"an error that does not name the file: {type(error).__name__}: {error}"
    except BaseException as error:  # a panic of Rust is no Exception
        where = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    grown, size = peak_megabytes() - before, path.stat().st_size
    return problem or (f"{grown:.0f} MB for {size} bytes" if grown > MEGABYTES + TIMES * size / 1e6 else "")


def fuzz(name: str, reader: Any, first: Iterable[bytes], fuzzer: Any, count: int, folder: Path, seconds: float) -> None:
    """Never returns: as many files as `count`, or as `seconds` of CPU time allow."""
    outcomes, seen, begin = Counter[str](), Counter[str](), math.inf
    place = folder / "files" / reader.file
    place.parent.mkdir(parents=True)

    def one(content: bytes) -> None:
        with contextlib.suppress(ValueError):  # names that no archive can have
            place.write_bytes(reader.packed(content))
        outcomes["tried"] += 1
        if problem := finding(reader.read, place, outcomes):
            kind = problem.split(":")[0][:60]
            seen[kind] += 1
            if seen[kind] == 1:
                kept = folder / f"finding{len(seen)}-{place.name}"
                kept.write_bytes(place.read_bytes())
                print(json.dumps({"reader": name, "finding": problem[:600], "file": str(kept)}), flush=True)
        spent = time.process_time() - begin
        if outcomes["tried"] >= count or spent >= seconds:
            print(
                json.dumps({"reader": name, **outcomes, "findings": seen.total(), "seconds": round(spent, 1)}),
                flush=True,
            )
            os._exit(0)

    contents = [content for content in reader.seeds(place.parent, place.suffix[1:]) if len(content) < 1 << 20]
    place.write_bytes(reader.packed(contents[0]))
    with contextlib.suppress(Exception):  # so that the time of imports does not count
        reader.read(place)
    for content in (contents := [*contents, *first]):
        one(content)
    begin = time.process_time()
    if fuzzer:
        corpus, words = folder / "corpus", folder / "words"
        corpus.mkdir()
        for number, content in enumerate(contents):
            (corpus / str(number)).write_bytes(content)
        words.write_text("".join('"' + "".join(f"\\x{byte:02x}" for byte in token[:60]) + '"\n' for token in TOKENS))
        flags = {
            "dict": words,
            "artifact_prefix": f"{folder}/",
            "timeout": 3600,
            "rss_limit_mb": 0,
            "malloc_limit_mb": 0,
        }
        fuzzer.Setup([sys.argv[0], str(corpus), *(f"-{flag}={value}" for flag, value in flags.items())], one)
        fuzzer.Fuzz()
    chance = random.Random(name)
    while True:
        content = chance.choice(contents)
        for _ in range(chance.randint(1, 6)):
            content = changed(content, chance)
        one(content)


def main(count: int, folder: Path, seconds: float, *names: str) -> None:
    signal.signal(signal.SIGVTALRM, out_of_time)
    resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
    fuzzer = find_spec("atheris") and __import__("atheris")
    with fuzzer.instrument_imports(INSTRUMENTED, COMPILED) if fuzzer else contextlib.nullcontext():
        from tests.faults import sabotage
        from tests.faults.readers import OF_ALL, READERS

        sabotage.disable_for_good(os.environ.get(sabotage.VARIABLE, ""))
        for name in names or READERS:  # each in a process of its own, which a file can end
            if (child := os.fork()) == 0:
                try:
                    fuzz(name, READERS[name], OF_ALL, fuzzer, count, folder / name, seconds)
                except BaseException:
                    traceback.print_exc()
                os._exit(1)
            if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
                file = str(folder / name / "files" / READERS[name].file)
                print(json.dumps({"reader": name, "finding": f"the process ended: {code}", "file": file}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:])

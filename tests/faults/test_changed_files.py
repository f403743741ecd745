"""Randomly changed files of every format: read, or refused by an error that names them.

Row 37 of the fault matrix (tests/README.md). Every reader works in a process of its own, which a file can end.
"""

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bert import REPOSITORY
from tests.support.full_counts import times

SECONDS, MEGABYTES, TIMES = 10, 200, 20  # of CPU time; more memory than before: these, and so many times the file
TOKENS = (b"\0" * 8, b"\xff" * 8, b"\x7f\xff\xff\xff", b"\x80\x04", b"(lp0\n", b"9" * 30, b"{" * 300, b"[[" * 300)
TOKENS += (b'"', b"<" * 300, b"&a ", b"*a ", b"\r\n", b"\n\n", b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"1e999")


@pytest.mark.nightly
@pytest.mark.long
def test_changed_files_are_read_or_refused_by_name(tmp_path):
    """A file that does neither is kept in results/faults/fuzzed."""
    words = [sys.executable, "-m", "tests.faults.test_changed_files", str(times(40, 2000)), str(tmp_path)]
    ended = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True)
    assert ended.returncode == 0, f"exit code {ended.returncode}: {ended.stderr[-500:]}"
    rows = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]  # others: libraries
    assert sum(row.get("tried", 0) for row in rows) > times(40, 2000) * 40
    assert not (findings := [f"{row['reader']}: {row['finding']}: {keep(row)}" for row in rows if "finding" in row]), (
        "\n".join(findings)
    )


def keep(found: dict[str, str]) -> Path:
    kept = REPOSITORY / "results/faults/fuzzed" / f"{found['reader']} {Path(found['file']).name}"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_bytes(Path(found["file"]).read_bytes())
    return kept


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
    """Derives from BaseException, because readers catch Exception."""


def out_of_time(*_: object) -> None:
    raise OutOfTime


def peak_megabytes() -> float:
    """Return the peak memory of this process since /proc/self/clear_refs was written to."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def finding(read: Callable[[Path], Any], path: Path) -> str:
    """Return the error in reading a file; "" if there is none."""
    Path("/proc/self/clear_refs").write_text("5")
    before = peak_megabytes()
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS, 0.5)
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 6 * SECONDS, resource.RLIM_INFINITY))
    problem = ""
    try:
        read(path)
    except OutOfTime:
        problem = f"more than {SECONDS} s"
    except (ValueError, OSError) as error:
        named = path.name in f"{error} {getattr(error, 'filename', '')}" or path.name == "settings.yaml"
        problem = "" if named else f"an error that does not name the file: {type(error).__name__}: {error}"
    except BaseException as error:  # a panic of Rust is no Exception
        where = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__} at {Path(where.filename).name}:{where.lineno}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    grown, size = peak_megabytes() - before, path.stat().st_size
    return problem or (f"{grown:.0f} MB for {size} bytes" if grown > MEGABYTES + TIMES * size / 1e6 else "")


def try_reader(name: str, count: int, folder: Path) -> None:
    """Read valid and hostile files, and `count` changed ones; print the findings."""
    from tests.faults.readers import OF_ALL, READERS

    reader, chance = READERS[name], random.Random(name)
    place = folder / "files" / reader.file
    place.parent.mkdir(parents=True)
    contents = [content for content in reader.seeds(place.parent, place.suffix[1:]) if len(content) < 1 << 20]
    place.write_bytes(reader.packed(contents[0]))
    with contextlib.suppress(Exception):  # so that the time of imports does not count
        reader.read(place)
    contents += OF_ALL
    for number in range(len(contents) + count):
        content = contents[number] if number < len(contents) else chance.choice(contents)
        for _ in range(chance.randint(1, 6) if number >= len(contents) else 0):
            content = changed(content, chance)
        with contextlib.suppress(ValueError):  # names that no archive can have
            place.write_bytes(reader.packed(content))
        if problem := finding(reader.read, place):
            kept = folder / f"finding{number}-{place.name}"
            kept.write_bytes(place.read_bytes())
            print(json.dumps({"reader": name, "finding": problem[:600], "file": str(kept)}), flush=True)
            return
    print(json.dumps({"reader": name, "tried": len(contents) + count}), flush=True)


def main(count: int, folder: Path) -> None:
    from tests.faults.readers import READERS

    signal.signal(signal.SIGVTALRM, out_of_time)
    resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
    for name in READERS:
        if (child := os.fork()) == 0:
            try:
                try_reader(name, count, folder / name)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        if code := os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            file = str(folder / name / "files" / READERS[name].file)
            print(json.dumps({"reader": name, "finding": f"the process ended: {code}", "file": file}), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))

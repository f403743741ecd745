"""`python -m tests.faults.fuzzing READER COUNT FOLDER`: changed files, drawn by Hypothesis, go through one reader.

Each file is a valid or a hostile one with spans changed, repeated, moved, or cut out. A reader may return, or raise an
error that names the file; the rest (other errors, 10 s of CPU time, memory of 20 times the file and 200 MB, a crash) is
a finding: its file is kept in FOLDER, and a line of JSON tells it.
"""

import contextlib
import json
import os
import pickle
import resource
import signal
import sys
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from bert import REPOSITORY
from tests.faults import sabotage

SECONDS, MEGABYTES, TIMES = 10, 200, 20
GOLDEN = REPOSITORY / "tests/golden/foreign"
TABLE = "text,label,id\n" + "".join(f'"word {i}, ""so""",l{i % 3},{i}\n' for i in range(20))
ROWS = "".join(
    json.dumps({"text": f"word {i}. And ünd", "label": i % 2, "x": [1, {"a": None}]}) + "\n" for i in range(20)
)
PAGE = "<html><head><title>t</title></head><body><nav>n</nav><p>Some <b>text</b> &amp; so.<br>end<!-- c --></p></body>"
WIKI = "[[File:a|[[b]]]]\n'''A''' is [[b|c]] {{lang|de|x}} <ref>r</ref>\n== H ==\n{| class=a\n| b\n|}\n* i &nbsp;\n"
SETTINGS = "seed: 7\nmax_steps: 30\nlearning_rate: 1e-3\nbert_model: bert-test\nvocab_size: 106\nphase: 1\n"
CONLL = "-DOCSTART- O\n\nAnna B-PER\nlives O\nin O\nMalmo B-LOC\n\nShe O\nleft O\n"
TOKENS = (b"\0" * 8, b"\xff" * 8, b"\x7f\xff\xff\xff", b"\x80\x04", b"(lp0\n", b"9" * 30, b"{" * 300, b"[[" * 300, b'"')
TOKENS += (
    b"<" * 300,
    b"&a ",
    b"*a ",
    b"\r\n",
    b"\n\n",
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"1e999",
    b"h\x00",
)

Read = Callable[[Path], Any]
Seeds = Callable[[Path], Iterable[Path]]


def weights(path: Path) -> None:
    from bert.conversion.reading import read_pretrained

    read_pretrained(path, config_file=GOLDEN / "torch/config.json")


def weight_files(folder: Path, kind: str) -> Iterable[Path]:
    from safetensors.numpy import save_file

    from tests.conversion import test_hostile
    from tests.support import foreign

    if kind == "ckpt.index":
        data = "bert_model.ckpt.data-00000-of-00001"
        (folder / data).write_bytes((GOLDEN / "tensorflow" / data).read_bytes())
        yield GOLDEN / "tensorflow/bert_model.ckpt.index"
    elif kind == "bin":
        yield from (GOLDEN / "torch/pytorch_model.bin", GOLDEN / "torch_legacy.bin", GOLDEN / "torch_training.pt")
    elif kind == "safetensors":
        save_file(foreign.hugging_face(foreign.parameters()), folder / "seed.safetensors")
        yield folder / "seed.safetensors"
    else:
        (folder / "seed.pdparams").write_bytes(pickle.dumps(foreign.paddlenlp(foreign.parameters()), 4))
        yield folder / "seed.pdparams"
    for name, (make, _) in test_hostile.REFUSED.items():  # the hostile ones of this kind
        (folder / name).mkdir()
        with contextlib.suppress(Exception):
            path = make(folder / name)
            if path.is_file() and path.suffix == f".{kind.rpartition('.')[2]}" and path.stat().st_size < 1 << 20:
                yield path


def shards(path: Path) -> None:
    from bert.samples.shards import ShardDirectory
    from tests.support.corpora import vocabulary

    for derived in path.parent.glob("[!s.]*"):  # a manifest of the file before
        derived.unlink()
    ShardDirectory(path.parent, vocabulary(), 32).load(0)


def shard_files(folder: Path, kind: str) -> Iterable[Path]:
    from bert.samples.formats import hdf5
    from tests.data.test_import_shards import write_tfrecord
    from tests.support.corpora import random_table, write_shards

    if kind in ("hdf5", "tfrecord"):
        hdf5.write(folder / "shard-0.hdf5", random_table(8, 1, masked=True), 32, 4)
        if kind == "tfrecord":
            write_tfrecord(folder / "shard-0.tfrecord", folder / "shard-0.hdf5")
        yield folder / f"shard-0.{kind}"
    else:
        yield from write_shards(folder / "seed", [random_table(8, 1, masked=True)], kind=kind, manifest=False).iterdir()


def texts(path: Path) -> None:
    from data.text.encodings import NotTextError
    from data.text.inputs import DamagedError, Findings, Input
    from data.text.readers import Reading, read_pieces

    kind = path.suffix[1:]
    with contextlib.suppress(NotTextError, DamagedError):  # which the import names and counts
        for _ in read_pieces(Input(path, path.stem, kind, ""), Reading(), Findings()):
            pass


def office_files(folder: Path, kind: str) -> Iterable[Path]:
    if kind == "xlsx":
        import openpyxl

        book = openpyxl.Workbook()
        book.active.append(["text", "n"])
        book.active.append(["Some words.", 3])
        book.save(folder / "seed.xlsx")
    else:
        names = {"docx": "word/document.xml", "odt": "content.xml"}
        with zipfile.ZipFile(folder / f"seed.{kind}", "w") as archive:
            archive.writestr("mimetype", "application/vnd.oasis.opendocument.text")
            archive.writestr(
                names[kind], '<a xmlns:w="u" xmlns:text="v"><w:p><w:t>Some text</w:t></w:p><text:p>b</text:p></a>'
            )
    yield folder / f"seed.{kind}"


def parquet_table(folder: Path, _: str) -> Iterable[Path]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": [f"word {i}" for i in range(20)], "n": range(20)}), folder / "seed.parquet")
    yield folder / "seed.parquet"


def wikitext(path: Path) -> None:
    from data.wikipedia.wikitext import prose_of

    prose_of(path.read_text(errors="replace"))


def yaml_settings(path: Path) -> None:
    from bert.config.setting_sources import resolve_config
    from bert.pretraining.entry import ENTRY

    resolve_config({"config": str(path)}, ENTRY)


def setting_files(folder: Path, _: str) -> Iterable[Path]:
    from tests.test_hostile_files import SETTINGS as HOSTILE

    for number, text in enumerate([SETTINGS, *(text for text, _ in HOSTILE.values())]):
        (folder / f"{number}.yaml").write_text(text)
        yield folder / f"{number}.yaml"


def vocabularies(path: Path) -> None:
    from bert.tokenization.vocabulary import Vocabulary

    Vocabulary.from_file(path)


def tokenizer_file(folder: Path, _: str) -> Iterable[Path]:
    from tests.support.corpora import vocabulary

    model = {"type": "WordPiece", "vocab": {token: number for number, token in enumerate(vocabulary().tokens)}}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model}))
    yield folder / "tokenizer.json"


def vocabulary_file(folder: Path, _: str) -> Iterable[Path]:
    from tests.support.corpora import write_vocabulary

    yield write_vocabulary(folder / "vocab.txt")


def questions(path: Path) -> None:
    from bert.finetuning.squad.examples import read_squad

    read_squad(path)


def question_files(folder: Path, _: str) -> Iterable[Path]:
    from tests.support.squad_files import file_of, paragraph, question

    yield file_of(folder / "squad.json", paragraph("The Nile is long.", question("q", "What?", ("Nile", 4))))


def tagged(path: Path) -> None:
    from bert.finetuning.ner.conll import read_tagged_text

    read_tagged_text(path)


def requests(path: Path) -> None:
    """Lines and tables of run_predict.py."""
    from bert.inference.lines import SINGLE_KEYS
    from bert.inference.tables import checked_lines

    for _ in checked_lines(path, SINGLE_KEYS, lambda raw: (str(raw),)):
        pass


def text_of(content: str) -> Callable[[Path, str], Iterable[Path]]:
    def write(folder: Path, kind: str) -> Iterable[Path]:
        (folder / f"seed.{kind}").write_text(content)
        yield folder / f"seed.{kind}"

    return write


# name -> (reader, seeds, suffix of the files)
READERS: dict[str, tuple[Read, Callable[[Path, str], Iterable[Path]], str]] = {
    **{f"weights {kind}": (weights, weight_files, kind) for kind in ("pdparams", "safetensors", "bin", "ckpt.index")},
    **{f"shards {kind}": (shards, shard_files, kind) for kind in ("parquet", "arrow", "hdf5", "tfrecord")},
    **{f"office {kind}": (texts, office_files, kind) for kind in ("docx", "odt", "xlsx")},
    "table parquet": (texts, parquet_table, "parquet"),
    **{f"text {kind}": (texts, text_of(TABLE), kind) for kind in ("csv", "txt")},
    "text jsonl": (texts, text_of(ROWS), "jsonl"),
    "text json": (texts, text_of(json.dumps({"a": ROWS.splitlines(), "text": "b"})), "json"),
    "text html": (texts, text_of(PAGE), "html"),
    "requests csv": (requests, text_of(TABLE), "csv"),
    "requests jsonl": (requests, text_of(ROWS), "jsonl"),
    "wikitext": (wikitext, text_of(WIKI), "wiki"),
    "settings": (yaml_settings, setting_files, "yaml"),
    "vocabulary": (vocabularies, vocabulary_file, "txt"),
    "tokenizer": (vocabularies, tokenizer_file, "json"),
    "questions": (questions, question_files, "json"),
    "tags": (tagged, text_of(CONLL), "conll"),
}

Mutation = tuple[str, float, float, int]
KINDS = ("flip", "set", "cut out", "repeat", "move", "end here", "insert", "insert often")
MUTATIONS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.floats(0, 1), st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=6
)


def changed(data: bytes, mutations: list[Mutation]) -> bytes:
    for kind, place, size, value in mutations:
        at = int(place * len(data))
        end = at + max(1, int(size * min(64, len(data))))
        if kind == "flip":
            data = data[:at] + bytes(byte ^ (1 << value % 8) for byte in data[at : at + 1]) + data[at + 1 :]
        elif kind == "set":
            data = data[:at] + bytes([value]) * (end - at) + data[end:]
        elif kind == "cut out":
            data = data[:at] + data[end:]
        elif kind == "repeat":
            data = data[:end] + data[at:end] * (value + 1) + data[end:]
        elif kind == "move":
            to = value * len(data) // 256
            data = data[:to] + data[at:end] + data[to:]
        elif kind == "end here":
            data = data[: max(at, 1)] if value % 4 == 0 else data
        else:
            data = (
                data[:at] + TOKENS[value % len(TOKENS)] * (1 if kind == "insert" else 1 + int(size * 500)) + data[at:]
            )
    return data


class OutOfTime(BaseException):
    """Not an Exception, which readers catch."""


def out_of_time(*_: object) -> None:
    raise OutOfTime


def peak_megabytes() -> float:
    """Of this process since `forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def forget_peak() -> float:
    """The peak from now on begins with what is used now -> that."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_megabytes()


def finding(read: Read, path: Path, outcomes: Counter) -> str:
    """What is wrong with reading a file; "" if nothing is."""
    before = forget_peak()
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS, 0.5)
    problem = ""
    try:
        read(path)
        outcomes["read"] += 1
    except OutOfTime:
        problem = f"more than {SECONDS} s"
    except (ValueError, OSError) as error:
        outcomes["refused"] += 1
        named = path.name in f"{error} {getattr(error, 'filename', '')}" or path.suffix == ".yaml"
        problem = "" if named else f"an error that does not name the file: {type(error).__name__}: {error}"
    except Exception as error:
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place else ""
        problem = f"{type(error).__name__} at {where}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    grown = peak_megabytes() - before
    most = MEGABYTES + TIMES * path.stat().st_size / 1e6
    return problem or (f"{grown:.0f} MB for {path.stat().st_size} bytes" if grown > most else "")


def main(name: str, count: int, folder: Path) -> None:
    sabotage.disable_for_good(os.environ.get(sabotage.VARIABLE, ""))
    read, make_seeds, suffix = READERS[name]
    signal.signal(signal.SIGVTALRM, out_of_time)
    resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))
    (folder / "seeds").mkdir(parents=True)
    originals = [path.read_bytes() for path in make_seeds(folder / "seeds", suffix)]
    place = folder / "shards" / f"shard-0.{suffix}" if name.startswith("shards") else folder / f"m.{suffix}"
    place = folder / f"bert_model.{suffix}" if suffix == "ckpt.index" else place
    place.parent.mkdir(exist_ok=True)
    for companion in (folder / "seeds").glob("*.data-*"):
        companion.rename(folder / companion.name)
    outcomes, seen = Counter[str](), dict[str, int]()

    @seed(len(name) * 1000 + count)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.integers(0, len(originals) - 1), MUTATIONS)
    def one(number: int, mutations: list[Mutation]) -> None:
        place.write_bytes(changed(originals[number], mutations))
        outcomes["tried"] += 1
        if problem := finding(read, place, outcomes):
            kind = problem.split(":")[0][:60]
            seen[kind] = seen.get(kind, 0) + 1
            if seen[kind] == 1:
                kept = folder / f"finding{len(seen)}.{suffix}"
                kept.write_bytes(place.read_bytes())
                print(json.dumps({"finding": problem[:600], "file": str(kept)}), flush=True)

    one()
    print(json.dumps({**outcomes, "findings": sum(seen.values())}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))

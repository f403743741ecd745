"""Functions that read untrusted files, with valid and hostile files for each, for `test_changed_files`."""

import bz2
import contextlib
import io
import json
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from safetensors.numpy import save

from bert.config.setting_sources import resolve_config
from bert.conversion.model_description import read_description
from bert.conversion.reading import read_pretrained
from bert.finetuning.ner.conll import read_tagged_text
from bert.finetuning.squad.examples import read_squad
from bert.inference.rows import SINGLE_KEYS, RowForm, filled_rows
from bert.jobs.record import JobRecord
from bert.own_text.record import read_record
from bert.pretraining.entry import ENTRY
from bert.reporting.run_record import read_run
from bert.samples.formats import hdf5
from bert.samples.shards import ShardDirectory
from bert.tokenization.library import text_tokenizer
from bert.tokenization.vocabulary_files import read_vocabulary
from data.text.compression import DamagedError
from data.text.file_formats import Input
from data.text.findings import Findings
from data.text.readers import Reading, read_pieces
from data.text.text_check import NotTextError
from data.wikipedia.articles import Extraction, extract
from data.wikipedia.wikitext import prose_of
from tests.conversion import test_hostile
from tests.data.test_import_shards import write_tfrecord
from tests.data.text.test_office import HOSTILE as HOSTILE_OFFICE
from tests.support import dumps, foreign, hospital, tokenizer_files
from tests.support.corpora import random_table, vocabulary, write_shards
from tests.support.squad_files import paragraph, question
from tests.test_hostile_files import SETTINGS as HOSTILE_SETTINGS

GOLDEN = test_hostile.GOLDEN
TABLE = "text,label,id\n" + "".join(f'"word {i}, ""so""",l{i % 3},{i}\n' for i in range(20))
ROWS = [json.dumps({"text": f"word {i}. And ünd", "label": i % 2, "x": [1, {"a": None}]}) for i in range(20)]
LINES = "".join(f"{row}\n" for row in ROWS)
PAGE = "<html><head><title>t</title></head><body><nav>n</nav><p>Some <b>text</b> &amp; so.<br>end<!-- c --></p></body>"
MAIL = (
    b"From a@b.c Mon Jan  5 10:00:00 2026\nSubject: =?utf-8?b?w6k=?= a\nReferences: <1@x>\nMIME-Version: 1.0\n"
    b"Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: multipart/alternative; boundary=c\n\n--c\n"
    b"Content-Transfer-Encoding: base64\n\nSGVsbG8=\n--c\nContent-Type: text/html; charset=cp1252\n\n<p>Hi.\n--c--\n"
    b"--b\nContent-Type: image/png; name*0=a\n\nx\n--b--\n\n"
    b"From a@b.c Mon Jan  5 10:00:00 2026\nSubject: b\n\n> q\nA.\n-- \ns\n"
)
WIKI = "[[File:a|[[b]]]]\n'''A''' is [[b|c]] {{lang|de|x}} <ref>r</ref>\n== H ==\n{| class=a\n| b\n|}\n* i &nbsp;\n"
SETTINGS = "seed: 7\nmax_steps: 30\nlearning_rate: 1e-3\nbert_model: bert-tiny\ninput_dir: d\nvocab_file: v\nphase: 1\n"
METRICS = '{"step": 5, "loss": 7.25, "epoch": 0}\n{"step": 10, "eval_masked_lm_loss": 6.5}\n'
NOTEBOOK = {"cells": [{"cell_type": "markdown", "source": ["# A\n", "b"]}, {"cell_type": "code", "source": "x"}]}
SUBTITLES = "WEBVTT\n\n1\n00:00:01,000 --> 00:00:02,500\n<i>Hello</i> {\\an8}there.\n\n00:03.000 --> 00:04.000\nEnd.\n"
SEVEN_BIT = (
    b"a \x1b$B$3$s-!\x1b(B b\n" * 3,
    b"\x1b$)C\x0e8^7N\x0f\n",
    b"~{VPND~} and ~{;;;;~}\n",
    b"Gr+APYA3w-e +AOQ- x\n",
)
HIDDEN_RTF = rb"{\rtf1 A{\footnote B {\v c}} {\deleted d}\v e\plain f.\par {\*\footnote g}}"
CONLLU = "# sent_id = 1\n" + "".join(
    "\t".join([number, word, *["_"] * 7, f"NER={tag}"]) + "\n"
    for number, word, tag in (
        ("1", "Anna", "B-PER"),
        ("2-3", "au", "O"),
        ("2", "a", "O"),
        ("3", "le", "O"),
        ("3.1", "x", "O"),
    )
)
CONLL = "-DOCSTART- O\n\nAnna B-PER\nlives O\nin O\nMalmo B-LOC\n\nShe O\nleft O\n"
PARAGRAPH = paragraph("The Nile is long.", question("q", "What?", ("Nile", 4)))
QUESTIONS = {"version": "1.1", "data": [{"title": "t", "paragraphs": [PARAGRAPH]}]}
TEXT_FACTS = {
    "files": 3,
    "documents": 9,
    "words": 900,
    "characters": 5000,
    "distinct_characters": 40,
    "num_bytes": 5000,
}
PLAN = {"model": "bert-mini", "settings": {"batch_size": 8}, "ranks": 2, "held_out_fraction": 0.1, "language": "en"}
PLAN |= {"duplicate_factor": 1, "segmenter": None, "bin_size": 32, "updates": 100, "seconds": 60.0, "epochs": 1.5}
PLAN |= {"extent": "900 words", "num_bytes": 5000, "warnings": ["few words"], "choices": []}
OWN_TEXT = {"text": TEXT_FACTS, "machine": {"cores": 2, "memory_bytes": 1 << 30, "disk_bytes": 1 << 30}, "plan": PLAN}
OWN_TEXT |= {"speeds": {"bert-mini": 5.5}, "data": {"a": [1]}, "length": {"hours": 1.0}, "version": 2}


def text_record(path: Path) -> object:
    return read_record(JobRecord.of(path.parent), path.parent)


OF_ALL = (b"", b'{"a":' * 20_000, b"[" * 50_000, b"<a>" * 20_000, b"\xff" * 50_000)  # first files of every reader
BETWEEN_MEMBERS = b"\n=== member ===\n"


class Reader(NamedTuple):
    """Describes a reader of a file named `file`.

    Attributes:
        seeds: makes its first contents; gets its folder, for what is read beside it, and the end of its name.
        packed: makes the file of the bytes that are changed, so that these are the content of an archive.
    """

    read: Callable[[Path], Any]
    seeds: Callable[[Path, str], Iterable[bytes]]
    file: str
    packed: Callable[[bytes], bytes] = bytes


def of(*contents: str | bytes) -> Callable[[Path, str], list[bytes]]:
    return lambda folder, kind: [text.encode() if isinstance(text, str) else text for text in contents]


def archive(content: bytes) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as made:
        for member in content.split(BETWEEN_MEMBERS):
            name, _, inside = member.partition(b"\n")
            made.writestr(name.replace(b"\0", b"?").decode(errors="replace")[:99] or "x", inside)
    return data.getvalue()


def inside(files: Callable[[Path, str], Iterable[bytes]]) -> Callable[[Path, str], Iterable[bytes]]:
    """Turn archives into the contents from which `archive` makes them."""

    def contents(folder: Path, kind: str) -> Iterable[bytes]:
        for data in files(folder, kind):
            with contextlib.suppress(zipfile.BadZipFile), zipfile.ZipFile(io.BytesIO(data)) as old:
                parts = [item.filename.encode() + b"\n" + old.read(item) for item in old.infolist()]
                yield BETWEEN_MEMBERS.join(parts)

    return contents


def weights(path: Path) -> None:
    read_pretrained(path, config_file=GOLDEN / "torch/config.json")


def weight_files(folder: Path, kind: str) -> Iterable[bytes]:
    if kind == "index":
        shutil.copy(GOLDEN / "tensorflow/bert_model.ckpt.data-00000-of-00001", folder)
        yield (GOLDEN / "tensorflow/bert_model.ckpt.index").read_bytes()
    elif kind == "bin":
        yield from ((GOLDEN / name).read_bytes() for name in ("torch/pytorch_model.bin", "torch_legacy.bin"))
    elif kind == "safetensors":
        yield save(foreign.hugging_face(foreign.parameters()))
    else:
        yield pickle.dumps(foreign.paddlenlp(foreign.parameters()), 4)
    for number, (make, _) in enumerate(test_hostile.REFUSED.values()):
        (folder / f"hostile{number}").mkdir()
        with contextlib.suppress(Exception):
            path = make(folder / f"hostile{number}")
            if path.is_file() and path.suffix == f".{kind}":
                yield path.read_bytes()


def exported(path: Path) -> None:
    from bert.inference.model_folder import open_model  # which loads Paddle
    from tests.inference.models import feed_of

    opened = open_model(path.parent)
    opened.forward(opened.task, feed_of([2, 5, 6, 3]))


def export_files(folder: Path, kind: str) -> Iterable[bytes]:
    from tests.inference.models import export, model

    with contextlib.redirect_stdout(sys.stderr):
        made = export(model(folder / "trained", "sequence-classification"), folder / "made", "--format", "onnx")
    shutil.copytree(made, folder, dirs_exist_ok=True)
    return [next(made.glob(f"*.{kind}")).read_bytes() if kind == "onnx" else (made / "serving.json").read_bytes()]


def shards(path: Path) -> None:
    for derived in path.parent.glob("[!s.]*"):  # a manifest of the file before
        derived.unlink()
    ShardDirectory(path.parent, vocabulary(), 32).load(0)


def shard_files(folder: Path, kind: str) -> Iterable[bytes]:
    table, made = random_table(8, 1, masked=True), folder.parent / f"seed.{kind}"
    if kind in ("parquet", "arrow"):
        made, *_ = write_shards(folder.parent / "seed", [table], kind=kind, manifest=False).iterdir()
    else:
        hdf5.write(folder.parent / "seed.hdf5", table, 32, 4)
    if kind == "tfrecord":
        write_tfrecord(made, folder.parent / "seed.hdf5")
    return [made.read_bytes()]


def vocabularies(path: Path) -> None:
    text_tokenizer(read_vocabulary(path)).encode("Some words, ünd 3.")


def vocabulary_files(folder: Path, kind: str) -> Iterable[bytes]:
    tokens = vocabulary().tokens
    if kind == "txt":
        return ["".join(f"{token}\n" for token in tokens).encode()]
    model = {"type": "WordPiece", "vocab": {token: number for number, token in enumerate(tokens)}}
    others = map(tokenizer_files.content, ("roberta", "modernbert", "unigram", "wordpiece"))
    return [json.dumps({"model": model}).encode(), *others]


def texts(path: Path) -> None:
    with contextlib.suppress(NotTextError, DamagedError):  # which the import names and counts
        for _ in read_pieces(Input(path, path.stem, path.suffix[1:], ""), Reading(), Findings()):
            pass


def office_files(folder: Path, kind: str) -> Iterable[bytes]:
    make: Any = getattr(hospital, kind)
    yield make(("text", "n"), ("Some words.", "3")) if kind == "xlsx" else make("Some words.", "And more.")
    if kind == "rtf":
        yield HIDDEN_RTF
    yield from (data for name, (data, _) in HOSTILE_OFFICE.items() if name.endswith(kind))


def parquet_table(folder: Path, kind: str) -> Iterable[bytes]:
    data = io.BytesIO()
    pq.write_table(pa.table({"text": [f"word {i}" for i in range(20)], "n": range(20)}), data)
    return [data.getvalue()]


def articles(path: Path) -> None:
    shutil.rmtree(path.parent / "articles", ignore_errors=True)
    extract(Extraction(path, path.parent / "articles"), 1)


def requests(path: Path) -> None:
    for _ in filled_rows(path, RowForm(SINGLE_KEYS, lambda raw: (str(raw),))):
        pass


PAGES = dumps.pages(10)
DUMP = "".join([dumps.header(), *PAGES, "</mediawiki>\n"])
ALL_SETTINGS = of(SETTINGS, *(text for text, _ in HOSTILE_SETTINGS.values()))
READERS = {
    **{f"weights {end}": Reader(weights, weight_files, f"m.{end}") for end in ("pdparams", "safetensors", "bin")},
    "weights in bin": Reader(weights, inside(weight_files), "m.bin", archive),
    "weights index": Reader(weights, weight_files, "bert_model.ckpt.index"),
    "sizes": Reader(read_description, of((GOLDEN / "torch/config.json").read_bytes()), "config.json"),
    **{f"export {name}": Reader(exported, export_files, name) for name in ("model.onnx", "serving.json")},
    **{
        f"shards {kind}": Reader(shards, shard_files, f"shards/shard-0.{kind}")
        for kind in ("parquet", "arrow", "hdf5", "tfrecord")
    },
    "settings": Reader(lambda path: resolve_config({"config": str(path)}, ENTRY), ALL_SETTINGS, "settings.yaml"),
    "record config.yaml": Reader(lambda path: read_run(path.parent, "run"), ALL_SETTINGS, "config.yaml"),
    "record metrics.jsonl": Reader(lambda path: read_run(path.parent, "run"), of(METRICS), "metrics.jsonl"),
    "job.json": Reader(text_record, of(json.dumps({"seconds_used": 5.5, "facts": {"own_text": OWN_TEXT}})), "job.json"),
    "own_text.json": Reader(text_record, of(json.dumps(OWN_TEXT)), "own_text.json"),
    **{name: Reader(vocabularies, vocabulary_files, name) for name in ("vocab.txt", "tokenizer.json")},
    **{f"text {end}": Reader(texts, office_files, f"m.{end}") for end in "docx odt epub xlsx rtf pdf".split()},
    **{
        f"text in {end}": Reader(texts, inside(office_files), f"m.{end}", archive)
        for end in "docx odt epub xlsx".split()
    },
    "text parquet": Reader(texts, parquet_table, "m.parquet"),
    **{f"text {end}": Reader(texts, of(TABLE), f"m.{end}") for end in ("csv", "txt")},
    "text jsonl": Reader(texts, of(LINES), "m.jsonl"),
    "text json": Reader(texts, of(json.dumps({"a": ROWS, "text": "b"})), "m.json"),
    "text html": Reader(texts, of(PAGE, PAGE.replace("<html>", "<html><meta charset=euc-kr>")), "m.html"),
    "text ipynb": Reader(texts, of(json.dumps(NOTEBOOK)), "m.ipynb"),
    "text srt": Reader(texts, of(SUBTITLES), "m.srt"),
    "text of seven bits": Reader(texts, of(*SEVEN_BIT), "m.txt"),
    **{f"text {end}": Reader(texts, of(MAIL), f"m.{end}") for end in ("mbox", "eml")},
    "dump xml": Reader(articles, of(DUMP), "m.xml"),
    "dump bz2": Reader(articles, of(b"".join(dumps.streams(PAGES))), "m.xml.bz2"),
    "dump in bz2": Reader(articles, of(DUMP), "m.xml.bz2", bz2.compress),
    "wikitext": Reader(lambda path: prose_of(path.read_text(errors="replace")), of(WIKI), "m.wiki"),
    "requests csv": Reader(requests, of(TABLE), "m.csv"),
    "requests jsonl": Reader(requests, of(LINES), "m.jsonl"),
    "questions": Reader(read_squad, of(json.dumps(QUESTIONS)), "squad-v1.json"),
    "tags": Reader(read_tagged_text, of(CONLL), "m.conll"),
    "tags in CoNLL-U": Reader(read_tagged_text, of(CONLLU), "m.conllu"),
}

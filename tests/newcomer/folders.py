"""Folders of text such as newcomers have, made from the documentation on this machine."""

import bz2
import csv
import gzip
import io
import json
import lzma
import sys
import sysconfig
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.benchmarks.documentation_corpus import build


def documents(folder: Path, megabytes: float) -> list[str]:
    """Return some `megabytes` of English documents; `folder` is for intermediate files."""
    roots = [Path(sysconfig.get_paths()[name]) for name in ("purelib", "stdlib")]
    build(folder, megabytes, roots)
    files = sorted((folder / "source" / "en").glob("*.txt"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [line.partition(" ")[2] for line in lines]


def articles(folder: Path, texts: list[str]) -> Path:
    """Write one file for each document."""
    folder.mkdir(parents=True)
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_text(text + "\n", encoding="utf-8")
    return folder


def one_large_file(folder: Path, texts: list[str]) -> Path:
    """Write all documents into one file, with blank lines between them."""
    folder.mkdir(parents=True)
    (folder / "everything.txt").write_text("\n\n".join(texts) + "\n", encoding="utf-8")
    return folder


def odd_files(folder: Path, texts: list[str]) -> Path:
    """Write fifteen files of as many kinds: encodings, formats, compression, a broken PDF and an empty file."""
    (folder / "old").mkdir(parents=True)
    parts = ["\n\n".join(texts[start::13]) for start in range(13)]
    rows = [{"title": f"t{number}", "text": text} for number, text in enumerate(texts[9::13])]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    contents = {
        "notes.txt": parts[0].encode(),
        "old/caf\u00e9.txt": (parts[1] + " Caf\u00e9 na\u00efve.").encode("latin-1", "ignore"),
        "windows.txt": parts[2].encode("utf-16"),
        "README.md": f"# Notes\n\n{parts[3]}\n".encode(),
        "guide.rst": f"Guide\n=====\n\n{parts[4]}\n".encode(),
        "page.html": f"<html><head><title>T</title></head><body><p>{parts[5]}</p></body></html>".encode(),
        "old/letters.txt.gz": gzip.compress(parts[6].encode()),
        "old/letters.txt.xz": lzma.compress(parts[7].encode()),
        "old/letters.txt.bz2": bz2.compress(parts[8].encode()),
        "records.jsonl": lines.encode(),
        "more.jsonl.gz": gzip.compress(lines.replace("the", "a").encode()),
        "table.csv": _csv(texts[10::13]),
        "scan.pdf": b"%PDF-1.4\n" + bytes(range(256)) * 20,
        "empty.txt": b"",
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    pq.write_table(pa.table({"text": texts[11::13]}), folder / "table.parquet")
    return folder


def _csv(texts: list[str]) -> bytes:
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(["id", "text"])
    writer.writerows(enumerate(texts))
    return file.getvalue().encode()


if __name__ == "__main__":  # python -m tests.newcomer.folders odd|articles|large FOLDER MEGABYTES
    kind, target, size = sys.argv[1:]
    makers = {"odd": odd_files, "articles": articles, "large": one_large_file}
    print(makers[kind](Path(target), documents(Path(target + ".corpus"), float(size))))

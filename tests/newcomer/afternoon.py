"""Example files for docs/tutorials/afternoon.md, made of the documentation on this machine: notes, letters and tables.

    python -m tests.newcomer.afternoon mine

Writes mine/notes and mine/letters (a text file for each document), mine/labelled.csv (600 lines: a paragraph, the
package and the document that it is from) and mine/new.csv (1,000 lines: a number and a paragraph of other documents).
"""

import csv
import json
import os
import random
import sys
from collections import defaultdict
from itertools import chain
from pathlib import Path

from data.examples.documentation import FILE_NAME, build, default_roots
from tests.newcomer.folders import articles

PACKAGES = ("pandas", "scipy", "paddle")
NUM_LABELLED, NUM_NEW = 600, 1000


def main(target: str) -> None:
    folder = Path(target)
    roots, workers = default_roots(["docstrings"]), os.cpu_count() or 1
    build(folder / "documentation", roots, sources=["docstrings"], num_workers=workers)
    rows = (folder / "documentation" / FILE_NAME).read_text(encoding="utf-8").splitlines()
    documents = [json.loads(row) for row in rows]
    documents.sort(key=lambda document: document["id"][::-1])  # mixes the packages
    articles(folder / "notes", [document["text"] for document in documents[::2]])
    articles(folder / "letters", [document["text"] for document in documents[1::2]])
    labelled, new = (_paragraphs(documents[start::2]) for start in (0, 1))
    _write(folder / "labelled.csv", ("text", "package", "document"), labelled[:NUM_LABELLED])
    _write(folder / "new.csv", ("number", "text"), [(number, row[0]) for number, row in enumerate(new[:NUM_NEW])])


def _paragraphs(documents: list[dict[str, str]]) -> list[tuple[str, str, str]]:
    """Return (text, package, document) in a mixed order, the packages in turn."""
    rows = defaultdict(list)
    for document in documents:
        package = document["id"].partition(".")[0]
        rows[package] += [(text, package, document["id"]) for text in document["text"].split("\n\n")]
    for name in PACKAGES:
        random.Random(name).shuffle(rows[name])
    return list(chain.from_iterable(zip(*(rows[name] for name in PACKAGES), strict=False)))


def _write(path: Path, columns: tuple[str, ...], rows: list[tuple]) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([columns, *rows])


if __name__ == "__main__":
    main(*sys.argv[1:])

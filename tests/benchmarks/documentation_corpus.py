"""Some 64 MB of real English for measurements, from the documentation that is on the machine.

    python -m tests.benchmarks.documentation_corpus --output-dir D --megabytes 64 [--roots DIR ...]

The files of data.examples.documentation; duplicate paragraphs are dropped. Where there is less of it than
asked for, the documents are repeated, each with its paragraphs in another order; D/report.json says how much is of
which kind and how much is repeated. The text is for measurements only, so unlike there it is not cleaned of lists and
names of functions.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from bert.command_errors import command
from bert.files import write_atomically
from bert.help_parser import HelpParser
from data.examples.documentation import default_roots, documentation_files, texts_of

_MIN_PARAGRAPH_CHARACTERS = 60
_MIN_LETTERS = 0.6  # less of them is a table, or code
_MIN_DOCUMENT_CHARACTERS = 300
_NUM_FILES = 16


def paragraphs_of(path: Path, kind: str) -> list[str]:
    """Return the paragraphs of a file, each on one line; [] if it cannot be read."""
    found = [" ".join(paragraph.split()) for text in texts_of(path, kind) for paragraph in re.split(r"\n\s*\n", text)]
    return [
        paragraph
        for paragraph in found
        if len(paragraph) >= _MIN_PARAGRAPH_CHARACTERS
        and sum(map(str.isalpha, paragraph)) >= _MIN_LETTERS * len(paragraph)
    ]


def find_documents(roots: list[Path], max_bytes: float, counts: Counter) -> Iterator[list[str]]:
    """Yield documents (one per file): their paragraphs that did not occur before; up to max_bytes in all."""
    seen: set[bytes] = set()
    total = 0
    for path, kind, _ in documentation_files(roots):
        kept = []
        for paragraph in paragraphs_of(path, kind):
            digest = hashlib.sha256(paragraph.lower().encode()).digest()[:12]
            if digest not in seen:
                seen.add(digest)
                kept.append(paragraph)
        size = sum(len(paragraph.encode()) + 1 for paragraph in kept)
        if size < _MIN_DOCUMENT_CHARACTERS:
            continue
        counts[kind] += size
        total += size
        yield kept
        if total >= max_bytes:
            return


def build(output: Path, megabytes: float, roots: list[Path]) -> dict:
    """Write output/source/en/N.txt and output/report.json; returns the report.

    Raises:
        ValueError: the roots hold no documentation.
    """
    counts: Counter = Counter()
    documents = list(find_documents(roots, megabytes * 1e6, counts))
    if not documents:
        raise ValueError(f"found no documentation below {', '.join(map(str, roots))}; name folders with --roots")
    documents.sort(key=lambda document: hashlib.sha256(document[0].encode()).digest())
    lines = _lines(documents, megabytes * 1e6)
    folder = output / "source" / "en"
    folder.mkdir(parents=True, exist_ok=True)
    size = 0
    for number in range(_NUM_FILES):
        data = "".join(lines[number::_NUM_FILES]).encode()
        size += len(data)
        write_atomically(folder / f"{number}.txt", data)
    report = {
        "bytes": size,
        "documents": len(lines),
        "distinct documents": len(documents),
        "distinct bytes by kind": dict(counts),
        "bytes repeated": max(0, size - sum(counts.values())),
        "roots": [str(root) for root in roots],
    }
    write_atomically(output / "report.json", (json.dumps(report, indent=1) + "\n").encode())
    return report


def _lines(documents: list[list[str]], max_bytes: float) -> list[str]:
    lines: list[str] = []
    size = 0
    while size < max_bytes:
        turn, number = divmod(len(lines), len(documents))
        document = documents[number]
        middle = turn * 7919 % len(document)
        lines.append(" ".join((f"doc-{len(lines)}", *document[middle:], *document[:middle])) + "\n")
        size += len(lines[-1].encode())
    return lines


def main(argv: list[str] | None = None) -> None:
    parser = HelpParser(description=__doc__)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--megabytes", type=float, default=64)
    parser.add_argument("--roots", type=Path, nargs="+", help="folders to search (default: Python's and /usr/share)")
    arguments = parser.parse_args(argv)
    with command(arguments.output_dir):
        report = build(arguments.output_dir, arguments.megabytes, arguments.roots or default_roots())
        print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

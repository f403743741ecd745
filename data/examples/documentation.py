"""Collect English prose from the documentation on this machine: Python packages, manual pages, /usr/share/doc.

    python -m data.examples.documentation --output-dir D [--sources docstrings man documents] [--max-megabytes N]
    python -m data.examples.documentation --output-dir D --sources docstrings --held-out-fraction 0.05

Writes D/documents.jsonl, one {"id", "text"} for each file that has prose; or, with a held-out fraction, LDDL's source
layout D/train/source/en/N.txt and D/held_out/source/en/N.txt. The hash of its id decides whether a document is held
out. No paragraph occurs twice, and no held-out sentence occurs in the training part. Docstrings are read from source
files with `ast`; no package is imported or run. D/report.json counts what was kept and dropped.
"""

import ast
import gc
import gzip
import hashlib
import json
import math
import os
import re
import sysconfig
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from bert.command_errors import command
from bert.files import write_atomically
from bert.help_parser import HelpParser
from bert.reporting.progress import megabytes
from data.examples.prose import docstrings_of, prose_of, without_roff

SOURCES = ("docstrings", "man", "documents")
SYSTEM_ROOTS = ("/usr/share/doc", "/usr/share/man", "/usr/share/perl", "/usr/lib/python3")
FILE_NAME = "documents.jsonl"
_SKIPPED_FOLDERS = frozenset(
    "__pycache__ test tests testing _tests idle_test lib2to3 node_modules site-packages".split()
)
_MAX_FILE_BYTES = 4_000_000
_MIN_DOCUMENT_CHARACTERS, _MIN_LEAK_CHARACTERS = 200, 40
_LIMIT = 5.5  # megabytes, about what our packages have; not in the quickstart's command, so older ones continue
_NUM_FILES = {"train": 8, "held_out": 1}
_TEXT_SUFFIXES = frozenset((".md", ".rst", ".txt", ".text", ".pod"))
_MAN_PAGE = re.compile(r".*\.[1-9][a-z]*(?:\.gz)?")
_MAN_FOLDER = re.compile(r"man[1-9]\w*")  # of English pages; translations are in man/LANGUAGE/man1


class DocumentationFile(NamedTuple):
    """A file, one of SOURCES, and the id of its document: the name of a module, otherwise the path."""

    path: Path
    source: str
    id: str

    def place(self) -> str:
        """Its place in the order of reading, which tells nothing of the part: that is in the other bits of the hash."""
        return f"{_hash(self.id):064b}"[::-1]


@dataclass(frozen=True)
class Document:
    """The paragraphs of one file; the id has no white space."""

    id: str
    source: str
    paragraphs: tuple[str, ...]

    def hash(self) -> int:
        """64 bits of the id's sha256; decides the part and the order."""
        return _hash(self.id)

    def line(self) -> str:
        """LDDL's line: the id, then the text."""
        return " ".join((self.id, *self.paragraphs)) + "\n"


def _hash(identifier: str) -> int:
    return int.from_bytes(hashlib.sha256(identifier.encode()).digest()[:8], "big")


def source_of(path: Path) -> str | None:
    """The source that a file belongs to; None if it is not read."""
    if path.suffix == ".py":
        return "docstrings"
    if "man" in path.parts and _MAN_PAGE.fullmatch(path.name):
        is_english = path.parts[path.parts.index("man") + 1] == path.parent.name
        return "man" if is_english and _MAN_FOLDER.fullmatch(path.parent.name) else None
    name = path.name.removesuffix(".gz")
    is_text = Path(name).suffix.lower() in _TEXT_SUFFIXES or name in ("METADATA", "README", "NEWS")
    return "documents" if is_text else None


def documentation_files(roots: Iterable[Path], sources: Collection[str] = SOURCES) -> Iterator[DocumentationFile]:
    """All documentation below the roots without tests, each file once, in the order of the names."""
    listed: set[Path] = set()
    for root in roots:
        for folder, folders, files in os.walk(root):
            folders[:] = sorted(set(folders) - _SKIPPED_FOLDERS)
            for path in (Path(folder, name) for name in sorted(files)):
                source = source_of(path)
                if source is None or source not in sources or path in listed or path.is_symlink():
                    continue
                if path.stat().st_size <= _MAX_FILE_BYTES:
                    listed.add(path)
                    module = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
                    identifier = module if source == "docstrings" else str(path)
                    yield DocumentationFile(path, source, "_".join(identifier.split()))


def texts_of(path: Path, source: str) -> list[str]:
    """The texts in a file, with their line breaks; [] if it cannot be read."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error):
        return []
    if source == "docstrings":
        return docstrings_of(data)
    text = data.decode("utf-8", errors="ignore")
    return [without_roff(text) if source == "man" else text]


def documents_of(file: DocumentationFile) -> list[Document]:
    """The prose of a file; of pydoc_data/topics.py, a dict of the chapters of the language reference, one each."""
    if file.path.parts[-2:] == ("pydoc_data", "topics.py"):
        literal = next(node.value for node in ast.parse(file.path.read_bytes()).body if isinstance(node, ast.Assign))
        texts = {f"{file.id}.{name}": [text] for name, text in sorted(ast.literal_eval(literal).items())}
    else:
        texts = {file.id: texts_of(file.path, file.source)}
    return [
        Document(name, file.source, tuple(paragraph for text in parts for paragraph in prose_of(text)))
        for name, parts in texts.items()
    ]


def without_duplicates(documents: Iterable[Document], counts: Counter) -> Iterator[Document]:
    """The documents without the paragraphs that occurred before; those left too short are dropped."""
    seen: set[bytes] = set()
    for document in documents:
        paragraphs = []
        for paragraph in document.paragraphs:
            digest = hashlib.sha256(paragraph.lower().encode()).digest()[:16]
            if digest in seen:
                counts["repeated paragraphs dropped"] += 1
            else:
                seen.add(digest)
                paragraphs.append(paragraph)
        if sum(map(len, paragraphs)) >= _MIN_DOCUMENT_CHARACTERS:
            yield replace(document, paragraphs=tuple(paragraphs))
        else:
            counts["documents with too little prose dropped"] += 1


def limited(documents: Iterable[Document], max_bytes: float) -> Iterator[Document]:
    """The first documents, up to max_bytes."""
    size = 0
    for document in documents:
        size += len(document.line().encode())
        if size > max_bytes:
            return
        yield document


def split_parts(documents: list[Document], fraction: float, counts: Counter) -> dict[str, list[Document]]:
    """{"train", "held_out"}, split by the hash of the id; drops held-out paragraphs with a training sentence.

    `data.text.held_out_split` goes by the text instead; with it the corpus of the quickstart would be another.
    """
    documents = sorted(documents, key=lambda document: (document.hash(), document.id))
    num_held_out = sum(document.hash() < int(fraction * 2**64) for document in documents)
    train, held_out = documents[num_held_out:], []
    known = {sentence for document in train for paragraph in document.paragraphs for sentence in _sentences(paragraph)}
    for document in documents[:num_held_out]:
        paragraphs = tuple(text for text in document.paragraphs if known.isdisjoint(_sentences(text)))
        counts["held-out paragraphs dropped as known"] += len(document.paragraphs) - len(paragraphs)
        if sum(map(len, paragraphs)) >= _MIN_DOCUMENT_CHARACTERS:
            held_out.append(replace(document, paragraphs=paragraphs))
    return {"train": train, "held_out": held_out}


def _sentences(paragraph: str) -> list[str]:
    """Approximate sentences in lower case, good enough to find those that occur in both parts."""
    pieces = paragraph.lower().replace("! ", ". ").replace("? ", ". ").split(". ")
    return [piece.strip(" .!?") for piece in pieces if len(piece) >= _MIN_LEAK_CHARACTERS]


def _write(output: Path, part: str, documents: list[Document]) -> None:
    """Write all documents as JSON lines, or a part in LDDL's layout to files of about as many documents."""
    if part == "all":
        rows = ({"id": document.id, "text": "\n\n".join(document.paragraphs)} for document in documents)
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_atomically(output / FILE_NAME, content.encode())
        return
    folder = output / part / "source" / "en"
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.txt"):
        stale.unlink()
    num_files = min(_NUM_FILES[part], len(documents))
    for number in range(num_files):
        low, high = (len(documents) * edge // num_files for edge in (number, number + 1))
        write_atomically(
            folder / f"{number}.txt", "".join(document.line() for document in documents[low:high]).encode()
        )


def default_roots(sources: Collection[str] = SOURCES) -> list[Path]:
    """Folders with documentation: this interpreter's, and for more than docstrings the system's."""
    paths = sysconfig.get_paths()
    folders = [paths["purelib"], paths["platlib"], paths["stdlib"]]
    if set(sources) != {"docstrings"}:
        folders += [os.path.join(paths["stdlib"], "site-packages"), *SYSTEM_ROOTS]
    return [path for path in map(Path, dict.fromkeys(folders)) if path.is_dir()]


def build(
    output: Path,
    roots: list[Path],
    *,
    sources: Collection[str] = SOURCES,
    max_megabytes: float | None = None,
    held_out_fraction: float | None = None,
    num_workers: int = 1,
) -> dict[str, Any]:
    """Write the corpus below `output`; returns what was found, kept and dropped (also in output/report.json)."""
    if held_out_fraction is not None and not 0.0 < held_out_fraction < 1.0:
        raise ValueError(f"held_out_fraction={held_out_fraction} must lie between 0 and 1, e.g. 0.05")
    if max_megabytes is not None and not max_megabytes > 0:
        raise ValueError(f"max_megabytes={max_megabytes} must be more than 0")
    output.mkdir(parents=True, exist_ok=True)  # an error before the work
    files = list(documentation_files(roots, sources))
    if max_megabytes is not None:
        files.sort(key=DocumentationFile.place)
    counts: Counter = Counter({"files read": 0})

    def read(pool: ProcessPoolExecutor) -> Iterator[Document]:
        for documents in pool.map(documents_of, files, chunksize=64):
            counts["files read"] += 1
            yield from documents

    with ProcessPoolExecutor(num_workers, initializer=gc.disable) as pool:  # syntax trees have no cycles
        documents = list(limited(without_duplicates(read(pool), counts), (max_megabytes or math.inf) * 1e6))
        pool.shutdown(cancel_futures=True)  # the files beyond the limit
    parts = {"all": documents} if held_out_fraction is None else split_parts(documents, held_out_fraction, counts)
    if not all(parts.values()):
        left = ", ".join(f"{len(members)} {part}" for part, members in parts.items())
        raise ValueError(
            f"found {len(documents)} documents below {', '.join(map(str, roots))} ({left}), too few: raise "
            "--max-megabytes or --held-out-fraction, install packages with documentation, or train on your own text: "
            "--text FOLDER of scripts/run_pretraining.sh"
        )
    for part, members in parts.items():
        _write(output, part, members)
    report = {"counts": dict(counts), "parts": {part: _facts(members) for part, members in parts.items()}}
    write_atomically(output / "report.json", (json.dumps(report, indent=1) + "\n").encode())
    return report


def _facts(documents: list[Document]) -> dict[str, Any]:
    sizes: Counter[str] = Counter()
    for document in documents:
        sizes[document.source] += len(document.line().encode())
    return {"documents": len(documents), "bytes": sizes.total(), "bytes by source": dict(sizes)}


def summary(report: Mapping[str, Any]) -> str:
    """A report of `build`, one line for each part."""
    return "\n".join(
        f"{part}: {facts['documents']:,} documents, {megabytes(facts['bytes'])}: "
        + ", ".join(f"{megabytes(size)} of {source}" for source, size in facts["bytes by source"].items())
        for part, facts in report["parts"].items()
    )


def main(argv: list[str] | None = None) -> None:
    parser = HelpParser(description=__doc__)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--sources", nargs="+", choices=SOURCES, default=SOURCES, help="what to read (default: all)")
    parser.add_argument(
        "--max-megabytes",
        type=float,
        help=f"stop at this many megabytes of text (default: {_LIMIT} with a held-out part, else all)",
    )
    parser.add_argument("--held-out-fraction", type=float, help="share of documents held out")
    parser.add_argument("--local-n-workers", type=int, default=os.cpu_count() or 1, help="processes")
    options = vars(parser.parse_args(argv))
    if options["max_megabytes"] is None and options["held_out_fraction"] is not None:
        options["max_megabytes"] = _LIMIT
    output, num_workers = options.pop("output_dir"), options.pop("local_n_workers")
    with command(output):
        report = build(output, default_roots(options["sources"]), num_workers=num_workers, **options)
        print(summary(report))
        print(", ".join(f"{name}: {count:,}" for name, count in report["counts"].items()))


if __name__ == "__main__":
    main()

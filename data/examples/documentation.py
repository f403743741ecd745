"""Collect English prose from the documentation on this machine: Python packages, manual pages, /usr/share/doc.

Writes D/documents.jsonl, one {"id", "text"} for each file that has prose. With a held-out fraction these documents are
imported as by `data.import_text`, to D/train/source/en/N.txt and D/held_out/source/en/N.txt. No paragraph
occurs twice, and then no sentence either. Docstrings are read from source files with `ast`; no package
is imported or run. D/report.json counts what was kept and dropped.
"""

import ast
import gc
import gzip
import hashlib
import json
import math
import os
import re
import shutil
import sysconfig
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field

from bert.command_errors import command
from bert.config.flags import Flag
from bert.config.plain_commands import read_flags
from bert.config.settings_base import Settings
from bert.files import write_atomically
from bert.reporting.progress import megabytes
from bert.samples.manifest import UNFINISHED_NAME
from data.examples.prose import docstrings_of, prose_of, without_roff
from data.text.lddl_writer import REPORT_NAME
from data.text.same_text import normalized

SOURCES = ("docstrings", "man", "documents")
SYSTEM_ROOTS = ("/usr/share/doc", "/usr/share/man", "/usr/share/perl", "/usr/lib/python3")
FILE_NAME = "documents.jsonl"
_SKIPPED_FOLDERS = frozenset(
    "__pycache__ test tests testing _tests idle_test lib2to3 node_modules site-packages".split()
)
_MAX_FILE_BYTES = 4_000_000
_MIN_DOCUMENT_CHARACTERS, _MIN_LEAK_CHARACTERS = 200, 40
_LIMIT = 5.5  # megabytes, about what our packages have; not in the quickstart's command, so older ones continue
_TEXT_SUFFIXES = frozenset((".md", ".rst", ".txt", ".text", ".pod"))
_MAN_PAGE = re.compile(r".*\.[1-9][a-z]*(?:\.gz)?")
_MAN_FOLDER = re.compile(r"man[1-9]\w*")  # of English pages; translations are in man/LANGUAGE/man1


class DocumentationFile(NamedTuple):
    """A documentation file, its source (one of SOURCES), and the id of its document."""

    path: Path
    source: str
    id: str

    def place(self) -> str:
        """Pseudo-random position of a file in the reading order, because not all files may be read."""
        hashed = int.from_bytes(hashlib.sha256(self.id.encode()).digest()[:8], "big")
        return f"{hashed:064b}"[::-1]


@dataclass(frozen=True)
class Document:
    """The paragraphs of one file; the id has no white space."""

    id: str
    source: str
    paragraphs: tuple[str, ...]

    def line(self) -> str:
        """The document as a line in LDDL's layout: the id, then the text."""
        return " ".join((self.id, *self.paragraphs)) + "\n"


def source_of(path: Path) -> str | None:
    """The source of a file; None for files that are not read."""
    if path.suffix == ".py":
        return "docstrings"
    if "man" in path.parts and _MAN_PAGE.fullmatch(path.name):
        is_english = path.parts[path.parts.index("man") + 1] == path.parent.name
        return "man" if is_english and _MAN_FOLDER.fullmatch(path.parent.name) else None
    name = path.name.removesuffix(".gz")
    is_text = Path(name).suffix.lower() in _TEXT_SUFFIXES or name in ("METADATA", "README", "NEWS")
    return "documents" if is_text else None


def documentation_files(roots: Iterable[Path], sources: Collection[str] = SOURCES) -> Iterator[DocumentationFile]:
    """All documentation below the roots except tests, each file once, sorted by name."""
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
    """The prose of a file as documents; each chapter in pydoc_data/topics.py is one."""
    if file.path.parts[-2:] == ("pydoc_data", "topics.py"):
        literal = next(node.value for node in ast.parse(file.path.read_bytes()).body if isinstance(node, ast.Assign))
        texts = {f"{file.id}.{name}": [text] for name, text in sorted(ast.literal_eval(literal).items())}
    else:
        texts = {file.id: texts_of(file.path, file.source)}
    return [
        Document(name, file.source, tuple(paragraph for text in parts for paragraph in prose_of(text)))
        for name, parts in texts.items()
    ]


def without_duplicates(documents: Iterable[Document], counts: Counter, by_sentence: bool = False) -> Iterator[Document]:
    """Remove paragraphs that occurred before, and drop documents that become too short.

    Args:
        by_sentence: whether a paragraph is dropped already if one of its sentences occurred before.
    """
    before: set[bytes] = set()  # paragraphs and sentences
    for document in documents:
        paragraphs = list[str]()
        for paragraph in document.paragraphs:
            digest = _digest(paragraph)
            sentences = set(map(_digest, _sentences(paragraph))) if by_sentence else set[bytes]()
            if digest in before:
                counts["repeated paragraphs dropped"] += 1
            elif not before.isdisjoint(sentences):
                counts["paragraphs with a repeated sentence dropped"] += 1
            else:
                before |= {digest, *sentences}
                paragraphs.append(paragraph)
        if sum(map(len, paragraphs)) >= _MIN_DOCUMENT_CHARACTERS:
            yield replace(document, paragraphs=tuple(paragraphs))
        else:
            counts["documents with too little prose dropped"] += 1


def _digest(text: str) -> bytes:
    """A digest of 16 bytes that ignores case and white space."""
    return hashlib.sha256(normalized(text).encode()).digest()[:16]


def _sentences(paragraph: str) -> list[str]:
    """Approximate sentences in lower case, good enough to find repetitions."""
    pieces = paragraph.lower().replace("! ", ". ").replace("? ", ". ").split(". ")
    return [piece.strip(" .!?") for piece in pieces if len(piece) >= _MIN_LEAK_CHARACTERS]


def limited(documents: Iterable[Document], max_bytes: float) -> Iterator[Document]:
    """The first documents, at most max_bytes in all."""
    size = 0
    for document in documents:
        size += len(document.line().encode())
        if size > max_bytes:
            return
        yield document


def default_roots(sources: Collection[str] = SOURCES) -> list[Path]:
    """Folders with documentation: this interpreter's and, if manuals are wanted too, the system's."""
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
    """Write the corpus below `output`; returns counts of texts that were found, kept and dropped (output/report.json).

    Args:
        max_megabytes: above 0; held_out_fraction: between 0 and 1.
    """
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
        distinct = without_duplicates(read(pool), counts, by_sentence=held_out_fraction is not None)
        documents = list(limited(distinct, (max_megabytes or math.inf) * 1e6))
        pool.shutdown(cancel_futures=True)  # the files beyond the limit
    if len(documents) < (1 if held_out_fraction is None else 2):
        raise ValueError(
            f"found {len(documents)} documents below {', '.join(map(str, roots))}, too few: raise --max-megabytes, "
            "install packages with documentation, or train on your own text: --text FOLDER of "
            "scripts/run_pretraining.sh"
        )
    sizes: Counter[str] = Counter()
    for document in documents:
        sizes[document.source] += len(document.line().encode())
    rows = ({"id": document.id, "text": "\n\n".join(document.paragraphs)} for document in documents)
    content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    write_atomically(output / FILE_NAME, content.encode())
    parts = {"all": {"documents": len(documents), "bytes": sizes.total()}}
    if held_out_fraction is not None:
        parts = _import(output, held_out_fraction)
    report = {"counts": dict(counts), "bytes by source": dict(sizes), "parts": parts}
    write_atomically(output / REPORT_NAME, (json.dumps(report, indent=1) + "\n").encode())
    return report


def _import(output: Path, held_out_fraction: float) -> dict[str, Any]:
    """Import documents.jsonl from the start; returns the sizes of both parts."""
    from data.text.held_out_split import PARTS
    from data.text.import_settings import ImportSettings
    from data.text.importing import import_files  # here: it loads Arrow

    for earlier in (UNFINISHED_NAME, *PARTS):
        shutil.rmtree(output / earlier, ignore_errors=True)
    settings = ImportSettings(text_field="text", id_field="id", held_out_fraction=held_out_fraction)
    return dict(import_files([output / FILE_NAME], output, settings)["parts"])


def summary(report: Mapping[str, Any]) -> str:
    """Lines about the result of `build`: one for each part, and one for the sources."""
    lines = [
        f"{part}: {facts['documents']:,} documents, {megabytes(facts['bytes'])}"
        for part, facts in report["parts"].items()
    ]
    sources = [f"{megabytes(size)} of {source}" for source, size in report["bytes by source"].items()]
    return "\n".join([*lines, ", ".join(sources)])


class DocumentationRequest(Settings):
    """The settings of this command, read from its flags."""

    output_dir: Path = Field(description="folder of the collected text and its report")
    sources: Annotated[tuple[Literal[*SOURCES], ...], Flag(default_text="all")] = Field(  # type: ignore[valid-type]
        SOURCES, description="what to read"
    )
    max_megabytes: Annotated[
        float | None, Flag(unit="MEGABYTES", default_text=f"{_LIMIT} with a held-out part, else all")
    ] = Field(None, gt=0, description="stop at this much text")
    held_out_fraction: float | None = Field(None, gt=0, lt=1, description="share of documents held out, e.g. 0.05")
    local_n_workers: Annotated[int, Flag(default_text="all cores")] = Field(
        default_factory=lambda: os.cpu_count() or 1, description="processes"
    )


_EXAMPLES = (
    "--output-dir D --sources docstrings man --max-megabytes 20",
    "--output-dir D --sources docstrings --held-out-fraction 0.05",
)


def main(argv: list[str] | None = None) -> None:
    request = read_flags(DocumentationRequest, argv, description=__doc__, examples=_EXAMPLES)
    max_megabytes = request.max_megabytes
    if max_megabytes is None and request.held_out_fraction is not None:
        max_megabytes = _LIMIT
    with command(request.output_dir):
        report = build(
            request.output_dir,
            default_roots(request.sources),
            num_workers=request.local_n_workers,
            sources=request.sources,
            max_megabytes=max_megabytes,
            held_out_fraction=request.held_out_fraction,
        )
        print(summary(report))
        print(", ".join(f"{name}: {count:,}" for name, count in report["counts"].items()))


if __name__ == "__main__":
    main()

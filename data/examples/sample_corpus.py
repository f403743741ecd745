"""Make an English corpus from the documentation of Python and its packages on this machine.

    python -m data.examples.sample_corpus --output-dir D [--max-megabytes N] [--held-out-fraction 0.05]

Docstrings are read from source files with `ast`; no package is imported or run. Each module is one document, in LDDL's
source layout: D/train/source/en/N.txt and D/held_out/source/en/N.txt. The hash of its id decides
whether a document is held out. No paragraph occurs twice, and no held-out sentence occurs in the training part.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bert.command_errors import command
from bert.files import write_atomically
from bert.help_parser import HelpParser
from bert.reporting.progress import megabytes
from data.examples.english_prose import is_prose, prose_of

SKIPPED_FOLDERS = frozenset(
    "__pycache__ test tests testing _tests site-packages idle_test lib2to3 node_modules pydoc_data".split()
)
_MAX_SOURCE_BYTES = 1_000_000
_MIN_DOCUMENT_CHARACTERS = 200
_MIN_LEAK_CHARACTERS = 40
_NUM_TRAIN_FILES = 8


@dataclass(frozen=True)
class Document:
    """The paragraphs of one module; the id has no white space."""

    id: str
    paragraphs: tuple[str, ...]

    def hash(self) -> int:
        """64 bits of the id's sha256; decides the part and the order."""
        return int.from_bytes(hashlib.sha256(self.id.encode()).digest()[:8], "big")

    def line(self) -> str:
        """LDDL's line: the id, then the text."""
        return " ".join((self.id, *self.paragraphs)) + "\n"


def source_files(roots: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    """(module name, file) of all Python sources below the roots, tests left out; sorted."""
    for root in roots:
        for folder, folders, files in os.walk(root):
            folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS)
            for name in sorted(files):
                path = Path(folder, name)
                if name.endswith(".py") and path.stat().st_size <= _MAX_SOURCE_BYTES:
                    parts = path.relative_to(root).with_suffix("").parts
                    yield ".".join(part for part in parts if part != "__init__").replace(" ", "_"), path


def docstrings_of(source: bytes) -> list[str]:
    """The docstrings of a module, its classes and its functions in the order of the source; [] if it does not parse."""
    if b'"""' not in source and b"'''" not in source:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's strings
            tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, kinds)]
    nodes.sort(key=lambda node: getattr(node, "lineno", 0))
    return [text for node in nodes if (text := ast.get_docstring(node, clean=True))]


def document_of(module: str, path: Path) -> Document:
    """The prose of one source file."""
    paragraphs = [paragraph for text in docstrings_of(path.read_bytes()) for paragraph in prose_of(text)]
    return Document(module, tuple(paragraphs))


def topics_of(path: Path) -> list[Document]:
    """The chapters of the language reference that ship as pydoc_data/topics.py, a module with one dict of texts."""
    if not path.exists():
        return []
    literal = next(node.value for node in ast.parse(path.read_bytes()).body if isinstance(node, ast.Assign))
    return [
        Document(f"pydoc_data.topics.{name}", tuple(prose_of(text)))
        for name, text in sorted(ast.literal_eval(literal).items())
    ]


def without_duplicates(documents: Iterable[Document], counts: Counter) -> list[Document]:
    """The documents with every paragraph that occurred before left out, and those left too short dropped."""
    seen: set[bytes] = set()
    kept = []
    for document in documents:
        paragraphs = []
        for paragraph in document.paragraphs:
            digest = hashlib.sha256(paragraph.lower().encode()).digest()[:16]
            if digest in seen:
                counts["duplicate paragraphs dropped"] += 1
            else:
                seen.add(digest)
                paragraphs.append(paragraph)
        if sum(map(len, paragraphs)) >= _MIN_DOCUMENT_CHARACTERS:
            kept.append(Document(document.id, tuple(paragraphs)))
        else:
            counts["short documents dropped"] += 1
    return kept


def _sentences(paragraph: str) -> list[str]:
    """Approximate sentences in lower case, good enough to find those that occur in both parts."""
    pieces = paragraph.lower().replace("! ", ". ").replace("? ", ". ").split(". ")
    return [piece.strip(" .!?") for piece in pieces if len(piece) >= _MIN_LEAK_CHARACTERS]


def split_parts(documents: list[Document], fraction: float, counts: Counter) -> dict[str, list[Document]]:
    """{"train", "held_out"}, split by the hash of the id; drops held-out paragraphs with a training sentence."""
    threshold = int(fraction * 2**64)
    parts: dict[str, list[Document]] = {"train": [], "held_out": []}
    for document in sorted(documents, key=lambda document: (document.hash(), document.id)):
        parts["held_out" if document.hash() < threshold else "train"].append(document)
    known = {
        sentence
        for document in parts["train"]
        for paragraph in document.paragraphs
        for sentence in _sentences(paragraph)
    }
    held_out = []
    for document in parts["held_out"]:
        paragraphs = tuple(
            paragraph
            for paragraph in document.paragraphs
            if is_prose(paragraph) and known.isdisjoint(_sentences(paragraph))
        )
        counts["held-out paragraphs dropped as known"] += len(document.paragraphs) - len(paragraphs)
        if sum(map(len, paragraphs)) >= _MIN_DOCUMENT_CHARACTERS:
            held_out.append(Document(document.id, paragraphs))
    return {"train": parts["train"], "held_out": held_out}


def limited(documents: list[Document], max_bytes: float) -> list[Document]:
    """Documents in the order of their hash reversed bitwise (so that both parts shrink alike) up to max_bytes."""
    kept, size = [], 0
    for document in sorted(documents, key=lambda document: (f"{document.hash():064b}"[::-1], document.id)):
        size += len(document.line().encode())
        if size > max_bytes:
            break
        kept.append(document)
    return kept


def write_part(folder: Path, documents: list[Document], num_files: int) -> int:
    """Write folder/source/en/N.txt with about the same number of documents each; returns the bytes."""
    folder = folder / "source" / "en"
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("*.txt"):
        stale.unlink()
    num_files = max(1, min(num_files, len(documents)))
    total = 0
    for number in range(num_files):
        low, high = (len(documents) * edge // num_files for edge in (number, number + 1))
        data = "".join(document.line() for document in documents[low:high]).encode()
        write_atomically(folder / f"{number}.txt", data)
        total += len(data)
    return total


def _read_documents(modules: list[tuple[str, Path]], num_workers: int) -> list[Document]:
    if num_workers <= 1:
        return [document_of(*module) for module in modules]
    with ProcessPoolExecutor(num_workers) as pool:
        return list(pool.map(document_of, *zip(*modules, strict=True), chunksize=64))


def build(
    output: Path,
    roots: list[Path],
    *,
    max_megabytes: float | None = None,
    held_out_fraction: float = 0.05,
    num_workers: int = 1,
) -> dict:
    """Write the corpus below `output` and return what was found, kept and dropped (also in output/report.json)."""
    if not 0.0 < held_out_fraction < 1.0:
        raise ValueError(f"held_out_fraction={held_out_fraction} must lie between 0 and 1, e.g. 0.05")
    if max_megabytes is not None and not max_megabytes > 0:
        raise ValueError(f"max_megabytes={max_megabytes} must be more than 0")
    output.mkdir(parents=True, exist_ok=True)  # an error before the work
    counts: Counter = Counter()
    modules = list(source_files(roots))
    documents = [document for root in roots for document in topics_of(root / "pydoc_data" / "topics.py")]
    documents += _read_documents(modules, num_workers)
    counts["source files read"] = len(modules)
    documents = without_duplicates(documents, counts)
    if max_megabytes is not None:
        documents = limited(documents, max_megabytes * 1e6)
    parts = split_parts(documents, held_out_fraction, counts)
    if not all(parts.values()):
        raise ValueError(
            f"found {len(documents)} documents, which leave {len(parts['train'])} for training and "
            f"{len(parts['held_out'])} held out; both need at least one: raise --max-megabytes or "
            "--held-out-fraction, or install packages with documentation"
        )
    report: dict = {"dropped": dict(counts), "parts": {}}
    for part, num_files in (("train", _NUM_TRAIN_FILES), ("held_out", 1)):
        size = write_part(output / part, parts[part], num_files)
        by_package: Counter[str] = Counter()
        for document in parts[part]:
            by_package[document.id.partition(".")[0]] += len(document.line())
        report["parts"][part] = {
            "documents": len(parts[part]),
            "bytes": size,
            "paragraphs": sum(len(document.paragraphs) for document in parts[part]),
            "largest packages (characters)": dict(by_package.most_common(12)),
        }
    write_atomically(output / "report.json", (json.dumps(report, indent=1) + "\n").encode())
    return report


def main(argv: list[str] | None = None) -> None:
    parser = HelpParser(description=__doc__)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--max-megabytes", type=float, help="stop at this many megabytes of text (default: all text)")
    parser.add_argument("--held-out-fraction", type=float, default=0.05, help="share of documents held out")
    parser.add_argument("--local-n-workers", type=int, default=os.cpu_count() or 1, help="processes")
    arguments = parser.parse_args(argv)
    paths = sysconfig.get_paths()
    roots = [Path(path) for path in dict.fromkeys((paths["stdlib"], paths["purelib"], paths["platlib"]))]
    with command(arguments.output_dir):
        report = build(
            arguments.output_dir,
            roots,
            max_megabytes=arguments.max_megabytes,
            held_out_fraction=arguments.held_out_fraction,
            num_workers=arguments.local_n_workers,
        )
        for part, facts in report["parts"].items():
            size = f"{facts['documents']} documents, {megabytes(facts['bytes'])}"
            print(f"{part}: {size} in {arguments.output_dir / part}")
        print(f"dropped: {report['dropped']}")


if __name__ == "__main__":
    main()

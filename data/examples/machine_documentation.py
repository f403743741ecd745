"""Collect English prose from all documentation on this machine: Python packages, manual pages, /usr/share/doc.

    python -m data.examples.machine_documentation --output-dir D [--max-megabytes N]

Writes D/documents.jsonl, one {"id", "text"} for each file that has prose, and D/report.json. Docstrings are read from
source files with `ast`; no package is imported or run. No paragraph occurs twice. `data.examples.sample_corpus` is the
smaller corpus of the quickstart, which has only docstrings and a held-out part.
"""

import gzip
import hashlib
import json
import os
import re
import sysconfig
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bert.command_errors import command
from bert.files import write_atomically
from bert.help_parser import HelpParser
from bert.reporting.progress import megabytes
from data.examples.english_prose import prose_of
from data.examples.sample_corpus import SKIPPED_FOLDERS, docstrings_of

SYSTEM_ROOTS = ("/usr/share/doc", "/usr/share/man", "/usr/share/perl", "/usr/lib/python3")
FILE_NAME = "documents.jsonl"
_MAX_FILE_BYTES = 4_000_000
_MIN_DOCUMENT_CHARACTERS = 200
_TEXT_SUFFIXES = frozenset((".md", ".rst", ".txt", ".text", ".pod"))
_MAN_PAGE = re.compile(r".*\.[1-9][a-z]*(?:\.gz)?")
_MAN_FOLDER = re.compile(r"man[1-9]\w*")  # of English pages; translations are in man/LANGUAGE/man1
_ROFF_FONT = re.compile(r"\\f(?:[A-Z]|\([A-Z]{2}|\[\w*\])|\\[&/,|^]|\\s[-+]?\d+")
_ROFF_TEXT = re.compile(r"\.(?:B|I|R|BR|BI|IR|RB|RI|IB|SM|Nm|Ar|Fl|Xr)\s+(.*)")


def kind_of(path: Path) -> str | None:
    """What sort of text a file holds, None if it is not read."""
    if path.suffix == ".py":
        return "docstrings"
    if "man" in path.parts and _MAN_PAGE.fullmatch(path.name):
        is_english = path.parts[path.parts.index("man") + 1] == path.parent.name
        return "man pages" if is_english and _MAN_FOLDER.fullmatch(path.parent.name) else None
    name = path.name.removesuffix(".gz")
    if Path(name).suffix.lower() in _TEXT_SUFFIXES or name in ("METADATA", "README", "NEWS"):
        return "documentation"
    return None


def texts_of(path: Path, kind: str) -> list[str]:
    """The texts in a file, with their line breaks; [] if it cannot be read."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error):
        return []
    if kind == "docstrings":
        return docstrings_of(data)
    text = data.decode("utf-8", errors="ignore")
    return [_without_roff(text) if kind == "man pages" else text]


def _without_roff(text: str) -> str:
    """A man page's text: requests that carry words give them, others separate paragraphs."""
    lines = []
    for line in text.splitlines():
        if line.startswith((".", "'")):
            match = _ROFF_TEXT.fullmatch(line)
            line = match.group(1).replace('"', "") if match else ""
        lines.append(_ROFF_FONT.sub("", line).replace("\\-", "-").replace("\\(aq", "'").replace("\\e", "\\"))
    return "\n".join(lines)


def documentation_files(roots: Iterable[Path]) -> Iterator[tuple[Path, str]]:
    """(file, kind) of all documentation below the roots, each file once, in the order of the names."""
    seen: set[Path] = set()
    for root in roots:
        for folder, folders, files in os.walk(root):
            folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS - {"site-packages"})
            for path in (Path(folder, name) for name in sorted(files)):
                kind = kind_of(path)
                if kind is None or path.is_symlink() or path in seen or path.stat().st_size > _MAX_FILE_BYTES:
                    continue
                seen.add(path)
                yield path, kind


def prose_in(path: Path, kind: str) -> list[str]:
    """The paragraphs of English prose in a file, each on one line."""
    return [paragraph for text in texts_of(path, kind) for paragraph in prose_of(text)]


def default_roots() -> list[Path]:
    """Folders with documentation: this interpreter's and the system's."""
    paths = sysconfig.get_paths()
    folders = (paths["purelib"], paths["platlib"], paths["stdlib"], *SYSTEM_ROOTS)
    return [path for path in map(Path, dict.fromkeys(folders)) if path.is_dir()]


def build(
    output: Path, roots: list[Path], *, max_megabytes: float | None = None, num_workers: int = 1
) -> dict[str, Any]:
    """Write output/documents.jsonl; what was found, by kind of file (also in output/report.json).

    Raises:
        ValueError: the roots hold no documentation.
    """
    output.mkdir(parents=True, exist_ok=True)  # an error before the work
    found = list(documentation_files(roots))
    seen: set[bytes] = set()
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter({"files read": len(found)})
    lines: list[str] = []
    with ProcessPoolExecutor(num_workers) as pool:
        for (path, kind), paragraphs in zip(
            found, pool.map(prose_in, *zip(*found, strict=True), chunksize=64), strict=True
        ):
            digests = [hashlib.sha256(paragraph.lower().encode()).digest()[:12] for paragraph in paragraphs]
            kept = dict(zip(digests, paragraphs, strict=True))
            kept = {digest: paragraph for digest, paragraph in kept.items() if digest not in seen}
            counts["repeated paragraphs dropped"] += len(paragraphs) - len(kept)
            text = "\n\n".join(kept.values())
            if len(text) < _MIN_DOCUMENT_CHARACTERS:
                counts["files with too little prose dropped"] += 1
                continue
            seen |= kept.keys()
            sizes[kind] += len(text.encode())
            lines.append(json.dumps({"id": str(path), "text": text}, ensure_ascii=False) + "\n")
            if max_megabytes is not None and sizes.total() >= max_megabytes * 1e6:
                break
    if not lines:
        raise ValueError(
            f"found no documentation below {', '.join(map(str, roots))}; to train on your own text pass --text FOLDER "
            "to scripts/run_pretraining.sh"
        )
    report = {"documents": len(lines), "bytes": sizes.total(), "bytes by kind": dict(sizes), "counts": dict(counts)}
    write_atomically(output / "report.json", (json.dumps(report, indent=1) + "\n").encode())
    write_atomically(output / FILE_NAME, "".join(lines).encode())
    return report


def summary(report: Mapping[str, Any]) -> str:
    """A report of `build` in one line."""
    parts = ", ".join(f"{megabytes(size)} of {kind}" for kind, size in report["bytes by kind"].items())
    return f"{report['documents']:,} documents, {megabytes(report['bytes'])}: {parts}"


def main(argv: list[str] | None = None) -> None:
    parser = HelpParser(description=__doc__)
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--max-megabytes", type=float, help="stop at this many megabytes of text (default: all text)")
    parser.add_argument("--local-n-workers", type=int, default=os.cpu_count() or 1, help="processes")
    arguments = parser.parse_args(argv)
    with command(arguments.output_dir):
        report = build(
            arguments.output_dir,
            default_roots(),
            max_megabytes=arguments.max_megabytes,
            num_workers=arguments.local_n_workers,
        )
        print(summary(report))
        print(", ".join(f"{name}: {count:,}" for name, count in report["counts"].items()))


if __name__ == "__main__":
    main()

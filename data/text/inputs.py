"""Lists the files of a corpus with their formats; what a folder holds besides is left out and named with the reason."""

import bz2
import gzip
import lzma
import mimetypes
import os
import re
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

import zstandard

from bert.files import shown
from bert.interpreter import install_command
from bert.printable import printable
from data.text.columns import NoColumnError
from data.text.encodings import NotTextError, base64_characters, is_mostly_base64
from data.text.mail import is_mbox

COMPRESSIONS = (".gz", ".bz2", ".zst", ".xz")
CHUNK_BYTES, _HEAD_BYTES = 1 << 20, 1 << 12
_ZSTD_INPUT_BYTES = 1 << 10  # small, so that even highly compressed input gives pieces of a few megabytes
# What any file may become, and how many times its size. Measured: logs 25 to 50 times (gzip), 40 to 130 (zstd), one
# line over and over up to 145 (bzip2); a bomb a thousand (gzip) and without an end (Parquet, EPUB).
_LEAST_BYTES, _MOST_RATIO = 16 << 20, 200
T = TypeVar("T")


class DamagedError(ValueError):
    """A file is damaged; `reason` is the message without the file's name."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{shown(path)}: {reason}")
        self.reason = reason


class TooMuchError(NotTextError):
    """A small file becomes very much: it is a bomb, or has a line over and over."""


def no_bomb(path: Path, items: Iterable[T], size: Callable[[T], int]) -> Iterator[T]:
    """The contents of a file; TooMuchError when they are more in all than any file may become."""
    total, most = 0, _LEAST_BYTES + _MOST_RATIO * path.stat().st_size
    for item in items:
        total += size(item)
        if total > most:
            raise TooMuchError(
                f"becomes more than {most:,} bytes, {_MOST_RATIO} times its size and more; if that is no mistake, "
                "unpack it, or save it as text or CSV"
            )
        yield item


def require_no_bomb(path: Path, sizes: Iterable[int]) -> None:
    """The same for what a file says of its contents before they are read."""
    deque(no_bomb(path, sizes, int), 0)


def _damage_errors() -> tuple[type[Exception], ...]:
    from pyarrow import ArrowException  # here: commands that read no parquet start without it

    return EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError, ArrowException


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Report damage of a compressed or parquet file as a DamagedError that names the file and the remedy."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, _damage_errors()):
            raise
        if isinstance(error, OSError) and error.errno is not None:  # not of gzip, bz2 or parquet
            error.filename = error.filename or os.fspath(path)
            raise
        raise DamagedError(path, f"is damaged or cut off ({error}); repair it, or leave it out") from error


def read_chunks(path: Path, compression: str, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The bytes of a file, decompressed, in pieces; compression is "" or one of COMPRESSIONS."""
    with damage_named(path):
        chunks = _zstd_chunks(path) if compression == ".zst" else _opened_chunks(path, compression, chunk_bytes)
        yield from no_bomb(path, chunks, len)


def _opened_chunks(path: Path, compression: str, chunk_bytes: int) -> Iterator[bytes]:
    openers: dict[str, Callable] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, "": open}
    with openers[compression](path, "rb") as file:
        while chunk := file.read(chunk_bytes):
            yield chunk


def _zstd_chunks(path: Path) -> Iterator[bytes]:
    """Like read_chunks, for zstd; the library's own reader does not notice a truncated file."""
    with open(path, "rb") as file:
        data = file.read(_ZSTD_INPUT_BYTES)
        while data:
            frame = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
            while not frame.eof:
                if not data:
                    raise EOFError(f"ends inside a zstd frame, at byte {file.tell()}")
                chunk = frame.decompress(data)
                if chunk:
                    yield chunk
                data = frame.unused_data if frame.eof else file.read(_ZSTD_INPUT_BYTES)
            data = data or file.read(_ZSTD_INPUT_BYTES)


def _raise(error: OSError) -> None:
    raise error


def files_below(
    folder: Path,
    findings: "Findings",
    hidden: bool = True,
    follow_links: bool = True,
    on_error: Callable[[OSError], None] = _raise,
) -> list[Path]:
    """The files below a folder, sorted; links to folders are followed, and each folder is read once.

    Without `hidden`, hidden files and everything below hidden folders are left out and not counted. Without
    `follow_links`, links out of the folder are left out and named. `on_error` gets the error of a folder that cannot be
    listed.
    """
    files: list[Path] = []
    visited: set[str] = set()
    waiting = [folder]
    inside = os.path.realpath(folder)

    def is_left_out(path: str) -> bool:
        if follow_links or not os.path.islink(path):
            return False
        target = os.path.realpath(path)
        if os.path.commonpath((inside, target)) == inside or not os.path.exists(target):
            return False
        reason = f"is a link out of the folder, to {shown(target)}; pass --follow-links to read it"
        findings.leave_out("links out of the folder left out", path, reason)
        return True

    while waiting:  # a folder is visited before links to it
        for root, folders, names in os.walk(waiting.pop(0), onerror=on_error):
            folders[:] = sorted(name for name in folders if hidden or not name.startswith("."))
            real = os.path.realpath(root)
            if real in visited:
                findings.counts["links to folders that were read already"] += 1
                folders.clear()
                continue
            visited.add(real)
            links = [os.path.join(root, name) for name in folders if os.path.islink(os.path.join(root, name))]
            waiting += [Path(link) for link in links if not is_left_out(link)]
            for name in sorted(name for name in names if hidden or not name.startswith(".")):
                path = Path(root, name)
                if is_left_out(os.path.join(root, name)):
                    continue
                if os.path.isfile(path):
                    files.append(path)
                else:
                    reason = "is a broken link, a pipe or a device"
                    findings.leave_out("broken links, pipes and devices left out", path, reason)
    return sorted(files)


_SUFFIXES = {
    "txt": ".txt .text .md .markdown .rst .org .adoc .asciidoc",
    "log": ".log",
    "code": ".py .pyi .c .h .cc .cpp .cxx .hpp .java .js .mjs .jsx .ts .tsx .go .rs .rb .php .pl .pm .sh .bash .lua "
    ".r .jl .kt .scala .swift .cs .m .sql .hs .ml .ex .erl .f90 .vue .el .clj .dart .groovy .ps1 .bat .tcl .vb .asm",
    "mbox": ".mbox",
    "eml": ".eml",
    "html": ".html .htm .xhtml",
    "jsonl": ".jsonl .ndjson",
    "json": ".json",
    "csv": ".csv",
    "tsv": ".tsv .tab",
    "parquet": ".parquet .pq",
    "docx": ".docx .docm",
    "odt": ".odt",
    "epub": ".epub",
    "rtf": ".rtf",
    "pdf": ".pdf",
    "xlsx": ".xlsx .xlsm",
}
OFFICE_KINDS = ("docx", "odt", "epub", "rtf", "pdf", "xlsx")
FORMATS = tuple(_SUFFIXES)
_FORMAT_OF = {suffix: kind for kind, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
_REASONS = {
    "is an office document that is not read; save it as docx, xlsx, csv or text": ".doc .ppt .pptx .xls .ods .odp",
    "is an e-book that is not read; save it as epub or text": ".mobi .azw .azw3",
    "is Arrow; write Parquet, of a folder of datasets with load_from_disk(FOLDER).to_parquet(FILE)": ".arrow .feather",
    "is an archive; unpack it": ".zip .tar .tgz .tbz2 .txz .7z .rar",
    "is XML; name it *.html to read its text without the markup": ".xml .nxml .tei .dita .docbook",
}
_REASON_OF = {suffix: reason for reason, suffixes in _REASONS.items() for suffix in suffixes.split()}
_SET_ASIDE = re.compile(r".*(~|\.(bak|orig|old|tmp|sw[op]))|#.*#|~\$.*", re.IGNORECASE | re.DOTALL)
_BUILD_FILE = re.compile(r".*file", re.IGNORECASE)  # Makefile, Dockerfile, Jenkinsfile
_OTHER_KIND = "files of other kinds left out"
_UNREADABLE = "may not be read by this user; allow it (chmod +r), or leave it out"
_MAX_PROBLEMS, _MAX_ROWS = 200, 10  # in all, and rows of a file
_MAX_LEFT_OUT = 10_000
_PACKAGES = {"pdf": "pypdf", "rtf": "striprtf", "xlsx": "openpyxl"}  # of the extra `office`


@dataclass(frozen=True)
class Input:
    """A file: its path, its name in document ids, format and compression ("" or a suffix); named: given itself."""

    path: Path
    name: str
    kind: str
    compression: str
    named: bool = True


@dataclass
class Findings:
    """What reading notes."""

    counts: Counter = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)  # the first ones, "file:line: reason"
    bad_rows: dict[str, tuple[str, int]] = field(default_factory=dict)  # file -> its first one, and how many
    encodings: Counter = field(default_factory=Counter)
    not_ascii: dict[str, str] = field(default_factory=dict)  # encoding -> the first line of such text in it
    code_page: str = ""  # of the last file that is not Unicode
    left_out: list[str] = field(default_factory=list)  # what was not read, "file: reason"
    guessed: list[str] = field(default_factory=list)  # tables whose text column was guessed, "file: column"
    bytes_left_out: int = 0  # of the files among `left_out`

    def encoding_lines(self) -> list[str]:
        """What was not plainly UTF-8, each encoding with a line of it by which a reader sees whether it is right."""
        lines = {name: f", e.g. {line!r}" for name, line in self.not_ascii.items()}
        return [
            f"read as {name}{lines.get(name, '')}; --encoding names another"
            for name in self.encodings
            if not name.startswith(("utf-8 (valid)", "utf-8 (byte"))
        ]

    def problem(self, text: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(printable(text))

    def bad_row(self, path: Path, number: int, problem: str) -> None:
        """Count a row that is left out, and name it among the first of its file."""
        name, row = shown(path), printable(f"{number}: {problem}")
        first, before = self.bad_rows.get(name, (row, 0))
        self.counts["bad rows"] += 1
        self.bad_rows[name] = first, before + 1
        if before < _MAX_ROWS:
            self.problem(f"{name}:{row}")

    def leave_out(self, count: str, path: Path | str, reason: str) -> None:
        """Count what is left out, and name it among the first ten thousand."""
        self.counts[count] += 1
        if isinstance(path, Path) and path.is_file():
            self.bytes_left_out += path.stat().st_size
        if len(self.left_out) < _MAX_LEFT_OUT:
            self.left_out.append(printable(f"{shown(path)}: {reason}"))

    def drops_base64(self, document: str, base64: int, characters: int) -> bool:
        """Whether a document is mostly base64, and then counted and named."""
        if is_encoded := is_mostly_base64(base64, characters):
            self.leave_out("dropped: mostly base64", document, "is mostly base64")
        return is_encoded

    def guess(self, path: Path, column: str) -> None:
        """Name a table whose text column was guessed."""
        if len(self.guessed) < _MAX_LEFT_OUT:
            self.guessed.append(f"{shown(path)}: column {column!r}, the longest text")

    def refuse(self, source: Input, error: NotTextError | DamagedError, documents: int) -> None:
        """Count and name a file of a folder that cannot be read; ValueError if the file itself was given.

        Args:
            documents: those that were read before the error.
        """
        if isinstance(error, DamagedError):
            count, reason = "damaged files left out", error.reason
        elif isinstance(error, NoColumnError):
            count = "files without the field left out"
            reason = f"{error}; name the right one with --text-column{' or --id-column' if error.column else ''}"
        else:
            count, reason = "files that are no text left out", str(error)
            count = "files that become too much left out" if isinstance(error, TooMuchError) else count
        if source.named:
            remedy = "; leave it out, convert it to text, or name its --encoding" if type(error) is NotTextError else ""
            raise ValueError(f"{shown(source.path)}: {reason}{remedy}")
        before = f" (the {documents:,} documents before that are used)" if documents else ""
        self.leave_out(count, source.path, reason + before)


def list_inputs(
    paths: Iterable[Path], kind: str, findings: Findings, follow_links: bool = False, flag: str = "input"
) -> list[Input]:
    """The files given and those below the folders, sorted within each folder, without files of other kinds.

    Args:
        follow_links: also those that lead out of a folder.
        flag: names the paths in errors.
    """
    inputs: list[Input] = []
    remedy = f", or give --format {'|'.join(FORMATS)}" if flag == "input" else ""
    for path in paths:
        if path.is_dir():
            inputs += _inputs_below(path, kind, findings, follow_links)
        elif not path.is_file():
            raise ValueError(f"{flag}={shown(path)}: no such file or folder")
        elif isinstance(source := _input(path, path.name, kind), str):
            raise ValueError(f"{flag}={shown(path)}: {source}{remedy if source.endswith('*.txt') else ''}")
        else:
            inputs.append(source)
    if not inputs:
        left_out = findings.left_out
        example = f" ({len(left_out)} left out, e.g. {left_out[0]})" if left_out else ""
        raise ValueError(
            f"{flag}={' '.join(map(shown, paths))}: no file to read{example}; names must end in "
            f"{' '.join(name for name in _FORMAT_OF if _FORMAT_OF[name] != 'code')}, perhaps with "
            f"{' '.join(COMPRESSIONS)}{', or pass --format' * (flag == 'input')}"
        )
    once: dict[Path, Input] = {}
    for source in sorted(inputs, key=lambda source: source.path.is_symlink()):  # files come before links to them
        once.setdefault(source.path.resolve(), source)
    kept = [source for source in inputs if once[source.path.resolve()] is source]
    if len(kept) < len(inputs):
        findings.counts["files named or linked twice, read once"] += len(inputs) - len(kept)
    return _with_own_names(kept)


def _with_own_names(inputs: list[Input]) -> list[Input]:
    """The inputs, of which a.md is named a-2 if a.txt is there too: names begin the ids of documents."""
    renamed: dict[str, Input] = {}
    for source in inputs:
        name, number = source.name, 1
        while name in renamed:
            number += 1
            name = f"{source.name}-{number}"
        renamed[name] = replace(source, name=name)
    return list(renamed.values())


def _inputs_below(folder: Path, kind: str, findings: Findings, follow_links: bool) -> list[Input]:
    inputs: list[Input] = []
    shared: set[Path] = set()  # hidden folders that are named already

    def leave_out_unreadable(error: OSError) -> None:
        if not isinstance(error, PermissionError) or os.path.samefile(error.filename, folder):
            raise error
        findings.leave_out("unreadable files and folders left out", error.filename, _UNREADABLE)

    for file in files_below(folder, findings, follow_links=follow_links, on_error=leave_out_unreadable):
        name = file.relative_to(folder)
        hidden = _hidden(folder, name)
        if hidden in shared:
            findings.counts[_OTHER_KIND] += 1
        elif hidden is not None:
            findings.leave_out(_OTHER_KIND, folder / hidden, "is hidden")
            shared.add(hidden)
        elif _SET_ASIDE.fullmatch(name.name):
            findings.leave_out(_OTHER_KIND, file, "is a backup or temporary file")
        elif isinstance(source := _input(file, str(name), kind, False), str):
            findings.leave_out(_OTHER_KIND, file, source)
        elif not os.access(file, os.R_OK):
            findings.leave_out("unreadable files and folders left out", file, _UNREADABLE)
        else:
            inputs.append(source)
    return inputs


def _hidden(folder: Path, name: Path) -> Path | None:
    """The hidden file or folder at which a path ends or through which it goes; folders of mails are not hidden."""
    begins = (Path(*name.parts[:place]) for place in range(1, len(name.parts) + 1) if name.parts[place - 1][0] == ".")
    return next((begin for begin in begins if not (folder / begin / "cur").is_dir()), None)


def _input(path: Path, name: str, kind: str, named: bool = True) -> Input | str:
    """The input, or the reason for leaving it out."""
    compression = path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""
    bare = path.with_suffix("") if compression else path
    suffix = bare.suffix.lower()
    by_suffix = "eml" if kind != "txt" and _is_in_maildir(path) else _FORMAT_OF.get(suffix)
    if kind in ("auto", "code"):
        if by_suffix == "code" and kind == "auto" and not named:
            return f"is source code ({suffix}); pass --source-code to read it"
        if suffix and by_suffix is None:
            remedy = "; if it is text, name it *.txt" if _may_be_prose(path, bare.name, compression) else ""
            return _REASON_OF.get(suffix, f"is of no format that is read ({suffix}){remedy}")
        if by_suffix is None and _BUILD_FILE.fullmatch(bare.name) and not named:
            return "is a build file by its name; if it is text, name it *.txt"
        kind = by_suffix or "txt"
        if suffix in ("", ".txt") and kind == "txt" and is_mbox(_head_of(path, compression)):
            kind = "mbox"
    if compression and kind in ("parquet", *OFFICE_KINDS):
        return f"is compressed {kind}; unpack it"
    if missing := missing_package(kind):
        return missing
    name = name[: len(name) - len(compression) - len(suffix if suffix in _FORMAT_OF else "")]
    return Input(path, shown(name), kind, compression, named)


def _is_in_maildir(path: Path) -> bool:
    folders = [path.parent.parent / name for name in ("cur", "new", "tmp")]
    return path.parent in folders[:2] and all(folder.is_dir() for folder in folders)


def _may_be_prose(path: Path, name: str, compression: str) -> bool:
    """Whether a file of an unknown name may be read as text: no picture, style sheet, program or base64."""
    head = _head_of(path, compression).decode("utf-8", "replace")
    is_other = (mimetypes.guess_type(name)[0] or "").startswith(("image/", "audio/", "video/", "font/", "text/css"))
    is_other |= "\0" in head or head.count("\ufffd") > len(head) / 4
    return not (is_other or is_mostly_base64(base64_characters(head), len(head)))


def _head_of(path: Path, compression: str) -> bytes:
    """The beginning of a file; nothing of one that cannot be read, which is named when its turn comes."""
    with suppress(DamagedError, NotTextError, OSError):
        return next(read_chunks(path, compression, _HEAD_BYTES), b"")
    return b""


def table_input(path: Path, kind: str = "auto") -> Input:
    """A table; plain text is a TSV. ValueError for a file of another kind."""
    if _FORMAT_OF.get(path.suffix.lower()) in OFFICE_KINDS and kind == "auto":
        source: Input | str = "is an office document; save it as CSV"
    else:
        source = _input(path, path.name, kind)
    if isinstance(source, Input) and source.kind != "html":
        return replace(source, kind="tsv") if source.kind == "txt" else source
    reason = source if isinstance(source, str) else "is a web page"
    raise ValueError(f"{shown(path)}: {reason}; tables are .csv, .tsv, .jsonl, .json or .parquet")


def missing_package(kind: str) -> str:
    """Why files of a format cannot be read here, with the remedy; "" if they can."""
    package = _PACKAGES.get(kind)
    if package is None or find_spec(package) is not None:
        return ""
    return f"needs the package {package}; install it with `{install_command('office')}`"


def total_bytes(inputs: Iterable[Input]) -> int:
    """Sum of the file sizes on disk."""
    return sum(os.path.getsize(source.path) for source in inputs)

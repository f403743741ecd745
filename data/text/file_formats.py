"""Infers the format of a file from its name and first bytes, or why it is not read."""

import mimetypes
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from bert.files import shown
from bert.interpreter import install_command, shell_command
from data.text.compression import COMPRESSIONS, DamagedError, read_chunks
from data.text.mail import is_mail, is_mbox
from data.text.text_check import NotTextError, base64_characters, is_mostly_base64

_SUFFIXES = {
    "txt": ".txt .text .md .markdown .rst .org .adoc .asciidoc",
    "log": ".log",
    "code": ".py .pyi .c .h .cc .cpp .cxx .hpp .java .js .mjs .jsx .ts .tsx .go .rs .rb .php .pl .pm .sh .bash .lua "
    ".r .jl .kt .scala .swift .cs .m .sql .hs .ml .ex .erl .f90 .vue .el .clj .dart .groovy .ps1 .bat .tcl .vb .asm",
    "mbox": ".mbox",
    "eml": ".eml",
    "html": ".html .htm .xhtml",
    "ipynb": ".ipynb",
    "srt": ".srt .vtt",
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
SOURCE_TEXT = "source text"  # a txt that an import wrote: a document a line, which begins with its id
_FORMAT_OF = {suffix: kind for kind, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}
_REASONS = {
    "is an office document that is not read; save it as docx, xlsx, csv or text": ".doc .xls .ods .pages .numbers .wpd",
    "is a presentation, which is not read; save it as pdf": ".ppt .pptx .pps .ppsx .odp .key",
    "is an e-book that is not read; save it as epub or text": ".mobi .azw .azw3 .fb2 .djvu",
    "is Arrow; write Parquet, of a folder of datasets with load_from_disk(FOLDER).to_parquet(FILE)": ".arrow .feather",
    "is an archive; unpack it": ".zip .tar .tgz .tbz2 .txz .7z .rar",
    "is XML; name it *.html to read its text without the markup": ".xml .nxml .tei .dita .docbook",
    "is a saved page of a browser; save it as a page of HTML alone": ".mhtml .mht .webarchive .maff",
    "is a web archive; write its pages as *.html files, e.g. with the package warcio": ".warc .arc .wacz",
    "holds contacts or dates, or variants of genes, and no prose": ".vcf .ics .vcs",
    "is TeX; convert it to text, e.g. with pandoc -t plain": ".tex .ltx .bib .texi",
    "is a mailbox of Outlook; export its mails as *.eml or *.mbox": ".pst .ost .msg .olm",
    "is a mail of Apple Mail; export the mailbox as *.mbox": ".emlx",
    "is a list of translations; write its texts as csv": ".po .pot .xliff .xlf .tmx .resx .strings",
    "are subtitles of another form; convert them to *.srt": ".ass .ssa .sub .sbv .ttml .dfxp .smi .lrc",
    "is a database; export its table as csv": ".db .sqlite .sqlite3 .mdb .accdb .dbf",
    "holds settings, and no prose": ".yaml .yml .toml .ini .cfg .conf .plist .properties .lock",
}
_REASON_OF = {suffix: reason for reason, suffixes in _REASONS.items() for suffix in suffixes.split()}
_BUILD_FILE = re.compile(r".*file", re.IGNORECASE)  # Makefile, Dockerfile, Jenkinsfile
_PACKAGES = {"pdf": "pypdf", "rtf": "striprtf", "xlsx": "openpyxl"}  # of the extra `office`
_DUMP = re.compile(rb"<mediawiki\b[^>]*>?")
_HEAD_BYTES = 1 << 12
_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*)?(?:<!--.{0,999}?-->\s*)?(?:<!doctype\s+html|<html[\s>])", re.I | re.S
)


@dataclass(frozen=True)
class Input:
    """A file to read: path, name in document ids, format, compression ("" or a suffix); named: by the user."""

    path: Path
    name: str
    kind: str
    compression: str
    named: bool = True


def readable_suffixes() -> Iterable[str]:
    """Suffixes of the readable formats, without source code."""
    return (suffix for suffix, kind in _FORMAT_OF.items() if kind != "code")


def input_of(path: Path, name: str, kind: str, named: bool = True) -> Input | str:
    """The file's format and compression as an `Input`, or the reason for leaving it out.

    Args:
        path: an existing file.
        name: its name in document ids, with its suffixes, which are removed if they are known.
        kind: one of FORMATS; "auto": inferred from the file.
        named: whether the user gave this file, not a folder above it; source code and build files are then read.
    """
    compression = path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""
    bare = path.with_suffix("") if compression else path
    suffix = bare.suffix.lower()
    if kind in ("auto", "code"):
        if _is_mail_index(path):
            return "is an index of a mail program, not a mail"
        if path.parent.name == "tmp" and _is_in_maildir(path.parent.parent / "cur" / path.name):
            return "is in the folder of a Maildir for mails that are not complete"
        by_name = "eml" if _is_in_maildir(path) else _FORMAT_OF.get(suffix)
        if by_name == "code" and kind == "auto" and not named:
            return f"is source code ({suffix}); pass --source-code to read it"
        if by_name is None and suffix:
            return _reason_against_suffix(path, bare, compression)
        if by_name is None and _BUILD_FILE.fullmatch(bare.name) and not named:
            return "is a build file by its name; if it is text, name it *.txt"
        kind = by_name or "txt"
        if suffix in ("", ".txt") and kind == "txt":
            head = _head_of(path, compression)
            kind = "mbox" if is_mbox(head) else "eml" if is_mail(head) else "html" if _PAGE.match(head) else "txt"
    if compression and kind in ("parquet", *OFFICE_KINDS):
        return f"is compressed {kind}; unpack it"
    if missing := missing_package(kind):
        return missing
    name = name[: len(name) - len(compression) - len(suffix if suffix in _FORMAT_OF else "")]
    return Input(path, shown(name), kind, compression, named)


def _is_in_maildir(path: Path) -> bool:
    folders = [path.parent.parent / name for name in ("cur", "new", "tmp")]
    return path.parent in folders[:2] and all(folder.is_dir() for folder in folders)


def _is_mail_index(path: Path) -> bool:
    """Whether a file in a Maildir is a mail server's: without a suffix, or with a server's name."""
    is_servers = path.name.startswith(("dovecot", "courier", "maildir", "cyrus."))
    return (is_servers or not path.suffix) and all((path.parent / name).is_dir() for name in ("cur", "new", "tmp"))


def _reason_against_suffix(path: Path, bare: Path, compression: str) -> str:
    """Why a file with an unknown suffix is not read; bare: its path without a compression's suffix."""
    suffix = bare.suffix.lower()
    if suffix == ".xml" and (dump := _DUMP.search(_head_of(path, compression))) is not None:
        return _reason_against_dump(path, dump)
    remedy = "; if it is text, name it *.txt" if _may_be_prose(path, bare.name, compression) else ""
    return _REASON_OF.get(suffix, f"is of no format that is read ({suffix}){remedy}")


def _reason_against_dump(path: Path, dump: re.Match[bytes]) -> str:
    """Why a wiki's dump is not read: the command that extracts its articles."""
    match = re.search(rb"xml:lang=.([a-z][\w-]*)", dump[0])
    language = match[1].decode() if match else "LANGUAGE"
    flags = ["--language", language, "--local-dump", shown(path), "--output-dir", "FOLDER"]
    importing = shell_command("data.download_wikipedia", *flags)
    return f"is a dump of a wiki; extract its articles, and give FOLDER instead: {importing}"


def _may_be_prose(path: Path, name: str, compression: str) -> bool:
    """Whether a file with an unknown name may be text: no picture, style sheet, program or base64."""
    head = _head_of(path, compression).decode("utf-8", "replace")
    is_other = (mimetypes.guess_type(name)[0] or "").startswith(("image/", "audio/", "video/", "font/", "text/css"))
    is_other |= "\0" in head or head.count("\ufffd") > len(head) / 4
    return not (is_other or is_mostly_base64(base64_characters(head), len(head)))


def _head_of(path: Path, compression: str) -> bytes:
    """First bytes of a file; empty if it cannot be read, which is reported later."""
    with suppress(DamagedError, NotTextError, OSError):
        return next(read_chunks(path, compression, _HEAD_BYTES), b"")
    return b""


def table_input(path: Path, kind: str = "auto") -> Input:
    """A table as an `Input`; plain text counts as TSV. ValueError for another kind of file."""
    if _FORMAT_OF.get(path.suffix.lower()) in OFFICE_KINDS and kind == "auto":
        source: Input | str = "is an office document; save it as CSV"
    else:
        source = input_of(path, path.name, kind)
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

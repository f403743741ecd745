"""Download books from a list of addresses, or read local ones; Project Gutenberg's licences are removed.

    python -m data.download_books --outdir D --url-list LIST.txt [--lang en]
    python -m data.download_books --outdir D --local-books DIR_OR_FILES...

LIST.txt has one address per line (# begins a comment), optionally followed by a checksum, sha256:... Give addresses of
plain text, e.g. of books that you chose at one of the mirrors of Project Gutenberg listed at
https://www.gutenberg.org/MIRRORS.ALL (its own site forbids downloads by programs). The books go to
D/source/<lang>/N.txt, the downloaded files to D/download/, and D/report.json lists what was dropped and why.

BookCorpus, the 11,038 books that BERT was trained on, is gone: there is no official copy of it any more, and the
authors of the books, which came from smashwords.com, never agreed to one. This program does not know where to get it.
Wikipedia alone, or with other books, is the usual replacement; `python -m data.import_text` reads your own text.
"""

import hashlib
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bert.command_errors import command
from bert.files import only_writer, read_json, shown, write_atomically
from bert.help_parser import HelpParser
from bert.reporting.progress import megabytes, progress
from bert.samples.manifest import UNFINISHED_NAME
from data.fetching.transfer import DownloadError, Remote, digest_of, fetch
from data.text.encodings import NotTextError, decoded
from data.text.inputs import COMPRESSIONS, Findings, files_below, is_set_aside, read_chunks
from data.text.lddl_writer import (
    REPORT_NAME,
    SourceWriter,
    check_free,
    check_language,
    counts_line,
    document_id,
    document_line,
    fresh_folder,
    print_counts,
    publish,
)
from data.text.readers import book_of

_MAX_BOOK_BYTES = 256 << 20
_MAX_EXAMPLES = 50
_MIN_CHARACTERS = 1000  # shorter ones are notices, not books


def read_list(path: Path) -> dict[str, Remote]:
    """The books of a list of addresses, each under a name that is unique and safe as a file name."""
    if not path.is_file():
        raise ValueError(f"url_list={path}: no such file; write one address per line into it")
    books: dict[str, Remote] = {}
    for number, line in enumerate(path.read_text("utf-8-sig").splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) > 2:
            raise ValueError(f"{path}:{number}: holds {len(words)} words; a line is an address and perhaps a checksum")
        try:
            checksum = words[1] if len(words) > 1 else None
            books[_file_name(words[0])] = Remote((words[0],), checksum, max_bytes=_MAX_BOOK_BYTES)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from error
    if not books:
        raise ValueError(f"{path}: holds no address; write one per line")
    return books


def _file_name(url: str) -> str:
    """The last part of the address, made safe, after six digits of its hash: two addresses never share a name."""
    last = re.sub(r"[^\w.-]", "_", unquote(urlsplit(url).path).rpartition("/")[2])[-80:].lstrip(".") or "book"
    return f"{hashlib.sha256(url.encode()).hexdigest()[:6]}-{last}"


def download_books(books: dict[str, Remote], folder: Path) -> tuple[list[Path], list[str]]:
    """(downloaded files, error messages of the others)."""
    files, failures = [], []
    for name, remote in progress("books", len(books), "files", books.items()):
        try:
            fetch(remote, folder / name)
            files.append(folder / name)
        except DownloadError as error:
            failures.append(str(error).splitlines()[1].strip() if "\n" in str(error) else str(error))
    return files, failures


def write_books(
    files: list[Path], optional: set[Path], output: Path, language: str, failures: list[str], counts: Counter
) -> dict:
    """Write the books' text below output/source/<language>, and the report of this and the steps before."""
    final = output / "source" / check_language(language)
    settings = {"language": language, "files": sorted(f"{digest_of(path)} {shown(path.name)}" for path in files)}
    report = read_json(output / REPORT_NAME)
    if report.get("settings") == settings and final.is_dir():
        return report
    check_free(final)
    work = fresh_folder(output / UNFINISHED_NAME)
    failures = list(failures)
    if failures:
        counts["dropped: not downloaded"] = len(failures)
    with SourceWriter(work / "books") as writer:
        for line in _lines(files, optional, language, failures, counts):
            writer.write(line)
    if not writer.files:
        shutil.rmtree(work)
        raise ValueError(
            f"{len(files)} files hold no book of {_MIN_CHARACTERS} characters or more ({counts_line(counts)}); "
            "give the addresses of plain text"
        )
    report = {
        "settings": settings,
        "counts": dict(sorted(counts.items())),
        "failures": failures,
        "documents": counts["books"],
        "bytes": sum(file.num_bytes for file in writer.files),
    }
    write_atomically(output / REPORT_NAME, (json.dumps(report, indent=1) + "\n").encode())
    publish(work / "books", final)
    shutil.rmtree(work)
    return report


def _lines(
    files: list[Path], optional: set[Path], language: str, failures: list[str], counts: Counter
) -> Iterator[bytes]:
    """A line for each book, without repetitions; adds to `failures` the files that are not text."""
    seen: set[bytes] = set()
    for path in files:
        try:
            text, had_licence = book_of(_text_of(path, language, counts))
        except NotTextError as error:
            if path not in optional:
                raise ValueError(
                    f"{shown(path)}: {error}; remove the file, and from the list its address, or leave "
                    "out such files: --allow-missing"
                ) from error
            counts["files that are no text left out"] += 1
            failures.append(f"{shown(path)}: {error}; left out")
            continue
        line = document_line(document_id(f"book-{shown(path.name)}"), text)
        digest = hashlib.sha256(line.partition(b" ")[2]).digest()
        counts["files read"] += 1
        counts["with Project Gutenberg's licence"] += had_licence
        if len(text) < _MIN_CHARACTERS or digest in seen:
            counts["dropped: duplicate" if digest in seen else "dropped: short"] += 1
            continue
        seen.add(digest)
        counts["books"] += 1
        yield line


def _text_of(path: Path, language: str, counts: Counter) -> str:
    compression = path.suffix.lower() if path.suffix.lower() in COMPRESSIONS else ""
    lost: Counter = Counter()
    text = "".join(decoded(lambda: read_chunks(path, compression), "auto", language, lost)[1])
    counts.update(lost)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def local_files(paths: list[Path], counts: Counter) -> list[Path]:
    """The files given, and those in the folders with .txt in their names; other files there are counted."""
    files = []
    for path in paths:
        for file in files_below(path, Findings(counts)) if path.is_dir() else [path]:
            name = file.relative_to(path)
            if path.is_dir() and (is_set_aside(name) or ".txt" not in name.name.lower()):
                counts["files of other kinds left out"] += 1
            elif file.is_file():
                files.append(file)
    missing = [path for path in paths if not path.exists()]
    if missing or not files:
        raise ValueError(f"local_books={' '.join(map(shown, missing or paths))}: no such file, or no *.txt in it")
    return files


def _parser() -> HelpParser:
    parser = HelpParser(description=__doc__)
    parser.add_argument("--outdir", type=Path, required=True, help="gets source/<lang>/N.txt, report.json, download/")
    parser.add_argument("--url-list", type=Path, metavar="LIST", help="one address per line")
    parser.add_argument("--local-books", type=Path, nargs="+", metavar="PATH", help="files and folders that you have")
    parser.add_argument("--lang", default="en", help="language code, the name of the folder below source/")
    parser.add_argument(
        "--allow-missing", action="store_true", help="leave out addresses that fail and files that are not text"
    )
    return parser


def main(argv: list[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    with command(arguments.outdir, "interrupted; the same command resumes, and keeps what was downloaded"):
        if not arguments.url_list and not arguments.local_books:
            raise ValueError(
                "BookCorpus, which BERT was trained on, is gone: there is no official copy of it any more. Give a list "
                "of books with --url-list, your own with --local-books, or train on Wikipedia alone (see --help)"
            )
        failures: list[str] = []
        counts: Counter = Counter()
        files = local_files(arguments.local_books, counts) if arguments.local_books else []
        optional = set(files).difference(arguments.local_books or ())
        with only_writer(arguments.outdir):
            if arguments.url_list:
                downloaded, failures = download_books(read_list(arguments.url_list), arguments.outdir / "download")
                files += downloaded
            if failures and not arguments.allow_missing:
                raise ValueError(
                    f"{len(failures)} books could not be downloaded, e.g. {failures[0]}; start again to "
                    "try them again, correct the list, or leave them out: --allow-missing"
                )
            if arguments.allow_missing:
                optional.update(files)
            report = write_books(files, optional, arguments.outdir, arguments.lang, failures, counts)
    print(f"{report['documents']} books, {megabytes(report['bytes'])} below {shown(arguments.outdir)}")
    print_counts(report["counts"])
    for line in report["failures"][:_MAX_EXAMPLES]:
        print(f"  {line}")


if __name__ == "__main__":
    main()

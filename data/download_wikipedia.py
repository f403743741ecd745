"""Download a Wikipedia dump and extract the text of its articles.

    python -m data.download_wikipedia --output-dir D [--language en] [--dump-date YYYYMMDD] [--local-dump FILE.xml.bz2]

The text goes to D/source/<lang>/N.txt, one article per line, its id first; D/report.json lists what was dropped and
why. After an interruption, start the same command again: it resumes the download and the extraction.

Wikimedia keeps a dump for some months only, so the default for English is the dump of 2020-01-01, which the Internet
Archive has and whose checksum is known. For newer ones and for other languages see https://dumps.wikimedia.org.
"""

import os
import re
import shutil
import tempfile
from pathlib import Path

from bert.command_errors import command
from bert.files import only_writer
from bert.help_parser import HelpParser
from bert.reporting.progress import megabytes
from data.preprocessing.estimates import PINNED_DUMP_BYTES, TEXT_PER_DUMP_BYTE
from data.text.code_pages import check_language
from data.text.lddl_writer import print_counts
from data.wikipedia.articles import Extraction, extract

_PINNED_DATES = {"en": "20200101"}
_PINNED_DUMPS = {  # what MLPerf's BERT is trained on
    "enwiki-20200101-pages-articles-multistream.xml.bz2": ("md5:00d47075e0f583fb7c0791fac1c57cb3", PINNED_DUMP_BYTES)
}
_WIKIMEDIA = "https://dumps.wikimedia.org/{wiki}/{date}/"
_ARCHIVE = "https://archive.org/download/{wiki}-{date}/"


def published_checksum(name: str, folders: list[str]) -> str:
    """The published checksum of a dump, "sha1:..."."""
    from data.fetching.transfer import DownloadError, fetch  # loads requests, which --help does not need

    sums = name.replace("-pages-articles-multistream.xml.bz2", "-sha1sums.txt")
    with tempfile.TemporaryDirectory() as folder:
        try:
            fetch(Path(folder, sums), [base + sums for base in folders])
        except DownloadError as error:
            raise DownloadError(
                f"{error}\n  Without its list of checksums the dump cannot be verified. Wikimedia keeps dumps for some "
                "months: choose a --dump-date that it lists, or give the --checksum yourself"
            ) from error
        for line in Path(folder, sums).read_text("utf-8", errors="replace").splitlines():
            digest, _, file = line.partition(" ")
            if file.strip() == name and re.fullmatch("[0-9a-f]{40}", digest):
                return f"sha1:{digest}"
    raise DownloadError(f"{sums}: does not list {name}; the dump is not finished yet: choose an earlier --dump-date")


def download_dump(
    language: str, date: str | None, folder: Path, *, mirrors: list[str], checksum: str | None = None
) -> Path:
    from data.fetching.transfer import fetch

    wiki = check_language(language).lower().replace("-", "_") + "wiki"
    date, listed = date or _PINNED_DATES.get(language), f"https://dumps.wikimedia.org/{wiki}/"
    if date is None:
        raise ValueError(
            f"lang={language}: no dump is pinned for this language; name one with --dump-date, from the "
            f"list at {listed}"
        )
    if not re.fullmatch(r"20\d{6}", date):
        raise ValueError(f"dump_date={date!r} must be YYYYMMDD, a date listed at {listed}")
    name, size = f"{wiki}-{date}-pages-articles-multistream.xml.bz2", None
    patterns = [mirror.rstrip("/") + "/{wiki}/{date}/" for mirror in mirrors] or [_WIKIMEDIA, _ARCHIVE]
    folders = [pattern.replace("{wiki}", wiki).replace("{date}", date) for pattern in patterns]
    target = folder / name
    if checksum is None and name in _PINNED_DUMPS:
        checksum, size = _PINNED_DUMPS[name]
    checksum = checksum or published_checksum(name, folders)
    print(f"{name}: {'' if size is None else megabytes(size) + ', '}{checksum}", flush=True)
    if size is not None and not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        needed, free = size * (1 + TEXT_PER_DUMP_BYTE), shutil.disk_usage(folder).free
        enough = "" if free > needed else ": this will not be enough"
        room = f"needs about {megabytes(needed)} of disk, dump and text; {folder} has {megabytes(free)}"
        print(room + enough, flush=True)
    fetch(target, [base + name for base in folders], checksum, size)
    print(f"{target}: complete ({checksum})", flush=True)
    return target


def _parser() -> HelpParser:
    parser = HelpParser(description=__doc__)
    parser.add_argument(
        "--output-dir", dest="outdir", type=Path, required=True, help="gets source/<lang>/N.txt, report.json, download/"
    )
    parser.add_argument("--language", dest="lang", default="en", help="language code of the Wikipedia")
    parser.add_argument("--dump-date", metavar="YYYYMMDD", help="default for en: 20200101; none for other languages")
    parser.add_argument("--local-dump", type=Path, metavar="FILE", help="a dump (*.xml.bz2 or *.xml) that you have")
    parser.add_argument(
        "--mirror",
        action="append",
        default=[],
        metavar="URL",
        help="instead of Wikimedia and the Internet Archive: URL/<lang>wiki/<date>/ holds the dump; may be repeated",
    )
    parser.add_argument("--checksum", help="sha256:, sha1: or md5: of the dump, instead of the published one")
    parser.add_argument("--min-characters", type=int, default=1, help="drop articles with less text")
    parser.add_argument(
        "--num-processes", dest="local_n_workers", type=int, default=os.cpu_count() or 1, help="default: all cores"
    )
    parser.add_old_names({"--outdir": "--output-dir", "--lang": "--language", "--local-n-workers": "--num-processes"})
    return parser


def main(argv: list[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    with command(arguments.outdir, "interrupted; the same command resumes"):
        dump = arguments.local_dump
        if dump is None:
            dump = download_dump(
                arguments.lang,
                arguments.dump_date,
                arguments.outdir / "download",
                mirrors=arguments.mirror,
                checksum=arguments.checksum,
            )
        elif not dump.is_file():
            raise ValueError(f"local_dump={dump}: no such file; give a dump, *.xml.bz2 or *.xml")
        with only_writer(arguments.outdir):
            free = shutil.disk_usage(arguments.outdir).free
            print(
                f"extracting {megabytes(dump.stat().st_size)}, {arguments.local_n_workers} processes; "
                f"{megabytes(free)} of disk are free",
                flush=True,
            )
            job = Extraction(dump, arguments.outdir, check_language(arguments.lang), arguments.min_characters)
            report = extract(job, arguments.local_n_workers)
    print(
        f"{report['documents']} articles, {megabytes(report['bytes'])} in {len(report['files'])} files in "
        f"{job.folder()}"
    )
    print_counts(report["counts"])


if __name__ == "__main__":
    main()

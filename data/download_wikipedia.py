"""Download a Wikipedia dump and extract the text of its articles.

The text goes to D/source/<lang>/N.txt, one article per line, its id first; D/report.json lists what was dropped and
why. After an interruption, start the same command again: it resumes the download and the extraction.

Wikimedia keeps a dump for some months only, so the default for English is the dump of 2020-01-01, which the Internet
Archive has and whose checksum is known. For newer ones and for other languages see https://dumps.wikimedia.org.
"""

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, field_validator

from bert.command_errors import command
from bert.config.flags import Flag
from bert.config.plain_commands import Language, OutputDir, read_flags
from bert.config.settings_base import Settings
from bert.files import only_writer
from bert.reporting.progress import megabytes
from data.fetching.places import Mirrors
from data.preprocessing.estimates import PINNED_DUMP_BYTES, TEXT_PER_DUMP_BYTE
from data.preprocessing.workers import NumWorkers, all_cores
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
    language: str, date: str | None, folder: Path, *, mirrors: Sequence[str], checksum: str | None = None
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


class WikipediaRequest(Settings):
    """The settings of this command, read from its flags."""

    outdir: OutputDir = Field(description="gets source/<lang>/N.txt, report.json, download/")
    lang: Language = Field("en", description="language code of the Wikipedia")
    dump_date: Annotated[
        str | None, Flag(placeholder="YYYYMMDD", default_text="20200101 for en, none for other languages")
    ] = Field(None, description="date of the dump")
    local_dump: Path | None = Field(None, description="a dump (*.xml.bz2 or *.xml) that you have")
    mirror: Mirrors = Field(
        (), description="instead of Wikimedia and the Internet Archive: URL/<lang>wiki/<date>/ holds the dump"
    )
    checksum: str | None = Field(
        None, description="sha256:, sha1: or md5: of the dump, instead of the published checksum"
    )
    min_characters: int = Field(1, description="drop articles with less text")
    local_n_workers: NumWorkers = Field(default_factory=all_cores, description="processes")

    @field_validator("local_dump")
    @classmethod
    def _is_file(cls, dump: Path | None) -> Path | None:
        if dump is not None and not dump.is_file():
            raise ValueError(f"local_dump={dump}: no such file; give a dump, *.xml.bz2 or *.xml")
        return dump


_EXAMPLES = ("--output-dir D --language ta --dump-date 20260101", "--output-dir D --local-dump enwiki.xml.bz2")


def main(argv: list[str] | None = None) -> None:
    request = read_flags(WikipediaRequest, argv, description=__doc__, examples=_EXAMPLES)
    with command(request.outdir, "interrupted; the same command resumes"):
        dump = request.local_dump
        if dump is None:
            dump = download_dump(
                request.lang,
                request.dump_date,
                request.outdir / "download",
                mirrors=request.mirror,
                checksum=request.checksum,
            )
        with only_writer(request.outdir):
            free = shutil.disk_usage(request.outdir).free
            print(
                f"extracting {megabytes(dump.stat().st_size)}, {request.local_n_workers} processes; "
                f"{megabytes(free)} of disk are free",
                flush=True,
            )
            job = Extraction(dump, request.outdir, check_language(request.lang), request.min_characters)
            report = extract(job, request.local_n_workers)
    print(
        f"{report['documents']} articles, {megabytes(report['bytes'])} in {len(report['files'])} files in "
        f"{job.folder()}"
    )
    print_counts(report["counts"])


if __name__ == "__main__":
    main()

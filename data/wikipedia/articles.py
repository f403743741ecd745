"""Extracts the articles of a Wikipedia dump as text in LDDL's source layout.

The dump is processed in spans (data.wikipedia.dump). Each span writes its own files to a hidden folder, then a record;
a killed run resumes with the spans that have no record. At the end the files are numbered and published together. Their
content depends on the dump and the settings, not on the number of workers.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bert.files import read_json, sha256_of, write_atomically
from bert.reporting.progress import progress
from bert.samples.manifest import UNFINISHED_NAME
from data.preprocessing.workers import run_ordered
from data.text.lddl_writer import (
    MAX_FILE_BYTES,
    REPORT_NAME,
    SourceWriter,
    WrittenFile,
    check_free,
    counts_line,
    fresh_folder,
    publish,
    utf8,
)
from data.wikipedia.dump import DumpError, Page, Span, SpanReader, check_end, parse_page, plan_spans, read_namespaces
from data.wikipedia.wikitext import Site, prose_of

_SPAN_BYTES = 16 << 20
_XML_SPAN_BYTES = 64 << 20
_VERSION = 4  # of the extraction; raise it when its result changes
_FILES_VERSION = 3  # of the files of unfinished extractions


@dataclass(frozen=True)
class Extraction:
    """Settings that decide the extracted text, and where it is written.

    span_bytes None: 16 MiB of a compressed dump, 64 MiB of XML. min_characters: shorter articles are dropped.
    """

    dump: Path
    output: Path
    language: str = "en"
    min_characters: int = 1
    span_bytes: int | None = None
    max_file_bytes: int = MAX_FILE_BYTES

    def folder(self) -> Path:
        return self.output / "source" / self.language

    def settings(self) -> dict:
        """Settings that decide the files, as the report stores them."""
        return {
            "extraction": _VERSION,
            "dump": self.dump.name,
            "dump bytes": self.dump.stat().st_size,
            "language": self.language,
            "min_characters": self.min_characters,
            "span_bytes": self.bytes_per_span(),
            "max_file_bytes": self.max_file_bytes,
        }

    def bytes_per_span(self) -> int:
        return self.span_bytes or (_SPAN_BYTES if self.dump.suffix == ".bz2" else _XML_SPAN_BYTES)


def extract(job: Extraction, num_workers: int) -> dict:
    """Extract the text and write its report; finished spans of an equal earlier run are kept."""
    spans = plan_spans(job.dump, job.bytes_per_span())
    if finished := _finished(job):
        shutil.rmtree(job.output / UNFINISHED_NAME, ignore_errors=True)
        return finished
    check_free(job.folder())
    site = Site.of(read_namespaces(job.dump))
    stamp = [job.settings(), job.dump.stat().st_mtime_ns, _FILES_VERSION]
    folder = job.output / UNFINISHED_NAME / sha256_of(json.dumps(stamp, sort_keys=True).encode())[:16]
    folder.mkdir(parents=True, exist_ok=True)
    extract_span(job, site, folder, spans[-1])  # first, because a truncated dump fails there
    counts: Counter = Counter()
    files: list[WrittenFile] = []
    tail, last_page = "", "missing"
    with progress(f"text of {job.dump.name}", job.dump.stat().st_size) as meter:
        tasks = [(job, site, folder, span) for span in spans]
        for span, result in zip(spans, run_ordered(extract_span, tasks, num_workers), strict=True):
            counts.update(result["counts"])
            files += [WrittenFile(**record) for record in result["files"]]
            tail, last_page = tail[-64:] + result["tail"], result["last page"] or last_page
            meter.update(span.stop - span.start)
    check_end(job.dump, tail.encode("latin-1"), last_page)
    if not counts["pages"]:
        raise DumpError(f"{job.dump}: holds no page; the dump is empty or incomplete: download it again")
    if not files:
        raise DumpError(
            f"{job.dump}: none of its {counts['pages']} pages is an article with sentences "
            f"({counts_line(counts)}); is it the dump of the right wiki?"
        )
    numbered = [replace(file, name=f"{number}.txt") for number, file in enumerate(files)]
    report = {
        "settings": job.settings(),
        "counts": dict(sorted(counts.items())),
        "documents": sum(file.documents for file in files),
        "bytes": sum(file.num_bytes for file in files),
        "files": {file.name: {"documents": file.documents, "bytes": file.num_bytes} for file in numbered},
    }
    prepared = _number(folder, files, numbered)
    content = (json.dumps(report, indent=1) + "\n").encode()
    write_atomically(job.output / REPORT_NAME, content)  # valid once the files exist
    publish(prepared, job.folder())
    shutil.rmtree(job.output / UNFINISHED_NAME)
    return report


def extract_span(job: Extraction, site: Site, folder: Path, span: Span) -> dict:
    """Write one span's files, unless they exist; returns {"counts", "files", "tail", "last page"}."""
    record = folder / f"{span.index}.json"
    if record.exists():
        return json.loads(record.read_bytes())
    counts: Counter = Counter()
    reader = SpanReader(job.dump, span)
    with SourceWriter(folder, job.max_file_bytes, f"{span.index}-") as writer:
        for page in _articles(reader, counts):
            text = " ".join(prose_of(page.text, site, job.language, counts))
            if len(text) < max(1, job.min_characters):
                counts["dropped: no sentences" if not text else "dropped: short"] += 1
                continue
            line = utf8(f"wiki-{page.id} {' '.join(text.split())}\n")
            counts["articles"] += 1
            counts["characters"] += len(text)
            writer.write(line)
    result = {
        "counts": dict(sorted(counts.items())),
        "files": [asdict(file) for file in writer.files],
        "tail": reader.tail.decode("latin-1"),
        "last page": reader.last_name() if reader.last else None,
    }
    write_atomically(record, json.dumps(result).encode())
    return result


def _articles(reader: SpanReader, counts: Counter) -> Iterator[Page]:
    """Pages that are articles; other pages are counted by the reason for dropping them."""
    for xml in reader.pages():
        counts["pages"] += 1
        try:
            page = None if xml is None else parse_page(xml)
        except ValueError:
            counts["dropped: not well-formed XML"] += 1
            continue
        if page is None:
            counts["dropped: page too long"] += 1
        elif page.namespace != 0:
            counts["dropped: other namespace"] += 1
        elif page.is_redirect:
            counts["dropped: redirect"] += 1
        elif page.model != "wikitext":
            counts["dropped: not wikitext"] += 1
        else:
            counts["characters of markup"] += len(page.text)
            yield page


def _number(folder: Path, files: list[WrittenFile], numbered: list[WrittenFile]) -> Path:
    """Make a folder with all spans' files under their final names; the originals stay until it is published."""
    prepared = fresh_folder(folder / "numbered")
    for file, final in zip(files, numbered, strict=True):
        try:
            os.link(folder / file.name, prepared / final.name)
        except OSError:  # a file system without hard links
            shutil.copyfile(folder / file.name, prepared / final.name)
    return prepared


def _finished(job: Extraction) -> dict | None:
    """Report of a finished run with the same settings, if its files have the recorded sizes."""
    report = read_json(job.output / REPORT_NAME)
    files = report.get("files")
    made = {**(report.get("settings") or {}), "extraction": _VERSION}  # finished text of an older one is kept
    if made != job.settings() or not isinstance(files, dict):
        return None
    paths = {job.folder() / name: facts["bytes"] for name, facts in files.items()}
    return report if all(path.is_file() and path.stat().st_size == size for path, size in paths.items()) else None

"""Imports text files: reads documents, drops duplicates, splits, writes LDDL's layout, and reports."""

import hashlib
import json
import math
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path

from bert.files import read_json, shown, write_atomically
from bert.help_parser import wrapped
from bert.reporting.progress import megabytes, progress
from bert.samples.manifest import UNFINISHED_NAME
from data.text.compression import DamagedError
from data.text.deduplication import SeenDocuments
from data.text.file_formats import SOURCE_TEXT, Input
from data.text.findings import Findings
from data.text.held_out_split import (
    LEAST_BYTES,
    MEASURABLE_BYTES,
    PARTS,
    Documents,
    check_groups,
    divide,
    held_out_bytes,
)
from data.text.import_settings import ImportSettings
from data.text.inputs import list_inputs, total_bytes
from data.text.lddl_writer import (
    MAX_FILE_BYTES,
    REPORT_NAME,
    ShuffledWriter,
    SourceWriter,
    WrittenFile,
    check_free,
    check_room,
    counts_line,
    fresh_folder,
    print_counts,
    publish,
    utf8,
)
from data.text.readers import read_pieces
from data.text.same_text import TextDigest
from data.text.sentences import LINE_BREAK
from data.text.text_check import NotTextError, base64_characters

_LARGE_BYTES = 50 << 20
_SPOOL_BYTES = 8 << 20  # a longer document is kept on disk until the check for duplicates
_COPY_BYTES = 1 << 20
_ROOM_BYTES = 64 << 20  # of text after which the disk is looked at again
_MAX_EXAMPLES = 20


class _Document:
    """A document while it is read: its text with single spaces, in memory or, if long, on disk."""

    def __init__(self, identifier: str, deduplicate: str | None, folder: Path, has_lines: bool) -> None:
        """has_lines: line breaks become LINE_BREAK."""
        self.id = utf8("_".join(identifier.split()) or "document").decode()
        self.digest = TextDigest(deduplicate)
        self.characters = self.num_bytes = self.base64_characters = 0
        self.group: str | None = None
        self._spool = tempfile.SpooledTemporaryFile(_SPOOL_BYTES, dir=str(folder))
        self._space, self._break = False, LINE_BREAK if has_lines else " "

    def add(self, text: str) -> None:
        self.base64_characters += base64_characters(text)
        lines = [text] if self._break == " " else text.splitlines()
        words = self._break.join(filter(None, (" ".join(line.split()) for line in lines)))
        self._space |= text[:1].isspace()
        if words:
            joined = self._break * (self._space and self.characters > 0) + words
            data = utf8(joined)
            self._spool.write(data)
            self.digest.add(data)
            self.characters += len(joined)
            self.num_bytes += len(data)
            self._space = False
        self._space |= text[-1:].isspace()

    def write(self, writer: SourceWriter) -> None:
        writer.write(utf8(self.id) + b" ", is_end=False)
        self._spool.seek(0)
        while data := self._spool.read(_COPY_BYTES):
            writer.write(data, is_start=False, is_end=False)
        writer.write(b"\n", is_start=False)

    def close(self) -> None:
        self._spool.close()


class _Import:
    """One import; `findings` and `duplicates` name the omitted documents."""

    def __init__(self, inputs: list[Input], settings: ImportSettings, findings: Findings, work: Path) -> None:
        self._inputs, self._settings, self._work = inputs, settings, work
        self.findings = findings
        self.duplicates: list[str] = []  # the first ones
        self._kept = Documents()
        self._groups: set[bytes] = set()

    def write(self) -> dict[str, list[WrittenFile]]:
        """Write work/all, or work/train and work/held_out; returns the files of each part."""
        mode = self._settings.deduplicate
        index = closing(SeenDocuments(self._work / "seen.sqlite", mode)) if mode else nullcontext()
        with index as seen, SourceWriter(self._work / "all") as writer:
            for document in self._documents():
                if self._is_kept(document, seen):
                    document.write(writer)
                document.close()
        return self._divide(writer.files) if self._settings.held_out_fraction else {"all": writer.files}

    def _documents(self) -> Iterator[_Document]:
        mode = self._settings.deduplicate
        read = 0  # characters since the disk was looked at
        plain = [source for source in self._inputs if source.kind in ("txt", "log") and not source.compression]
        check_room(self._work, total_bytes(plain))
        with progress("import", total_bytes(self._inputs)) as meter:
            for source in self._inputs:
                document: _Document | None = None
                number = 0
                try:
                    for piece in read_pieces(source, self._settings.reading(), self.findings):
                        has_lines = source.kind in ("code", SOURCE_TEXT)
                        document = document or _Document(piece.id, mode, self._work, has_lines)
                        document.add(piece.text)
                        if (read := read + len(piece.text)) > _ROOM_BYTES:
                            check_room(self._work)
                            read = 0
                        if piece.ends:
                            document.group = piece.group
                            _warn_if_large(source, document, self._settings)
                            yield document
                            document, number = None, number + 1
                    self.findings.counts["files read"] += 1
                except (NotTextError, DamagedError) as error:
                    self.findings.refuse(source, error, number)
                meter.update(source.path.stat().st_size)

    def _is_kept(self, document: _Document, seen: SeenDocuments | None) -> bool:
        """Count the document, or the reason for dropping it; returns whether it is kept."""
        counts = self.findings.counts
        counts["documents read"] += 1
        if document.characters < max(1, self._settings.min_characters):
            reason = "short" if document.characters else "empty"
            self.findings.leave_out(f"dropped: {reason}", document.id, f"is {reason}")
            return False
        if self.findings.drops_base64(document.id, document.base64_characters, document.characters):
            return False
        if seen is not None and (earlier := seen.earlier(document.id, document.digest)) is not None:
            kind, identifier = earlier
            counts[f"dropped: {kind} duplicate"] += 1
            if len(self.duplicates) < _MAX_EXAMPLES:
                self.duplicates.append(f"{document.id} = {identifier} ({kind})")
            return False
        counts["documents"] += 1
        counts["characters"] += document.characters
        counts["bytes of text"] += document.num_bytes
        if self._settings.held_out_fraction:
            is_grouped = document.group is not None or self._settings.group_by is not None
            self._kept.add(self._key(document), document.num_bytes, is_grouped)
        return True

    def _key(self, document: _Document) -> bytes:
        """Hash that decides the part of a document: its group's, or its text's."""
        if document.group is None:
            if self._settings.group_by is not None:
                self.findings.counts["documents without a group"] += 1
            return document.digest.sha256()
        key = hashlib.sha256(utf8(document.group)).digest()
        self._groups.add(key[:8])
        self.findings.counts["groups"] = len(self._groups)
        return key

    def _divide(self, files: list[WrittenFile]) -> dict[str, list[WrittenFile]]:
        total, fraction = self.findings.counts["bytes of text"], self._settings.held_out_fraction
        check_room(self._work, total)  # both parts are written beside the whole
        train = ShuffledWriter(self._work / "train", max(1, math.ceil(total * (1 - fraction) / MAX_FILE_BYTES)))
        paths = [(self._work / "all" / file.name, file.documents) for file in files]
        with SourceWriter(self._work / "held_out") as held_out:
            if files:
                with progress("held-out part", total) as meter:
                    divide(paths, self._kept, fraction, train, held_out, meter.update)
            train.close()
        (self._work / "all").rmdir()
        return dict(zip(PARTS, (train.files, held_out.files), strict=True))


def import_files(paths: Sequence[Path], output: Path, settings: ImportSettings) -> dict:
    """Import the files: write the corpus and its report; returns the report."""
    parts = PARTS if settings.held_out_fraction else ("",)
    finals = {part: output / part / "source" / settings.lang for part in parts}
    findings = Findings()
    kind = "code" if settings.source_code and settings.format == "auto" else settings.format
    inputs = list_inputs(paths, kind, findings, settings.follow_links)
    facts = {
        "settings": settings.model_dump(mode="json"),
        "input files": len(inputs),
        "input bytes": total_bytes(inputs),
    }
    work = output / UNFINISHED_NAME
    unpublished = read_json(work / REPORT_NAME)  # of a run that was killed while it published its files
    if all(unpublished.get(name) == value for name, value in facts.items()):
        return _finish(output, unpublished, finals)
    for final in finals.values():
        check_free(final)
    job = _Import(inputs, settings, findings, fresh_folder(work))
    try:
        written = job.write()
        if settings.held_out_fraction:
            check_groups(settings.group_by, findings.counts["groups"])
        if empty := [part for part, files in written.items() if not files]:
            reasons = "; ".join([*findings.left_out[:3], *findings.problems[:3]])
            raise ValueError(
                f"{len(inputs)} files gave no document{'' if empty[0] == 'all' else ' for ' + empty[0]}: "
                f"{counts_line(findings.counts)}{f' ({reasons})' if reasons else ''}; check --input-format, "
                "--text-column, --min-characters and --held-out-fraction"
            )
    except BaseException:  # Ctrl-C too
        shutil.rmtree(work, ignore_errors=True)
        raise
    report = {
        **facts,
        "encodings": dict(sorted(findings.encodings.items())),
        "counts": dict(sorted(findings.counts.items())),
        "parts": _sizes(written),
        "guessed": findings.guessed,
        "left out": findings.left_out,
        "problems": findings.problems,
        "noticed": [*findings.notices.sentences()],
        "duplicates": job.duplicates,
    }
    write_atomically(work / REPORT_NAME, utf8(json.dumps(report, indent=1, ensure_ascii=False) + "\n"))
    return _finish(output, report, finals)


def _sizes(written: dict[str, list[WrittenFile]]) -> dict[str, dict]:
    total = sum(file.num_bytes for files in written.values() for file in files)
    sizes = {}
    for part, files in written.items():
        num_bytes = sum(file.num_bytes for file in files)
        documents = sum(file.documents for file in files)
        share = num_bytes / max(1, total)
        sizes[part] = {"documents": documents, "bytes": num_bytes, "share": share, "files": len(files)}
    return sizes


def _finish(output: Path, report: dict, finals: dict[str, Path]) -> dict:
    work = output / UNFINISHED_NAME
    for part, final in finals.items():
        if (work / (part or "all")).exists():
            publish(work / (part or "all"), final)
    (work / REPORT_NAME).rename(output / REPORT_NAME)
    shutil.rmtree(work)
    return report


def _warn_if_large(source: Input, document: _Document, settings: ImportSettings) -> None:
    if source.kind in ("txt", "log") and settings.document_separator == "file" and document.num_bytes > _LARGE_BYTES:
        print(
            f"{shown(source.path)}: one document of {megabytes(document.num_bytes)}; if it holds several, name their "
            "separator: --document-separator line or blank-line",
            file=sys.stderr,
            flush=True,
        )


def print_report(report: dict, output: Path) -> None:
    """Print sizes of the parts, counts, and the first omissions."""
    for part, facts in report["parts"].items():
        share = "" if part == "all" else f" ({facts['share']:.1%} of the text)"
        print(
            f"{part}: {facts['documents']} documents, {megabytes(facts['bytes'])}{share} in {facts['files']} "
            f"file{'s' * (facts['files'] != 1)} below {shown(output)}"
        )
    print_counts({name: value for name, value in {**report["counts"], **report["encodings"]}.items() if value})
    for line in report.get("noticed", []):
        print(wrapped(line, indent="  "))
    for what in ("guessed", "left out", "problems", "duplicates"):
        if lines := report.get(what, []):
            title = "text columns guessed (--text-column names others)" if what == "guessed" else what
            listed = "\n  ".join([f"{title}:", *_examples(lines)])
            print(listed.replace(" = ", "\n    = ") if what == "duplicates" else listed)
        if len(lines) > _MAX_EXAMPLES:
            print(f"  ... and {len(lines) - _MAX_EXAMPLES} more in {shown(output / REPORT_NAME)}")
    if "held_out" in report["parts"]:
        for warning in _held_out_warnings(report):
            print(f"warning: {warning}", file=sys.stderr)


def _examples(lines: list[str]) -> list[str]:
    """The first lines ("file: reason") to print, with as many different reasons as possible."""
    earlier: Counter = Counter()
    ranks = []
    for line in lines:
        reason = line.partition(": ")[2]
        ranks.append(earlier[reason])
        earlier[reason] += 1
    chosen = sorted(range(len(lines)), key=ranks.__getitem__)[:_MAX_EXAMPLES]
    return [lines[index] for index in sorted(chosen)]


def _held_out_warnings(report: dict) -> Iterator[str]:
    """Warnings with remedies if the held-out part is small."""
    facts, fraction = report["parts"]["held_out"], report["settings"]["held_out_fraction"]
    total = report["counts"]["bytes of text"]
    if held_out_bytes(total, fraction) > total * fraction:
        yield (
            f"{facts['share']:.1%} of the text are held out instead of {fraction:.1%}, as less than "
            f"{megabytes(LEAST_BYTES)} is no measure"
        )
    if facts["share"] > 1.5 * fraction and report["settings"]["group_by"]:
        yield f"{facts['share']:.1%} of the text are held out instead of {fraction:.1%}: no group is divided"
    elif facts["bytes"] < MEASURABLE_BYTES:
        share = MEASURABLE_BYTES / total
        remedy = f"--held-out-fraction {share + 0.01:.2f}, or more text" if share < 0.4 else "more text"
        yield (
            f"the held-out part has {megabytes(facts['bytes'])}; a loss measured on less than "
            f"{megabytes(MEASURABLE_BYTES)} is noisy: give {remedy}"
        )

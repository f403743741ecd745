"""Import your own text into LDDL's source layout, from which shards are made.

    python -m data.import_text --input DIR_OR_FILES... --output-dir D [--document-separator line] [--deduplicate near]

Reads plain text, Markdown, HTML, jsonl, json, csv, tsv and parquet, also as .gz, .bz2, .zst and .xz, in any encoding
and language. Writes D/source/<lang>/N.txt, or with --held-out-fraction D/train/... and D/held_out/..., one document
per line, its id first. D/report.json and the last lines printed name what was read, left out and dropped, and why. A
killed run leaves no text: start it again.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bert.command_errors import command
from bert.files import only_writer, shown, write_atomically
from bert.help_parser import HelpParser
from bert.reporting.progress import megabytes, progress
from bert.samples.manifest import UNFINISHED_NAME
from data.text.deduplication import MODES, SeenDocuments
from data.text.document import Document
from data.text.encodings import NotTextError, check_encoding
from data.text.held_out import PARTS, divide, plan_division
from data.text.import_report import MAX_EXAMPLES, REPORT_NAME, print_report, report_of
from data.text.inputs import FORMATS, Findings, Input, list_inputs, total_bytes
from data.text.lddl_writer import (
    MAX_FILE_BYTES,
    PART_SUFFIX,
    ShuffledWriter,
    SourceWriter,
    WrittenFile,
    check_free,
    check_language,
    fresh_folder,
    publish,
    utf8,
)
from data.text.pieces import Piece, Reading
from data.text.readers import SEPARATORS, read_pieces
from data.text.rows import NoTextFieldError

_LARGE_BYTES = 50 << 20


@dataclass(frozen=True)
class ImportSettings:
    """Settings that decide the corpus, given the files."""

    reading: Reading = Reading()
    kind: str = "auto"
    deduplicate: str | None = None
    near_threshold: float = 0.8
    held_out_fraction: float = 0.0
    min_characters: int = 1

    def __post_init__(self) -> None:
        check_language(self.reading.language)
        if not 0.0 <= self.held_out_fraction < 1.0:
            raise ValueError(f"held_out_fraction={self.held_out_fraction} must be at least 0 and below 1, e.g. 0.01")
        if self.min_characters < 0:
            raise ValueError(f"min_characters={self.min_characters} must be at least 0")
        check_encoding(self.reading.encoding)

    def parts(self) -> tuple[str, ...]:
        """Names of the parts, "" if the corpus is not split."""
        return PARTS if self.held_out_fraction else ("",)


def import_text(paths: list[Path], output: Path, settings: ImportSettings) -> dict:
    """Write the corpus and its report; returns the report.

    Raises:
        ValueError: a file is missing or damaged, the output holds other text, or no document is left.
    """
    finals = {part: output / part / "source" / settings.reading.language for part in settings.parts()}
    findings = Findings()
    inputs = list_inputs(paths, settings.kind, findings)
    begun = _begun_report(output, settings, inputs)
    if begun is not None:
        return _finish(output, begun, finals)
    for final in finals.values():
        check_free(final)
    work = fresh_folder(output / UNFINISHED_NAME)
    try:
        files, duplicates = _write_documents(inputs, settings, findings, work)
        written = _divided(files, settings, findings, work) if settings.held_out_fraction else {"all": files}
    except BaseException:  # Ctrl-C too
        shutil.rmtree(work, ignore_errors=True)
        raise
    empty = [part for part, some in written.items() if not some]
    if empty:
        shutil.rmtree(work)
        reasons = [*findings.left_out[:3], *findings.problems[:3]]
        raise ValueError(
            f"{len(inputs)} files gave no document{'' if empty[0] == 'all' else ' for ' + empty[0]}: "
            f"{dict(findings.counts)} {reasons}; check --format, --text-field and --held-out-fraction"
        )
    report = report_of(asdict(settings), inputs, findings, duplicates, written)
    write_atomically(work / REPORT_NAME, utf8(json.dumps(report, indent=1, ensure_ascii=False) + "\n"))
    return _finish(output, report, finals)


def _write_documents(
    inputs: list[Input], settings: ImportSettings, findings: Findings, work: Path
) -> tuple[list[WrittenFile], list[str]]:
    """Write all documents to work/all; returns the files, and the first duplicates that were dropped."""
    duplicates: list[str] = []
    seen = (
        SeenDocuments(work / "seen.sqlite", settings.deduplicate, settings.near_threshold)
        if settings.deduplicate
        else None
    )
    writer = SourceWriter(work / "all")
    try:
        for document in _documents(inputs, settings, findings, work):
            _place(document, settings, findings, seen, writer, duplicates)
            document.close()
        writer.close()
    finally:
        if seen is not None:
            seen.close()
    return writer.files, duplicates


def _divided(
    files: list[WrittenFile], settings: ImportSettings, findings: Findings, work: Path
) -> dict[str, list[WrittenFile]]:
    """Divide the files of work/all between work/train and work/held_out."""
    paths = [work / "all" / f"{file.name}{PART_SUFFIX}" for file in files]
    total = findings.counts["bytes of text"]
    num_files = math.ceil(total * (1 - settings.held_out_fraction) / MAX_FILE_BYTES)
    train, held_out = ShuffledWriter(work / "train", max(1, num_files)), SourceWriter(work / "held_out")
    with progress("held-out part", 2 * total) as meter:
        division = plan_division(paths, total, settings.held_out_fraction, meter.update)
        divide(paths, division, dict(zip(PARTS, (train, held_out), strict=True)), meter.update)
    train.close()
    held_out.close()
    (work / "all").rmdir()
    return dict(zip(PARTS, (train.files, held_out.files), strict=True))


def _begun_report(output: Path, settings: ImportSettings, inputs: list[Input]) -> dict | None:
    """The report of an earlier run that was killed while it published its files, None if there is none."""
    path = output / UNFINISHED_NAME / REPORT_NAME
    if not path.exists():
        return None
    report = json.loads(path.read_bytes())
    same = (json.loads(json.dumps(asdict(settings))), len(inputs), total_bytes(inputs))
    return report if (report["settings"], report["input files"], report["input bytes"]) == same else None


def _finish(output: Path, report: dict, finals: dict[str, Path]) -> dict:
    work = output / UNFINISHED_NAME
    for part, final in finals.items():
        if (work / (part or "all")).exists():
            publish(work / (part or "all"), final)
    (work / REPORT_NAME).rename(output / REPORT_NAME)
    shutil.rmtree(work)
    return report


def _documents(inputs: list[Input], settings: ImportSettings, findings: Findings, work: Path) -> Iterator[Document]:
    near = settings.deduplicate == "near"
    with progress("import", total_bytes(inputs)) as meter:
        for source in inputs:
            document: Document | None = None
            try:
                for piece in read_pieces(source, settings.reading, findings):
                    document = _grown(document, piece, near, work)
                    if piece.ends:
                        _warn_if_large(source, document, settings)
                        yield document
                        document = None
                findings.counts["files read"] += 1
            except NotTextError as error:
                _leave_out(source, error, findings)
            meter.update(source.path.stat().st_size)


def _leave_out(source: Input, error: NotTextError, findings: Findings) -> None:
    """Count and name a file of a folder that is not text; ValueError if the file itself was given as input."""
    if isinstance(error, NoTextFieldError):
        remedy = "name the right one with --text-field or --id-field"
        if not source.named:
            return findings.leave_out("files without the field left out", source.path, f"{error}; {remedy}")
    else:
        remedy = "leave it out, convert it to text, or name its --encoding"
        if not source.named:
            return findings.leave_out("files that are no text left out", source.path, str(error))
    raise ValueError(f"{shown(source.path)}: {error}; {remedy}")


def _grown(document: Document | None, piece: Piece, near: bool, work: Path) -> Document:
    document = document or Document(piece.id, near, work)
    document.add(piece.text)
    return document


def _warn_if_large(source: Input, document: Document, settings: ImportSettings) -> None:
    if source.kind == "txt" and settings.reading.separator == "file" and document.num_bytes > _LARGE_BYTES:
        print(
            f"{shown(source.path)}: one document of {megabytes(document.num_bytes)}; if it holds several, name their "
            "separator: --document-separator line or blank-line",
            file=sys.stderr,
            flush=True,
        )


def _place(
    document: Document,
    settings: ImportSettings,
    findings: Findings,
    seen: SeenDocuments | None,
    writer: SourceWriter,
    duplicates: list[str],
) -> None:
    """Write the document, or count the reason for dropping it."""
    counts = findings.counts
    counts["documents read"] += 1
    if document.characters < max(1, settings.min_characters):
        reason = "short" if document.characters else "empty"
        findings.leave_out(f"dropped: {reason}", document.id, f"is {reason}")
        return
    earlier = seen.earlier(document.id, document.digest) if seen is not None else None
    if earlier is not None:
        counts[f"dropped: {earlier[0]} duplicate"] += 1
        if len(duplicates) < MAX_EXAMPLES:
            duplicates.append(f"{document.id} = {earlier[1]} ({earlier[0]})")
        return
    counts["documents"] += 1
    counts["characters"] += document.characters
    counts["bytes of text"] += document.num_bytes
    document.write(writer)


def _parser() -> HelpParser:
    parser = HelpParser(description=__doc__)
    parser.add_argument("--input", type=Path, nargs="+", required=True, metavar="PATH", help="files and folders")
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--format", choices=("auto", *FORMATS), default="auto", help="default: by the files' names")
    parser.add_argument(
        "--document-separator",
        choices=SEPARATORS,
        default="file",
        help="of txt: a document is a file (default), a line, or the text between blank lines",
    )
    parser.add_argument("--encoding", default="auto", help="of all but parquet (default: detected, file by file)")
    parser.add_argument("--text-field", default="text", help="of jsonl, json, csv, tsv and parquet")
    parser.add_argument("--id-field", help="of the same (default: the file's name and the row's number)")
    parser.add_argument("--lang", default="en", help="language code, the name of the folder below source/")
    parser.add_argument("--deduplicate", choices=MODES, help="drop documents that were seen before, or nearly so")
    parser.add_argument(
        "--near-threshold",
        type=float,
        default=0.8,
        help="share of common five-word sequences (0.5 to 1, default 0.8), estimated to about 0.04",
    )
    parser.add_argument(
        "--held-out-fraction", type=float, default=0.0, help="share of the text for D/held_out, e.g. 0.05"
    )
    parser.add_argument("--min-characters", type=int, default=1, help="drop shorter documents")
    return parser


def main(argv: list[str] | None = None) -> None:
    arguments = _parser().parse_args(argv)
    with command(arguments.output_dir, "interrupted; no text was written, start again"):
        reading = Reading(
            arguments.lang, arguments.encoding, arguments.document_separator, arguments.text_field, arguments.id_field
        )
        settings = ImportSettings(
            reading,
            arguments.format,
            arguments.deduplicate,
            arguments.near_threshold,
            arguments.held_out_fraction,
            arguments.min_characters,
        )
        with only_writer(arguments.output_dir):
            report = import_text(arguments.input, arguments.output_dir, settings)
    print_report(report, arguments.output_dir)


if __name__ == "__main__":
    main()

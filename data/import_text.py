"""Import your own text into LDDL's source layout, from which shards are made.

    python -m data.import_text --input DIR_OR_FILES... --output-dir D [--document-separator line] [--deduplicate near]

Reads txt, jsonl and parquet, also as .gz, .bz2, .zst and .xz, in any encoding and language, and writes
D/source/<lang>/N.txt, or with --held-out-fraction D/train/... and D/held_out/..., one document per line, its id first.
D/report.json and the last lines printed list what was read and dropped, and why. A killed run leaves no text:
start it again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bert.command_errors import command
from bert.files import only_writer, shown, write_atomically
from bert.reporting.progress import megabytes, progress
from bert.samples.manifest import UNFINISHED_NAME
from data.text.deduplication import MODES, SeenDocuments
from data.text.document import Document
from data.text.encodings import NotTextError, check_encoding
from data.text.held_out import LEAST_BYTES, MEASURABLE_BYTES, PARTS, divide, held_out_bytes, plan_division
from data.text.lddl_writer import (
    PART_SUFFIX,
    SourceWriter,
    WrittenFile,
    check_free,
    check_language,
    fresh_folder,
    publish,
    utf8,
)
from data.text.readers import (
    FORMATS,
    SEPARATORS,
    Findings,
    Input,
    Piece,
    Reading,
    list_inputs,
    read_pieces,
    total_bytes,
)

REPORT_NAME = "report.json"
_LARGE_BYTES = 50 << 20
_MAX_EXAMPLES = 20


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
        raise ValueError(
            f"{len(inputs)} files gave no document{'' if empty[0] == 'all' else ' for ' + empty[0]}: "
            f"{dict(findings.counts)} {findings.problems[:3]}; check --format, --text-field and "
            "--held-out-fraction"
        )
    report = _report(settings, inputs, findings, duplicates, written)
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
    writers = {part: SourceWriter(work / part) for part in PARTS}
    with progress("held-out part", 2 * total) as meter:
        division = plan_division(paths, total, settings.held_out_fraction, meter.update)
        divide(paths, division, writers, meter.update)
    for writer in writers.values():
        writer.close()
    (work / "all").rmdir()
    return {part: writer.files for part, writer in writers.items()}


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
    """Count a file of a folder that is not text; ValueError if the file itself was given as input."""
    if source.named:
        raise ValueError(f"{shown(source.path)}: {error}; leave it out, convert it to text, or name its --encoding")
    findings.counts["files that are no text left out"] += 1
    findings.problem(f"{shown(source.path)}: {error}; left out")


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
        counts["dropped: empty" if not document.characters else "dropped: short"] += 1
        return
    earlier = seen.earlier(document.id, document.digest) if seen is not None else None
    if earlier is not None:
        counts[f"dropped: {earlier[0]} duplicate"] += 1
        if len(duplicates) < _MAX_EXAMPLES:
            duplicates.append(f"{document.id} = {earlier[1]} ({earlier[0]})")
        return
    counts["documents"] += 1
    counts["characters"] += document.characters
    counts["bytes of text"] += document.num_bytes
    document.write(writer)


def _report(
    settings: ImportSettings,
    inputs: list[Input],
    findings: Findings,
    duplicates: list[str],
    files: dict[str, list[WrittenFile]],
) -> dict:
    total = sum(file.num_bytes for found in files.values() for file in found)
    parts = {}
    for part, found in files.items():
        num_bytes = sum(file.num_bytes for file in found)
        parts[part] = {
            "documents": sum(file.documents for file in found),
            "bytes": num_bytes,
            "share": num_bytes / total,
            "files": len(found),
        }
    return {
        "settings": asdict(settings),
        "input files": len(inputs),
        "input bytes": total_bytes(inputs),
        "encodings": dict(sorted(findings.encodings.items())),
        "counts": dict(sorted(findings.counts.items())),
        "parts": parts,
        "problems": findings.problems,
        "duplicates": duplicates,
    }


def held_out_warnings(report: dict) -> list[str]:
    """What to know and do if the held-out part is small."""
    if "held_out" not in report["parts"]:
        return []
    found, asked = report["parts"]["held_out"], report["settings"]["held_out_fraction"]
    total = report["counts"]["bytes of text"]
    warnings = []
    if held_out_bytes(total, asked) > total * asked:
        warnings.append(
            f"{found['share']:.1%} of the text are held out instead of {asked:.1%}, as less than "
            f"{megabytes(LEAST_BYTES)} is no measure"
        )
    if found["bytes"] < MEASURABLE_BYTES:
        share = MEASURABLE_BYTES / total
        remedy = f"--held-out-fraction {share + 0.01:.2f}, or more text" if share < 0.4 else "more text"
        warnings.append(
            f"the held-out part has {megabytes(found['bytes'])}; a loss measured on less than "
            f"{megabytes(MEASURABLE_BYTES)} is noisy: give {remedy}"
        )
    return warnings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, nargs="+", required=True, metavar="PATH", help="files and folders")
    parser.add_argument("--output-dir", type=Path, required=True)
    parser.add_argument("--format", choices=("auto", *FORMATS), default="auto", help="default: by the files' names")
    parser.add_argument(
        "--document-separator",
        choices=SEPARATORS,
        default="file",
        help="of txt: a document is a file (default), a line, or the text between blank lines",
    )
    parser.add_argument("--encoding", default="auto", help="of txt and jsonl (default: detected, file by file)")
    parser.add_argument("--text-field", default="text", help="of jsonl and parquet")
    parser.add_argument("--id-field", help="of jsonl and parquet (default: the file's name and the row's number)")
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
    for part, facts in report["parts"].items():
        print(
            f"{part}: {facts['documents']} documents, {megabytes(facts['bytes'])} ({facts['share']:.1%} of the text) "
            f"in {facts['files']} file{'s' * (facts['files'] != 1)} below {shown(arguments.output_dir)}"
        )
    for name, value in {**report["counts"], **report["encodings"]}.items():
        print(f"  {name}: {value}")
    for line in (*report["problems"], *report["duplicates"]):
        print(f"  {line}")
    for warning in held_out_warnings(report):
        print(f"warning: {warning}", file=sys.stderr)


if __name__ == "__main__":
    main()

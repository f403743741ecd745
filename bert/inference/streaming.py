"""Runs a model over lines in their order, in windows of bounded memory; a bad line gives a record of its error."""

import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bert import exit_codes
from bert.finetuning.prediction_stream import WINDOW_CHARACTERS, WINDOW_EXAMPLES, Window, key_of, write_stream
from bert.inference.command_line import PredictRequest
from bert.inference.demonstration import demonstrate
from bert.inference.heads import load_from_settings
from bert.inference.lines import Line, LineFormat, kind_of, read_lines
from bert.inference.terminal import talk
from bert.inference.trained_model import NearestSentences, Request, Result, Run, TrainedModel

_LISTED = 10  # bad lines that are reported one by one
_INPUT_NAMES = {"question-answering": ("question",)}  # a context is not repeated in every answer


def run_request(request: PredictRequest) -> int:
    """What run_predict.py does; returns the exit code."""
    model = load_from_settings(request, request.batch_size)
    if request.show:
        print("\n".join(demonstrate(model, request.show)))
        return exit_codes.OK
    run = NearestSentences(model, request.nearest).run if request.nearest else model.run
    print(model.opened.describe(), file=sys.stderr)
    if not request.files and sys.stdin.isatty():
        return talk(model, sys.stdin, sys.stdout, run if request.nearest else None)
    try:
        end = _write(model, request, run)
    except KeyboardInterrupt:
        if request.output is None or not request.is_resumable():
            raise
        return exit_codes.INTERRUPTED
    if request.output:
        print(f"written: {request.output}", file=sys.stderr)
    if end.bad or request.output:
        bad = f", {end.bad:,} of them bad" if end.bad else ""
        print(f"{end.lines:,} {'line' if end.lines == 1 else 'lines'}{bad}", file=sys.stderr)
    return exit_codes.BAD_INPUT if end.bad and end.bad == end.lines else exit_codes.OK


@dataclass
class Position:
    """Where the reading stands: after a line of one of the inputs."""

    file: int = 0
    line: int = 0  # `Line.number` and `Line.end`; 0 before the first line
    end: int = 0
    form: Mapping[str, Any] | None = None  # what `LineFormat` has inferred
    lines: int = 0  # so far, of all inputs
    bad: int = 0  # of them, those that cannot be used


def json_lines(records: Sequence[Result]) -> bytes:
    """A line for each record."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def npy_header(rows: int, width: int) -> bytes:
    """What stands before the rows in a .npy file; as long for any number of rows: numpy leaves room for it to grow."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})
    return header.getvalue()


def _write(model: TrainedModel, request: PredictRequest, run: Run) -> Position:
    """Write the results to standard output, or to a file that can be resumed; returns the end of the reading."""
    if request.output is None:
        position = Position()
        for records, position in results_of(model, request, run):  # noqa: B007
            sys.stdout.buffer.write(json_lines(records))
            sys.stdout.buffer.flush()
        return position
    sizes = [path.stat().st_size for path in request.files]
    width = model.encode(["word"]).shape[1] if request.wants_vectors_file() else 0

    def windows(start: Mapping[str, Any] | None, _: Any) -> Iterator[Window]:
        header = npy_header(0, width) if width and start is None else b""
        for records, at in results_of(model, request, run, Position(**(start or {}))):
            if width:
                vectors = [record.get("vector", [np.nan] * width) for record in records]  # NaN for a bad line
                content = np.array(vectors, "<f4").tobytes()
            else:
                content = json_lines(records)
            yield Window([header + content], at.lines, asdict(at), place=sum(sizes[: at.file]) + at.end)
            header = b""

    def finish(files: Sequence[BinaryIO], end: Mapping[str, Any] | None) -> None:
        if width and (end is None or end["bad"] == end["lines"]):
            raise ValueError("no line has a vector; check the input")
        if width and end is not None:
            files[0].seek(0)
            files[0].write(npy_header(end["lines"], width))

    key = None
    if request.is_resumable():
        compared = [model.opened.path, *request.files, *([request.nearest] if request.nearest else [])]
        key = key_of({**vars(request), **dict.fromkeys(("batch_size", "device", "cpu_threads"))}, compared)
    end = write_stream(
        [request.output],
        windows,
        finish,
        key=key,
        flag="--output",
        unit="lines",
        total=sum(sizes) or None,
        total_unit="B",
        log=lambda line: print(line, file=sys.stderr),
    )
    return Position(**(end or {}))


def results_of(
    model: TrainedModel, request: PredictRequest, run: Run, start: Position | None = None
) -> Iterator[tuple[list[Result], Position]]:
    """The records of all lines after a position, some at a time, and the position after them."""
    records: list[Result] = []
    requests: list[Request | None] = []
    characters, position = 0, start or Position()
    for line in _lines(model, request, position):
        if line is not None:
            record, texts, position = line
            records.append(record)
            requests.append(texts)
            characters += sum(map(len, texts or ()))
        if records and (line is None or len(records) >= WINDOW_EXAMPLES or characters >= WINDOW_CHARACTERS):
            usable = [texts for texts in requests if texts]
            results = iter(run(usable) if usable else ())
            yield [{**r, **next(results)} if texts else r for r, texts in zip(records, requests, strict=True)], position
            records, requests, characters = [], [], 0


def _lines(
    model: TrainedModel, request: PredictRequest, position: Position
) -> Iterator[tuple[Result, Request | None, Position] | None]:
    """The record of each line, its request if it can be used, and the position after it; None at pauses."""
    for index, path in list(enumerate(request.files or [None]))[position.file :]:
        if index > position.file:
            position = Position(index, lines=position.lines, bad=position.bad)
        with open(path or sys.stdin.fileno(), "rb", buffering=0, closefd=path is not None) as file:
            form = position.form or {"kind": kind_of(request.input_format, path)}
            line_format = LineFormat(splits_tabs=model.splits_tabs, keys=model.columns(), **form)
            if position.form:
                file.seek(position.end)
            for line in read_lines(file.fileno(), position.line, position.end):
                if line is None:
                    yield None
                elif not line_format.is_header(line):
                    record, texts = _record(model, line_format, line, path, position.bad)
                    form = {"kind": line_format.kind, "columns": line_format.columns}
                    lines, bad = position.lines + 1, position.bad + (texts is None)
                    position = Position(index, line.number, line.end, form, lines, bad)
                    yield record, texts, position
    yield None


def _record(
    model: TrainedModel, line_format: LineFormat, line: Line, path: Path | None, num_bad: int
) -> tuple[Result, Request | None]:
    """What the output says of a line beside the result, and its request if it can be used.

    Args:
        num_bad: lines before it that could not be used.
    """
    identity: Result = {}
    try:
        raw = line_format.parse(line)
        if isinstance(raw, dict) and "id" in raw:
            identity = {"id": raw["id"]}
        texts = model.request(raw)
    except ValueError as error:
        if num_bad < _LISTED:
            print(f"{path or 'standard input'}:{line.number}: {error}", file=sys.stderr)
        elif num_bad == _LISTED:
            print("further bad lines are counted; each has its error in the output", file=sys.stderr)
        return {**identity, "line": line.number, "error": str(error)}, None
    names = _INPUT_NAMES.get(model.task, ("text", "text_pair"))
    return {**identity, **dict(zip(names, texts, strict=False))}, texts

"""Runs a model over lines in their order, in windows of bounded memory; a bad line gives a record of its error."""

import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bert.finetuning.prediction_stream import WINDOW_CHARACTERS, WINDOW_EXAMPLES
from bert.inference.lines import Line, LineFormat, read_lines
from bert.inference.trained_model import Request, Result, TrainedModel


def json_lines(records: Sequence[Result]) -> bytes:
    """One line for each record."""
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def vector_rows(records: Sequence[Result], width: int) -> bytes:
    """float32 [records, width]; NaN for a bad line."""
    return np.array([record.get("vector", [np.nan] * width) for record in records], "<f4").tobytes()


def npy_header(rows: int, width: int) -> bytes:
    """What stands before the rows in a .npy file; as long for any number of rows: numpy leaves room for it to grow."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})
    return header.getvalue()


_LISTED = 10  # bad lines that are reported one by one
_INPUT_NAMES = {"question-answering": ("question",)}  # a context is not repeated in every answer
Run = Callable[[Sequence[Request]], list[Result]]


@dataclass
class Position:
    """Where the reading stands: after a line of one of the inputs.

    Attributes:
        line, end: as `Line.number` and `Line.end`; 0 before the first line.
        form: as `LineFormat.state`.
        lines, bad: numbers of lines so far, of all inputs, and of those that cannot be used.
    """

    file: int = 0
    line: int = 0
    end: int = 0
    form: dict[str, Any] | None = None
    lines: int = 0
    bad: int = 0

    def summary(self) -> str:
        bad = f", {self.bad:,} of them bad" if self.bad else ""
        return f"{self.lines:,} {'line' if self.lines == 1 else 'lines'}{bad}"


@dataclass
class _Batch:
    """Lines that are run together: records, of which those without an error get results."""

    records: list[Result] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    characters: int = 0

    def is_full(self) -> bool:
        return len(self.records) >= WINDOW_EXAMPLES or self.characters >= WINDOW_CHARACTERS

    def results(self, run: Run) -> list[Result]:
        results = iter(run(self.requests) if self.requests else ())
        return [record if "error" in record else {**record, **next(results)} for record in self.records]


def results_of(
    model: TrainedModel,
    files: Sequence[Path],
    kind: str,
    run: Run | None = None,
    start: Mapping[str, Any] | None = None,
) -> Iterator[tuple[list[Result], Position]]:
    """The records of all lines in their order, some at a time, and the position after them.

    Args:
        files: to read one after the other; none: standard input.
        run: in place of the model's own.
        start: a `Position`; what stands before it is left out.
    Raises:
        OSError: a file cannot be read.
    """
    at = Position(**(start or {}))
    run, batch = run or model.run, _Batch()
    inputs: Sequence[Path | None] = files or [None]
    for index in range(at.file, len(inputs)):
        path = inputs[index]
        if index > at.file:
            at = Position(index, lines=at.lines, bad=at.bad)
        descriptor = sys.stdin.fileno() if path is None else os.open(path, os.O_RDONLY)
        try:
            line_format = LineFormat(kind, path, model.splits_tabs, model.columns())
            if at.form is not None:
                line_format.restore(at.form)
                os.lseek(descriptor, at.end, os.SEEK_SET)
            for line in read_lines(descriptor, at.line, at.end):
                if line is not None and not line_format.is_header(line):
                    is_bad = not _add(batch, model, line_format, line, path, at.bad)
                    at = Position(index, line.number, line.end, line_format.state(), at.lines + 1, at.bad + is_bad)
                if batch.is_full() or (line is None and batch.records):
                    yield batch.results(run), at
                    batch = _Batch()
        finally:
            if path is not None:
                os.close(descriptor)
    if batch.records:
        yield batch.results(run), at


def _add(
    batch: _Batch, model: TrainedModel, line_format: LineFormat, line: Line, path: Path | None, num_bad: int
) -> bool:
    """Add a line to a batch; returns whether it can be used. `num_bad` lines before it could not."""
    identity: Result = {}
    try:
        if line.text is None:
            raise ValueError(line.error)
        given = line_format.parse(line.text)
        if isinstance(given, dict) and "id" in given:
            identity = {"id": given["id"]}
        request = model.request(given)
    except ValueError as error:
        if num_bad < _LISTED:
            print(f"{path or 'standard input'}:{line.number}: {error}", file=sys.stderr)
        elif num_bad == _LISTED:
            print("further bad lines are counted; each has its error in the output", file=sys.stderr)
        batch.records.append({**identity, "line": line.number, "error": str(error)})
        return False
    names = _INPUT_NAMES.get(model.task, ("text", "text_pair"))
    batch.records.append({**identity, **dict(zip(names, request, strict=False))})
    batch.requests.append(request)
    batch.characters += sum(map(len, request))
    return True

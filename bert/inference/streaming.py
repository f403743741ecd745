"""Runs a model over lines in their order, in windows of bounded memory; a bad line gives a record of its error."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bert.finetuning.prediction_stream import WINDOW_CHARACTERS, WINDOW_EXAMPLES
from bert.inference.lines import Line, LineFormat, read_lines
from bert.inference.trained_model import Request, Result, TrainedModel


class JsonLines:
    """One line for each record."""

    def __init__(self, files: Sequence[BinaryIO], state: Mapping[str, Any] | None = None) -> None:
        (self._out,) = files

    def write(self, records: list[Result]) -> None:
        self._out.write("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode())
        self._out.flush()

    def state(self) -> dict[str, Any]:
        """What a later writer needs to continue the file."""
        return {}

    def finish(self) -> None:
        pass


class Vectors:
    """The vectors of all lines as a .npy file, float32 [lines, hidden]; NaN for a bad line."""

    def __init__(self, files: Sequence[BinaryIO], state: Mapping[str, Any] | None = None) -> None:
        (self._out,) = files
        self._rows: int = state["rows"] if state else 0
        self._width: int = state["width"] if state else 0

    def write(self, records: list[Result]) -> None:
        for record in records:
            vector = record.get("vector")
            if vector is not None and not self._width:  # bad lines came before
                self._width = len(vector)
                self._write_header(0)
                self._out.write(np.full((self._rows, self._width), np.nan, "<f4").tobytes())
            if self._width:
                self._out.write(np.array([np.nan] * self._width if vector is None else vector, "<f4").tobytes())
            self._rows += 1
        self._out.flush()

    def state(self) -> dict[str, Any]:
        return {"rows": self._rows, "width": self._width}

    def finish(self) -> None:
        """Put the number of rows into the header."""
        if not self._width:
            raise ValueError("no line has a vector; check the input")
        self._out.seek(0)
        self._write_header(self._rows)  # as long as the first: numpy leaves room for the number of rows to grow

    def _write_header(self, rows: int) -> None:
        header: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": (rows, self._width)}
        np.lib.format.write_array_header_1_0(self._out, header)


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

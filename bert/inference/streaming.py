"""Runs a model over lines in their order, in windows of bounded memory; a bad line gives a record of its error."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from bert.inference.lines import Line, LineFormat, read_lines
from bert.inference.trained_model import Request, Result, TrainedModel

_WINDOW_LINES = 512  # sorted by length and run together
_WINDOW_CHARACTERS = 1 << 20
_LISTED = 10  # bad lines that are reported one by one
_INPUT_NAMES = {"question-answering": ("question",)}  # a context is not repeated in every answer
Run = Callable[[Sequence[Request]], list[Result]]


@dataclass
class Counts:
    lines: int = 0
    bad: int = 0

    def summary(self) -> str:
        bad = f", {self.bad:,} of them bad" if self.bad else ""
        return f"{self.lines:,} {'line' if self.lines == 1 else 'lines'}{bad}"


@dataclass
class _Window:
    """Lines that wait to be run: records, of which those without an error get results."""

    records: list[Result] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    characters: int = 0

    def is_full(self) -> bool:
        return len(self.records) >= _WINDOW_LINES or self.characters >= _WINDOW_CHARACTERS


def results_of(
    model: TrainedModel, files: Sequence[Path], kind: str, counts: Counts, run: Run | None = None
) -> Iterator[list[Result]]:
    """The records of all lines in their order, a window at a time.

    Args:
        files: to read one after the other; none: standard input.
        kind: one of `lines.FORMATS`.
        run: in place of the model's own.
    Raises:
        OSError: a file cannot be read.
    """
    run, window = run or model.run, _Window()
    inputs: Sequence[Path | None] = files or [None]
    for path in inputs:
        descriptor = sys.stdin.fileno() if path is None else os.open(path, os.O_RDONLY)
        try:
            line_format = LineFormat(kind, path, model.splits_tabs, model.columns())
            for line in read_lines(descriptor):
                if line is not None and not line_format.is_header(line):
                    counts.lines += 1
                    _add(window, model, line_format, line, path, counts)
                if window.is_full() or (line is None and window.records):
                    yield _finished(window, run)
                    window = _Window()
        finally:
            if path is not None:
                os.close(descriptor)
    if window.records:
        yield _finished(window, run)


def _add(
    window: _Window, model: TrainedModel, line_format: LineFormat, line: Line, path: Path | None, counts: Counts
) -> None:
    identity: Result = {}
    try:
        if line.text is None:
            raise ValueError(line.error)
        given = line_format.parse(line.text)
        if isinstance(given, dict) and "id" in given:
            identity = {"id": given["id"]}
        request = model.request(given)
    except ValueError as error:
        counts.bad += 1
        place = f"{path or 'standard input'}:{line.number}"
        if counts.bad <= _LISTED:
            print(f"{place}: {error}", file=sys.stderr)
        elif counts.bad == _LISTED + 1:
            print("further bad lines are counted; each has its error in the output", file=sys.stderr)
        window.records.append({**identity, "line": line.number, "error": str(error)})
        return
    names = _INPUT_NAMES.get(model.task, ("text", "text_pair"))
    window.records.append({**identity, **dict(zip(names, request, strict=False))})
    window.requests.append(request)
    window.characters += sum(map(len, request))


def _finished(window: _Window, run: Run) -> list[Result]:
    results = iter(run(window.requests) if window.requests else ())
    return [record if "error" in record else {**record, **next(results)} for record in window.records]


def write_json_lines(windows: Iterator[list[Result]], out: IO[str]) -> None:
    for records in windows:
        out.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        out.flush()


def write_vectors(windows: Iterator[list[Result]], out: IO[bytes]) -> None:
    """The vectors of all lines as a .npy file, float32 [lines, hidden]; NaN for a bad line.

    Raises:
        ValueError: no line has a vector.
    """
    shape, bad = (0, 0), 0
    for records in windows:
        for record in records:
            if "vector" not in record:
                bad += 1
                if shape[1]:
                    out.write(np.full(shape[1], np.nan, "<f4").tobytes())
                    shape = (shape[0] + 1, shape[1])
                continue
            vector = np.array(record["vector"], "<f4")
            if not shape[1]:
                _write_header(out, (0, len(vector)))
                out.write(np.full((bad, len(vector)), np.nan, "<f4").tobytes())
                shape = (bad, len(vector))
            out.write(vector.tobytes())
            shape = (shape[0] + 1, shape[1])
    if not shape[1]:
        raise ValueError("no line has a vector; check the input")
    out.seek(0)
    _write_header(out, shape)  # as long as the first: numpy leaves room for the number of rows to grow


def _write_header(out: IO[bytes], shape: tuple[int, int]) -> None:
    header: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, header)

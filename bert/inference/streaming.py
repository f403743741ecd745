"""Runs a model over lines in their order, in windows of bounded memory; a bad line gives a record of its error."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bert.finetuning.resumable_files import WINDOW_CHARACTERS, WINDOW_EXAMPLES
from bert.inference.lines import Line, LineFormat, read_lines
from bert.inference.trained_model import Request, Result, TrainedModel

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


@dataclass(frozen=True)
class Position:
    """Where the reading stands: after a line of one of the inputs.

    Attributes:
        file: index of the input.
        line, end: as `Line.number` and `Line.end`; 0 before the first line.
        form: as `LineFormat.state`.
    """

    file: int = 0
    line: int = 0
    end: int = 0
    form: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Window:
    """Lines that are run together: records, of which those without an error get results.

    Attributes:
        position: after its last line.
    """

    position: Position
    records: list[Result] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    characters: int = 0

    def is_full(self) -> bool:
        return len(self.records) >= WINDOW_EXAMPLES or self.characters >= WINDOW_CHARACTERS


def results_of(
    model: TrainedModel,
    files: Sequence[Path],
    kind: str,
    counts: Counts,
    run: Run | None = None,
    start: Position | None = None,
) -> Iterator[Window]:
    """The records of all lines in their order, a window at a time.

    Args:
        files: to read one after the other; none: standard input.
        kind: one of `lines.FORMATS`.
        run: in place of the model's own.
        start: leave out what stands before it.
    Raises:
        OSError: a file cannot be read.
    """
    start = start or Position()
    run, window = run or model.run, Window(start)
    inputs: Sequence[Path | None] = files or [None]
    for index in range(start.file, len(inputs)):
        path = inputs[index]
        at = start if index == start.file else Position(index)
        descriptor = sys.stdin.fileno() if path is None else os.open(path, os.O_RDONLY)
        try:
            line_format = LineFormat(kind, path, model.splits_tabs, model.columns())
            if at.form is not None:
                line_format.restore(at.form)
                os.lseek(descriptor, at.end, os.SEEK_SET)
            for line in read_lines(descriptor, at.line, at.end):
                if line is not None and not line_format.is_header(line):
                    counts.lines += 1
                    _add(window, model, line_format, line, path, counts)
                    window.position = Position(index, line.number, line.end, line_format.state())
                if window.is_full() or (line is None and window.records):
                    yield _finished(window, run)
                    window = Window(window.position)
        finally:
            if path is not None:
                os.close(descriptor)
    if window.records:
        yield _finished(window, run)


def _add(
    window: Window, model: TrainedModel, line_format: LineFormat, line: Line, path: Path | None, counts: Counts
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


def _finished(window: Window, run: Run) -> Window:
    results = iter(run(window.requests) if window.requests else ())
    window.records = [record if "error" in record else {**record, **next(results)} for record in window.records]
    return window

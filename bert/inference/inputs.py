"""Reads the requests in lines and tables one after the other, each with what the output repeats of its line."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bert.inference.command_line import PredictRequest
from bert.inference.lines import Keys, LineFormat, RawLine, kind_of, raw_lines, texts_of
from bert.inference.tables import joined, open_table, require_columns
from bert.inference.trained_model import Request, Result, TrainedModel

_LISTED = 10  # bad lines that are reported one by one


@dataclass(frozen=True)
class Position:
    """Where the reading stands: after a line, or a row of a table, of one of the inputs."""

    file: int = 0
    line: int = 0  # `Line.number` and `Line.end`, or the number of the row; 0 before the first line
    end: int = 0
    form: Mapping[str, Any] | None = None  # what `LineFormat` has inferred
    lines: int = 0  # so far, of all inputs
    bad: int = 0  # of them, those that cannot be used
    columns: Sequence[str] = ()  # of the first row, in order
    delimiter: str = ","  # of the first table, and its byte order mark
    mark: str = ""


Read = Iterator[tuple[Result, Request | None, Position, str] | None]


def keys_of(model: TrainedModel, request: PredictRequest) -> Keys:
    """The names of the texts, which the request or the model says."""
    if request.text_column is None:
        return model.columns()
    return [tuple(name for name in (request.text_column, request.text_pair_column) if name is not None)]


def read_requests(model: TrainedModel, request: PredictRequest, position: Position) -> Read:
    """The record of each line after a position, its request if it can be used, the new position, and where the line is,
    for messages; None: a pause."""
    keys = keys_of(model, request)
    for index, path in list(enumerate(request.files or [None]))[position.file :]:
        if index > position.file:
            position = replace(position, file=index, line=0, end=0, form=None)
        with open(path or sys.stdin.fileno(), "rb", buffering=0, closefd=path is not None) as file:
            table = open_table(path, file, request.input_format, keys)
            done, name = position.line, str(path or "standard input")
            if table is not None:
                lines: Iterator[RawLine | None] = table.raw_lines(done)
                if not position.columns:
                    delimiter, mark, _ = table.opening()
                    position = replace(position, delimiter=delimiter, mark=mark)
            else:
                if position.form:
                    os.lseek(file.fileno(), position.end, os.SEEK_SET)
                form = position.form or {"kind": kind_of(request.input_format, path)}
                line_format = LineFormat(splits_tabs=model.splits_tabs, keys=keys, **form)
                lines = raw_lines(file.fileno(), line_format, done, position.end)
            for line in lines:
                if line is None:
                    yield None
                    continue
                if table is not None and isinstance(line.raw, Mapping) and line.raw and line.place["line"] == done + 1:
                    require_columns(line.raw, keys, name)
                record, texts, position = _read(model, keys, line, name, position, is_row=table is not None)
                yield record, texts, position, f"{name}:{line.number}"
    yield None


def _read(
    model: TrainedModel, keys: Keys, line: RawLine, name: str, position: Position, *, is_row: bool
) -> tuple[Result, Request | None, Position]:
    """The record of a line of the input `name`, its request, and the position after it; a bad line is reported."""
    record: Result = dict(line.fields)
    texts = problem = None
    is_question = model.task == "question-answering"
    try:
        if isinstance(line.raw, ValueError):
            raise line.raw
        if isinstance(line.raw, Mapping):  # a context is not repeated in every answer
            record = {key: line.raw[key] for key in line.raw if is_row or not is_question or key != "context"}
        texts = model.request(texts_of(line.raw, keys))
        if not isinstance(line.raw, Mapping):
            record = dict(zip(("question",) if is_question else ("text", "text_pair"), texts, strict=False))
    except ValueError as error:
        problem = error
    columns = position.columns or (list(record) if is_row or problem is None else ())
    if problem is not None:
        report_bad(f"{name}:{line.number}", problem, position.bad)
        numbered = {} if is_row else {"line": line.number}
        record = joined(record, {**numbered, "error": str(problem)})
    lines, bad = position.lines + 1, position.bad + (problem is not None)
    return record, texts, replace(position, columns=columns, lines=lines, bad=bad, **line.place)


def report_bad(place: str, problem: object, earlier: int) -> None:
    """Print the error of a line, after `earlier` others; only the first ones."""
    if earlier < _LISTED:
        print(f"{place}: {problem}", file=sys.stderr)
    elif earlier == _LISTED:
        print("further bad lines are counted; each has its error in the output", file=sys.stderr)

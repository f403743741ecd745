"""Reads the requests in lines and tables one after the other, each with what the output repeats of its line."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bert.inference.command_line import PredictRequest
from bert.inference.lines import Keys, LineFormat, RawRequest, kind_of, read_lines, texts_of
from bert.inference.tables import TableInput, joined, kind_of_table, require_columns
from bert.inference.trained_model import Request, Result, TrainedModel

_LISTED = 10  # bad lines that are reported one by one
_TEXT_NAMES = ("text", "text_pair")  # of lines without names
_QUESTION = ("question",)  # a context is not repeated in every answer


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

    def after(self, *, line: int, end: int, is_bad: bool, **more: Any) -> "Position":
        return replace(self, line=line, end=end, lines=self.lines + 1, bad=self.bad + is_bad, **more)


Read = Iterator[tuple[Result, Request | None, Position] | None]


def read_requests(model: TrainedModel, request: PredictRequest, position: Position) -> Read:
    """The record of each line after a position, its request if it can be used, and the new position; None: a pause."""
    keys = model.columns()
    if request.text_column is not None:
        names = (request.text_column, request.text_pair_column)
        keys = [tuple(name for name in names if name is not None)]
    for index, path in list(enumerate(request.files or [None]))[position.file :]:
        if index > position.file:
            position = replace(position, file=index, line=0, end=0, form=None)
        with open(path or sys.stdin.fileno(), "rb", buffering=0, closefd=path is not None) as file:
            kind = kind_of_table(path, request.input_format)
            table = TableInput(path, file, kind) if kind else None
            if table is not None and (kind != "tsv" or table.has_columns(keys)):
                read = _rows(model, table, keys, path, position)
            else:
                read = _plain_lines(model, request, keys, path, position, file.fileno())
            for line in read:
                position = position if line is None else line[2]
                yield line
    yield None


def _plain_lines(
    model: TrainedModel, request: PredictRequest, keys: Keys, path: Path | None, position: Position, descriptor: int
) -> Read:
    form = position.form or {"kind": kind_of(request.input_format, path)}
    line_format = LineFormat(splits_tabs=model.splits_tabs, keys=keys, **form)
    if position.form:
        os.lseek(descriptor, position.end, os.SEEK_SET)
    for line in read_lines(descriptor, position.line, position.end):
        if line is None:
            yield None
        elif not line_format.is_header(line):
            record: Result = {}
            texts = None
            try:
                raw = line_format.parse(line)
                record = _repeated(model, raw)
                texts = model.request(texts_of(raw, keys))
                record |= {} if isinstance(raw, Mapping) else dict(zip(_names(model), texts, strict=False))
            except ValueError as error:
                record = joined(record, _bad(path, line.number, error, position.bad))
            columns = position.columns or (list(record) if texts is not None else ())
            form = {"kind": line_format.kind, "columns": line_format.columns}
            more: dict[str, Any] = {"form": form, "columns": columns}
            position = position.after(line=line.number, end=line.end, is_bad=texts is None, **more)
            yield record, texts, position


def _rows(model: TrainedModel, table: TableInput, keys: Keys, path: Path | None, position: Position) -> Read:
    """The rows of a table. If its first row lacks the columns of the texts, a ValueError, before anything runs."""
    done = position.line
    if not position.columns:
        delimiter, mark = table.dialect()
        position = replace(position, delimiter=delimiter, mark=mark)
    for number, row in enumerate(table.rows(), start=1):
        if number <= done:
            continue
        record, texts = dict(row.values or {}), None
        if record and number == done + 1:
            require_columns(record, keys, str(path or "standard input"))
        try:
            if row.values is None:
                raise ValueError(row.problem)
            texts = model.request(texts_of(row.values, keys))
        except ValueError as error:
            bad = _bad(path, row.number, error, position.bad)
            record = joined(record, {"error": bad["error"]} if record else bad)
        columns = position.columns or list(row.values or ())
        position = position.after(line=number, end=0, is_bad=texts is None, columns=columns)
        yield record, texts, position


def _names(model: TrainedModel) -> Sequence[str]:
    return _QUESTION if model.task == "question-answering" else _TEXT_NAMES


def _repeated(model: TrainedModel, raw: RawRequest) -> Result:
    """What a record repeats of an object."""
    if not isinstance(raw, Mapping):
        return {}
    return {name: value for name, value in raw.items() if model.task != "question-answering" or name != "context"}


def _bad(path: Path | None, number: int, error: ValueError, num_bad: int) -> Result:
    """The record of a line that cannot be used, which is reported; `num_bad` were before it."""
    if num_bad < _LISTED:
        print(f"{path or 'standard input'}:{number}: {error}", file=sys.stderr)
    elif num_bad == _LISTED:
        print("further bad lines are counted; each has its error in the output", file=sys.stderr)
    return {"line": number, "error": str(error)}

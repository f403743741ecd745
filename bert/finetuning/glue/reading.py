"""Read the examples of files of labelled sentences: GLUE's published ones, and users' own.

GLUE's are UTF-8, and quotation marks in them are text. Users' tables are read as pre-training reads them.

Unreadable lines make the whole file an error that shows the first of them. In large labelled files a small fraction
may be skipped; the skipped lines are counted and logged.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bert.config.setting_errors import suggest
from bert.finetuning.glue.task_table import GlueTask, Split, shown
from bert.finetuning.text_files import text_lines
from data.text.columns import Column, NoColumnError, NoHeaderError, Row, TableForm
from data.text.delimited import DelimitedTable
from data.text.tables import user_table

_HALF_PAIR = re.compile("[\ud800-\udfff]")  # JSON can escape half of a surrogate pair; it is no text
MAX_BAD_LINE_FRACTION = 1e-4  # of a labelled file; below 10,000 lines, every line must be readable
_NUM_SHOWN = 3
_SEPARATORS = re.compile(r"[\t\r\n]")


def published_rows(path: Path, columns: Sequence[Column], header: bool) -> Iterator[Row]:
    """Some columns of every row of one of GLUE's files, in bounded memory."""
    try:
        # Line feeds alone end lines: a carriage return within a published line is text.
        yield from DelimitedTable(text_lines(path), "tsv", TableForm(columns, header, "none"), Counter()).rows()
    except NoHeaderError:
        raise ValueError(f"{path} is empty; download it again") from None
    except NoColumnError as error:
        raise ValueError(
            f"{path}:1: {str(error).removeprefix('has ')}. Is it the task's file? For files of your own, use "
            "--task-name custom with --text-column, --text-pair-column and --label-column"
        ) from None


def own_table(
    path: Path,
    columns: Sequence[Column] | None,
    notes: list[str],
    flag: Callable[[Column], str] = lambda name: "",
    named: Sequence[str] = (),
) -> Iterator[Row]:
    """The rows of a user's table, of any form and encoding; `notes` gets what is unusual about the file.

    Args:
        columns: None: all.
        flag: the flag that names a column.
        named: columns that the user has named, where all are read.
    """
    try:
        table = user_table(path, TableForm(columns, quotes="cells", expected=[tuple(named)] if named else ()))
    except NoColumnError as error:
        hint = suggest(str(error.column), map(str, error.names), f"{flag(error.column)} names the right one")
        raise ValueError(f"{path}: {str(error).removeprefix(f'{path} has ')}; {hint}") from None
    yield from table.rows
    notes += [
        f"{path}: read as {name}"
        for name in table.findings.encodings
        if not name.startswith(("utf-8 (valid)", "utf-8 (byte"))
    ]
    notes += table.findings.problems


def _fields(row: Row, columns: Sequence[Column]) -> tuple[list[str], str]:
    """The values of a row, or why it cannot be used."""
    if row.values is None:
        return [], row.problem.removeprefix("has ")
    fields: list[str] = []
    for column in columns:
        if column not in row.values:
            keys = ", ".join(shown(str(key)) for key in row.values)[:200]
            return [], f"no {column}; the row has {keys}"
        value: Any = row.values[column]
        if not isinstance(value, str | int | float):
            return [], f"{column} is {shown(json.dumps(value, default=str))}, neither text nor a number"
        if isinstance(value, str) and _HALF_PAIR.search(value):
            return [], f"{column} is not text, it has half of a surrogate pair: {shown(value)}"
        fields.append(value if isinstance(value, str) else json.dumps(value))
    return fields, ""


@dataclass(frozen=True)
class Examples:
    """n examples of one file."""

    source: Path
    texts: tuple[list[str], ...]  # one list of n sentences, or two
    labels: list[str] | None  # n labels as written in the file; None for a file without labels
    indices: list[str]  # n identifiers for the prediction file
    counts: dict[str, int] = field(default_factory=dict)  # numbers of skipped and unusual lines, by kind
    warnings: Sequence[str] = ()
    groups: list[str] | None = None  # n values of rows that belong together; None without a column of them

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, rows: np.ndarray) -> "Examples":
        """Some of the examples, by their numbers or a mask."""
        numbers = np.arange(len(self))[rows].tolist()
        texts = tuple([text[number] for number in numbers] for text in self.texts)
        labels, indices, groups = (
            None if values is None else [values[number] for number in numbers]
            for values in (self.labels, self.indices, self.groups)
        )
        counts = {**self.counts, "empty_texts": _empty(texts)}
        return replace(self, texts=texts, labels=labels, indices=indices or [], counts=counts, groups=groups)


def find_file(directory: Path, split: Split) -> Path:
    """The first file of a split that exists."""
    for name in split.files:
        if (directory / name).is_file():
            return directory / name
    present = sorted(path.name for path in directory.iterdir())[:12] if directory.is_dir() else []
    raise ValueError(
        f"{directory} has no {' or '.join(split.files)}; it has {', '.join(present) or 'nothing'}. "
        "--download fetches GLUE's files to a new --data-dir, or to the cache without that flag"
    )


def read_examples(path: Path, split: Split, task: GlueTask, max_bad_line_fraction: float = 0.0) -> Examples:
    """Read all examples of a file, in order.

    Args:
        max_bad_line_fraction: fraction of the lines that may be skipped because they cannot be read.
    """
    tally = _Tally(task.name == "custom")
    rows = list(_usable_rows(path, split, task, tally))
    warnings = tally.warnings(path, max_bad_line_fraction)
    return _examples(path, split, rows, 0, {"bad_lines": tally.problems, "unlabelled": tally.unlabelled}, warnings)


def stream_examples(path: Path, split: Split, task: GlueTask, most: int, most_characters: int) -> Iterator[Examples]:
    """The examples of a file without labels, some at a time, in bounded memory."""
    rows: list[list[str]] = []
    first, characters, tally = 0, 0, _Tally(task.name == "custom")
    for row in _usable_rows(path, split, task, tally):
        rows.append(row)
        characters += sum(map(len, row))
        if len(rows) >= most or characters >= most_characters:
            yield _examples(path, split, rows, first, {})
            first, rows, characters = first + len(rows), [], 0
    if rows:
        yield _examples(path, split, rows, first, {})
    tally.warnings(path, 0.0)


@dataclass
class _Tally:
    """Numbers of lines; `shown` are the first problems."""

    is_own: bool  # a user's file, not one of GLUE's
    lines: int = 0
    unlabelled: int = 0
    problems: int = 0
    shown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def warnings(self, path: Path, max_fraction: float) -> list[str]:
        """Lines that count what was skipped."""
        warnings = list(self.notes)
        if self.problems:
            shown = "; ".join(self.shown) + ("; ..." if self.problems > _NUM_SHOWN else "")
            if self.problems > max_fraction * self.lines:
                remedy = "correct them"
                if max_fraction and 2 * self.problems < self.lines:
                    remedy += f", or skip them with --max-bad-line-fraction {_rounded_up(self.problems / self.lines)}"
                raise ValueError(f"{path}: {self.problems} of {self.lines} lines cannot be read; {remedy}. {shown}")
            warnings.append(f"{path}: {self.problems} of {self.lines} lines skipped, they cannot be read: {shown}")
        if self.unlabelled:
            warnings.append(
                f"{path}: {self.unlabelled} of {self.lines} examples skipped: they are marked as unlabelled"
            )
        if self.problems + self.unlabelled == self.lines:
            none = f"none of its {self.lines} rows is usable" if self.lines else "it has no rows"
            remedy = "check the file" if self.is_own else "download it again"
            raise ValueError(f"{path} has no examples: {none}; {remedy}")
        return warnings


def _rounded_up(fraction: float) -> str:
    """With at most two digits, and no less than the fraction."""
    unit = 10.0 ** (math.floor(math.log10(fraction)) - 1)
    return f"{math.ceil(fraction / unit) * unit:.3g}"


def _usable_rows(path: Path, split: Split, task: GlueTask, tally: _Tally) -> Iterator[list[str]]:
    """The fields of every line that can be used; the others are counted."""
    columns, num_texts = split.columns(), len(split.texts)
    own = own_table(path, columns, tally.notes, split.flag)
    for row in own if tally.is_own else published_rows(path, columns, split.header):
        tally.lines += 1
        if task.separator and row.values and isinstance(names := row.values.get(split.label), list):
            row.values[split.label] = task.separator.join(map(str, names))
        fields, problem = _fields(row, columns)
        if not problem and split.label is not None:
            label = fields[num_texts] = fields[num_texts].strip()  # spaces around a label do not make another class
            if label == task.no_label:
                tally.unlabelled += 1
                continue
            problem = task.problem(label)
        broken = next((value for value in fields[num_texts:] if _SEPARATORS.search(value)), None)
        if not problem and broken is None:
            yield fields
            continue
        tally.problems += 1
        if len(tally.shown) < _NUM_SHOWN:
            problem = problem or f"{shown(str(broken))} has a tab or a line break, which predictions cannot hold"
            tally.shown.append(f"line {row.number}: {problem}")


def _examples(
    path: Path, split: Split, rows: list[list[str]], first: int, counts: dict[str, int], warnings: Sequence[str] = ()
) -> Examples:
    """Rows as examples; `first` is the number of the first one in the file."""
    num_texts = len(split.texts)
    fields = [list(values) for values in zip(*rows, strict=True)]
    labels = fields[num_texts] if split.label is not None else None
    place = num_texts + (split.label is not None)
    indices = fields[place] if split.index is not None else [str(first + number) for number in range(len(rows))]
    groups = fields[-1] if split.group is not None else None
    counts["empty_texts"] = _empty(fields[:num_texts])
    return Examples(path, tuple(fields[:num_texts]), labels, indices, counts, warnings, groups)


def _empty(texts: Sequence[Sequence[str]]) -> int:
    return sum(not text.strip() for column in texts for text in column)


def discover_labels(examples: Examples, task: GlueTask) -> tuple[str, ...]:
    """The labels of a file, sorted: integers by value, then others alphabetically."""
    labels = {name for label in examples.labels or () for name in task.parts(label)}
    if len(labels) < 2:
        every = f"every label is {shown(labels.pop())}" if labels else "no text has a label"
        raise ValueError(
            f"{examples.source}: {every}; a classification needs at least two. Is --label-column the right one?"
        )
    if len(labels) > max(100, len(examples) // 2):
        raise ValueError(
            f"{examples.source}: {len(labels)} different labels in {len(examples)} lines; is --label-column "
            "the right one? For numbers, use --regression"
        )
    integers = {label for label in labels if re.fullmatch(r"-?[0-9]+", label)}
    return (*sorted(integers, key=lambda label: (int(label), label)), *sorted(labels - integers))

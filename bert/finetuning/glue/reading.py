"""Read the examples of files of labelled sentences: GLUE's published ones, and users' own.

Unreadable lines make the whole file an error that shows the first of them. In large labelled files a small fraction
may be skipped; the skipped lines are counted and logged.
"""

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bert.finetuning.glue.task_table import Split
from bert.finetuning.text_files import DataError, decoded_blocks, text_lines
from data.text.encodings import NotTextError
from data.text.tables import Column, NoColumnError, Row, TableForm, parquet_rows, rows_of_chunks, rows_of_lines

_KINDS = {
    kind: suffixes.split()
    for kind, suffixes in {
        "tsv": ".tsv .txt .tab",
        "csv": ".csv",
        "jsonl": ".jsonl .ndjson",
        "json": ".json",
        "parquet": ".parquet",
    }.items()
}
_KIND_OF = {suffix: kind for kind, suffixes in _KINDS.items() for suffix in suffixes}
_MAX_SHOWN_CHARACTERS = 60
_HALF_PAIR = re.compile("[\ud800-\udfff]")  # JSON can escape half of a surrogate pair; it is no text


def read_rows(path: Path, columns: Sequence[Column], header: bool) -> Iterator[tuple[int, list[str] | None, str]]:
    """The wanted fields of every row, in bounded memory: line, fields in order or None, problem.

    Raises:
        DataError: the file is missing, not UTF-8, empty, of another format, or lacks a column.
    """
    suffix = path.suffix.lower()
    if (kind := _KIND_OF.get(suffix)) is None:
        raise DataError(f"{path}: the suffix {suffix or '(none)'} is not supported; use .tsv, .csv, .jsonl or .parquet")
    try:
        for row in _table_rows(
            path, kind, TableForm(columns, header or kind == "csv", "strict" if kind == "csv" else "none")
        ):
            if kind == "csv" and row.problem.startswith("is not CSV"):
                # After an open quote, lines cannot be told apart from quoted text: nothing more can be read.
                raise DataError(f"{path}:{row.number}: {row.problem}, or save as TSV, where quotes are text")
            yield _fields(row, columns)
    except NoColumnError as error:
        if str(error) == "is empty":
            raise DataError(f"{path} is empty; download it again") from None
        raise DataError(
            f"{path}:1: {str(error).removeprefix('has ')}. Is it the task's file? For files of your own, use "
            "--task-name custom with --text-column, --text-pair-column and --label-column"
        ) from None
    except NotTextError as error:
        raise DataError(f"{path} {error}") from None


def _table_rows(path: Path, kind: str, form: TableForm) -> Iterator[Row]:
    if kind == "parquet":
        return parquet_rows(path, form)
    counts: Counter = Counter()
    if kind in ("csv", "json"):
        return rows_of_chunks(decoded_blocks(path), kind, form, counts)
    # Split at line feeds only: a carriage return within a published line is text.
    lines = (line.removesuffix("\n").removesuffix("\r") for line in text_lines(path))
    return rows_of_lines(lines, kind, form, counts)


def _fields(row: Row, columns: Sequence[Column]) -> tuple[int, list[str] | None, str]:
    if row.values is None:
        return row.number, None, row.problem.removeprefix("has ")
    fields: list[str] = []
    for column in columns:
        if column not in row.values:
            keys = ", ".join(shown(str(key)) for key in row.values)[:200]
            return row.number, None, f"no {column}; the row has {keys}"
        value: Any = row.values[column]
        if not isinstance(value, str | int | float):
            problem = f"{column} is {shown(json.dumps(value, default=str))}, neither text nor a number"
            return row.number, None, problem
        if isinstance(value, str) and _HALF_PAIR.search(value):
            return row.number, None, f"{column} is not text, it has half of a surrogate pair: {shown(value)}"
        fields.append(value if isinstance(value, str) else json.dumps(value))
    return row.number, fields, ""


def shown(value: str) -> str:
    return repr(value if len(value) <= _MAX_SHOWN_CHARACTERS else value[:_MAX_SHOWN_CHARACTERS] + "...")


MAX_BAD_LINE_FRACTION = 1e-4  # of a labelled file; below 10,000 lines, every line must be readable
_NUM_SHOWN = 3
_SEPARATORS = re.compile(r"[\t\r\n]")


@dataclass(frozen=True)
class Examples:
    """The n examples of one file.

    Attributes:
        texts: one list of n sentences, or two.
        labels: n labels as written in the file; None for a file without labels.
        indices: n identifiers for the prediction file.
        counts: numbers of skipped and unusual lines, by kind.
    """

    source: Path
    texts: tuple[list[str], ...]
    labels: list[str] | None
    indices: list[str]
    counts: dict[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True)
class LabelRule:
    """The valid labels: those in `labels`, or numbers within `value_range`; with neither, any label but an empty one.

    Examples with the label `no_label` are unlabelled; they are skipped and counted.
    """

    labels: tuple[str, ...] | None = None
    value_range: tuple[float, float] | None = None
    no_label: str | None = None

    def problem(self, label: str) -> str:
        """The reason why the label is not valid; "" if it is valid."""
        if self.value_range is not None:
            return self._number_problem(label, *self.value_range)
        if self.labels is not None:
            return "" if label in self.labels else f"label {shown(label)} is not one of {', '.join(self.labels)}"
        return "" if label.strip() else "its label is empty"

    def _number_problem(self, label: str, low: float, high: float) -> str:
        try:
            value = float(label)
        except ValueError:
            return f"label {shown(label)} is not a number"
        if not math.isfinite(value) or not low <= value <= high:
            return f"label {shown(label)} is not a finite number from {low:g} to {high:g}"
        return ""

    def encode(self, labels: Sequence[str]) -> np.ndarray:
        """int64 classes or float32 numbers [n] of valid labels."""
        if self.value_range is not None:
            return np.array([float(label) for label in labels], np.float32)
        assert self.labels is not None, "the labels must be known before they can be encoded"
        classes = {label: index for index, label in enumerate(self.labels)}
        return np.array([classes[label] for label in labels], np.int64)


def find_file(directory: Path, split: Split) -> Path:
    """The first file of a split that exists.

    Raises:
        DataError: none exists.
    """
    for name in split.files:
        if (directory / name).is_file():
            return directory / name
    present = sorted(path.name for path in directory.iterdir())[:12] if directory.is_dir() else []
    raise DataError(
        f"{directory} has no {' or '.join(split.files)}; it has {', '.join(present) or 'nothing'}. "
        "--download fetches GLUE's files to a new --data-dir, or to the cache without that flag"
    )


def read_examples(path: Path, split: Split, rule: LabelRule, max_bad_line_fraction: float = 0.0) -> Examples:
    """Read all examples of a file, in order.

    Args:
        max_bad_line_fraction: fraction of the lines that may be skipped because they cannot be read.
    Raises:
        DataError: the file is missing, not UTF-8, empty, lacks a column, or has too many unreadable lines.
    """
    tally = _Tally()
    kept = list(_usable_rows(path, split, rule, tally))
    warnings = tally.warnings(path, max_bad_line_fraction)
    return _examples(path, split, kept, 0, {"bad_lines": tally.problems, "unlabelled": tally.unlabelled}, warnings)


def stream_examples(path: Path, split: Split, start: int, most: int, most_characters: int) -> Iterator[Examples]:
    """The examples of a file without labels from number `start` on, some at a time, in bounded memory.

    Raises:
        DataError: as `read_examples`; for a line that cannot be read after the last examples.
    """
    rows: list[list[str]] = []
    characters, tally = 0, _Tally()
    for row in itertools.islice(_usable_rows(path, split, LabelRule(), tally), start, None):
        rows.append(row)
        characters += sum(map(len, row))
        if len(rows) >= most or characters >= most_characters:
            yield _examples(path, split, rows, start)
            start, rows, characters = start + len(rows), [], 0
    if rows:
        yield _examples(path, split, rows, start)
    tally.warnings(path, 0.0)


@dataclass
class _Tally:
    """What was met in a file."""

    lines: int = 0
    unlabelled: int = 0
    problems: int = 0
    shown: list[str] = field(default_factory=list)  # the first problems

    def note(self, line: int, problem: str) -> None:
        self.problems += 1
        if len(self.shown) < _NUM_SHOWN:
            self.shown.append(f"line {line}: {problem}")

    def warnings(self, path: Path, max_fraction: float) -> tuple[str, ...]:
        """Lines that count what was skipped.

        Raises:
            DataError: more lines are bad than may be skipped, or none is usable.
        """
        found: list[str] = []
        if self.problems:
            shown = "; ".join(self.shown) + ("; ..." if self.problems > _NUM_SHOWN else "")
            if self.problems > max_fraction * self.lines:
                remedy = "correct them"
                if max_fraction:
                    remedy += f", or raise --max-bad-line-fraction above {max_fraction:g} to skip them"
                raise DataError(f"{path}: {self.problems} of {self.lines} lines cannot be read; {remedy}. {shown}")
            found.append(f"{path}: {self.problems} of {self.lines} lines skipped because they cannot be read: {shown}")
        if self.unlabelled:
            found.append(f"{path}: {self.unlabelled} of {self.lines} examples skipped: they are marked as unlabelled")
        if self.problems + self.unlabelled == self.lines:
            raise DataError(f"{path} has no examples: none of its {self.lines} data lines is usable; download it again")
        return tuple(found)


def _usable_rows(path: Path, split: Split, rule: LabelRule, tally: _Tally) -> Iterator[list[str]]:
    """The wanted fields of every line that can be used; the others are counted."""
    label = None if split.label is None else len(split.texts)
    for line, row, problem in read_rows(path, split.columns(), split.header):
        tally.lines += 1
        if row is not None and label is not None:
            row[label] = row[label].strip()  # spaces around a label do not make another class
            if row[label] == rule.no_label:
                tally.unlabelled += 1
                continue
            problem = rule.problem(row[label])
        if row is not None:
            problem = problem or _separator_problem(row[len(split.texts) :])
        if row is None or problem:
            tally.note(line, problem)
        else:
            yield row


def _separator_problem(values: Sequence[str]) -> str:
    """The first of a label and an index that would break a line of predictions; "" if none does."""
    broken = next((value for value in values if _SEPARATORS.search(value)), None)
    return "" if broken is None else f"{shown(broken)} has a tab or a line break, which predictions cannot hold"


def _examples(
    path: Path,
    split: Split,
    rows: list[list[str]],
    first: int,
    counts: dict[str, int] | None = None,
    warnings: tuple[str, ...] = (),
) -> Examples:
    """Rows as examples; `first` is the number of the first one in the file."""
    num_texts = len(split.texts)
    fields = [list(values) for values in zip(*rows, strict=True)]
    labels = fields[num_texts] if split.label is not None else None
    indices = fields[-1] if split.index is not None else [str(first + number) for number in range(len(rows))]
    empty = sum(not text.strip() for texts in fields[:num_texts] for text in texts)
    return Examples(
        path, tuple(fields[:num_texts]), labels, indices, {**(counts or {}), "empty_texts": empty}, warnings
    )


def discover_labels(examples: Examples) -> tuple[str, ...]:
    """The labels of a file, sorted: integers by value, then others alphabetically.

    Raises:
        DataError: there are fewer than two, or almost as many as examples.
    """
    found = set(examples.labels or ())
    if len(found) < 2:
        raise DataError(
            f"{examples.source}: every label is {shown(found.pop())}; a classification needs at least two. "
            "Is --label-column the right one?"
        )
    if len(found) > max(100, len(examples) // 2):
        raise DataError(
            f"{examples.source}: {len(found)} different labels in {len(examples)} lines; is --label-column "
            "the right one? For numbers, use --regression"
        )
    return tuple(sorted(found, key=lambda label: (0, int(label), label) if _is_integer(label) else (1, 0, label)))


def _is_integer(label: str) -> bool:
    return re.fullmatch(r"-?[0-9]+", label) is not None

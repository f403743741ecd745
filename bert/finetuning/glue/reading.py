"""Read the examples of files of labelled sentences: GLUE's published ones, and users' own.

Unreadable lines make the whole file an error that shows the first of them. In large labelled files a small fraction
may be skipped; the skipped lines are counted and logged.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bert.finetuning.glue.task_table import GlueTask, Split, shown
from bert.finetuning.text_files import DataError, decoded_blocks, text_lines
from data.text.encodings import NotTextError
from data.text.tables import Column, NoColumnError, Row, TableForm, parquet_rows, rows_of_chunks, rows_of_lines

_KINDS = {
    **dict.fromkeys((".tsv", ".txt", ".tab"), "tsv"),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    **{f".{kind}": kind for kind in ("csv", "json", "parquet")},
}
_HALF_PAIR = re.compile("[\ud800-\udfff]")  # JSON can escape half of a surrogate pair; it is no text
MAX_BAD_LINE_FRACTION = 1e-4  # of a labelled file; below 10,000 lines, every line must be readable
_NUM_SHOWN = 3
_SEPARATORS = re.compile(r"[\t\r\n]")


def read_rows(path: Path, columns: Sequence[Column], header: bool) -> Iterator[tuple[int, list[str] | None, str]]:
    """Some columns of every row, in bounded memory: line, fields in order or None, problem."""
    suffix = path.suffix.lower()
    if (kind := _KINDS.get(suffix)) is None:
        raise DataError(f"{path}: the suffix {suffix or '(none)'} is not supported; use .tsv, .csv, .jsonl or .parquet")
    form = TableForm(columns, header or kind == "csv", "strict" if kind == "csv" else "none")
    counts = Counter[str]()
    try:
        if kind == "parquet":
            rows = parquet_rows(path, form)
        elif kind in ("csv", "json"):
            rows = rows_of_chunks(decoded_blocks(path), kind, form, counts)
        else:  # line feeds alone end lines: a carriage return within a published line is text
            rows = rows_of_lines(text_lines(path), kind, form, counts)
        for row in rows:
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


@dataclass(frozen=True)
class Examples:
    """n examples of one file.

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
    warnings: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.indices)


def find_file(directory: Path, split: Split) -> Path:
    """The first file of a split that exists."""
    for name in split.files:
        if (directory / name).is_file():
            return directory / name
    present = sorted(path.name for path in directory.iterdir())[:12] if directory.is_dir() else []
    raise DataError(
        f"{directory} has no {' or '.join(split.files)}; it has {', '.join(present) or 'nothing'}. "
        "--download fetches GLUE's files to a new --data-dir, or to the cache without that flag"
    )


def read_examples(path: Path, split: Split, task: GlueTask, max_bad_line_fraction: float = 0.0) -> Examples:
    """Read all examples of a file, in order.

    Args:
        max_bad_line_fraction: fraction of the lines that may be skipped because they cannot be read.
    """
    tally = _Tally()
    rows = list(_usable_rows(path, split, task, tally))
    warnings = tally.warnings(path, max_bad_line_fraction)
    return _examples(path, split, rows, 0, {"bad_lines": tally.problems, "unlabelled": tally.unlabelled}, warnings)


def stream_examples(path: Path, split: Split, task: GlueTask, most: int, most_characters: int) -> Iterator[Examples]:
    """The examples of a file without labels, some at a time, in bounded memory."""
    rows: list[list[str]] = []
    first, characters, tally = 0, 0, _Tally()
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

    lines: int = 0
    unlabelled: int = 0
    problems: int = 0
    shown: list[str] = field(default_factory=list)

    def warnings(self, path: Path, max_fraction: float) -> list[str]:
        """Lines that count what was skipped."""
        warnings: list[str] = []
        if self.problems:
            shown = "; ".join(self.shown) + ("; ..." if self.problems > _NUM_SHOWN else "")
            if self.problems > max_fraction * self.lines:
                remedy = "correct them"
                if max_fraction:
                    remedy += f", or raise --max-bad-line-fraction above {max_fraction:g} to skip them"
                raise DataError(f"{path}: {self.problems} of {self.lines} lines cannot be read; {remedy}. {shown}")
            warnings.append(f"{path}: {self.problems} of {self.lines} lines skipped, they cannot be read: {shown}")
        if self.unlabelled:
            warnings.append(
                f"{path}: {self.unlabelled} of {self.lines} examples skipped: they are marked as unlabelled"
            )
        if self.problems + self.unlabelled == self.lines:
            raise DataError(f"{path} has no examples: none of its {self.lines} data lines is usable; download it again")
        return warnings


def _usable_rows(path: Path, split: Split, task: GlueTask, tally: _Tally) -> Iterator[list[str]]:
    """The fields of every line that can be used; the others are counted."""
    num_texts = len(split.texts)
    for line, row, problem in read_rows(path, split.columns(), split.header):
        tally.lines += 1
        if row is not None and split.label is not None:
            label = row[num_texts] = row[num_texts].strip()  # spaces around a label do not make another class
            if label == task.no_label:
                tally.unlabelled += 1
                continue
            problem = task.problem(label)
        if row is not None and not problem:
            broken = next((value for value in row[num_texts:] if _SEPARATORS.search(value)), None)
            if broken is None:
                yield row
                continue
            problem = f"{shown(broken)} has a tab or a line break, which predictions cannot hold"
        tally.problems += 1
        if len(tally.shown) < _NUM_SHOWN:
            tally.shown.append(f"line {line}: {problem}")


def _examples(
    path: Path, split: Split, rows: list[list[str]], first: int, counts: dict[str, int], warnings: Sequence[str] = ()
) -> Examples:
    """Rows as examples; `first` is the number of the first one in the file."""
    num_texts = len(split.texts)
    fields = [list(values) for values in zip(*rows, strict=True)]
    labels = fields[num_texts] if split.label is not None else None
    indices = fields[-1] if split.index is not None else [str(first + number) for number in range(len(rows))]
    counts["empty_texts"] = sum(not text.strip() for texts in fields[:num_texts] for text in texts)
    return Examples(path, tuple(fields[:num_texts]), labels, indices, counts, warnings)


def discover_labels(examples: Examples) -> tuple[str, ...]:
    """The labels of a file, sorted: integers by value, then others alphabetically."""
    labels = set(examples.labels or ())
    if len(labels) < 2:
        raise DataError(
            f"{examples.source}: every label is {shown(labels.pop())}; a classification needs at least two. "
            "Is --label-column the right one?"
        )
    if len(labels) > max(100, len(examples) // 2):
        raise DataError(
            f"{examples.source}: {len(labels)} different labels in {len(examples)} lines; is --label-column "
            "the right one? For numbers, use --regression"
        )
    integers = {label for label in labels if re.fullmatch(r"-?[0-9]+", label)}
    return (*sorted(integers, key=lambda label: (int(label), label)), *sorted(labels - integers))

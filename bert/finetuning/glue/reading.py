"""Read files of labelled sentences: GLUE's published tab-separated files, and users' own.

    .tsv .txt .tab         fields separated by tabs; quotation marks are plain text
    .csv                   fields separated by commas, quoted where needed, as spreadsheets write them
    .jsonl .ndjson .json   one JSON object per line

Unreadable lines make the whole file an error that shows the first of them. In large labelled files a small fraction
may be skipped; the skipped lines are counted and logged.
"""

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bert.finetuning.glue.task_table import Column, Split
from bert.finetuning.text_files import DataError, decoded_text

MAX_BAD_LINE_FRACTION = 1e-4  # of a labelled file; below 10,000 lines, every line must be readable
_NUM_SHOWN = 3
_MAX_SHOWN_CHARACTERS = 60
_Row = tuple[int, list[str] | None, str]  # line number; the wanted fields in order, or None and the problem


@dataclass(frozen=True)
class Examples:
    """The n examples of one file.

    Attributes:
        source: the file.
        texts: one list of n sentences, or two.
        labels: n labels as written in the file; None for a file without labels.
        indices: n identifiers for the prediction file.
        counts: numbers of skipped and unusual lines, by kind.
        warnings: lines for the log.
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
            return "" if label in self.labels else f"label {_shown(label)} is not one of {', '.join(self.labels)}"
        return "" if label.strip() else "its label is empty"

    def _number_problem(self, label: str, low: float, high: float) -> str:
        try:
            value = float(label)
        except ValueError:
            return f"label {_shown(label)} is not a number"
        if not math.isfinite(value) or not low <= value <= high:
            return f"label {_shown(label)} is not a finite number from {low:g} to {high:g}"
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
        path: a file whose suffix names its format.
        split: the columns.
        rule: the valid labels.
        max_bad_line_fraction: fraction of the lines that may be skipped because they cannot be read.
    Raises:
        DataError: the file is missing, not UTF-8, empty, lacks a column, or has too many unreadable lines.
    """
    num_texts = len(split.texts)
    kept: list[list[str]] = []
    problems: list[str] = []
    num_lines = num_unlabelled = 0
    for line, row, problem in _rows(path, decoded_text(path), split.columns(), split.header):
        num_lines += 1
        if row is not None and split.label is not None:
            row[num_texts] = row[num_texts].strip()  # spaces around a label do not make another class
            if row[num_texts] == rule.no_label:
                num_unlabelled += 1
                continue
            problem = rule.problem(row[num_texts])
        if row is None or problem:
            problems.append(f"line {line}: {problem}")
        else:
            kept.append(row)
    warnings = _warnings_about(problems, path, num_lines, max_bad_line_fraction)
    if num_unlabelled:
        warnings += (f"{path}: {num_unlabelled} of {num_lines} examples skipped: they are marked as unlabelled",)
    if not kept:
        raise DataError(f"{path} has no examples: none of its {num_lines} data lines is usable; download it again")
    counts = {
        "bad_lines": len(problems),
        "unlabelled": num_unlabelled,
        "empty_texts": sum(not text.strip() for row in kept for text in row[:num_texts]),
    }
    fields = [list(values) for values in zip(*kept, strict=True)]
    labels = fields[num_texts] if split.label is not None else None
    indices = fields[-1] if split.index is not None else [str(number) for number in range(len(kept))]
    return Examples(path, tuple(fields[:num_texts]), labels, indices, counts, warnings)


def discover_labels(examples: Examples) -> tuple[str, ...]:
    """The labels of a file, sorted: integers by value, then others alphabetically.

    Raises:
        DataError: there are fewer than two, or almost as many as examples.
    """
    found = set(examples.labels or ())
    if len(found) < 2:
        raise DataError(
            f"{examples.source}: every label is {_shown(found.pop())}; a classification needs at least two. "
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


def _warnings_about(problems: list[str], path: Path, num_lines: int, max_fraction: float) -> tuple[str, ...]:
    """A warning that counts the skipped lines; a DataError if there are more than may be skipped."""
    if not problems:
        return ()
    shown = "; ".join(problems[:_NUM_SHOWN]) + ("; ..." if len(problems) > _NUM_SHOWN else "")
    if len(problems) > max_fraction * num_lines:
        remedy = "correct them"
        if max_fraction:
            remedy += f", or raise --max-bad-line-fraction above {max_fraction:g} to skip them"
        raise DataError(f"{path}: {len(problems)} of {num_lines} lines cannot be read; {remedy}. {shown}")
    return (f"{path}: {len(problems)} of {num_lines} lines skipped because they cannot be read: {shown}",)


def _rows(path: Path, text: str, columns: list[Column], header: bool) -> Iterator[_Row]:
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson", ".json"):
        return _json_rows(path, text, [str(column) for column in columns])
    if suffix == ".csv":
        return _csv_rows(path, text, columns)
    if suffix in (".tsv", ".txt", ".tab"):
        return _tsv_rows(path, text, columns, header)
    raise DataError(f"{path}: the suffix {suffix or '(none)'} is not supported; use .tsv, .csv or .jsonl")


def _tsv_rows(path: Path, text: str, columns: list[Column], header: bool) -> Iterator[_Row]:
    # Split at line feeds only: the published texts contain U+0085 and others at which splitlines() also splits.
    lines = text.split("\n")
    while lines and not lines[-1].strip("\r"):
        lines.pop()
    if not lines:
        raise DataError(f"{path} is empty; download it again")
    first = lines[0].removesuffix("\r").split("\t")
    if header:
        places = [_place(path, first, column) for column in columns]
        width, rule = len(first), f"the first line names {len(first)}"
    else:
        places = [int(column) for column in columns]
        width, rule = max(4, max(places) + 1), "CoLA's files have 4, and no line of names"
    for number, line in enumerate(lines[1:] if header else lines, start=2 if header else 1):
        fields = line.removesuffix("\r").split("\t")
        if len(fields) != width:
            yield number, None, f"{len(fields)} fields between tabs, {rule} ({_shown(line)})"
        else:
            yield number, [fields[place] for place in places], ""


def _csv_rows(path: Path, text: str, columns: list[Column]) -> Iterator[_Row]:
    csv.field_size_limit(1 << 30)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        first = next(reader, None)
        if first is None:
            raise DataError(f"{path} is empty; download it again")
        places = [_place(path, first, column) for column in columns]
        start = reader.line_num + 1
        for fields in reader:
            if len(fields) == len(first):
                yield start, [fields[place] for place in places], ""
            elif fields:
                yield start, None, f"{len(fields)} fields, the first line names {len(first)}"
            start = reader.line_num + 1
    except csv.Error as error:
        # After an open quote, lines cannot be told apart from quoted text: nothing more can be read.
        raise DataError(
            f"{path}:{reader.line_num}: not CSV ({error}); a quoted field that starts before or here is "
            "not closed, or has text after its quote: double the quotes within fields, or save as TSV, "
            "where quotes are text"
        ) from None


def _json_rows(path: Path, text: str, keys: list[str]) -> Iterator[_Row]:
    if text.lstrip()[:1] == "[":
        raise DataError(f"{path}:1: a JSON array; one object a line is needed: convert it, e.g. with jq -c '.[]'")
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, None, f"not JSON ({error}): {_shown(line)}"
            continue
        if not isinstance(found, dict):
            yield number, None, f"not a JSON object: {_shown(line)}"
        elif missing := [key for key in keys if key not in found]:
            yield number, None, f"no {', '.join(missing)}; its keys are {', '.join(map(_shown, found))[:200]}"
        elif unfit := [key for key in keys if not isinstance(found[key], str | int | float)]:
            yield number, None, f"{unfit[0]} is {_shown(json.dumps(found[unfit[0]]))}, neither text nor a number"
        else:
            yield number, [value if isinstance(value := found[key], str) else json.dumps(value) for key in keys], ""


def _place(path: Path, names: list[str], column: Column) -> int:
    if isinstance(column, int):
        return column
    if names.count(column) == 1:
        return names.index(column)
    shown = ", ".join(_shown(name) for name in names[:12]) + (", ..." if len(names) > 12 else "")
    what = "no column" if column not in names else f"{names.count(column)} columns"
    raise DataError(
        f"{path}:1: {what} {column!r}; the first line names {shown}. Is it the task's file? For files of "
        "your own, use --task-name custom with --text-column, --text-pair-column and --label-column"
    )


def _shown(value: str) -> str:
    return repr(value if len(value) <= _MAX_SHOWN_CHARACTERS else value[:_MAX_SHOWN_CHARACTERS] + "...")

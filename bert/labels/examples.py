"""Reads labelled texts from published files and from users' files.

Unreadable lines make the whole file an error that shows the first of them. In large labelled files a small fraction
may be skipped; the skipped lines are counted and logged.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert.labels.schema import POSITION, LabelSchema, listed
from bert.labels.table import Split, shown
from bert.printable import printable
from data.text.columns import Column, Row, is_blank, parts_of, texts_inside, value_of

if TYPE_CHECKING:  # not for --help
    import numpy as np

_HALF_PAIR = re.compile("[\ud800-\udfff]")  # JSON can escape half of a surrogate pair; it is no text
MAX_BAD_LINE_FRACTION = 1e-4  # limit for a labelled file; with fewer than 10,000 lines, every line must be readable
_NUM_SHOWN = 3
ALONE = "\0"  # prefix of the group of a row without a group
_SEPARATORS = re.compile(r"[\t\r\n]")


def _fields(row: Row, columns: Sequence[Column]) -> tuple[list[str], str]:
    """(values of a row in these columns, ""), or ([], reason) if the row cannot be used."""
    if row.values is None:
        return [], row.problem.removeprefix("has ")
    fields: list[str] = []
    for column in columns:
        if missing := [part for part in parts_of(column, row.values) if part not in row.values]:
            keys = ", ".join(shown(str(key)) for key in row.values)[:200]
            return [], f"no {missing[0]}; the row has {keys}"
        value: Any = value_of(row.values, column)
        if not isinstance(value, str | int | float):
            inside = next(
                (f"; name what is in it, such as {path}" for text in texts_inside(value, str(column)) for path in text),
                "",
            )
            return [], f"{column} is {shown(json.dumps(value, default=str))}, neither text nor a number{inside}"
        if isinstance(value, str) and _HALF_PAIR.search(value):
            return [], f"{column} is not text, it has half of a surrogate pair: {shown(value)}"
        fields.append(value if isinstance(value, str) else json.dumps(value))
    return fields, ""


@dataclass(frozen=True)
class Examples:
    """n examples that were read from one file."""

    source: Path
    texts: tuple[list[str], ...]  # one list of n sentences, or two
    labels: list[str] | None  # n labels as written in the file; None for a file without labels
    indices: list[str]  # n identifiers for the prediction file
    counts: dict[str, int] = field(default_factory=dict)  # numbers of skipped and unusual lines, by kind
    warnings: Sequence[str] = ()
    groups: list[str] | None = None  # n groups; rows of one group belong together; None without a column of groups

    def __len__(self) -> int:
        return len(self.indices)

    def take(self, rows: "np.ndarray") -> "Examples":
        """Select examples by their numbers or by a mask."""
        import numpy as np

        numbers = np.arange(len(self))[rows].tolist()

        def taken(values: Sequence[str]) -> list[str]:
            return [values[number] for number in numbers]

        texts = tuple(taken(text) for text in self.texts)
        return replace(
            self,
            texts=texts,
            labels=None if self.labels is None else taken(self.labels),
            indices=taken(self.indices),
            counts={**self.counts, "empty_texts": _empty(texts)},
            groups=None if self.groups is None else taken(self.groups),
        )


def read_examples(path: Path, split: Split, schema: LabelSchema, max_bad_line_fraction: float = 0.0) -> Examples:
    """Read all examples of a file, in order; at most `max_bad_line_fraction` of the lines may be unreadable."""
    (examples,) = stream_examples(path, split, schema, math.inf, math.inf, max_bad_line_fraction)
    return examples


def stream_examples(
    path: Path,
    split: Split,
    schema: LabelSchema,
    most: float,
    most_characters: float,
    max_bad_line_fraction: float = 0.0,
) -> Iterator[Examples]:
    """Read the examples of a file in parts, in bounded memory; the last part has the counts and warnings."""
    rows: list[list[str]] = []
    first, characters, tally = 0, 0, _Tally(schema.is_own)
    for row in _usable_rows(path, split, schema, tally):
        rows.append(row)
        characters += sum(map(len, row))
        if len(rows) >= most or characters >= most_characters:
            yield _examples(path, split, rows, first, {})
            first, rows, characters = first + len(rows), [], 0
    warnings = tally.warnings(path, max_bad_line_fraction)
    if rows:
        counts = {"bad_lines": tally.problems, "unlabelled": tally.unlabelled}
        yield _examples(path, split, rows, first, counts, warnings)


@dataclass
class _Tally:
    """Counts of lines, and the first problems (`shown`)."""

    is_own: bool  # whether the file is the user's, not GLUE's
    lines: int = 0
    unlabelled: int = 0
    problems: int = 0
    equal_labels: Counter[str] = field(default_factory=Counter)  # labels that were written in other code points
    shown: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def warnings(self, path: Path, max_fraction: float) -> list[str]:
        """Lines with the numbers of skipped lines. ValueError if too many lines were skipped."""
        warnings = list(self.notes)
        if self.problems:
            shown = "; ".join(self.shown) + ("; ..." if self.problems > _NUM_SHOWN else "")
            if self.problems > max_fraction * self.lines:
                remedy = "correct them"
                if max_fraction and 2 * self.problems < self.lines:
                    remedy += f", or skip them with --max-bad-line-fraction {_rounded_up(self.problems / self.lines)}"
                raise ValueError(f"{path}: {self.problems} of {self.lines} lines cannot be read; {remedy}. {shown}")
            warnings.append(f"{path}: {self.problems} of {self.lines} lines skipped, they cannot be read: {shown}")
        if self.equal_labels:
            number, (example, _) = self.equal_labels.total(), self.equal_labels.most_common(1)[0]
            forms = "in other code points (NFD, ligatures or soft hyphens)"
            warnings.append(f"{path}: {number:,} labels are written {forms}, and read as one, e.g. {example!r}")
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
    """The fraction, rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(fraction)) - 1)
    return f"{math.ceil(fraction / unit) * unit:.3g}"


def _usable_rows(path: Path, split: Split, schema: LabelSchema, tally: _Tally) -> Iterator[list[str]]:
    """Yield the fields of each usable line; unusable lines are counted in `tally`."""
    columns, num_texts = split.columns(), len(split.texts)
    for row in schema.rows(path, split, tally.notes):
        tally.lines += 1
        if schema.separator and row.values and (names := listed(row.values.get(split.label))) is not None:
            row.values[split.label] = schema.separator.join(names)
        if split.group is not None and row.values and is_blank(row.values.get(split.group, "")):
            row.values[split.group] = ""  # also JSON's null, and NaN of Parquet
        fields, problem = _fields(row, columns)
        if not problem and split.label is not None:
            written = fields[num_texts].strip()  # spaces do not make another class
            label = fields[num_texts] = schema.spelled(written)
            if label != written and not written.isascii():
                tally.equal_labels[label] += 1
            if label == schema.no_label:
                tally.unlabelled += 1
                continue
            problem = schema.problem(label)
        broken = next((value for value in fields[num_texts:] if printable(value) != value), None)
        if not problem and broken is None:
            yield fields
            continue
        tally.problems += 1
        if len(tally.shown) < _NUM_SHOWN:
            what = "a tab or a line break" if _SEPARATORS.search(str(broken)) else "a control character"
            problem = problem or f"{shown(str(broken))} has {what}, which predictions cannot hold"
            tally.shown.append(f"line {row.number}: {problem}")


def _examples(
    path: Path, split: Split, rows: list[list[str]], first: int, counts: dict[str, int], warnings: Sequence[str] = ()
) -> Examples:
    """Make examples from rows; `first` is the number of the first row in the file."""
    num_texts = len(split.texts)
    fields = [list(values) for values in zip(*rows, strict=True)]
    labels = fields[num_texts] if split.label is not None else None
    place = num_texts + (split.label is not None)
    indices = [str(first + number) for number in range(len(rows))]
    if split.index is not None:  # an empty cell names no row
        indices = [
            value if value.strip() else f"row {number}" for value, number in zip(fields[place], indices, strict=True)
        ]
    groups = None
    if split.group is not None:
        groups = [value if value.strip() else f"{ALONE}{first + row}" for row, value in enumerate(fields[-1])]
    counts["empty_texts"] = _empty(fields[:num_texts])
    return Examples(path, tuple(fields[:num_texts]), labels, indices, counts, warnings, groups)


def _empty(texts: Sequence[Sequence[str]]) -> int:
    return sum(not text.strip() for column in texts for text in column)


def _number_of_flags(lists: Sequence[Sequence[str]]) -> int:
    """The common length of lists of 0 and 1 if both values occur; 0 for other lists."""
    values = {value for flags in lists for value in flags}
    lengths = {len(flags) for flags in lists}
    return lengths.pop() if values == {"0", "1"} and len(lengths) == 1 else 0


def discover_labels(examples: Examples, schema: LabelSchema) -> tuple[str, ...]:
    """The different labels of a file, sorted: integers by value, then others alphabetically."""
    num_flags = _number_of_flags([schema.parts(label) for label in examples.labels or ()]) if schema.separator else 0
    if num_flags > 1:
        return tuple(POSITION.format(place) for place in range(1, num_flags + 1))
    labels = {name for label in examples.labels or () for name in schema.parts(label)}
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

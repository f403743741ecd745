"""Refuses a table whose first line is data or a title, not the column names.

Finds rows that are none: names that come again, as in files that were joined, and types below the names.

Each sign that the first line is a row is a function of one column. The signs are not consulted if a name is a usual
one, such as "text", or if the names are those that pandas gives unnamed columns, 0, 1, 2 ...
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from data.text.columns import LABEL_NAMES, LONGEST_NAME, PAIR_NAMES, TEXT_NAMES, longest_text
from data.text.text_check import NotTextError

REPEATED_NAMES = "dropped: rows that repeat the names of the columns"
ROWS_OF_TYPES = "dropped: rows that name the types of the columns"
_USUAL_NAMES = {*TEXT_NAMES, *LABEL_NAMES, *chain(*PAIR_NAMES)}
_TYPE = re.compile(
    r"string|str|text|(var)?char(\(\d+\))?|u?int(eger)?(8|16|32|64)?|bigint|long|short|float(16|32|64)?|double|real"
    r"|num(ber|eric)?|decimal|bool(ean)?|date|time|date ?time(64)?(\[ns\])?|timestamp|object|categor(y|ical)|enum"
    r"|discrete|continuous|id|label|class|meta|[csd]",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[+-]?[\d.,:/\- ]*\d[\d.,:/\- %]*")  # also a date or a time
_LINES_OF_A_TITLE = 10  # at most, above the names
_FEW_ROWS = 10  # of which most labels may differ
_MOST = 0.9  # of the rows
_LEAST_LENGTH = 0.8  # of a name that is a text, as a fraction of the lower quartile of the other texts
_SHORT_NUMBER = 3  # digits; a longer name may be a year
_FRACTION = re.compile(r"[+-]?\d+([.,]\d+ ?%?| ?%)")
_SENTENCE = re.compile(r"(\S+\s+){4,}\S+|(\S+\s+){2,}\S*[.!\u2026]|.{5,}[\u3002\uff01]")


class NoHeaderError(NotTextError):
    """The first line of a table holds no column names; the message has the remedy."""


@dataclass(frozen=True)
class ColumnSample:
    """Name and first values of a table's column.

    Attributes:
        name: its field of the first line.
        values: its fields of the rows, without those rows that repeat the first line; None: the row lacks the field.
    """

    name: str
    values: Sequence[Any]

    def distinct(self) -> set[Any]:
        return set(self.values)

    def repeats(self) -> bool:
        """Whether each value occurs at least twice on average, as labels do."""
        return 0 < 2 * len(self.distinct()) <= len(self.values)


def is_longer_than_names(name: str) -> bool:
    """Whether the name is too long for a name (over 60 characters), so that it is probably text."""
    return len(name) > LONGEST_NAME


def is_fraction(column: ColumnSample) -> bool:
    """Whether the name is a decimal fraction or a percentage."""
    return _FRACTION.fullmatch(column.name) is not None


def is_one_of_the_labels(column: ColumnSample) -> bool:
    """Whether the name also occurs as a value, among repeated values or in a small table.

    A column whose values are its name and empty fields holds a check box, and has a name.
    """
    labels = column.distinct()
    is_check_box = labels == {column.name, ""}
    return column.name in labels and not is_check_box and (column.repeats() or len(column.values) < _FEW_ROWS)


def is_number_among_numbers(column: ColumnSample) -> bool:
    """Whether the name is a whole number like the values, which repeat.

    A number of more than three digits that is longer than all values is a name: a year above counts.
    """
    values = [str(value) for value in column.distinct()]
    if not column.name.isdecimal() or not column.repeats() or not all(value.isdecimal() for value in values):
        return False
    return len(column.name) <= max(_SHORT_NUMBER, *map(len, values))


def is_sentence_among_sentences(column: ColumnSample) -> bool:
    """Whether the name is a sentence as most values are, with the same ending and length."""
    texts = [str(value or "") for value in column.values]
    if column.repeats() or not texts or not _is_sentence(column.name):
        return False
    num_sentences = 1 + sum(map(_is_sentence, texts))
    are_most_sentences = 2 * num_sentences > 1 + len(texts)
    return are_most_sentences and _ends_like(column.name, texts) and _is_as_long_as(column.name, texts)


def _is_sentence(text: str) -> bool:
    """Whether a text is a sentence: five words, or three and a final mark, or CJK characters with a full-width mark."""
    return _SENTENCE.fullmatch(text) is not None


def _ends_like(name: str, texts: Sequence[str]) -> bool:
    """Whether the name's ending fits a value: not "?" or ":" (it may head answers), unless most texts end so."""
    mark = name[-1]
    return mark not in "?:" or 2 * sum(text.endswith(mark) for text in texts) > len(texts)


def _is_as_long_as(name: str, texts: Sequence[str]) -> bool:
    """Whether the name is nearly as long as the lower quartile of the texts."""
    lengths = sorted(map(len, texts))
    return len(name) >= _LEAST_LENGTH * lengths[len(texts) // 4]


def refuse_without_header(rows: Sequence[Mapping[str, Any]], flags: str = "--no-header") -> None:
    """Raise NoHeaderError if the first line is data.

    Args:
        rows: the first ones, by the fields of the first line.
        flags: those that say what the table holds.
    """
    names = list(rows[0]) if rows else []
    longest = longest_text(rows)
    wrong = [longest] if longest is not None and is_longer_than_names(longest) else []
    if not _has_usual_name(names) and not _are_positions(names):
        wrong += _names_that_are_values(names, rows)
    if wrong:
        raise NoHeaderError(
            f"has no names of columns in its first line, which is a row ({str(wrong[0])[:LONGEST_NAME]!r}); add a "
            f"line of names{flags and f', or pass {flags}'}"
        )


def repeats_names(fields: Sequence[Any], names: Sequence[str]) -> bool:
    """Whether a row repeats the column names, as in joined files. A single column must have a usual name."""
    if len(fields) != len(names) or not names or fields[0] != names[0] or list(fields) != list(names):
        return False
    return len(names) > 1 or _has_usual_name(names)


def are_types(fields: Sequence[Any]) -> bool:
    """Whether the fields of a first row are types, such as `string` and `category`, not values."""
    filled = [str(field).strip() for field in fields if field not in (None, "")]
    return len(filled) > 1 and all(map(_TYPE.fullmatch, filled)) and any(len(field) > 2 for field in filled)


def refuse_names_below(first: Sequence[str], rows: Sequence[tuple[int, Sequence[str]]], line: str = "line") -> None:
    """Raise NoHeaderError if the first line is a title, or the upper of two header lines.

    Such a line leaves fields empty, repeats a name, or has fewer fields than the rows. Names are then the first of
    the next lines that has more fields, all short and different; one is a usual name, or numbers or long texts stand
    below it.

    Args:
        first: the fields of the first line.
        rows: (number of its line, fields) of each of the next ones.
        line: what is counted.
    """
    filled, widths = [name for name in first if name], [len(fields) for _, fields in rows]
    usual_width = max(widths, key=widths.count, default=0)
    begin = widths.index(usual_width) if widths else 0  # below the other lines of a title
    is_regular = widths.count(usual_width) >= _MOST * (len(widths) - begin)
    is_narrow = len(first) <= 1 < usual_width and is_regular
    if not rows or not (is_narrow or _is_title(first)):
        return
    for place, (number, fields) in enumerate(rows[:_LINES_OF_A_TITLE]):
        names = [field for field in fields if field]
        if len(names) <= len({*filled}) or len(names) < len(fields) - 1 or not _may_be_names(names):
            continue
        below = [cells for _, cells in rows[place + 1 :] if len(cells) == len(fields)]
        stand_out = any(_differs(field, [cells[at] for cells in below]) for at, field in enumerate(fields) if field)
        if _are_usual(names) or (stand_out and not _are_usual(filled)):
            raise NoHeaderError(
                f"has the names of its columns in {line} {number} ({', '.join(names)[:LONGEST_NAME]}), below "
                f"{' '.join(filled)[:LONGEST_NAME]!r}; delete the {line}s above them"
            )


def _is_title(first: Sequence[str]) -> bool:
    """Whether a line leaves fields empty, as merged cells do, or repeats one. A table may have an unnamed index, as
    pandas writes it, or an empty column at its end."""
    filled, num_empty = [name for name in first if name], first.count("")
    places = [place for place, name in enumerate(first) if name]
    has_gap = bool(places) and len(places) <= places[-1] - places[0]
    return has_gap or num_empty > 1 or 2 * num_empty > len(first) or len({*filled}) < len(filled)


def _are_usual(names: Sequence[str]) -> bool:
    """Whether one of the names is usual and longer than a letter."""
    return not _USUAL_NAMES.isdisjoint(name.lower() for name in names if len(name) > 1)


def _may_be_names(fields: Sequence[str]) -> bool:
    are_short = not any(is_longer_than_names(field) or _NUMBER.fullmatch(field) for field in fields)
    return are_short and len(fields) > 1 and len({*fields}) == len(fields)


def _differs(name: str, values: Sequence[str]) -> bool:
    """Whether numbers or long texts follow a name."""
    filled = [value for value in values if value]
    return bool(filled) and (
        all(_NUMBER.fullmatch(value) for value in filled) or all(map(is_longer_than_names, filled))
    )


def _has_usual_name(names: Sequence[str]) -> bool:
    return any(name.lower() in _USUAL_NAMES for name in names)


def _are_positions(names: Sequence[str]) -> bool:
    return list(names) == [str(position) for position in range(len(names))]


def _names_that_are_values(names: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [row for row in rows if list(row.values()) != names]
    num_numbers = sum(map(str.isdecimal, names))
    wrong = []
    for name in names:
        column = ColumnSample(name, [row.get(name) for row in rows])
        signs = [is_one_of_the_labels, is_sentence_among_sentences, is_fraction]
        if num_numbers == 1:  # several may be years
            signs.append(is_number_among_numbers)
        if any(sign(column) for sign in signs):
            wrong.append(name)
    return wrong

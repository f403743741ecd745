"""What to read of a table: its columns, which are named, known by usual names, or chosen by their content."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeVar

from data.text.text_check import NotTextError

# Usual names of columns, the likeliest first.
TEXT_NAMES = tuple("text sentence review comment note notes report body content message description document".split())
PAIR_NAMES = (("text", "text_pair"), ("sentence1", "sentence2"), ("premise", "hypothesis"))
LABEL_NAMES = tuple(
    "label labels tags class category sentiment target score rating gold_label diagnosis kind topic y".split()
)
SAMPLE_ROWS, SAMPLE_CHARACTERS = 500, 1 << 20  # of a table without a column of the names
_LEAST_MEAN, _LEAST_TOTAL = 30, 100  # characters of a text and of the sample; less is a name, a date or a setting
LONGEST_NAME = 60  # a longer "name" is a first row of text
_MAX_SHOWN = 20
_MOST_NESTED = 10  # of objects and lists in which a text is searched
T = TypeVar("T")
Column = str | int  # its name, or in a table without a line of names its position from 0


class NoColumnError(NotTextError):
    """The table lacks a column, or has several of that name; the message says which columns there are."""

    def __init__(self, message: str, column: str | int = "", names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.column, self.names = column, names


class TextColumn:
    """The text column of one table.

    Attributes:
        names: those that may hold the text of a row; the first one that does is taken.
        guess: the column with the longest text, which was taken as the table has none of the names.
    """

    def __init__(self, text_field: str | None) -> None:
        """text_field: one name, or several with commas between them; None: "text", or a guess where there is none."""
        self._may_guess = text_field is None
        field = TEXT_NAMES[0] if text_field is None else text_field
        self.names = list(dict.fromkeys([field, *(name.strip() for name in field.split(","))]))
        if len(self.names) > 1:
            self.names.append(self.names.pop(0))  # a name that has commas itself
        self.guess: str | None = None

    @property
    def is_named(self) -> bool:
        """Whether the user named it."""
        return not self._may_guess

    def among(self, columns: Iterable[Any]) -> str | None:
        """The first of the names that is a column."""
        return next((name for name in self.names if name in columns), None)

    def choose(self, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
        """The column of a table, which becomes the only name.

        Args:
            rows: the first ones, for a table that has none of the names.

        Raises:
            NoColumnError: nothing can be chosen; the message names the columns and the likeliest one.
        """
        chosen = self.among(columns)
        if chosen is None:
            rows = list(rows)
            longest = longest_text(rows)
            longest = None if len(longest or "") > LONGEST_NAME else longest
            if not self._may_guess or longest is None:
                raise NoColumnError(self._missing(columns, longest, rows))
            chosen = self.guess = longest
        self.names = [chosen]
        return chosen

    def value(self, row: Mapping[Any, Any]) -> tuple[str, Any]:
        """(name, value) of a row's text."""
        name = next((name for name in self.names if isinstance(row.get(name), str)), None)
        name = name or self.among(row) or self.guess or self.names[0]
        return name, row.get(name)

    def _missing(self, columns: Sequence[str], longest: str | None, rows: Sequence[Mapping[str, Any]]) -> str:
        wanted = " or ".join(repr(name) for name in self.names if name and (len(self.names) == 1 or "," not in name))
        close = next((near for name in self.names for near in get_close_matches(name, columns, 1, 0.7)), longest)
        inside = list(chain.from_iterable(map(texts_inside, rows)))
        close = (
            close
            or longest_text(inside)
            or next((path for text in inside for path in text if path not in columns), None)
        )
        hint = f" (did you mean {close!r}?)" if close is not None else ""
        return f"has no column {wanted}, only {[name[:LONGEST_NAME] for name in columns[:_MAX_SHOWN]]}{hint}"


def texts_inside(value: object, path: str = "", depth: int = 0) -> Iterator[dict[str, str]]:
    """{path: text} of each text inside of a row of JSON."""
    if isinstance(value, str):
        yield {path: value}
    elif depth < _MOST_NESTED and isinstance(value, list):
        yield from chain.from_iterable(texts_inside(item, f"{path}[]", depth + 1) for item in value)
    elif depth < _MOST_NESTED and isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts_inside(item, f"{path}.{key}".removeprefix("."), depth + 1)


def fitting(keys: Iterable[tuple[str, ...]], names: Iterable[Any]) -> tuple[Any, ...] | None:
    """The names that are all of one of the keys, exactly or else in any case; None: there are none."""
    keys, names = list(keys), list(names)
    for form in (str, str.lower):
        known = {form(str(name)): name for name in reversed(names)}
        for some in keys:
            if all(form(key) in known for key in some):
                return tuple(known[form(key)] for key in some)
    return None


def longest_text(rows: Iterable[Mapping[str, Any]]) -> str | None:
    """The column with the most characters, unless it has too few for text."""
    characters, numbers = Counter[str](), Counter[str]()
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str) and (not value.isascii() or len(value.split(None, 3)) > 2):
                characters[name] += len(value)
                numbers[name] += 1
    name, most = max(characters.items(), key=lambda item: item[1], default=("", 0))
    return name if most >= max(_LEAST_TOTAL, _LEAST_MEAN * numbers[name]) else None


@dataclass(frozen=True)
class TableForm:
    """What to read of a table, and how.

    Attributes:
        quotes: how CSV and TSV are quoted. "none": marks are text; a row must have as many fields as the first line,
            and a blank line is a row of one empty field, but not at the end. "loose" loses no text: a mark that quotes
            nothing is text, and a delimiter after the beginning of the last column too; trailing fields may be missing,
            and blank lines are no rows. "cells": as "loose", but a row may not have more fields than the first line,
            and in a table of one column a blank line is an empty field, but not at the end.
    """

    columns: Sequence[Column] | None  # None: all that the table names
    header: bool = True  # whether the first line of CSV and TSV names the columns
    quotes: Literal["none", "cells", "loose"] = "loose"
    text: TextColumn | None = None  # what chooses one more column, of text; None: `columns` are all
    optional: str | None = None  # one more column, where a table has it
    expected: Sequence[tuple[str, ...]] = ()  # if all are read: the columns of one tuple are likely among them
    flags: str = "--no-header (then they are 'column 1', 'column 2' ...), or --text-column and --label-column"

    def paths(self) -> list[str]:
        """The columns whose names may mean fields inside of others, in JSON."""
        names = [*(self.text.names if self.text else ()), *(self.columns or ()), self.optional, *chain(*self.expected)]
        return [name for name in names if isinstance(name, str) and ("." in name or "[]" in name)]

    def is_named_by(self, names: Sequence[str]) -> bool:
        """Whether the names have the columns to read, or expected ones: they name columns then."""
        if self.columns is None:
            return fitting(self.expected, names) is not None
        return (self.text is None or self.text.among(names) is not None) and set(self.columns) <= set(names)

    def all_columns(self, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> list[Column]:
        """The columns to read of a table with these names; `rows` are its first ones."""
        return [
            *([self.text.choose(names, rows)] if self.text else []),
            *(names if self.columns is None else self.columns),
        ]


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        values: by column: texts of CSV and TSV, otherwise what JSON or Parquet holds, in JSON of all its keys. A field
            that the row does not have is left out. None if the row cannot be read; where all columns are read, one with
            too many fields has the first of them, and a problem.
    """

    number: int  # of its first line in the file, from 1; in a JSON document and in Parquet, of the row
    values: dict[Any, Any] | None
    problem: str = ""  # why it cannot be read; "" if it can


def row_size(row: Row) -> int:
    """The characters of a row's texts, the entries of its lists."""
    return sum(len(value) for value in (row.values or {}).values() if isinstance(value, str | bytes | list | dict))


def places_of(names: Sequence[str], columns: Sequence[Column], optional: str | None) -> dict[Column, int]:
    """The position of each column; the optional one is last, where a table has it."""
    places: dict[Column, int] = {}
    for column in columns:
        if isinstance(column, int):
            places[column] = column
        elif names.count(column) == 1:
            places[column] = names.index(column)
        else:
            number = f"{names.count(column)} columns" if column in names else "no column"
            raise NoColumnError(f"has {number} {column!r}, only {list(names[:20])}", column, names)
    if optional is not None and optional in names:
        places.setdefault(optional, names.index(optional))
    return places


def first_items(items: Iterator[T], size: Callable[[T], int], is_enough: Callable[[T], bool] | None = None) -> list[T]:
    """The first items, which are taken from the iterator: a sample of bounded size, or until one is enough."""
    taken, characters = list[T](), 0
    for item in items:
        taken.append(item)
        characters += size(item)
        if len(taken) == SAMPLE_ROWS or characters > SAMPLE_CHARACTERS or (is_enough is not None and is_enough(item)):
            break
    return taken

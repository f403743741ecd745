"""Chooses the columns of a table: named by the user, known by usual names, or guessed from their content."""

import re
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
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
# Of a column of text beside the main one: the share of rows that have it, words in the mean, letters, new words.
_LEAST_FILLED, _LEAST_WORDS, _LEAST_LETTERS, _LEAST_NEW = 0.25, 3, 0.6, 0.1
SAMPLE_OF_A_TEXT = 200  # characters
_NO_TEXT = re.compile(r"\S@\S+\.|://")  # an address
LONGEST_NAME = 60  # a longer "name" is a first row of text
MOST_COLUMNS = 100_000
_JOIN = "+"  # between the names of columns whose texts are read as one
_MAX_SHOWN = 20
_MOST_COMPARED = 1_000  # names that are searched for one spelled like the missing one
_MOST_NESTED = 10  # of objects and lists in which a text is searched
T = TypeVar("T")
Column = str | int  # its name, or in a table without a line of names its position from 0


class NoColumnError(NotTextError):
    """The table lacks a column, or several have the name; the message lists the columns."""

    def __init__(self, message: str, column: str | int = "", names: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.column, self.names = column, names

    def is_repeated(self) -> bool:
        """Whether several columns have the name, so that no flag can select one of them."""
        return self.column in self.names


class TextColumn:
    """Chooses the text column of one table.

    Attributes:
        names: those that may hold the text of a row; the first one that does is taken.
        guess: the column with the longest text, which was taken as the table has none of the names.
        unused: other columns of text beside a guess.
    """

    def __init__(self, text_field: str | None) -> None:
        """text_field: a name or several separated by commas; None: "text" if it exists, otherwise a guess."""
        self._may_guess = text_field is None
        field = TEXT_NAMES[0] if text_field is None else text_field
        self.names = list(dict.fromkeys([field, *(name.strip() for name in field.split(","))]))
        if len(self.names) > 1:
            self.names.append(self.names.pop(0))  # a name that has commas itself
        self.guess: str | None = None
        self.unused: list[str] = []

    @property
    def is_named(self) -> bool:
        """Whether the user named the column."""
        return not self._may_guess

    def among(self, columns: Container[Any]) -> str | None:
        """The first of the names that is a column."""
        return next((name for name in self.names if has_column(columns, name)), None)

    def choose(self, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
        """Choose the column of a table, and remember it as the only name.

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
            self.unused = further_texts(rows, chosen)
        self.names = [chosen]
        return chosen

    def value(self, row: Mapping[Any, Any]) -> tuple[str, Any]:
        """Name and value of a row's text."""
        name = next((name for name in self.names if isinstance(value_of(row, name), str)), None)
        name = name or self.among(row) or self.guess or self.names[0]
        return name, value_of(row, name)

    def _missing(self, columns: Sequence[str], longest: str | None, rows: Sequence[Mapping[str, Any]]) -> str:
        wanted = " or ".join(repr(name) for name in self.names if name and (len(self.names) == 1 or "," not in name))
        compared = columns[:_MOST_COMPARED]
        close = next((near for name in self.names for near in get_close_matches(name, compared, 1, 0.7)), longest)
        if close is None:
            inside, known = list(chain.from_iterable(map(texts_inside, rows))), set(columns)
            close = longest_text(inside) or next((path for text in inside for path in text if path not in known), None)
        hint = f" (did you mean {close!r}?)" if close is not None else ""
        return f"has no column {wanted}, only {[name[:LONGEST_NAME] for name in columns[:_MAX_SHOWN]]}{hint}"


def texts_inside(value: object, path: str = "", depth: int = 0) -> Iterator[dict[str, str]]:
    """Texts inside a row of JSON: {path: text}."""
    if isinstance(value, str):
        yield {path: value}
    elif depth < _MOST_NESTED and isinstance(value, list):
        yield from chain.from_iterable(texts_inside(item, f"{path}[]", depth + 1) for item in value)
    elif depth < _MOST_NESTED and isinstance(value, Mapping):
        for key, item in value.items():
            yield from texts_inside(item, f"{path}.{key}".removeprefix("."), depth + 1)


def fitting(keys: Iterable[tuple[str, ...]], names: Iterable[Any]) -> tuple[Any, ...] | None:
    """The names that match one of the keys, exactly or ignoring case; None without a match."""
    keys, names = list(keys), list(names)
    for form in (str, str.lower):
        known = {form(str(name)): name for name in reversed(names)}
        for some in keys:
            fits = [_column_of_key(form(key), known) for key in some]
            if all(name is not None for name in fits):
                return tuple(fits)
    return None


def _column_of_key(key: str, known: Mapping[str, Any]) -> Any:
    """The column that a key names, or the joined columns; None if one is missing."""
    if key in known:
        return known[key]
    parts = joined_parts(key)
    return _JOIN.join(str(known[part]) for part in parts) if parts and all(part in known for part in parts) else None


def joined_parts(column: Column) -> tuple[str, ...]:
    """Columns in a joined name such as `subject+body`; empty for any other name."""
    parts = tuple(part.strip() for part in column.split(_JOIN)) if isinstance(column, str) else ()
    return parts if len(parts) > 1 and all(parts) else ()


def joined_name(columns: Sequence[str]) -> str:
    """Name of columns that are read as one text."""
    return _JOIN.join(columns)


def parts_of(column: Column, names: Container[Any]) -> tuple[Column, ...]:
    """Columns of a table that a name stands for: itself if it is a column, otherwise the joined ones."""
    return (column,) if column in names else joined_parts(column) or (column,)


def has_column(row: Container[Any], column: Column) -> bool:
    """Whether a row has a column, or all columns of a joined name."""
    return all(part in row for part in parts_of(column, row))


def value_of(row: Mapping[Any, Any], column: Column) -> Any:
    """Value of a column; for a joined name the non-blank values in lines. None if all are missing.

    A value that is neither text nor a number is returned alone, for the caller to refuse.
    """
    parts = parts_of(column, row)
    if len(parts) == 1:
        return row.get(parts[0])
    values = [row.get(part) for part in parts]
    texts = [value for value in values if not is_blank(value)]
    wrong = next((value for value in texts if not isinstance(value, str | int | float)), None)
    if wrong is not None:
        return wrong
    if not texts and all(value is None for value in values):
        return None
    return "\n".join(map(str, texts))


def is_blank(value: object) -> bool:
    """Whether a cell is empty: None, blanks, or NaN as pandas writes empty cells."""
    return value is None or value != value or (isinstance(value, str) and not value.strip())


def check_number_of_columns(number: int) -> None:
    """Raise NotTextError for a table with too many columns."""
    if number > MOST_COLUMNS:
        raise NotTextError(
            f"has {number:,} columns, more than {MOST_COLUMNS:,}; is it a table of texts? If it is, leave out columns "
            "that are not needed"
        )


def numbered_names(names: Sequence[str]) -> list[str]:
    """The names, with `column 3` for a column without a name or with a repeated one."""
    known, numbered = set[str](), list[str]()
    for place, name in enumerate(names, start=1):
        numbered.append(name if name and name not in known else f"column {place}")
        known.add(name)
    return numbered


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


def further_texts(rows: Sequence[Mapping[str, Any]], main: str, others: Container[str] = ()) -> list[str]:
    """Other text columns besides the main one, in order, such as `subject` besides `body`.

    They have words of their own; every row has the column.

    Args:
        rows: the first ones of a table.
        others: columns that are known to hold something else.
    """
    if _JOIN in main:
        return []
    names = list(dict.fromkeys(name for row in rows for name in row))
    named = (name for name in names if isinstance(name, str) and name != main and name not in others)
    usual = (name for name in named if _JOIN not in name and name.lower() not in LABEL_NAMES)
    whole = [name for name in usual if all(name in row for row in rows)]
    return [name for name in whole if _is_text([row[name] for row in rows]) and _adds_words(rows, name, main)]


def _is_text(cells: Sequence[Any]) -> bool:
    """Whether a column holds texts: at least three words on average, letters, mostly distinct."""
    texts = [cell for cell in cells if isinstance(cell, str) and cell.strip()]
    if len(texts) < _LEAST_FILLED * len(cells) or 2 * len({*texts}) <= len(texts):
        return False
    if 2 * sum(text.lstrip().startswith(("[", "{")) or _NO_TEXT.search(text) is not None for text in texts) > len(
        texts
    ):
        return False
    num_words = sum(len(text.split()) for text in texts)
    characters = "".join(text[:SAMPLE_OF_A_TEXT] for text in texts)
    letters = sum(letter.isalpha() or letter > "\x7f" for letter in characters)
    wide = sum(letter > "\u0dff" for letter in characters)  # of scripts that may have no spaces
    are_words = num_words >= _LEAST_WORDS * len(texts) or 2 * wide >= 3 * _LEAST_WORDS * len(texts)
    return are_words and letters >= _LEAST_LETTERS * len("".join(characters.split()))


def _adds_words(rows: Sequence[Mapping[str, Any]], name: str, main: str) -> bool:
    """Whether a column has words that the main text of its row lacks."""
    new = total = 0
    for row in rows:
        words = str(row[name] or "").lower().split()
        known = " ".join(str(row.get(main) or "").lower().split())
        new, total = new + sum(word not in known for word in words), total + len(words)
    return new > _LEAST_NEW * total


@dataclass(frozen=True)
class TableForm:
    """The columns to read from a table, and how.

    Attributes:
        quotes: how CSV and TSV are quoted. "none": marks are text; a row must have as many fields as the first line,
            and a blank line is a row of one empty field, but not at the end. "loose" loses no text: a mark that quotes
            nothing is text, and a delimiter after the beginning of the last column too; trailing fields may be missing,
            and blank lines are no rows. "cells": as "loose", but a row may not have more fields than the first line,
            and in a table of one column a blank line is an empty field, but not at the end.
    """

    columns: Sequence[Column] | None  # None: all columns that the table names
    header: bool = True  # whether the first line of CSV and TSV holds the column names
    quotes: Literal["none", "cells", "loose"] = "loose"
    text: TextColumn | None = None  # chooses the text column; None: `columns` are all
    optional: str | None = None  # column that is read if the table has it
    expected: Sequence[tuple[str, ...]] = ()  # if all columns are read: likely sets of names
    flags: str = "--no-header (then they are 'column 1', 'column 2' ...), or --text-column and --label-column"

    def wanted(self) -> list[Column]:
        """All columns that may be read."""
        names = [*(self.text.names if self.text else ()), *(self.columns or ()), self.optional, *chain(*self.expected)]
        return [name for name in names if name is not None]

    def paths(self) -> list[str]:
        """Columns whose names may be paths of nested fields, in JSON."""
        parts = chain.from_iterable((name, *joined_parts(name)) for name in self.wanted())
        return [name for name in parts if isinstance(name, str) and ("." in name or "[]" in name)]

    def is_named_by(self, names: Sequence[str]) -> bool:
        """Whether the names contain the columns to read, or expected ones, so that they are a header."""
        if self.columns is None:
            return fitting(self.expected, names) is not None
        known = set(names)
        return (self.text is None or self.text.among(known) is not None) and all(
            has_column(known, column) for column in self.columns
        )

    def all_columns(self, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> list[Column]:
        """The columns to read from a table with these names and first rows."""
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

    number: int  # line number from 1; in JSON documents and Parquet the row's number
    values: dict[Any, Any] | None
    problem: str = ""  # why the row cannot be read; "" if it can


def row_size(row: Row) -> int:
    """Size of a row: characters of its texts, entries of its lists."""
    return sum(len(value) for value in (row.values or {}).values() if isinstance(value, str | bytes | list | dict))


def places_of(names: Sequence[str], columns: Sequence[Column], optional: str | None) -> dict[Column, int]:
    """Positions of each column or its joined columns; the optional column is last, if the table has it."""
    places, counts = dict[Column, int](), Counter(names)
    place_of = {name: place for place, name in reversed([*enumerate(names)])}
    for column in chain.from_iterable(parts_of(column, counts) for column in columns):
        if isinstance(column, int):
            places[column] = column
        elif counts[column] == 1:
            places[column] = place_of[column]
        else:
            reason = f"has no column {column!r}, only {list(names[:20])}"
            if column in counts:
                reason = f"has {counts[column]} columns {column!r}; give each of them a name of its own"
            raise NoColumnError(reason, column, names)
    if optional is not None and optional in counts:
        places.setdefault(optional, place_of[optional])
    return places


def first_items(items: Iterator[T], size: Callable[[T], int], is_enough: Callable[[T], bool] | None = None) -> list[T]:
    """Take the first items from an iterator: a sample of limited size, or until one suffices."""
    taken, characters = list[T](), 0
    for item in items:
        taken.append(item)
        characters += size(item)
        if len(taken) == SAMPLE_ROWS or characters > SAMPLE_CHARACTERS or (is_enough is not None and is_enough(item)):
            break
    return taken

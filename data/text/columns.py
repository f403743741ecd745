"""Chooses the column of a table that holds the text: one that is named, otherwise the one with the longest text."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from data.text.encodings import NotTextError

SAMPLE_ROWS, SAMPLE_CHARACTERS = 50, 1 << 20  # of a table without a column of the names
_LEAST_MEAN, _LEAST_TOTAL = 30, 100  # characters of a text and of the sample; less is a name, a date or a setting
_LONGEST_NAME = 60  # a longer "name" is a first row of text
_MAX_SHOWN = 20


class NoHeaderError(NotTextError):
    """The first line of a table does not name its columns; the message has the remedy."""


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
        field = "text" if text_field is None else text_field
        self.names = list(dict.fromkeys([field, *(name.strip() for name in field.split(","))]))
        if len(self.names) > 1:
            self.names.append(self.names.pop(0))  # a name that has commas itself
        self.guess: str | None = None

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
            longest = None if is_without_header(rows) else _longest_text(rows)
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
        nested = [name for name in columns if any(isinstance(row.get(name), dict | list) for row in rows)]
        hint = f" (did you mean {close!r}?)" if close is not None else ""
        if nested and not hint:
            hint = f" (what is inside of {', '.join(nested[:3])} is not read: write it into a field of its own)"
        return f"has no column {wanted}, only {[name[:_LONGEST_NAME] for name in columns[:_MAX_SHOWN]]}{hint}"


def is_without_header(rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the name of the column with the longest text is a text itself: the first line is a row."""
    return len(_longest_text(rows) or "") > _LONGEST_NAME


def _longest_text(rows: Iterable[Mapping[str, Any]]) -> str | None:
    """The column with the most characters, unless it has too few for text."""
    characters, numbers = Counter[str](), Counter[str]()
    for row in rows:
        for name, value in row.items():
            if isinstance(value, str) and (not value.isascii() or len(value.split(None, 3)) > 2):
                characters[name] += len(value)
                numbers[name] += 1
    name, most = max(characters.items(), key=lambda item: item[1], default=("", 0))
    return name if most >= max(_LEAST_TOTAL, _LEAST_MEAN * numbers[name]) else None

"""CoNLL-U and CoNLL-U Plus: which columns hold words and tags, and which lines hold no word.

The first column holds the number of a word. A range (`3-4`) is a token that the words 3 and 4 stand for, and `5.1` is
an empty node, which has no text. So the words are the lines with a whole number, and their forms are in column 1, or in
that which `# global.columns` names FORM. A tag is a whole column, or `NER=B-PER` among the values of MISC.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH = 10  # columns; more in a file with predictions
ID = re.compile(r"\d+(?:[-.]\d+)?")
TAG = re.compile(r"O|[A-Z]-.+")
_NAMES = re.compile(r"#\s*global\.columns\s*=\s*(\S.*)")
_NER = re.compile(r"(?:^|\|)ner=([^|]+)", re.IGNORECASE)
_MOSTLY = 0.95


@dataclass(frozen=True)
class Columns:
    """Positions of the columns in a file with numbered words; tag=-1 is the last column."""

    word: int
    tag: int = -1


def named_columns(line: str) -> list[str]:
    """Column names in a line `# global.columns = ID FORM ...`; empty for another line."""
    match = _NAMES.fullmatch(line.strip())
    return match[1].split() if match else []


def columns_of(names: Sequence[str], width: int) -> Columns | None:
    """The columns by their names, or the standard ones if there are at least ten; None for fewer."""
    if names and len(names) <= width and "FORM" in names:
        tag = next((place for place, name in enumerate(names) if name.rpartition(":")[2] in ("NER", "NE")), -1)
        return Columns(names.index("FORM"), tag)
    return Columns(1) if width >= WIDTH else None


def are_mostly(matching: int, words: int) -> bool:
    """Whether nearly all words (or sentences) satisfy a condition."""
    return words > 0 and matching >= _MOSTLY * words


def is_word(columns: Sequence[str]) -> bool:
    """Whether a line holds a word, not a range or an empty node."""
    return not re.fullmatch(r"\d+[-.]\d+", columns[0])


def has_tag(value: str) -> bool:
    """Whether a column's value is a tag, or contains one among its values."""
    return TAG.fullmatch(value) is not None or _NER.search(value) is not None


def entity_tag(value: str) -> str:
    """The tag in a column's value; a value without one stays unchanged, and is refused later."""
    if TAG.fullmatch(value):
        return value
    if found := _NER.search(value):
        return found[1]
    return "O" if value == "_" or "=" in value else value

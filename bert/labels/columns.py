"""Infers from the first rows of a user's table which columns hold texts and labels, and what kind of task it is."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from data.text.columns import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, NoHeaderError, TableForm
from data.text.tables import user_table

SAMPLE_ROWS = 5_000
_MOST_CLASSES = 20  # of a column that has no name of a label
_NAMES = ("text_column", "text_pair_column", "label_column")


class Survey(NamedTuple):
    columns: dict[str, str]  # text_column, text_pair_column (if there is one) and label_column -> name
    rows: int  # at most SAMPLE_ROWS
    regression: bool  # the labels are numbers rather than classes


def survey(path: Path, named: Mapping[str, str | None]) -> Survey:
    """Looks at a table; `named` are the columns that are known already, by the names of their settings."""
    columns = {name: column for name in _NAMES if (column := named.get(name)) is not None}
    form = TableForm(None, quotes="cells", expected=[tuple(columns.values())] if columns else ())
    table = list(islice(user_table(path, form).rows, SAMPLE_ROWS))
    rows = [row.values for row in table if row.values and not row.problem]
    values = {name: [str(row[name]) for row in rows if row.get(name) is not None] for row in rows for name in row}
    if not rows:
        first = f" (line {table[0].number} {table[0].problem})" if table else ""
        raise ValueError(f"{path} has no row that can be read{first}; check the file")
    if "text_column" not in columns and not named.get("text_pair_column"):
        columns |= _texts(path, values, columns.get("label_column"))
    if "label_column" not in columns:
        columns["label_column"] = _label(path, values, [*columns.values()])
    unusual = {column for name, column in columns.items() if named.get(name) is None} - {*TEXT_NAMES, *LABEL_NAMES}
    if any(row.get(name) == name and [*row.values()] != [*row] for row in rows for name in unusual):
        raise ValueError(f"{path} {NoHeaderError()}")  # a "name" is one of the labels
    labels = values.get(columns["label_column"], [])
    return Survey(columns, len(rows), _are_numbers(labels))


def _texts(path: Path, values: Mapping[str, Sequence[str]], label: str | None) -> dict[str, str]:
    for pair in PAIR_NAMES:
        if set(pair) <= values.keys():
            return dict(zip(_NAMES, pair, strict=False))
    lengths = {
        name: sum(map(len, texts)) / len(texts) for name, texts in values.items() if name != label and any(texts)
    }
    if not lengths:
        raise ValueError(f"{path} has no column of texts; check the file, or name it with --text-column")
    return {"text_column": _known(TEXT_NAMES, lengths) or max(lengths, key=lengths.__getitem__)}


def _known(words: Sequence[str], names: Iterable[str]) -> str | None:
    """The name, in any case, that is the first of the words."""
    return min(
        (name for name in names if name.lower() in words), key=lambda name: words.index(name.lower()), default=None
    )


def _label(path: Path, values: Mapping[str, Sequence[str]], taken: Sequence[str]) -> str:
    others = {name: column for name, column in values.items() if name not in taken}
    if (known := _known(LABEL_NAMES, others)) is not None:
        return known
    counts = {name: len(set(column)) for name, column in others.items()}
    repeated = [name for name, count in counts.items() if 2 <= count <= min(_MOST_CLASSES, len(others[name]) // 2)]
    if len(repeated) == 1 or len(others) == 1:
        return (repeated or [*others])[0]
    which = f"it may be {' or '.join(map(repr, repeated))}" if repeated else f"it has {', '.join(map(repr, values))}"
    raise ValueError(f"{path}: which column holds the labels? {which}; pass --label-column")


def _are_numbers(labels: Sequence[str]) -> bool:
    """Whether labels are numbers that are no classes: fractions, or many different integers."""
    with suppress(ValueError):
        numbers = {float(label) for label in labels}
        return len(numbers) > _MOST_CLASSES or any(not number.is_integer() for number in numbers)
    return False

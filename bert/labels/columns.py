"""Infers from the first rows of a user's table which columns hold texts and labels, and the kind of the labels."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from bert.labels.schema import listed, number
from data.text.columns import (
    LABEL_NAMES,
    PAIR_NAMES,
    TEXT_NAMES,
    Row,
    TableForm,
    further_texts,
    joined_name,
    joined_parts,
)
from data.text.encodings import DETECTED, Decoding
from data.text.tables import user_table

SAMPLE_ROWS = 5_000
_SAMPLE_CELLS = 1_000_000
_THOUSANDS = re.compile("-?[1-9][0-9]{0,2},[0-9]{3}")
_MOST_CLASSES = 20  # most different values of a label column without a usual name
_NAMES = ("text_column", "text_pair_column", "label_column")


class LabelSurvey(NamedTuple):
    columns: dict[str, str]  # text_column, text_pair_column (if there is one) and label_column -> name
    rows: int  # number of rows that were read, at most SAMPLE_ROWS
    regression: bool  # whether the labels are numbers rather than classes
    label_separator: str | None  # separates labels that are lists; None: each text has one label


def survey(
    path: Path, named: Mapping[str, str | None], decoding: Decoding = DETECTED, others: Collection[str] = ()
) -> LabelSurvey:
    """Infer columns and kind of labels from the first rows of a table.

    Args:
        named: columns that settings name already, by the name of the setting.
        others: columns that hold neither texts nor labels, such as groups.
    """
    columns, joins = {name: column for name in _NAMES if (column := named.get(name)) is not None}, False
    table = first_rows(path, [tuple(columns.values())] if columns else [], decoding)
    rows = [row.values for row in table if row.values and not row.problem]
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: [str(row[name]) for row in rows if row.get(name) is not None] for name in names}
    if not rows:
        first = f" (line {table[0].number} {table[0].problem})" if table else ""
        raise ValueError(f"{path} has no row that can be read{first}; check the file")
    if "text_column" not in columns and not named.get("text_pair_column"):
        columns |= _texts(path, values, columns.get("label_column"))
        joins = "text_pair_column" not in columns
    if "label_column" not in columns:
        columns["label_column"] = _label(path, values, [*columns.values(), *others])
    if joins:
        main, others = columns["text_column"], {columns["label_column"], *others}
        further = further_texts(rows, main, others)
        columns["text_column"] = joined_name([name for name in names if name == main or name in further])
    labels = values.get(columns["label_column"], [])
    return LabelSurvey(columns, len(rows), _are_numbers(path, labels), _separator(labels))


def first_rows(path: Path, expected: Sequence[tuple[str, ...]], decoding: Decoding) -> list[Row]:
    """Read the first rows of a table, with all columns: at most 5,000, fewer if there are very many columns.

    Args:
        expected: columns that the table probably has.
    """
    form = TableForm(None, decoding.header, "cells", expected=expected)
    rows, cells = list[Row](), 0
    for row in islice(user_table(path, form, decoding=decoding).rows, SAMPLE_ROWS):
        rows.append(row)
        cells += len(row.values or ())
        if cells > _SAMPLE_CELLS:
            break
    return rows


def unused_texts(path: Path, text: str, others: Collection[str], decoding: Decoding = DETECTED) -> list[str]:
    """The columns of text in a table that are not used, in order, if `text` names a single column."""
    rows = [row.values for row in first_rows(path, [(text,)], decoding) if row.values and not row.problem]
    return further_texts(rows, text, others) if rows and not joined_parts(text) and text in rows[0] else []


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
    """The name that equals the earliest of the words, ignoring case; None if no name does."""
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


def _are_numbers(path: Path, labels: Sequence[str]) -> bool:
    """Whether labels are numbers rather than classes: fractions, or many different integers."""
    try:
        numbers = {number(label) for label in labels}
    except ValueError:
        return False
    commas = [label for label in labels if "," in label]
    if commas and all(_THOUSANDS.fullmatch(label) for label in commas):
        first = commas[0]
        raise ValueError(
            f"{path}: the labels, such as {first}, may be thousands or fractions; write them as "
            f"{first.replace(',', '')} or {first.replace(',', '.')}"
        )
    return len(numbers) > _MOST_CLASSES or any(not value.is_integer() for value in numbers)


def _separator(labels: Sequence[str]) -> str | None:
    """A separator that no label contains, if most labels are lists; otherwise None."""
    lists = [names for label in labels if (names := listed(label)) is not None]
    if 2 * len(lists) <= len(labels):
        return None
    all_names = {name for names in lists for name in names}
    return next(mark for mark in (",", ";", "|", "\x1f") if not any(mark in name for name in all_names))

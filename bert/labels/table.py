"""Describes and reads files of labelled texts; users' tables are read in the same way as for prediction."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from bert.config.setting_errors import suggest
from data.text.columns import LABEL_NAMES, PAIR_NAMES, TEXT_NAMES, Column, NoColumnError, Row, TableForm, joined_parts
from data.text.encodings import DETECTED, Decoding
from data.text.tables import user_table

_MAX_SHOWN_CHARACTERS, _MAX_SHOWN_COLUMNS = 60, 8
_USUAL_NAMES = {*TEXT_NAMES, *LABEL_NAMES, *chain(*PAIR_NAMES)}


def shown(value: str) -> str:
    return repr(value if len(value) <= _MAX_SHOWN_CHARACTERS else value[:_MAX_SHOWN_CHARACTERS] + "...")


@dataclass(frozen=True)
class Split:
    """One file of a task.

    Attributes:
        index: column of the identifiers of examples; None: examples are numbered from 0.
    """

    files: tuple[str, ...]  # possible names; the first that exists is read
    texts: tuple[Column, ...]
    label: Column | None = None  # column of the label; None if the file has no labels
    index: Column | None = None
    group: Column | None = None  # column of groups; rows with equal values are held out together
    header: bool = True  # whether the first line names the columns
    decoding: Decoding = DETECTED  # how the user's file is decoded

    def columns(self) -> list[Column]:
        """The columns to read: texts, then label, index and group if there are any."""
        return [*self.texts, *(column for column in (self.label, self.index, self.group) if column is not None)]

    def flag(self, column: Column) -> str:
        """The flag by which the user names a column."""
        for text, flag in zip(self.texts, ("--text-column", "--text-pair-column"), strict=False):
            if column == text or column in joined_parts(text):
                return flag
        return {self.label: "--label-column", self.index: "--index-column"}.get(column, "--group-by")


RowReader = Callable[[Path, Split, list[str]], Iterator[Row]]


def own_rows(path: Path, split: Split, notes: list[str]) -> Iterator[Row]:
    """Read the columns of a split from a user's table in any format and encoding; `notes` gets remarks about it."""
    try:
        table = user_table(path, TableForm(split.columns(), split.header, "cells"), decoding=split.decoding)
    except NoColumnError as error:
        column, reason = error.column, f"{path}: {str(error).removeprefix(f'{path} has ')}"
        if not error.is_repeated():
            reason += f"; {suggest(str(column), map(str, error.names), f'{split.flag(column)} names the right one')}"
        raise ValueError(reason) from None
    if table.delimiter and split.header and not {*map(str.lower, table.columns)} & _USUAL_NAMES:
        names = [*map(shown, table.columns[:_MAX_SHOWN_COLUMNS]), *["..."] * (len(table.columns) > _MAX_SHOWN_COLUMNS)]
        notes += [f"{path}: header: {', '.join(names)}; --no-header if this is a row"]
    yield from table.rows
    notes += [f"{path}: {line}" for line in table.findings.encoding_lines()]
    notes += [f"{path}: {line}" for line in table.findings.row_lines()]
    notes += table.findings.problems

"""Remarks about a corpus while it is read: bad rows, encodings, problems, and files left out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bert.files import shown
from bert.printable import printable
from data.text.columns import NoColumnError, joined_name
from data.text.compression import DamagedError
from data.text.file_formats import Input
from data.text.header_check import REPEATED_NAMES, ROWS_OF_TYPES
from data.text.notices import Notices
from data.text.size_limits import TooMuchError
from data.text.text_check import NotTextError, is_mostly_base64

_MAX_PROBLEMS, _MAX_ROWS = 200, 10  # in all, and rows of a file
_MAX_LEFT_OUT = 10_000


@dataclass
class Findings:
    """Counts, and names of odd or omitted files, collected while a corpus is read."""

    counts: Counter = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)  # the first problems, "file:line: reason"
    bad_rows: dict[str, tuple[str, int]] = field(default_factory=dict)  # file -> first bad row, and their number
    encodings: Counter = field(default_factory=Counter)
    not_ascii: dict[str, str] = field(default_factory=dict)  # encoding -> first line with text beyond ASCII
    code_page: str = ""  # code page of the last file that is not Unicode
    left_out: list[str] = field(default_factory=list)  # omitted files, "file: reason"
    guessed: list[str] = field(default_factory=list)  # tables with a guessed text column, "file: column"
    repeated_names: dict[int, str] = field(default_factory=dict)  # column number -> the earlier column's name
    bytes_left_out: int = 0  # size of the files in `left_out`
    notices: Notices = field(default_factory=Notices)  # notices of damage, markup and repeated lines

    def encoding_lines(self) -> list[str]:
        """Lines about encodings other than plain UTF-8, each with a decoded example.

        Before it the columns of a table that have the name of another.
        """
        repeated = [
            printable(f"column {number} is a second {name!r} and is left out; rename it to use it")
            for number, name in self.repeated_names.items()
        ]
        lines = {name: f", e.g. {line!r}" for name, line in self.not_ascii.items()}
        return repeated + [
            f"read as {name}{lines.get(name, '')}; --encoding names another"
            for name in self.encodings
            if not name.startswith(("utf-8 (valid)", "utf-8 (byte"))
        ]

    def row_lines(self) -> list[str]:
        """Lines that count rows without data, such as repeated headers."""
        return [f"{name}: {self.counts[name]:,}" for name in (REPEATED_NAMES, ROWS_OF_TYPES) if self.counts[name]]

    def noticed(self) -> list[str]:
        """Notices about the text, and a line that counts the omitted files."""
        unread = [
            f"{number:,} {name.removesuffix(', not read')}"
            for name, number in self.counts.items()
            if number and name.endswith(", not read")
        ]
        return [*self.notices.sentences(), *([f"not read: {'; '.join(unread)}"] if unread else [])]

    def problem(self, text: str) -> None:
        if len(self.problems) < _MAX_PROBLEMS:
            self.problems.append(printable(text))

    def bad_row(self, path: Path, number: int, problem: str) -> None:
        """Count an omitted row, and name it if it is among the first of its file."""
        name, row = shown(path), printable(f"{number}: {problem}")
        first, before = self.bad_rows.get(name, (row, 0))
        self.counts["bad rows"] += 1
        self.bad_rows[name] = first, before + 1
        if before < _MAX_ROWS:
            self.problem(f"{name}:{row}")

    def leave_out(self, count: str, path: Path | str, reason: str) -> None:
        """Count an omission, and name it if it is among the first ten thousand."""
        self.counts[count] += 1
        if isinstance(path, Path) and path.is_file():
            self.bytes_left_out += path.stat().st_size
        if len(self.left_out) < _MAX_LEFT_OUT:
            self.left_out.append(printable(f"{shown(path)}: {reason}"))

    def drops_base64(self, document: str, base64: int, characters: int) -> bool:
        """Whether a document is mostly base64; if so, it is counted and named."""
        if is_encoded := is_mostly_base64(base64, characters):
            self.leave_out("dropped: mostly base64", document, "is mostly base64")
        return is_encoded

    def guess(self, path: Path, column: str, unused: Sequence[str] = ()) -> None:
        """Record a table whose text column was guessed, and its other text columns."""
        if len(self.guessed) < _MAX_LEFT_OUT:
            joined = joined_name([*unused, column])
            names = ", ".join(map(repr, unused))
            more = f" ({names} not used: --text-column {joined} joins them)" if unused else ""
            self.guessed.append(f"{shown(path)}: column {column!r}, the longest text{more}")

    def refuse(self, source: Input, error: NotTextError | DamagedError, documents: int) -> None:
        """Count and name a file of a folder that cannot be read; ValueError if the user named the file.

        Args:
            documents: those that were read before the error.
        """
        count, reason = _counted_reason(error)
        if source.named:
            remedy = "; leave it out, convert it to text, or name its --encoding" if type(error) is NotTextError else ""
            raise ValueError(f"{shown(source.path)}: {reason}{remedy}")
        before = f" (the {documents:,} documents before that are used)" if documents else ""
        self.leave_out(count, source.path, reason + before)


def _counted_reason(error: NotTextError | DamagedError) -> tuple[str, str]:
    """(name of the count, reason) for a file that cannot be read."""
    if isinstance(error, DamagedError):
        return "damaged files left out", error.reason
    if isinstance(error, NoColumnError):
        flags = "--text-column or --id-column" if error.column else "--text-column"
        remedy = "" if error.is_repeated() else f"; name the right one with {flags}"
        return "files without the field left out", f"{error}{remedy}"
    if isinstance(error, TooMuchError):
        return "files that become too much left out", str(error)
    return "files that are no text left out", str(error)

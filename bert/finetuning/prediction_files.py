"""Files of predictions that can be resumed after a killed command, by counting the whole rows in them.

While it is written, FILE has another name, FILE.partial, and FILE.partial.json (of the first one) is the manifest of
the command that writes it: settings, inputs, model. The same command continues after the whole rows. At the end each
FILE.partial becomes FILE.
"""

import errno
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from bert import __version__
from bert.files import atomic_path, lock, read_json, sync, write_atomically

WINDOW_EXAMPLES, WINDOW_CHARACTERS = 2048, 4 << 20  # of input that is sorted by length and run together
_SECONDS_BETWEEN_SYNCS = 5.0  # how much work a loss of power may cost
RowEnds = Callable[[BinaryIO], Iterator[int]]  # where the whole rows of a file end, from its start


def line_ends(
    file: BinaryIO, ends_row: Callable[[bytes], bool] = lambda line: True, separator: bytes = b""
) -> Iterator[int]:
    """End positions of rows that are one line each.

    Args:
        ends_row: whether a row ends with a line.
        separator: what stands behind a row at the end of its last line, and is no part of the row.
    """
    place = 0
    for line in file:
        if not line.endswith(b"\n") or b"\0" in line:  # torn; a loss of power can leave zeros
            return
        place += len(line)
        if ends_row(line):
            yield place - len(separator)


def tsv_ends(file: BinaryIO) -> Iterator[int]:
    """End positions of the rows of a TSV file, after its header."""
    return islice(line_ends(file), 1, None)


def csv_ends(file: BinaryIO) -> Iterator[int]:
    """End positions of the rows of a CSV file, after its header; quoted fields may contain line ends."""
    is_quoted = False

    def ends_row(line: bytes) -> bool:
        nonlocal is_quoted
        is_quoted ^= line.count(b'"') % 2 == 1
        return not is_quoted

    return islice(line_ends(file, ends_row), 1, None)


def json_ends(file: BinaryIO) -> Iterator[int]:
    """End positions of the entries in a JSON object that is indented by one space; the last entry may be torn."""
    return line_ends(file, lambda line: line.endswith(b",\n") and line[1:2] != b" ", b",\n")


class PredictionFiles:
    """Context manager for files that grow by rows together; they get their names when the block ends without error.

    Any other end leaves the partial files, but for a ValueError, which the same command would meet again.

    Args:
        targets: each file, and how the ends of its rows are found.
        command: what decides the rows, for JSON: partial files of another command are refused. None: the inputs cannot
            be read again, so that no partial file is left.
        flag: names the place of the files, for messages.
        unit: of the rows: "lines", "questions".
        convert: writes the only file, of the rows, to a path; None: the rows are the file.
    Attributes:
        rows: the number of whole rows that an interrupted equal command left in each file.
    """

    def __init__(
        self,
        targets: Mapping[Path, RowEnds],
        command: Mapping[str, Any] | None,
        *,
        flag: str,
        unit: str,
        log: Callable[[str], None],
        convert: Callable[[BinaryIO, Path], Any] | None = None,
    ) -> None:
        self._targets, self._flag, self._unit, self._log, self._convert = targets, flag, unit, log, convert
        self._command: dict[str, Any] | None = None
        if command is not None:
            self._command = json.loads(json.dumps({**command, "version": __version__}, default=str))
        self._partials = [target.with_name(f"{target.name}.partial") for target in targets]
        self._manifest = Path(f"{self._partials[0]}.json")
        self._has_begun, self._synced_at = False, time.monotonic()

    def __enter__(self) -> "PredictionFiles":
        with ExitStack() as opened:
            for partial in self._partials:
                partial.touch()
            self.files: list[BinaryIO] = [opened.enter_context(open(partial, "r+b")) for partial in self._partials]
            if not self._take_lock():
                raise ValueError(
                    f"another process writes {self._partials[0]}; wait for it, or name another {self._flag}"
                )
            self.rows = self._whole_rows()
            if not self.rows:
                self._truncate(0)
                self._sync()  # no row of another command, before the manifest says that they are of this one
            if self._command is not None and not self.rows:
                write_atomically(self._manifest, json.dumps(self._command, indent=1).encode())
            self._opened = opened.pop_all()
        return self

    def _take_lock(self) -> bool:
        """Whether this process has the exclusive lock of the files."""
        try:
            lock(self.files[0])
            return os.path.samestat(os.fstat(self.files[0].fileno()), os.stat(self._partials[0]))
        except (BlockingIOError, FileNotFoundError):
            return False

    def _whole_rows(self) -> int:
        """Number of whole rows in every file; 0 if it is unknown which command wrote them."""
        manifest = read_json(self._manifest)
        if not manifest:
            return 0
        if manifest != self._command:
            raise ValueError(
                f"{self._partials[0]}: holds the results of another command (other inputs, model, flags, version) that "
                f"was interrupted; continue that one, name another {self._flag}, or remove the file"
            )
        return min(sum(1 for _ in ends(file)) for file, ends in zip(self.files, self._targets.values(), strict=True))

    def _truncate(self, rows: int) -> None:
        """Truncate every file after this number of rows."""
        for file, ends in zip(self.files, self._targets.values(), strict=True):
            file.seek(0)
            file.seek(next(islice(ends(file), rows - 1, None)) if rows else 0)
            file.truncate()

    def append(self, contents: Sequence[bytes], first: int | None = None) -> None:
        """Append rows from number `first` on to each file; replaces rows that the file already has from there.

        None: the content stands behind all rows.
        """
        if not self._has_begun:
            rows = self.rows if first is None else first
            self._truncate(rows)
            if rows:
                self._log(f"continuing after {rows:,} {self._unit}, whose results are in {self._partials[0]}")
            self._has_begun = True
        for file, content in zip(self.files, contents, strict=True):
            file.write(content)
            file.flush()
        if time.monotonic() > self._synced_at + _SECONDS_BETWEEN_SYNCS:
            self._sync()

    def _sync(self) -> None:
        for file in self.files:
            os.fsync(file.fileno())
        self._synced_at = time.monotonic()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self._opened:
            if kind is None:
                self._finish()
            elif self._command is None or issubclass(kind, ValueError):
                for path in (*self._partials, self._manifest):
                    path.unlink(missing_ok=True)
            elif issubclass(kind, (SystemExit, KeyboardInterrupt)):
                self._log("interrupted; the results so far are kept: start again to continue")
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                error.filename = error.filename or str(next(iter(self._targets)))  # a full disk names no file

    def _finish(self) -> None:
        if self._convert is not None:
            self.files[0].seek(0)
            with atomic_path(next(iter(self._targets))) as whole:
                self._convert(self.files[0], whole)
            self._partials[0].unlink()
        else:
            for partial in self._partials:
                sync(partial)
            for partial, target in zip(self._partials, self._targets, strict=True):  # nothing can fail for space
                os.replace(partial, target)
        self._manifest.unlink(missing_ok=True)


def stamps(paths: Sequence[Path]) -> list[Any]:
    """Names, sizes and modification times of files, or of all files in folders."""
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("*")))]
    states = [(file, file.stat()) for file in files if file.is_file()]
    return [[str(file.absolute()), stat.st_size, stat.st_mtime_ns] for file, stat in states]

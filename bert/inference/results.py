"""Writes results as JSON lines or as an array, to a stream or to a file that an interruption leaves resumable.

While it is written, FILE has another name, FILE.partial; FILE.partial.json says what it holds and where the reading
stands. The same command continues there. At the end FILE.partial becomes FILE.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np

from bert.files import lock, sha256_of, sync, write_atomically
from bert.inference.trained_model import Result

_SECONDS_BETWEEN_SAVES = 5.0


class JsonLines:
    """One line for each record."""

    def __init__(self, out: IO[bytes], state: Mapping[str, Any] | None = None) -> None:
        self._out = out

    def write(self, records: list[Result]) -> None:
        self._out.write("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode())
        self._out.flush()

    def state(self) -> dict[str, Any]:
        """What a later writer needs to continue the file."""
        return {}

    def finish(self) -> None:
        pass


class Vectors:
    """The vectors of all lines as a .npy file, float32 [lines, hidden]; NaN for a bad line."""

    def __init__(self, out: IO[bytes], state: Mapping[str, Any] | None = None) -> None:
        self._out = out
        self._rows: int = state["rows"] if state else 0
        self._width: int = state["width"] if state else 0

    def write(self, records: list[Result]) -> None:
        for record in records:
            vector = record.get("vector")
            if vector is not None and not self._width:  # bad lines came before
                self._width = len(vector)
                self._write_header(0)
                self._out.write(np.full((self._rows, self._width), np.nan, "<f4").tobytes())
            if self._width:
                self._out.write(np.array([np.nan] * self._width if vector is None else vector, "<f4").tobytes())
            self._rows += 1
        self._out.flush()

    def state(self) -> dict[str, Any]:
        return {"rows": self._rows, "width": self._width}

    def finish(self) -> None:
        """Put the number of rows into the header.

        Raises:
            ValueError: no line has a vector.
        """
        if not self._width:
            raise ValueError("no line has a vector; check the input")
        self._out.seek(0)
        self._write_header(self._rows)  # as long as the first: numpy leaves room for the number of rows to grow

    def _write_header(self, rows: int) -> None:
        header: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": (rows, self._width)}
        np.lib.format.write_array_header_1_0(self._out, header)


Writer = JsonLines | Vectors


class ResumableFile:
    """A file of results as a context, with its writer, and the state from which to continue.

    Whatever ends the block leaves the partial file, but for a ValueError, which the same command would meet again.

    Args:
        key: equal for equal commands on equal inputs: a partial file of another key is refused. None: the inputs
            cannot be read again, so that no partial file is left.
    Raises:
        ValueError: another process writes the file, or a partial file is of another command.
    """

    def __init__(
        self, target: Path, key: str | None, make: Callable[[IO[bytes], Mapping[str, Any] | None], Writer]
    ) -> None:
        self._target, self._key, self._make = target, key, make
        self.partial = target.with_name(f"{target.name}.partial")
        self._state_file = target.with_name(f"{target.name}.partial.json")
        self.state: dict[str, Any] | None = None
        self._saved_at = time.monotonic()

    def __enter__(self) -> "ResumableFile":
        self._out = os.fdopen(os.open(self.partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        try:
            lock(self._out)
            self.state = self._read_state()
            self._out.truncate(self.state["bytes"] if self.state else 0)
            self._out.seek(0, os.SEEK_END)
            self.writer = self._make(self._out, self.state["writer"] if self.state else None)
        except BlockingIOError:
            self._out.close()
            raise ValueError(f"another process writes {self.partial}; wait for it, or name another --output") from None
        except BaseException:
            self._out.close()
            raise
        return self

    def _read_state(self) -> dict[str, Any] | None:
        try:
            state = json.loads(self._state_file.read_bytes())
            is_ours, is_whole = state["key"] == self._key, state["bytes"] <= os.path.getsize(self.partial)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if is_whole and not is_ours:
            raise ValueError(
                f"{self.partial}: holds the results of another command (other inputs, model or flags) that was "
                "interrupted; continue that one, name another --output, or remove the file"
            )
        return state if is_whole else None

    def save(self, position: Mapping[str, Any]) -> None:
        """Record that the results up to a position are written; at most every five seconds."""
        if self._key is None or time.monotonic() < self._saved_at + _SECONDS_BETWEEN_SAVES:
            return
        self._out.flush()
        os.fsync(self._out.fileno())
        state = {"key": self._key, "bytes": self._out.tell(), "position": position, "writer": self.writer.state()}
        write_atomically(self._state_file, json.dumps(state).encode())
        self._saved_at = time.monotonic()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is None:
            try:
                self.writer.finish()
            except ValueError:
                self._remove()
                self._out.close()
                raise
            self._out.close()
            sync(self.partial)
            os.replace(self.partial, self._target)
            self._state_file.unlink(missing_ok=True)
        elif self._key is None or issubclass(kind, ValueError):
            self._remove()
        self._out.close()

    def _remove(self) -> None:
        self.partial.unlink(missing_ok=True)
        self._state_file.unlink(missing_ok=True)


def key_of(settings: Mapping[str, Any], files: list[Path]) -> str:
    """A key of settings and of files (or all files of folders), by their names, sizes and times of change."""
    found = [path for file in files for path in ([file] if file.is_file() else sorted(file.rglob("*")))]
    stamps = [(str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns) for path in found if path.is_file()]
    return sha256_of(json.dumps([settings, stamps], sort_keys=True, default=str).encode())

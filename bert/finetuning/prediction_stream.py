"""Writes predictions a window at a time to files that an interruption of any kind leaves resumable.

While it is written, FILE has another name, FILE.partial; FILE.partial.json (of the first one) says what the files hold
and where the reading stands. The same command continues there. At the end each FILE.partial becomes FILE.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol

from bert.files import lock, sha256_of, sync, write_atomically
from bert.reporting.progress import progress

WINDOW_EXAMPLES, WINDOW_CHARACTERS = 2048, 4 << 20  # of input that is sorted by length and run together
_SECONDS_BETWEEN_SAVES = 5.0


@dataclass(frozen=True)
class Window:
    """Inputs that ran together.

    Attributes:
        results: as the writer takes them.
        done: the number of inputs up to its end.
        place: of the progress bar, in its unit; None: `done`.
        position: from where a later command reads on, and what it counts on from; for JSON.
    """

    results: Any
    done: int
    position: Mapping[str, Any]
    place: int | None = None


class Writer(Protocol):
    """Appends results to open files."""

    def write(self, results: Any) -> None: ...

    def state(self) -> dict[str, Any]:
        """What a later writer needs to continue the files, for JSON."""

    def finish(self) -> None: ...


@dataclass(frozen=True)
class Stream:
    """Predictions on their way to files.

    Attributes:
        windows: (a position or None, what moves the progress bar to a place) -> the windows after the position.
        open_writer: (open files, state of an earlier writer or None) -> the writer.
        unit: of the inputs: "examples", "lines".
        total: of the progress bar; None if it is unknown.
    """

    windows: Callable[[Mapping[str, Any] | None, Callable[[int], Any]], Iterator[Window]]
    open_writer: Callable[[Sequence[BinaryIO], Mapping[str, Any] | None], Writer]
    unit: str
    total: int | None
    total_unit: str
    tell: Callable[[str], None]

    def write(self, targets: Sequence[Path], key: str | None, flag: str) -> Mapping[str, Any] | None:
        """Write all windows, or those that an interrupted equal command left; returns the last position."""
        try:
            with ResumableFiles(targets, key, flag) as files:
                return self._write(files)
        except (SystemExit, KeyboardInterrupt):
            if key is not None:
                self.tell("interrupted; the results so far are kept: start again to continue")
            raise

    def _write(self, files: "ResumableFiles") -> Mapping[str, Any] | None:
        state = files.state or {"done": 0, "place": 0, "position": None, "writer": None}
        if files.state is not None:
            self.tell(f"continuing after {state['done']:,} {self.unit}, whose results are in {files.partials[0]}")
        writer, position = self.open_writer(files.files, state["writer"]), state["position"]
        with progress("predicted", self.total, self.total_unit, done=state["place"]) as meter:
            for window in self.windows(position, lambda place: meter.update(place - meter.n)):
                writer.write(window.results)
                position, place = window.position, window.done if window.place is None else window.place
                files.save({"done": window.done, "place": place, "position": position, "writer": writer.state()})
                meter.update(place - meter.n)
        writer.finish()
        return position


class ResumableFiles:
    """Files that grow together, as a context, and the state from which to continue.

    Whatever ends the block leaves the partial files, but for a ValueError, which the same command would meet again.

    Attributes:
        state: as last saved by an equal command; None: begin.

    Args:
        key: equal for equal commands on equal inputs: partial files of another key are refused. None: the inputs
            cannot be read again, so that no partial file is left.
        flag: names the place of the files, for messages.
    """

    def __init__(self, targets: Sequence[Path], key: str | None, flag: str) -> None:
        self._targets, self._key, self._flag = tuple(targets), key, flag
        self.partials = tuple(target.with_name(f"{target.name}.partial") for target in targets)
        self._state_file = self.partials[0].with_name(f"{self.partials[0].name}.json")
        self.state: dict[str, Any] | None = None
        self._unsaved: bytes | None = None  # content of the state file, newer than the one on disk
        self._saved_at = time.monotonic()

    def __enter__(self) -> "ResumableFiles":
        with ExitStack() as opened:
            descriptors = [os.open(partial, os.O_RDWR | os.O_CREAT, 0o666) for partial in self.partials]
            self.files = [opened.enter_context(os.fdopen(descriptor, "r+b")) for descriptor in descriptors]
            if not self._take_lock():
                raise ValueError(
                    f"another process writes {self.partials[0]}; wait for it, or name another {self._flag}"
                )
            sizes, self.state = self._read_state()
            for file, size in zip(self.files, sizes, strict=True):
                file.truncate(size)
                file.seek(size)
            self._opened = opened.pop_all()
        return self

    def _take_lock(self) -> bool:
        """Whether this process alone writes: not another one, not even one that has just renamed the open file."""
        try:
            lock(self.files[0])
            return os.path.samestat(os.fstat(self.files[0].fileno()), os.stat(self.partials[0]))
        except (BlockingIOError, FileNotFoundError):
            return False

    def _read_state(self) -> tuple[list[int], dict[str, Any] | None]:
        """The sizes of the files, and the state there."""
        nothing: tuple[list[int], None] = ([0] * len(self.files), None)
        try:
            saved = json.loads(self._state_file.read_bytes())
            sizes = [int(size) for size in saved["sizes"]]
            is_whole = len(sizes) == len(self.files) and all(
                size <= os.path.getsize(partial) for size, partial in zip(sizes, self.partials, strict=True)
            )
            is_ours, state = saved["key"] == self._key, dict(saved["state"])
        except (OSError, ValueError, KeyError, TypeError):
            return nothing
        if is_whole and not is_ours:
            raise ValueError(
                f"{self.partials[0]}: holds the results of another command (other inputs, model or flags) that was "
                f"interrupted; continue that one, name another {self._flag}, or remove the file"
            )
        return (sizes, state) if is_whole else nothing

    def save(self, state: Mapping[str, Any]) -> None:
        """Note that the results up to a state are written; on the disk at most every five seconds, and at the end."""
        if self._key is None:
            return
        sizes = [file.tell() for file in self.files]
        self._unsaved = json.dumps({"key": self._key, "sizes": sizes, "state": state}).encode()
        if time.monotonic() >= self._saved_at + _SECONDS_BETWEEN_SAVES:
            self._write_state()

    def _write_state(self) -> None:
        assert self._unsaved is not None
        for file in self.files:
            file.flush()
            os.fsync(file.fileno())
        write_atomically(self._state_file, self._unsaved)
        self._saved_at, self._unsaved = time.monotonic(), None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self._opened:
            if kind is None:
                for file in self.files:
                    file.flush()
                for partial, target in zip(self.partials, self._targets, strict=True):
                    sync(partial)
                    os.replace(partial, target)
                self._state_file.unlink(missing_ok=True)
            elif self._key is None or issubclass(kind, ValueError):
                for path in (*self.partials, self._state_file):
                    path.unlink(missing_ok=True)
            elif self._unsaved is not None:
                self._write_state()


def key_of(settings: Mapping[str, Any], files: Sequence[Path]) -> str:
    """A key of settings and of files (or all files of folders), by their names, sizes and times of change."""
    paths = [path for file in files for path in ([file] if file.is_file() else sorted(file.rglob("*")))]
    stamps = [(str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths if path.is_file()]
    return sha256_of(json.dumps([2, settings, stamps], sort_keys=True, default=str).encode())  # 2: form of the state

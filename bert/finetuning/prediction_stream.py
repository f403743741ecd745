"""Writes predictions a window at a time to files that an interruption of any kind leaves resumable.

While it is written, FILE has another name, FILE.partial; FILE.partial.json (of the first one) says what the files hold
and where the reading stands. The same command continues there. At the end each FILE.partial becomes FILE.
"""

import errno
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import bert
from bert.files import checksum_of_file, lock, read_json, sha256_of, sync, write_atomically
from bert.reporting.progress import progress

logger = logging.getLogger(__name__)
WINDOW_EXAMPLES, WINDOW_CHARACTERS = 2048, 4 << 20  # of input that is sorted by length and run together
_SECONDS_BETWEEN_SAVES = 5.0
Position = Mapping[str, Any]  # from where a later command reads on, and what it counts on from; for JSON
MoveBar = Callable[[int], Any]  # moves the progress bar to a place


_ROOMS = "arrays conversion finetuning inference model runtime tokenization"  # those that decide results


def checksum_of_code(root: Path) -> str:
    folders = [root / "data/text", *(root / "bert" / room for room in _ROOMS.split())]
    files = [root / "program.py", *(path for folder in folders for path in sorted(folder.rglob("*.py")))]
    return sha256_of("".join(checksum_of_file(path) for path in files if path.is_file()).encode())


CODE = checksum_of_code(bert.REPOSITORY)  # as it is imported, whatever becomes of the files meanwhile


@dataclass(frozen=True)
class Window:
    """Inputs that ran together."""

    contents: Sequence[bytes]  # what they append to each file
    done: int  # the number of inputs up to its end
    position: Position  # of the reading after it
    place: int | None = None  # of the progress bar, in its unit; None: `done`


def write_stream(
    targets: Sequence[Path],
    windows: Callable[[Position | None, MoveBar], Iterator[Window]],
    finish: Callable[[Sequence[BinaryIO], Position | None], Any],
    *,
    key: str | None,
    flag: str,
    unit: str,
    total: int | None,
    total_unit: str,
    log: Callable[[str], None],
    renews: bool = False,
) -> Position | None:
    """Write all windows, or those that an interrupted equal command left.

    Args:
        windows: the windows after a position.
        finish: completes the files, given the last position.
        key, flag, renews: as of `ResumableFiles`.
        unit: of the inputs: "examples", "lines".
        total, total_unit: of the progress bar; None if it is unknown.
    Returns:
        the last position; None without a window.
    """
    try:
        with ResumableFiles(targets, key, flag, renews) as output:
            state = output.state or {"done": 0, "place": 0, "position": None}
            position = state["position"]
            if output.state is not None:
                log(f"continuing after {state['done']:,} {unit}, whose results are in {output.partials[0]}")
            with progress("predicted", total, total_unit, done=state["place"]) as bar:
                for window in windows(position, lambda place: bar.update(place - bar.n)):
                    append(output.files, window.contents)
                    position, place = window.position, window.done if window.place is None else window.place
                    output.save({"done": window.done, "place": place, "position": position})
                    bar.update(place - bar.n)
            finish(output.files, position)
            return position
    except (SystemExit, KeyboardInterrupt):
        if key is not None:
            log("interrupted; results older than some seconds are kept: start again to continue")
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            error.filename = error.filename or str(targets[0])  # the error of a full disk names no file
        raise


def append(files: Sequence[BinaryIO], contents: Sequence[bytes]) -> None:
    for file, content in zip(files, contents, strict=True):
        file.write(content)


class ResumableFiles:
    """Files that grow together, as a context: each has its own name once the block ends without an error.

    Any other end leaves the partial files, but for a ValueError, which the same command would meet again.

    Args:
        key: equal for equal commands on equal inputs: partial files of another key are refused. None: the inputs
            cannot be read again, so that no partial file is left.
        flag: names the place of the files, for messages.
        renews: partial files of another version of the code are begun anew; otherwise they are refused.
    """

    def __init__(self, targets: Sequence[Path], key: str | None, flag: str, renews: bool = False) -> None:
        self._targets, self._key, self._flag, self._renews = targets, key, flag, renews
        self.partials = [target.with_name(f"{target.name}.partial") for target in targets]
        self._state_file = Path(f"{self.partials[0]}.json")
        self._saved_at = time.monotonic()
        self.state: dict[str, Any] | None = None  # as last saved by an equal command; None: begin

    def __enter__(self) -> "ResumableFiles":
        with ExitStack() as opened:
            for partial in self.partials:
                partial.touch()
            self.files: list[BinaryIO] = [opened.enter_context(open(partial, "r+b")) for partial in self.partials]
            if not self._take_lock():
                raise ValueError(
                    f"another process writes {self.partials[0]}; wait for it, or name another {self._flag}"
                )
            for file, size in zip(self.files, self._saved_sizes() or [0] * len(self.files), strict=True):
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

    def _saved_sizes(self) -> list[int] | None:
        """The sizes of the files at the saved state, which becomes `state`; None if there is none that they have."""
        saved = read_json(self._state_file)
        try:
            sizes, state = [int(size) for size in saved["sizes"]], dict(saved["state"])
            if any(os.path.getsize(path) < size for path, size in zip(self.partials, sizes, strict=True)):
                return None
        except (ValueError, KeyError, TypeError):
            return None
        is_of_this_code = saved.get("code") == CODE
        if saved.get("key") == self._key and not is_of_this_code and self._renews:
            logger.info(f"{self.partials[0]}: another version of the code wrote it; it is begun anew")
            return None
        if saved.get("key") != self._key or not is_of_this_code:
            raise ValueError(
                f"{self.partials[0]}: holds the results of another command (other inputs, model, flags, version) that "
                f"was interrupted; continue that one, name another {self._flag}, or remove the file"
            )
        self.state = state
        return sizes

    def save(self, state: Mapping[str, Any]) -> None:
        """Save a state, to which the results are written, unless it is less than five seconds since the last one."""
        if self._key is None or time.monotonic() < self._saved_at + _SECONDS_BETWEEN_SAVES:
            return
        for file in self.files:
            file.flush()
            os.fsync(file.fileno())
        content = {"key": self._key, "code": CODE, "sizes": [file.tell() for file in self.files], "state": state}
        write_atomically(self._state_file, json.dumps(content).encode())
        self._saved_at = time.monotonic()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        with self._opened:
            if kind is None:
                for file, partial in zip(self.files, self.partials, strict=True):
                    file.flush()
                    sync(partial)
                for partial, target in zip(self.partials, self._targets, strict=True):  # nothing can fail for space
                    os.replace(partial, target)
                self._state_file.unlink(missing_ok=True)
            elif self._key is None or issubclass(kind, ValueError):
                for path in (*self.partials, self._state_file):
                    path.unlink(missing_ok=True)


def key_of(settings: Mapping[str, Any], files: Sequence[Path]) -> str:
    """A key of settings and files (or all files of folders), by names, sizes and times of change."""
    paths = [path for file in files for path in ([file] if file.is_file() else sorted(file.rglob("*")))]
    stamps = [(str(path.absolute()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths if path.is_file()]
    return sha256_of(json.dumps([settings, stamps], sort_keys=True, default=str).encode())

"""The output of a node's ranks, which Paddle's launcher writes to one file for each rank: `workerlog.N` in its folder.

The launcher's own output (banner, warnings, and after a failure the last lines of a rank once more) is kept in
LAUNCHER_LOG there and not shown.
"""

import re
from collections.abc import Iterator
from pathlib import Path

LAUNCHER_LOG = "launcher.log"
_FIRST = "workerlog.0"
_EXPLAINS = re.compile(rb"^(error: |Traceback |[A-Za-z.]*Error\b|.*C\+\+ Traceback)", re.MULTILINE)
# What Paddle writes in a process that is ended by SIGTERM: the launcher ends the other ranks so when one has failed.
_TERMINATION = re.compile(
    rb"^\n*-+\nC\+\+ Traceback [^\0]*?FatalError: `Termination signal`[^\0]*?\[SignalInfo: [^\n]*\n*", re.MULTILINE
)
_TRACEBACK = re.compile(rb"^\n*-+\nC\+\+ Traceback ", re.MULTILINE)
_FAILED = re.compile(rb"^Container rank \d+ status failed .* code (-?\d+) log ", re.MULTILINE)
_MOST_LINES = 20  # of a failed rank


class WorkerOutput:
    """What the ranks write from now on; the files may hold the output of earlier starts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._starts = {path.name: path.stat().st_size for path in folder.glob("*log*") if path.is_file()}
        self._position = self._starts.get(_FIRST, 0)

    def new_lines(self, ended: bool = False) -> Iterator[bytes]:
        """The lines that the first rank has completed since the last call; if it `ended`, also one without an end."""
        text = self._read(_FIRST, self._position)
        if not ended:
            text = text[: text.rfind(b"\n") + 1]
            if (begun := _TRACEBACK.search(text)) and b"[SignalInfo: " not in text[begun.end() :]:
                text = text[: begun.start()]  # until all of it is there
        self._position += len(text)
        return iter(_TERMINATION.sub(b"", text).splitlines(keepends=True))

    def exit_code(self) -> int | None:
        """Of the rank that failed first, as the launcher noted; a signal is a negative number. None: no rank did."""
        found = _FAILED.search(self._read(LAUNCHER_LOG, self._starts.get(LAUNCHER_LOG, 0)))
        return int(found[1]) if found else None

    def unseen_reason(self) -> list[str]:
        """Why the ranks failed, unless the first rank, whose output was shown, has said so: another rank's last lines.

        Where no rank wrote anything, the last lines of Paddle's launcher.
        """
        names = sorted(path.name for path in self._folder.glob("workerlog.*"))
        texts = {name: _TERMINATION.sub(b"", self._read(name, self._starts.get(name, 0))) for name in names}
        if _EXPLAINS.search(texts.get(_FIRST, b"")):
            return []
        for name, text in texts.items():
            if _EXPLAINS.search(text):
                return [f"{self._folder / name}:", *_last_lines(text)]
        return [] if any(texts.values()) else _last_lines(self._read(LAUNCHER_LOG, self._starts.get(LAUNCHER_LOG, 0)))

    def _read(self, name: str, position: int) -> bytes:
        try:
            with open(self._folder / name, "rb") as file:
                file.seek(position)
                return file.read()
        except OSError:  # not written yet
            return b""


def _last_lines(text: bytes) -> list[str]:
    return text.decode(errors="replace").splitlines()[-_MOST_LINES:]

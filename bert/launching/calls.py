"""Runs commands for the Python functions in processes of their own: output, errors, logged records, a bar."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tqdm import tqdm

from bert.exit_codes import BAD_INPUT, INTERRUPTED, OK, Failure
from bert.files import read_json
from bert.interpreter import isolated_environment
from bert.launching.process_runner import flags_of
from bert.parent_death import CALLER
from bert.reporting.logs import QUIET_STEPS
from bert.reporting.progress import PROGRESS_FILE, RunProgress
from bert.reporting.run_record import METRICS

_ERROR = "error: "
_MOST_LINES = 20  # of a silent run, as the reason of its failure
_POLL_SECONDS = 0.5
_READY = re.compile(r"(http://\S+) is ready: ")
Record = Mapping[str, Any]  # a row of metrics.jsonl: step, loss ...; stage: the name of its folder
OnLog = Callable[[Record], Any]


def run_task(task: str, *, is_silent: bool = False, on_log: OnLog | None = None, **settings: Any) -> None:
    """`bert.launching TASK` with settings as flags; its output goes to ours, unless it is to be silent.

    In a notebook a bar stands for the lines of the steps. The reason of a failure is its errors; of a silent run
    without any, its last lines.

    Args:
        on_log: called with each record that the run logs. An exception from it stops the run, which saves first.
    Raises:
        KeyboardInterrupt: it was stopped, and has saved.
        Failure: any other exit code.
    """
    stdout = subprocess.PIPE if is_silent else _own_output()
    has_bar = stdout is not None and not is_silent
    watch = _Watch(Path(settings["output_dir"]), on_log, has_bar)  # of what is there before
    process = _started(["bert.launching", task], settings, stdout, {QUIET_STEPS: "1"} if has_bar else {})
    errors, last = list[str](), deque[str](maxlen=_MOST_LINES)
    copies = [(process.stderr, sys.stderr), (process.stdout, last if is_silent else sys.stdout)]
    readers = [_copying(source, target, errors) for source, target in copies if source is not None]
    with watch:
        code = _wait(process, watch.look)
        for reader in readers:
            reader.join()
        watch.look()
    text = "\n".join(errors) or "".join(last).rstrip()
    if code == INTERRUPTED:
        raise KeyboardInterrupt("stopped; the same call continues from here")
    if code != OK:
        raise _failure(f"the {task} run", code, text)


class Server:
    """A server in a process of its own. It ends with `stop`, with its `with` block, or with this process.

    Attributes:
        url: its address; the other functions take it as a model.
    """

    def __init__(self, model: str | Path, settings: Mapping[str, Any]) -> None:
        self._process = _started(["bert.serving", str(model)], settings, None, {})
        output, lines = self._process.stderr, list[str]()
        assert output is not None
        for line in output:
            if ready := _READY.search(line):
                self.url = ready[1]
                _copying(output, sys.stderr, [])
                return
            lines.append(line)
        errors = [line.removeprefix(_ERROR) for line in lines if line.startswith(_ERROR)]
        raise _failure("the server", self._process.wait(), "".join(errors or lines[-_MOST_LINES:]).rstrip())

    def stop(self) -> None:
        """Answer the requests that have come, then end."""
        self._process.terminate()
        self._process.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<server at {self.url}>"


class _Watch:
    """The records that a run adds to any metrics.jsonl below a folder, and on request a bar of its stage."""

    def __init__(self, folder: Path, on_log: OnLog | None, has_bar: bool) -> None:
        self._folder, self._on_log, self._has_bar = folder.expanduser(), on_log, has_bar
        self._read = {path: path.stat().st_size for path in self._folder.rglob(METRICS)}
        self._earlier = {path: read_json(path) for path in self._folder.rglob(PROGRESS_FILE)}
        self._bar: RunProgress | None = None
        self._drawn = Path()

    def __enter__(self) -> "_Watch":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def look(self) -> None:
        for path in sorted(self._folder.rglob(METRICS)) if self._on_log else ():
            with open(path, "rb") as file:
                file.seek(self._read.get(path, 0))
                whole = file.read().rpartition(b"\n")[0]
            self._read[path] = self._read.get(path, 0) + len(whole) + bool(whole)
            for line in whole.splitlines():
                assert self._on_log is not None
                self._on_log({"stage": path.parent.name, **json.loads(line)})
        for path in self._folder.rglob(PROGRESS_FILE) if self._has_bar else ():
            values, earlier = read_json(path), self._earlier.get(path, {})
            if path != self._drawn and values != earlier:
                self._close()
                self._bar, self._drawn = RunProgress(path.parent, path.parent.name, earlier), path
                self._earlier[path] = values
            if path == self._drawn and values.get("step") == values.get("total_steps"):
                self._close()  # scores and tables follow


def _started(
    words: Sequence[str], settings: Mapping[str, Any], stdout: int | None, variables: Mapping[str, str]
) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", *words, *flags_of(settings)],
        env={**isolated_environment(), **variables, CALLER: str(os.getpid())},
        start_new_session=True,  # Ctrl-C reaches this process, whose it is; so does a signal to this process alone
        stdout=stdout,
        stderr=subprocess.PIPE,
        encoding="utf-8",  # whatever the locale of this process
        errors="replace",
    )


def _failure(what: str, code: int, text: str) -> Exception:
    if code == BAD_INPUT:
        return ValueError(text or f"{what} was refused; the reason is above")
    failure = Failure(text or f"{what} ended with exit code {code}; the reason is above")
    failure.exit_code = code
    return failure


def _own_output() -> int | None:
    """A real file or terminal is inherited; a notebook's stream, which has no descriptor, is written to."""
    with contextlib.suppress(Exception):
        return None if sys.stdout.fileno() == 1 else subprocess.PIPE
    return subprocess.PIPE


def _wait(process: "subprocess.Popen[str]", look: Callable[[], None]) -> int:
    """Ctrl-C is passed on to the command, which saves first; another exception here stops it."""
    try:
        while process.poll() is None:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_SECONDS)
                look()
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
        return process.returncode
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def _copying(source: IO[str], target: Any, errors: list[str]) -> threading.Thread:
    """A thread that copies lines to a stream or a deque; those of errors are kept for the exception instead."""

    def copy() -> None:
        for line in source:
            if line.startswith(_ERROR):
                errors.append(line.removeprefix(_ERROR).rstrip("\n"))
            elif isinstance(target, deque):
                target.append(line)
            else:
                tqdm.write(line, file=target, end="")  # above the bar
                target.flush()

    thread = threading.Thread(target=copy, daemon=True)
    thread.start()
    return thread

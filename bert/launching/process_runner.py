"""Runs the commands of a launcher one at a time, and passes signals on to the ranks so that they save and stop."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

import psutil

from bert.command_errors import EXIT_CODE_FILE, discard_output
from bert.config.flags import flag_name
from bert.config.training_settings import TrainingConfig
from bert.exit_codes import INTERRUPTED, OK
from bert.interpreter import repository_environment
from bert.parent_death import LAUNCHER, end_with
from bert.rank_environment import of_launcher
from bert.reporting.logs import QUIET_STEPS, Sink
from bert.reporting.progress import RunProgress
from bert.training.interruption import COMMAND_STARTED, STOPPED_BY
from data.text.lddl_writer import QUIET_COUNTS


def flags_of(settings: Mapping[str, Any]) -> list[str]:
    """`{"epochs": 3, "do_eval": True, "amp": False, "seed": None}` -> --epochs 3 --do-eval --amp false."""
    words: list[str] = []
    for name, value in settings.items():
        if value is None:
            continue
        words.append(flag_name(name))
        if isinstance(value, Path):
            value = value.expanduser()
        if isinstance(value, (list, tuple)):
            words += map(str, value)
        elif value is not True:
            words.append("false" if value is False else str(value))
    return words


def module_command(module: str, **options: Any) -> list[str]:
    """`python -m MODULE --option value ...`, as `flags_of`."""
    return [sys.executable, "-m", module, *flags_of(options)]


LAUNCHER_LOG, EXIT_CODE = "launcher.log", "exit_code"
_FIRST = "workerlog.0"
RANK = "PADDLE_TRAINER_ID"  # environment variable: the number of a rank
_OF_OTHER_PYTHONS = ("PYTHONOPTIMIZE", "PYTHONWARNINGS")  # which ranks of Paddle's launcher are not started with either
_REFUSES = re.compile(rb"^error: ", re.MULTILINE)
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
        """Of the rank that reported an error first; else of one that failed, as the launcher noted. None: no rank did.

        A signal is a negative number. The launcher may note a rank that failed because it lost another.
        """
        found = re.match(rb"(\d+)", self._read(EXIT_CODE, 0)) or _FAILED.search(self._read(LAUNCHER_LOG))
        return int(found[1]) if found else None

    def unseen_reason(self) -> list[str]:
        """The last lines of the rank that explains a failure; none if it is the first rank, whose output was shown.

        Where no rank wrote anything, the last lines of Paddle's launcher.
        """
        names = sorted(path.name for path in self._folder.glob("workerlog.*"))
        texts = {name: _TERMINATION.sub(b"", self._read(name)) for name in names}
        for pattern in (_REFUSES, _EXPLAINS):  # a rank that loses another has an error of its own
            if pattern.search(texts.get(_FIRST, b"")):
                return []
            for name, text in texts.items():
                if pattern.search(text):
                    return [f"{self._folder / name}:", *_last_lines(text)]
        return [] if any(texts.values()) else _last_lines(self._read(LAUNCHER_LOG))

    def _read(self, name: str, position: int | None = None) -> bytes:
        """A file from the position, or from where this start began; empty before it is written."""
        with contextlib.suppress(OSError), open(self._folder / name, "rb") as file:
            file.seek(self._starts.get(name, 0) if position is None else position)
            return file.read()
        return b""


def _last_lines(text: bytes) -> list[str]:
    return text.decode(errors="replace").splitlines()[-_MOST_LINES:]


class Display:
    """Shows lines of a program on our output, above the bar if there is one, and keeps them in a file if there is one.

    A full disk or a closed terminal ends nothing: what fails is switched off with one line.
    """

    def __init__(self, log_file: Path | None, progress: RunProgress | None) -> None:
        self._keep, self._show = Sink(str(log_file)), Sink("console output")
        self._progress, self._log_file = progress, log_file

    def __call__(self, line: bytes) -> None:
        if self._log_file is not None:
            self._keep(lambda: self._write(line))
        self._show(lambda: self._print(line))

    def _write(self, line: bytes) -> None:
        assert self._log_file is not None
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        with open(self._log_file, "ab") as file:
            file.write(line)

    def _print(self, line: bytes) -> None:
        if self._progress is not None:
            self._progress.write(line.decode(errors="replace").rstrip("\n"))
            return
        try:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            discard_output()
            raise


class Runner:
    """Runs one command at a time and passes SIGINT, SIGTERM, SIGHUP and SIGUSR1 on to it as one SIGTERM."""

    def __init__(self) -> None:
        self.stopped_by: str | None = None  # Ctrl-C, SIGTERM ...
        self._process: subprocess.Popen[bytes] | None = None
        self._reason_file: Path | None = None  # of a training
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # as nohup sets it
                signal.signal(number, self._on_signal)

    @property
    def stop_requested(self) -> bool:
        return self.stopped_by is not None

    def run(self, command: Sequence[str]) -> int:
        """Run a command, whose output is ours; the data commands leave their counts to their reports.

        The exit code is 128 + number if a signal ended the command, INTERRUPTED if a stop was requested before.
        """
        return self._run(command, {QUIET_COUNTS: "1"})

    def train(
        self,
        command: Sequence[str],
        config: TrainingConfig,
        log_dir: Path,
        log_file: Path | None,
        variables: Mapping[str, str],
    ) -> int:
        """Run Paddle's launcher, or the only rank, and show what this node's first rank writes; on a terminal its steps
        are a bar.

        They write to `log_dir`, the lines that are shown are kept in `log_file`. Exit code as of `run`.
        """
        output = WorkerOutput(log_dir)
        progress = RunProgress(config.stage_dir(), config.stage()) if sys.stdout.isatty() else None
        display = Display(log_file, progress)

        def show(ended: bool = False) -> None:
            for line in output.new_lines(ended):
                display(line)

        self._reason_file = log_dir / "stopped_by"
        for file in (self._reason_file, log_dir / EXIT_CODE):
            file.unlink(missing_ok=True)
        started = str(psutil.Process().create_time())
        environment = {**variables, STOPPED_BY: str(self._reason_file), COMMAND_STARTED: started}
        environment[EXIT_CODE_FILE] = str(log_dir / EXIT_CODE)
        environment |= {QUIET_STEPS: "1"} if progress else {}
        with open(log_dir / (_FIRST if RANK in variables else LAUNCHER_LOG), "ab") as log:
            code = self._run(command, environment, show, stdout=log, stderr=subprocess.STDOUT)
        if code and (failed := output.exit_code()) is not None:  # the launcher's own may be of a rank that it ended
            code = failed if failed >= 0 else 128 - failed
        self._reason_file = None
        show(ended=True)
        if progress is not None:
            progress.close()
        if code not in (OK, INTERRUPTED) and not self.stop_requested:
            for line in output.unseen_reason():
                display(f"{line}\n".encode())
        return code

    def _run(
        self, command: Sequence[str], variables: dict[str, str], each: Callable[[], None] = lambda: None, **streams: Any
    ) -> int:
        """Run a command to its end and call `each` about ten times a second; exit code as `run`."""
        if self.stop_requested:
            return INTERRUPTED
        # A separate session: Ctrl-C in the terminal reaches only this process, which passes it on once.
        self._process = start_process(command, variables, start_new_session=True, **streams)
        if self.stop_requested:
            self._pass_on()
        while (code := self._process.poll()) is None:
            each()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
        self._process = None
        return code if code >= 0 else 128 - code

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        is_first = not self.stop_requested
        if is_first:
            self.stopped_by = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        self._pass_on()
        if is_first:
            saving = "saving, then " if self._reason_file else ""
            with contextlib.suppress(OSError):  # the terminal is gone
                print(f"\n{self.stopped_by}: {saving}stopping ...", file=sys.stderr, flush=True)

    def _pass_on(self) -> None:
        """Signal the ranks themselves if there are any: paddle.distributed.launch would kill them after 30 seconds."""
        if self._process is None or self._process.poll() is not None:
            return
        if self._reason_file is not None:
            with contextlib.suppress(OSError):  # the ranks then name the signal that they get
                self._reason_file.write_text(str(self.stopped_by))
        for pid in ranks_of(self._process) or [self._process.pid]:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGTERM)


def start_process(
    command: Sequence[str], variables: Mapping[str, str] = MappingProxyType({}), **options: Any
) -> "subprocess.Popen[Any]":
    """Start a command of ours. It and the ranks that it starts end with this process, however that ends.

    Paddle's launcher gets no variable that may be a secret; its ranks do, and so does a rank without it.
    """
    us = os.getpid()
    environment = repository_environment() | dict(variables) | {LAUNCHER: str(us)}
    if RANK in variables:
        environment = {name: text for name, text in environment.items() if name not in _OF_OTHER_PYTHONS}

    def begin() -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # Slurm sends it to all, and it would kill Paddle's launcher
        end_with(us)

    if not _starts_ranks(command):
        return subprocess.Popen(command, env=environment, preexec_fn=begin, **options)
    environment, withheld = of_launcher(environment)
    environment |= variables
    try:
        return subprocess.Popen(command, env=environment, preexec_fn=begin, pass_fds=[withheld], **options)
    finally:
        os.close(withheld)


def _starts_ranks(command: Sequence[str]) -> bool:
    return "paddle.distributed.launch" in command


def ranks_of(process: "subprocess.Popen[Any]") -> list[int]:
    """Process ids of the ranks that paddle.distributed.launch started; none if the command is something else."""
    if not _starts_ranks(process.args):  # type: ignore[arg-type]
        return []
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in children.split()]

"""Runs the commands of a launcher one at a time, and passes signals on to the ranks so that they save and stop."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

from bert.config.training_settings import TrainingConfig
from bert.exit_codes import INTERRUPTED, OK
from bert.interpreter import repository_environment
from bert.launching.progress_bar import Display
from bert.launching.worker_output import LAUNCHER_LOG, WorkerOutput
from bert.reporting.logs import QUIET_STEPS
from bert.reporting.progress import RunProgress
from bert.training.interruption import STOPPED_BY
from data.text.counts import QUIET_COUNTS

_NAMES = {signal.SIGINT: "Ctrl-C"}  # for people; the others are called by their names


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

        Returns:
            Its exit code, 128 + number if a signal ended it, INTERRUPTED if a stop was requested before.
        """
        return self._run(command, {QUIET_COUNTS: "1"})

    def train(
        self,
        command: Sequence[str],
        config: TrainingConfig,
        log_dir: Path,
        log_file: Path | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> int:
        """Run Paddle's launcher and show what this node's first rank writes; on a terminal its steps are a bar.

        Args:
            log_dir: the launcher's own; its output is kept there.
            log_file: for the lines that are shown; none: not kept.
            variables: of the environment, beside those of this process.
        Returns:
            As `run`.
        """
        output = WorkerOutput(log_dir)
        progress = RunProgress(config.stage_dir(), config.stage()) if sys.stdout.isatty() else None
        display = Display(log_file, progress)

        def show(ended: bool = False) -> None:
            for line in output.new_lines(ended):
                display(line)

        self._reason_file = log_dir / "stopped_by"
        self._reason_file.unlink(missing_ok=True)
        environment = {**variables, STOPPED_BY: str(self._reason_file), **({QUIET_STEPS: "1"} if progress else {})}
        with open(log_dir / LAUNCHER_LOG, "ab") as launcher_log:
            code = self._run(command, environment, show, stdout=launcher_log, stderr=subprocess.STDOUT)
        if code and (failed := output.exit_code()) is not None:  # the launcher's own may be of a rank that it ended
            code = failed if failed >= 0 else 128 - failed
        self._reason_file = None
        show(ended=True)
        if progress is not None:
            progress.close()
        if code not in (OK, INTERRUPTED) and not self.stop_requested:
            for line in output.unseen_reason():
                display(f"{line}\n".encode())
        display.close()
        return code

    def _run(
        self, command: Sequence[str], variables: dict[str, str], each: Callable[[], None] = lambda: None, **streams: Any
    ) -> int:
        """Run a command to its end and call `each` about ten times a second; exit code as `run`."""
        if self.stop_requested:
            return INTERRUPTED
        # A separate session: Ctrl-C in the terminal reaches only this process, which passes it on once.
        self._process = subprocess.Popen(
            command,
            start_new_session=True,
            env=repository_environment() | variables,
            preexec_fn=_ignore_usr1,
            **streams,
        )
        if self.stop_requested:
            self._pass_on()
        ranks: list[int] = []
        while (code := self._process.poll()) is None:
            each()
            ranks = ranks_of(self._process) or ranks
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.1)
        self._process = None
        end_orphans_of(ranks)
        return code if code >= 0 else 128 - code

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        is_first = not self.stop_requested
        if is_first:
            self.stopped_by = _NAMES.get(signal.Signals(number), signal.Signals(number).name)
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
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass  # it has ended meanwhile


def _ignore_usr1() -> None:
    """Ignore USR1, which Slurm sends to all processes: it would kill Paddle's launcher. `Runner` passes it on."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def ranks_of(process: "subprocess.Popen[Any]") -> list[int]:
    """Process ids of the ranks that paddle.distributed.launch started; none if the command is something else."""
    if "paddle.distributed.launch" not in process.args:  # type: ignore[operator]
        return []
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in children.split()]


def end_orphans_of(ranks: Sequence[int]) -> None:
    """End what ranks that are gone left running, such as Gloo's server of a rank that was killed.

    Args:
        ranks: process ids; Paddle's launcher makes each rank the leader of a process group.
    """
    for pid in ranks:
        if not Path(f"/proc/{pid}").exists():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)


def module_command(module: str, **options: Any) -> list[str]:
    """`python -m MODULE --option value ...`; an option that is None is left out, one that is True has no value."""
    words = [sys.executable, "-m", module]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words

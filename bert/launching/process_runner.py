"""Runs the commands of a launcher one at a time, and passes signals on to the ranks so that they save and stop."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from bert import REPOSITORY
from bert.config.training_settings import TrainingConfig
from bert.exit_codes import INTERRUPTED
from bert.launching.progress_bar import PhaseProgress, pass_on
from bert.reporting.logs import QUIET_STEPS


class Runner:
    """Runs one command at a time and passes SIGINT, SIGTERM, SIGHUP and SIGUSR1 on to it as one SIGTERM."""

    def __init__(self) -> None:
        self.stop_requested = False
        self._process: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._on_signal)

    def run(self, command: Sequence[str], log_file: Path | None = None, training: TrainingConfig | None = None) -> int:
        """Run a command; its output goes to ours, and to `log_file`.

        Args:
            training: what the command trains; on a terminal its steps are shown as a bar.
        Returns:
            Its exit code, 128 + number if a signal ended it, INTERRUPTED if a stop was requested before.
        """
        if self.stop_requested:
            return INTERRUPTED
        progress = None
        if training is not None and sys.stdout.isatty():
            progress = PhaseProgress(training.stage_dir(), training.stage())
        # A separate session: Ctrl-C in the terminal reaches only this process, which passes it on once.
        self._process = subprocess.Popen(
            command,
            start_new_session=True,
            env=repository_environment() | ({QUIET_STEPS: "1"} if progress else {}),
            stdout=subprocess.PIPE if log_file or progress else None,
            preexec_fn=_ignore_usr1,
        )
        if self.stop_requested:
            self._pass_on()
        if log_file is not None or progress is not None:
            pass_on(self._process, log_file, progress)
        code = self._process.wait()
        if progress is not None:
            progress.close()
        self._process = None
        return code if code >= 0 else 128 - code

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self.stop_requested:
            print(f"\n{signal.Signals(number).name}: saving, then stopping ...", file=sys.stderr, flush=True)
        self.stop_requested = True
        self._pass_on()

    def _pass_on(self) -> None:
        """Signal the ranks themselves if there are any: paddle.distributed.launch would kill them after 30 seconds."""
        if self._process is None or self._process.poll() is not None:
            return
        for pid in ranks_of(self._process) or [self._process.pid]:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass  # it has ended meanwhile


def _ignore_usr1() -> None:
    """Ignore USR1, which Slurm sends to all processes: it would kill Paddle's launcher. `Runner` passes it on."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def ranks_of(process: "subprocess.Popen[bytes]") -> list[int]:
    """Process ids of the ranks that paddle.distributed.launch started; none if the command is something else."""
    if "paddle.distributed.launch" not in process.args:  # type: ignore[operator]
        return []
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in children.split()]


def repository_environment() -> dict[str, str]:
    """This process's environment, with the repository on PYTHONPATH so that `python -m data...` works anywhere."""
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def module_command(module: str, **options: Any) -> list[str]:
    """`python -m MODULE --option value ...`; an option that is None is left out, one that is True has no value."""
    words = [sys.executable, "-m", module]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    return words

"""Starts the training of any task on the ranks of this node and waits for its end; the same command resumes it.

The settings of the start are written to the run file, which the ranks read. A signal is passed on to the ranks, which
save and stop.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

from bert import REPOSITORY
from bert.checkpoints.directories import list_steps
from bert.command_errors import EXIT_CODE_FILE
from bert.config.run_file import RUN_FLAG, dump_yaml, run_file, run_file_content
from bert.config.setting_errors import Mistakes, usage_errors
from bert.config.training_settings import TrainingConfig, derive
from bert.exit_codes import BAD_INPUT, INTERRUPTED, OK
from bert.files import only_writer, read_json, refuse_read_only, require_writable, write_atomically
from bert.help_parser import wrapped
from bert.launching.nodes import node_options
from bert.launching.previous_run import continuation, refuse_other_run, settings_asked_for
from bert.launching.processes import RANK, ranks_of, start_process
from bert.launching.ranks import Ranks, num_gpus, start_of_ranks
from bert.launching.worker_output import EXIT_CODE, FIRST_LOG, LAUNCHER_LOG, Display, WorkerOutput
from bert.reporting.logs import QUIET_STEPS
from bert.reporting.progress import RunProgress
from bert.reporting.trackers import check_trackers
from bert.training.interruption import COMMAND_STARTED, STOPPED_BY
from data.text.lddl_writer import QUIET_COUNTS

ENDED_BY_SIGNAL = (128 + signal.SIGTERM, 256 - signal.SIGTERM)  # of a process, and of Paddle's launcher
KILLED = (128 + signal.SIGKILL, 256 - signal.SIGKILL)


class Runner:
    """Runs one command at a time, and passes SIGINT, SIGTERM, SIGHUP and SIGUSR1 on to it as one SIGTERM."""

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
        """Run a command whose output appears in ours; returns its exit code.

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
        """Run Paddle's launcher or the only rank, and show the output of this node's first rank (steps as a bar).

        They write to `log_dir`, the lines that are shown are kept in `log_file`. Exit code as of `run`.
        """
        output = WorkerOutput(log_dir)
        progress = RunProgress(config.stage_dir(), config.display_name()) if sys.stdout.isatty() else None
        display = Display(log_file, progress)

        def show(ended: bool = False) -> None:
            for line in output.new_lines(ended):
                display(line)

        self._reason_file = log_dir / "stopped_by"
        for file in (self._reason_file, log_dir / EXIT_CODE):
            file.unlink(missing_ok=True)
        import psutil  # not for --help

        started = str(psutil.Process().create_time())
        environment = {**variables, STOPPED_BY: str(self._reason_file), COMMAND_STARTED: started}
        environment[EXIT_CODE_FILE] = str(log_dir / EXIT_CODE)
        environment |= {QUIET_STEPS: "1"} if progress else {}
        with open(log_dir / (FIRST_LOG if RANK in variables else LAUNCHER_LOG), "ab") as log:
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
        """Run a command to its end, and call `each` about ten times a second; exit code as in `run`."""
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
        """Signal the ranks directly if there are any: paddle.distributed.launch would kill them after 30 seconds."""
        if self._process is None or self._process.poll() is not None:
            return
        if self._reason_file is not None:
            with contextlib.suppress(OSError):  # the ranks then name the signal that they get
                self._reason_file.write_text(str(self.stopped_by))
        for pid in ranks_of(self._process) or [self._process.pid]:
            with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, signal.SIGTERM)


def require_script(script: Path) -> None:
    """Raise ValueError if --code-dir has no run_*.py."""
    if not script.is_file():
        raise ValueError(
            f"code_dir={script.parent} has no {script.name}; name a checkout, such as {REPOSITORY}, or omit it"
        )


def check_machine(config: TrainingConfig, ranks: Ranks) -> str | None:
    """Devices of this node's ranks; ValueError if devices, trackers or output folder prevent the start.

    Nothing is written, so a plan can ask it before data are made.
    """
    mistakes, devices = Mistakes(), None
    with mistakes.noted():
        devices = ranks.devices(config.hardware.device)
    with mistakes.noted():
        check_trackers(config.hardware.trackers())
    mistakes.refuse()
    refuse_read_only(config.run.output_dir)
    return devices


def launch(
    script: Path,
    config: TrainingConfig,
    ranks: Ranks,
    runner: Runner,
    *,
    start: Mapping[str, Any] = MappingProxyType({}),
    job_id: str | None = None,
    log_file: Path | None = None,
) -> int:
    """Run a training script to its end; returns its exit code, INTERRUPTED if the same command resumes it.

    Args:
        script: a run_*.py, which reads its settings from the run file.
        config: the requested settings; settings known only at the start (checkpoint, weights) override them here.
        start: overrides until the first checkpoint exists.
    Raises:
        SystemExit: BAD_INPUT after an error: wrong settings, another run in the folder, missing files or nodes.
    """
    with contextlib.ExitStack() as stack:
        with usage_errors():
            devices = check_machine(config, ranks)
            require_writable(config.run.output_dir)
            refuse_other_run(config, ranks.world_size())
            at_start = continuation(config) or start
            started = derive(config, **at_start) if at_start else config
            started.prepare_files()
            log_dir = _log_dir(config, ranks)
            is_first_start = not log_dir.exists()
            if ranks.num_nodes == 1:  # another start would write to the same files; nodes may share a folder
                stack.enter_context(only_writer(log_dir))
            log_dir.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(PermissionError):  # another user's
                (config.stage_dir() / "launch").chmod(0o700)
            records = {run_file(config): run_file_content(started)}
            if config.trains():
                records[settings_asked_for(config)] = dump_yaml(config).encode()
            before = {path: path.read_bytes() for path in records if path.exists()}
            print(wrapped(_announcement(config, started, ranks, devices), indent="  "), flush=True)
            for path, content in records.items():  # other nodes may be reading them
                write_atomically(path, content)
            nodes = node_options(ranks, lambda: runner.stop_requested)
        options = ["--log_level", "ERROR", "--job_id", job_id or config.stage(), *nodes]
        program: list[str | Path] = [script, RUN_FLAG, run_file(config)]
        begun = start_of_ranks(ranks, config.hardware.device, devices, log_dir, program, options)
        code = runner.train(begun.command, config, log_dir, log_file, begun.variables)
        if code == BAD_INPUT:  # the ranks refused the settings; the records are of an earlier run, if there is one
            for path in records:
                if path in before:
                    write_atomically(path, before[path])
                else:
                    path.unlink(missing_ok=True)
            for path in log_dir.iterdir() if is_first_start and ranks.num_nodes == 1 else ():
                path.unlink()  # the reason was printed; the folders, now empty, are removed with their locks
    return explain_exit(code, config, runner)


def _log_dir(config: TrainingConfig, ranks: Ranks) -> Path:
    """Folder for the output of the launcher and the ranks, one for each node."""
    folder = config.stage_dir() / "launch"
    if ranks.num_nodes == 1:
        return folder
    return folder / (os.uname().nodename if ranks.node_rank is None else f"node{ranks.node_rank}")


def _announcement(config: TrainingConfig, started: TrainingConfig, ranks: Ranks, devices: str | None) -> str:
    """The first line of a start, printed at once because the ranks need seconds to begin."""
    place = f"GPU {devices}" if devices else "the CPU" if num_gpus() == 0 else config.hardware.device
    several = f"{ranks.num_processes} ranks (processes)"
    count = f"{several if ranks.num_processes > 1 else '1 rank (process)'} on {place}"
    nodes = f" of each of {ranks.num_nodes} nodes" if ranks.num_nodes > 1 else ""
    is_continued = started.initialization.from_checkpoint and list_steps(config.checkpoint_dir())
    action = "continuing" if is_continued else "starting"  # the ranks verify the checkpoint, and name its step
    stops = "; Ctrl-C saves and stops" if config.trains() else ""
    return f"{config.display_name()}: {action} with {count}{nodes}, results in {config.log_dir()}{stops}"


def was_stopped(code: int, runner: Runner) -> bool:
    """Whether a command ended because of a request to stop; a failure after the request is still a failure."""
    return code == INTERRUPTED or (runner.stop_requested and code in (*ENDED_BY_SIGNAL, *KILLED))


def explain_exit(code: int, config: TrainingConfig, runner: Runner) -> int:
    """Report how a command ended, unless it succeeded or reported its own error; returns the exit code."""
    if was_stopped(code, runner):
        reason = runner.stopped_by or read_json(config.log_dir() / "summary.json").get("interrupted_by")
        saved = list_steps(config.checkpoint_dir()) if config.trains() else []
        what = f"interrupted ({reason})" if reason else "interrupted"
        print(f"{what}{f': saved step {saved[-1]}' if saved else ''}; the same command resumes", file=sys.stderr)
        return INTERRUPTED
    if code not in (OK, BAD_INPUT):
        killed = "a rank was killed, often because memory ran out (lower --batch-size); " if code in KILLED else ""
        where = f"the reason is above, or in {config.stage_dir()}"
        print(f"error: {config.display_name()} ended with exit code {code}; {killed}{where}", file=sys.stderr)
    return code

"""Starts the training of any task on the ranks of this node; the same command resumes it."""

import contextlib
import os
import signal
import sys
from pathlib import Path

from bert.checkpoints.directories import list_steps
from bert.config.command_line import dump_yaml, usage_errors
from bert.exit_codes import BAD_INPUT, INTERRUPTED, OK
from bert.files import only_writer, read_json, require_writable, write_atomically
from bert.finetuning.config import FineTuningConfig
from bert.launching.previous_run import continued, refuse_other_run, settings_asked_for, trains
from bert.launching.process_runner import Runner
from bert.launching.ranks import Ranks, num_gpus, training_command
from bert.launching.rendezvous import launcher_addresses, wait_for_master, without_proxy
from bert.pretraining.config import PretrainingConfig

Settings = PretrainingConfig | FineTuningConfig
MASTER_TIMEOUT_SECONDS = 600.0  # the nodes of a queue may start minutes apart
ENDED_BY_SIGNAL = (128 + signal.SIGTERM, 256 - signal.SIGTERM)  # before there was a state to save; Paddle's launcher
KILLED = (128 + signal.SIGKILL, 256 - signal.SIGKILL)


def launch(
    script: Path,
    config: Settings,
    ranks: Ranks,
    runner: Runner,
    *,
    start: Settings | None = None,
    device: str | None = None,
    job_id: str | None = None,
    log_file: Path | None = None,
) -> int:
    """Run a training script to its end; returns its exit code, INTERRUPTED where the same command continues it.

    Args:
        script: a run_*.py, which reads its settings from OUTPUT_DIR/STAGE/launch.yaml.
        start: the settings of a first start, before there is a checkpoint; without it, `config`.
        device: replaces the device setting of `config`.
    Raises:
        SystemExit: BAD_INPUT after an error: wrong settings, another run in the folder, missing files or nodes.
    """
    with contextlib.ExitStack() as stack:
        with usage_errors():
            device = device or config.hardware.device
            devices = ranks.devices(device)
            started = continued(config) or start or config
            started.prepare_files()
            require_writable(config.run.output_dir)
            refuse_other_run(config)
            log_dir = _log_dir(config, ranks)
            log_dir.mkdir(parents=True, exist_ok=True)
            if ranks.num_nodes == 1:  # another start would write to the same files; nodes may share a folder
                stack.enter_context(only_writer(log_dir))
            before = {path: path.read_bytes() for path in _records(config) if path.exists()}
            print(_announcement(config, started, ranks, devices), flush=True)
            settings_file = _write_settings(config, started)
            meeting_point = _meeting_point(ranks, runner)
        command = training_command(
            script,
            settings_file,
            ranks,
            devices,
            log_dir=log_dir,
            job_id=job_id or config.stage(),
            meeting_point=meeting_point,
        )
        code = runner.train(command, config, log_dir, log_file, ranks.environment(device))
        if code == BAD_INPUT:  # the ranks refused the settings: the records are of the run that is there
            for path, content in before.items():
                write_atomically(path, content)
    return explain_exit(code, config, runner)


def _log_dir(config: Settings, ranks: Ranks) -> Path:
    """The folder of the launcher and the ranks; the nodes share the output folder, so each has its own."""
    folder = config.stage_dir() / "launch"
    if ranks.num_nodes == 1:
        return folder
    return folder / (os.uname().nodename if ranks.node_rank is None else f"node{ranks.node_rank}")


def _announcement(config: Settings, started: Settings, ranks: Ranks, devices: str | None) -> str:
    """One line at once: the ranks need seconds before they have something to show."""
    place = f"GPU {devices}" if devices else "the CPU" if num_gpus() == 0 else config.hardware.device
    count = f"{ranks.num_processes} rank{'s' if ranks.num_processes > 1 else ''} on {place}"
    nodes = f" of each of {ranks.num_nodes} nodes" if ranks.num_nodes > 1 else ""
    newest = list_steps(config.checkpoint_dir())[-1:] if started.initialization.from_checkpoint else []
    action = f"continuing at step {newest[0]}" if newest else "starting"
    stops = "; Ctrl-C saves and stops" if trains(config) else ""
    return f"{config.stage()}: {action} with {count}{nodes}, results in {config.log_dir()}{stops}"


def _records(config: Settings) -> tuple[Path, ...]:
    """The settings that the ranks read, and of a training those that the user asked for."""
    own = config.stage_dir() / "launch.yaml"
    return (own, settings_asked_for(config)) if trains(config) else (own,)


def _write_settings(config: Settings, started: Settings) -> Path:
    records = _records(config)
    records[0].parent.mkdir(parents=True, exist_ok=True)
    for path, settings in zip(records, (started, config), strict=False):  # other nodes may be reading them
        write_atomically(path, dump_yaml(settings).encode())
    return records[0]


def _meeting_point(ranks: Ranks, runner: Runner) -> tuple[str, str] | None:
    """The address of the first node, once it answers, and of this node; None if there is only one node.

    Paddle's launcher would wait for the first node for ever, without a message.
    """
    if ranks.num_nodes == 1:
        return None
    master, own_address = launcher_addresses(str(ranks.master))
    os.environ.update(without_proxy(os.environ, master))
    if ranks.node_rank:
        wait_for_master(master, MASTER_TIMEOUT_SECONDS, stopped=lambda: runner.stop_requested)
    return master, own_address


def explain_exit(code: int, config: Settings, runner: Runner) -> int:
    """Report how a command ended, unless it succeeded or has reported its error; returns the exit code."""
    if code == INTERRUPTED or (runner.stop_requested and code in (*ENDED_BY_SIGNAL, *KILLED)):
        reason = runner.stopped_by or read_json(config.log_dir() / "summary.json").get("interrupted_by")
        saved = list_steps(config.checkpoint_dir()) if trains(config) else []
        what = f"interrupted ({reason})" if reason else "interrupted"
        print(f"{what}{f': saved step {saved[-1]}' if saved else ''}; the same command resumes", file=sys.stderr)
        return INTERRUPTED
    if code not in (OK, BAD_INPUT):
        killed = "a rank was killed, often because memory ran out (lower --batch-size); " if code in KILLED else ""
        where = f"the reason is above, or in {config.stage_dir()}"
        print(f"error: {config.stage()} ended with exit code {code}; {killed}{where}", file=sys.stderr)
    return code

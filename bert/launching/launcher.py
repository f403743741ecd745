"""`python -m bert.launching.launcher pretraining ...`: make missing data, train the phases, show what came out.

Only starts processes and watches them; Paddle is imported in the processes it starts. Exit codes: 0 done; 2 wrong
arguments; 75 stopped by a signal and saved, the same command continues; anything else is the code of what failed.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from bert.config.base import TrainingConfig, derive
from bert.config.command_line import dump_yaml, usage_errors
from bert.exit_codes import BAD_INPUT, INTERRUPTED
from bert.files import write_atomically
from bert.launching import quickstart
from bert.launching import report as launch_report
from bert.launching.plan import REPOSITORY, LaunchPlan, num_gpus, parse_launch_arguments
from bert.launching.preparation import prepare_shards
from bert.launching.progress import PhaseProgress, pass_on
from bert.launching.rendezvous import launcher_addresses, wait_for_master, without_proxy
from bert.planning.flags import planned
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.dry_run import dry_run_report
from bert.reporting.logs import QUIET_STEPS

MASTER_TIMEOUT_SECONDS = 600.0  # nodes of a queue may start minutes apart
ENDED_BY_SIGNAL = (128 + signal.SIGTERM, 256 - signal.SIGTERM)  # nothing to save yet; the second is Paddle's launcher


class Runner:
    """Runs one command at a time and passes SIGINT, SIGTERM, SIGHUP and SIGUSR1 on to it as one SIGTERM."""

    def __init__(self) -> None:
        self.stop_requested = False
        self._process: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            signal.signal(number, self._on_signal)

    def run(self, command: Sequence[str], log_file: Path | None = None, phase: TrainingConfig | None = None) -> int:
        """Exit code of the command, 128 + number if a signal ended it. Its output goes to ours, and to log_file.

        `phase` is the training that the command does: on a terminal its steps are shown as a bar.
        """
        if self.stop_requested:
            return INTERRUPTED
        progress = None
        if phase is not None and sys.stdout.isatty():
            progress = PhaseProgress(phase.stage_dir(), phase.stage())
        environment = _environment() | ({QUIET_STEPS: "1"} if progress else {})
        # A session of its own: the terminal's Ctrl-C reaches us alone, so the command is told once.
        self._process = subprocess.Popen(
            command,
            start_new_session=True,
            cwd=Path.cwd(),
            env=environment,
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
        """To the workers themselves if there are any: paddle.distributed.launch would kill them after 30 seconds."""
        if self._process is None or self._process.poll() is not None:
            return
        for pid in _workers(self._process) or [self._process.pid]:
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                pass  # it ended by itself meanwhile


def _ignore_usr1() -> None:
    """Slurm sends USR1 to every process of a step, and Paddle's launcher would die of it; we pass it on as SIGTERM."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _workers(process: "subprocess.Popen[bytes]") -> list[int]:
    """Processes that paddle.distributed.launch started; none if the command is something else."""
    if "paddle.distributed.launch" not in process.args:  # type: ignore[operator]
        return []
    try:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    except OSError:
        return []
    return [int(pid) for pid in children.split()]


def _environment() -> dict[str, str]:
    """Ours, with the repository on the path of `python -m data....` wherever we were started."""
    paths = [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def pretraining(argv: Sequence[str]) -> int:
    with usage_errors():
        plan = parse_launch_arguments(argv)
        if plan.show_config or plan.dry_run:
            for config in plan.phases:
                print(dump_yaml(config) if plan.show_config else dry_run_report(config, plan.world_size()) + "\n")
            return 0
        if plan.planning is not None:
            print(planned(plan.phases, plan.planning))
            return 0
        devices = _check_devices(plan)
        for config in plan.phases:
            refuse_other_run(config)
    runner, started = Runner(), time.monotonic()
    if all(is_done(config) for config in plan.phases):
        print(f"Already done: {plan.phases[0].run.output_dir} (delete it, or pass another --output-dir, to train anew)")
    for config in plan.phases:
        if is_done(config):
            continue
        code = prepare_data(plan, config, runner) or _train(plan, config, devices, runner)
        if code != 0:
            return _explain_exit(code, config, runner)
        if not (config.run.benchmark or _is_done_here(plan, config)):
            print(f"phase {config.run.phase} has steps left; the same command continues")
            return 0
    if plan.node_rank in (None, 0) and not plan.phases[0].run.benchmark:
        try:
            launch_report.show(plan, time.monotonic() - started)
        except BrokenPipeError:  # nobody reads; the files are written
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def prepare_data(plan: LaunchPlan, config: PretrainingConfig, runner: Runner, only_this_node: bool = False) -> int:
    """Make the phase's data if it is missing; exit code of the command that did."""
    with usage_errors():
        if plan.name == "quickstart":
            with quickstart.data_lock(config):
                return quickstart.prepare(config, runner.run)
        return prepare_shards(plan, config, runner.run, only_this_node)


def _train(plan: LaunchPlan, config: PretrainingConfig, devices: str | None, runner: Runner) -> int:
    with usage_errors():
        started = with_start(config, previous=plan.phases[0])
        started.check_files()
        settings_file = config.stage_dir() / "launch.yaml"  # with its start; what the user asked for stands beside it
        settings_file.parent.mkdir(parents=True, exist_ok=True)
        asked_file = config.run.output_dir / f"phase{config.run.phase}.yaml"
        for path, settings in ((settings_file, started), (asked_file, config)):  # other nodes read them meanwhile
            write_atomically(path, dump_yaml(settings).encode())
        command = training_command(plan, config, settings_file, devices)
        if plan.num_nodes > 1:
            master = command[command.index("--master") + 1]
            os.environ.update(without_proxy(os.environ, master))
            if plan.node_rank:
                wait_for_master(
                    master,
                    MASTER_TIMEOUT_SECONDS,
                    lambda line: print(line, flush=True),
                    stopped=lambda: runner.stop_requested,
                )
    log_file = None
    if plan.create_logfile:
        stamp = time.strftime("%y%m%d%H%M%S")
        batch = config.batch.resolved_global_batch_size(plan.world_size())
        log_file = config.run.output_dir / f"{plan.job_name}.phase{config.run.phase}_gbs{batch}.{stamp}.log"
    return runner.run(command, log_file, config)


def training_command(
    plan: LaunchPlan, config: PretrainingConfig, settings_file: Path, devices: str | None
) -> list[str]:
    """Always through Paddle's launcher: one rank and many take the same way.

    Raises:
        ValueError: several nodes, and the address where they shall meet is not good for that.
    """
    log_dir, nodes = config.stage_dir() / "launch", []
    if plan.num_nodes > 1:
        master, own_address = launcher_addresses(str(plan.master))
        nodes = ["--nnodes", str(plan.num_nodes), "--master", master, "--host", own_address]
        nodes += ["--rank", str(plan.node_rank)] if plan.node_rank is not None else []
        log_dir /= own_address if plan.node_rank is None else f"node{plan.node_rank}"  # the nodes share the folder
    processes = ["--devices", devices] if devices else ["--nproc_per_node", str(plan.processes_per_node)]
    return [
        sys.executable,
        "-u",
        "-m",
        "paddle.distributed.launch",
        "--log_level",
        "CRITICAL",
        "--log_dir",
        str(log_dir),
        "--job_id",
        f"{plan.job_name}_phase{config.run.phase}",
        *nodes,
        *processes,
        str(plan.code_dir / "run_pretraining.py"),
        "--config",
        str(settings_file),
    ]


def with_start(config: PretrainingConfig, previous: PretrainingConfig) -> PretrainingConfig:
    """Where this phase starts: its own newest checkpoint, so that the same command continues; else where it is told.

    A start that was given for both phases is that of the first; the second starts where the first ended.
    """
    start = config.initialization
    if config.run.benchmark:
        return config
    if has_checkpoint(config.checkpoint_dir()) and not isinstance(start.last_step_of_checkpoint, int):
        return derive(
            config,
            from_checkpoint=config.checkpoint_dir(),
            last_step_of_checkpoint="auto",
            from_phase1_final_params=None,
            from_pretrained_params=None,
        )
    follows = config.run.phase == 2 and previous.run.phase == 1
    own_start = start.from_phase1_final_params or (
        (start.from_pretrained_params, start.from_checkpoint)
        != (previous.initialization.from_pretrained_params, previous.initialization.from_checkpoint)
    )
    if follows and not own_start:
        return derive(
            config,
            from_phase1_final_params=previous.checkpoint_dir(),
            from_pretrained_params=None,
            from_checkpoint=None,
            last_step_of_checkpoint=None,
        )
    return config


def has_checkpoint(folder: Path) -> bool:
    return folder.is_dir() and any(child.name.isdigit() for child in folder.iterdir())


def is_done(config: PretrainingConfig) -> bool:
    summary = launch_report.read_summary(config)
    done = summary is not None and summary.get("steps", 0) >= config.run.max_steps
    return done and not config.run.benchmark and (config.checkpoint_dir() / str(config.run.max_steps)).is_dir()


def _is_done_here(plan: LaunchPlan, config: PretrainingConfig, patience_seconds: float = 60.0) -> bool:
    """Whether the phase is done, as this node sees it; what the first node wrote may take a while on a shared disk."""
    deadline = time.monotonic() + (patience_seconds if plan.num_nodes > 1 and not config.run.steps_this_run else 0.0)
    while not (done := is_done(config)) and time.monotonic() < deadline:
        time.sleep(1.0)
    return done


def refuse_other_run(config: PretrainingConfig) -> None:
    """Two runs that differ in what they learn must not share an output folder: the second would seem done."""
    settings_file = config.run.output_dir / f"phase{config.run.phase}.yaml"
    if not settings_file.exists() or not (has_checkpoint(config.checkpoint_dir()) or is_done(config)):
        return
    old, new = launch_report.learning_settings(settings_file), launch_report.learning_settings(config)
    for name in new:
        if old.get(name) != new[name]:
            raise ValueError(
                f"{name}={new[name]} differs from {old.get(name)} of the run in {config.run.output_dir}; "
                "pass another --output-dir, delete that one, or repeat its settings"
            )


def _check_devices(plan: LaunchPlan) -> str | None:
    """`0,1,...` for GPUs, None for CPU processes; refuses more processes than GPUs unless the CPU is asked for."""
    wanted, count = plan.processes_per_node, num_gpus()
    device = plan.phases[0].hardware.device
    if device == "cpu" or (device == "auto" and count == 0 and (wanted == 1 or plan.name == "quickstart")):
        return None
    if wanted > count:
        fewer = f"--num-gpus {count}" if count else "--device cpu"
        raise ValueError(
            f"num_gpus={wanted} must be at most the {count} GPUs of this machine; pass {fewer}, or start "
            "without arguments for the quickstart, which needs none"
        )
    return ",".join(map(str, range(wanted)))


def _explain_exit(code: int, config: PretrainingConfig, runner: Runner) -> int:
    if code == INTERRUPTED or (runner.stop_requested and code in ENDED_BY_SIGNAL):
        print("stopped; the same command continues from here", file=sys.stderr)
        return INTERRUPTED
    if code != BAD_INPUT:
        print(
            f"error: phase {config.run.phase} ended with exit code {code}; the reason is above, or in "
            f"{config.stage_dir()}",
            file=sys.stderr,
        )
    return code


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] != "pretraining":
        print(f"error: {' '.join(words[:1]) or 'no task'} must be a task; pass pretraining", file=sys.stderr)
        return BAD_INPUT
    return pretraining(words[1:])


if __name__ == "__main__":
    sys.exit(main())

"""Starts the training of any task on the ranks of this node; the same command resumes it."""

import contextlib
import ipaddress
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from bert.checkpoints.directories import list_steps
from bert.config.run_file import RUN_FLAG, dump_yaml, run_file, run_file_content
from bert.config.setting_errors import Mistakes, usage_errors
from bert.config.training_settings import TrainingConfig, derive
from bert.exit_codes import BAD_INPUT, INTERRUPTED, OK
from bert.files import only_writer, read_json, refuse_read_only, require_writable, write_atomically
from bert.help_parser import wrapped
from bert.launching.previous_run import continuation, refuse_other_run, settings_asked_for
from bert.launching.process_runner import RANK, Runner
from bert.launching.ranks import Ranks, num_gpus
from bert.reporting.trackers import check_trackers

MASTER_TIMEOUT_SECONDS = 600.0  # the nodes of a queue may start minutes apart
ENDED_BY_SIGNAL = (128 + signal.SIGTERM, 256 - signal.SIGTERM)  # of a process, and of Paddle's launcher
KILLED = (128 + signal.SIGKILL, 256 - signal.SIGKILL)


def launcher_addresses(master: str, resolve: Callable[[str], str] = socket.gethostbyname) -> tuple[str, str]:
    """(`IP:PORT` of the meeting point, IPv4 address of this node on the way to it)."""
    host, _, port = master.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"master={master} must be HOST:PORT, such as 10.0.0.1:6070; change --master")
    try:
        address = resolve(host)
    except OSError as error:
        raise ValueError(f"master={master} cannot be resolved ({error}); pass the first node's IPv4 address") from None
    if ipaddress.ip_address(address).is_loopback and host != "localhost" and not host.startswith("127."):
        raise ValueError(
            f"master={master} is {address} on this node, where no other node finds it (see /etc/hosts); "
            "pass the first node's address in the network of the nodes"
        )
    return f"{address}:{port}", address_towards(address)


def address_towards(address: str) -> str:
    """This node's address in the network through which it reaches `address`; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError as error:
            raise ValueError(
                f"master={address} cannot be reached from this node ({error}); check the network, or pass "
                "an address that all nodes reach"
            ) from None
        return probe.getsockname()[0]


def wait_for_master(
    master: str, timeout_seconds: float, *, stopped: Callable[[], bool] = lambda: False, every_seconds: float = 0.5
) -> None:
    """Wait until the first node's launcher listens at `IP:PORT`, or `stopped()`."""
    host, _, port = master.rpartition(":")
    deadline, is_first = time.monotonic() + timeout_seconds, True
    while not stopped():
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
            return
        except OSError as error:
            if time.monotonic() > deadline:
                raise ValueError(
                    f"master={master} did not answer within {timeout_seconds:.0f} s ({error}); start the same "
                    "command on the first node (--node-rank 0), and let its port through the firewall"
                ) from None
            if is_first:
                print(f"waiting for the first node at {master}", flush=True)
            is_first = False
            time.sleep(every_seconds)


def ranks_command(
    ranks: Ranks, devices: str | None, log_dir: Path, program: Sequence[str | Path], options: Sequence[str] = ()
) -> list[str]:
    """A program with its arguments on this node's ranks, through Paddle's launcher."""
    launcher = [sys.executable, "-u", "-m", "paddle.distributed.launch", *options, "--log_dir", str(log_dir)]
    placement = ["--devices", devices] if devices else ["--nproc_per_node", str(ranks.num_processes)]
    return [*launcher, *placement, *map(str, program)]


class RanksStart(NamedTuple):
    """What starts the ranks of this node: a command, and the variables of its environment."""

    command: list[str]
    variables: dict[str, str]


def start_of_ranks(
    ranks: Ranks,
    device: str,
    devices: str | None,
    log_dir: Path,
    program: Sequence[str | Path],
    options: Sequence[str] = (),
) -> RanksStart:
    """The start of a program on this node's ranks; a single rank is a process of ours, without Paddle's launcher.

    Paddle's launcher would import Paddle once more, which takes a second of CPU time. The rank gets the variables that
    it would get from the launcher.

    Args:
        device: the setting auto, cpu or gpu; `devices` are the GPUs that `Ranks.devices` chose for it.
        options: of Paddle's launcher.
    """
    variables = ranks.environment(device)
    if ranks.world_size() > 1:
        return RanksStart(ranks_command(ranks, devices, log_dir, program, options), variables)
    has_device = devices is not None or "CUDA_VISIBLE_DEVICES" in {**os.environ, **variables}
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    variables |= {"PADDLE_GLOBAL_SIZE": "1", "PADDLE_LOCAL_SIZE": "1", "PADDLE_TRAINERS_NUM": "1", "PADDLE_NNODES": "1"}
    variables |= dict.fromkeys(("PADDLE_GLOBAL_RANK", "PADDLE_LOCAL_RANK", "PADDLE_RANK_IN_NODE", RANK), "0")
    addresses = ("PADDLE_MASTER", "PADDLE_CURRENT_ENDPOINT", "PADDLE_TRAINER_ENDPOINTS")  # nothing connects to it
    variables |= dict.fromkeys(addresses, address) | {"PADDLE_LOG_DIR": str(log_dir.absolute())}
    # A number among the visible cards; the launcher, too, counts the -1 of a rank on the CPU as one of them.
    variables |= {"FLAGS_selected_gpus": "0"} if has_device else {"PADDLE_DISTRI_BACKEND": "gloo"}
    return RanksStart([sys.executable, "-u", *map(str, program)], variables)


def check_machine(config: TrainingConfig, ranks: Ranks) -> str | None:
    """The devices of this node's ranks; ValueError if they, the trackers or the output folder refuse the start.

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
    """Run a training script to its end; returns its exit code, INTERRUPTED where the same command continues it.

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
            log_dir.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(PermissionError):  # another user's
                (config.stage_dir() / "launch").chmod(0o700)
            if ranks.num_nodes == 1:  # another start would write to the same files; nodes may share a folder
                stack.enter_context(only_writer(log_dir))
            records = {run_file(config): run_file_content(started)}
            if config.trains():
                records[settings_asked_for(config)] = dump_yaml(config).encode()
            before = {path: path.read_bytes() for path in records if path.exists()}
            print(wrapped(_announcement(config, started, ranks, devices), indent="  "), flush=True)
            for path, content in records.items():  # other nodes may be reading them
                write_atomically(path, content)
            node_options = _node_options(ranks, runner)
        options = ["--log_level", "ERROR", "--job_id", job_id or config.stage(), *node_options]
        program: list[str | Path] = [script, RUN_FLAG, run_file(config)]
        begun = start_of_ranks(ranks, config.hardware.device, devices, log_dir, program, options)
        code = runner.train(begun.command, config, log_dir, log_file, begun.variables)
        if code == BAD_INPUT:  # the ranks refused the settings: the records are of the run that is there
            for path, content in before.items():
                write_atomically(path, content)
    return explain_exit(code, config, runner)


def _log_dir(config: TrainingConfig, ranks: Ranks) -> Path:
    """The folder of the launcher and the ranks; the nodes share the output folder, so each has its own."""
    folder = config.stage_dir() / "launch"
    if ranks.num_nodes == 1:
        return folder
    return folder / (os.uname().nodename if ranks.node_rank is None else f"node{ranks.node_rank}")


def _announcement(config: TrainingConfig, started: TrainingConfig, ranks: Ranks, devices: str | None) -> str:
    """One line at once: the ranks need seconds before they have something to show."""
    place = f"GPU {devices}" if devices else "the CPU" if num_gpus() == 0 else config.hardware.device
    several = f"{ranks.num_processes} ranks (processes)"
    count = f"{several if ranks.num_processes > 1 else '1 rank (process)'} on {place}"
    nodes = f" of each of {ranks.num_nodes} nodes" if ranks.num_nodes > 1 else ""
    is_continued = started.initialization.from_checkpoint and list_steps(config.checkpoint_dir())
    action = "continuing" if is_continued else "starting"  # the ranks verify the checkpoint, and name its step
    stops = "; Ctrl-C saves and stops" if config.trains() else ""
    return f"{config.stage()}: {action} with {count}{nodes}, results in {config.log_dir()}{stops}"


def _node_options(ranks: Ranks, runner: Runner) -> list[str]:
    """The options of Paddle's launcher for the nodes, once the first node answers; none for a single node.

    Paddle's launcher would wait for the first node for ever, without a message.
    """
    if ranks.num_nodes == 1:
        return []
    master, own_address = launcher_addresses(str(ranks.master))
    if ranks.node_rank:
        wait_for_master(master, MASTER_TIMEOUT_SECONDS, stopped=lambda: runner.stop_requested)
    rank = [] if ranks.node_rank is None else ["--rank", str(ranks.node_rank)]
    return ["--nnodes", str(ranks.num_nodes), "--master", master, "--host", own_address, *rank]


def was_stopped(code: int, runner: Runner) -> bool:
    """Whether a command ended because it was asked to; a failure after the request is still a failure."""
    return code == INTERRUPTED or (runner.stop_requested and code in (*ENDED_BY_SIGNAL, *KILLED))


def explain_exit(code: int, config: TrainingConfig, runner: Runner) -> int:
    """Report how a command ended, unless it succeeded or has reported its error; returns the exit code."""
    if was_stopped(code, runner):
        reason = runner.stopped_by or read_json(config.log_dir() / "summary.json").get("interrupted_by")
        saved = list_steps(config.checkpoint_dir()) if config.trains() else []
        what = f"interrupted ({reason})" if reason else "interrupted"
        print(f"{what}{f': saved step {saved[-1]}' if saved else ''}; the same command resumes", file=sys.stderr)
        return INTERRUPTED
    if code not in (OK, BAD_INPUT):
        killed = "a rank was killed, often because memory ran out (lower --batch-size); " if code in KILLED else ""
        where = f"the reason is above, or in {config.stage_dir()}"
        print(f"error: {config.stage()} ended with exit code {code}; {killed}{where}", file=sys.stderr)
    return code

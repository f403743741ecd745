"""Starts the training of any task on the ranks of this node; the same command resumes it."""

import contextlib
import ipaddress
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bert.checkpoints.directories import list_steps
from bert.config.command_line import dump_yaml, usage_errors
from bert.exit_codes import BAD_INPUT, INTERRUPTED, OK
from bert.files import only_writer, read_json, require_writable, write_atomically
from bert.finetuning.config import FineTuningConfig
from bert.launching.arguments import whole_number
from bert.launching.previous_run import continued, refuse_other_run, settings_asked_for, trains
from bert.launching.process_runner import Runner
from bert.pretraining.config import PretrainingConfig
from bert.runtime.topology import allowed_processors, cpu_quota, nvidia_smi, visible_devices

Resolve = Callable[[str], str]


def launcher_addresses(master: str, resolve: Resolve = socket.gethostbyname) -> tuple[str, str]:
    """(`IP:PORT` of the meeting point, IPv4 address of this node on the way to it)."""
    host, _, port = master.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(f"master={master} must be HOST:PORT, such as 10.0.0.1:6070; change --master")
    try:
        address = resolve(host)
    except OSError as error:
        raise ValueError(f"master={master} cannot be resolved ({error}); pass the first node's IPv4 address") from None
    if ipaddress.ip_address(address).is_loopback and not _is_loopback_name(host):
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


def without_proxy(environment: Mapping[str, str], master: str) -> dict[str, str]:
    """Variables that keep Paddle's launcher, which asks the first node over HTTP, from asking a proxy instead."""
    known = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    hosts = ",".join(filter(None, [known, master.rpartition(":")[0]]))
    return {"no_proxy": hosts, "NO_PROXY": hosts}


def _is_loopback_name(host: str) -> bool:
    return host == "localhost" or host.startswith("127.")


@dataclass(frozen=True)
class Ranks:
    """The number of processes of a run and the nodes they run on."""

    num_processes: int = 1  # on each node
    num_nodes: int = 1
    node_rank: int | None = None  # None: the launchers agree on one
    master: str | None = None  # HOST:PORT of the first node

    def world_size(self) -> int:
        return self.num_processes * self.num_nodes

    def devices(self, device: str) -> str | None:
        """GPUs of this node's ranks, such as `0,1`; None where Paddle chooses for a single rank, and on the CPU.

        Paddle's launcher looks them up in CUDA_VISIBLE_DEVICES, so they are named as there.
        """
        if self.num_nodes > 1 and self.master is None:
            raise ValueError(
                f"num_nodes={self.num_nodes} needs the address of the first node; pass --master HOST:PORT "
                "on every node, and --num-nodes 1 to train on this node alone"
            )
        count = 0 if device == "cpu" else num_gpus()
        if device == "cpu" or (device == "auto" and count == 0 and self.num_processes == 1):
            return None
        if self.num_processes > count:
            remedy = f"--num-gpus {count}" if count else "--device cpu to start them on the CPU"
            raise ValueError(
                f"num_gpus={self.num_processes} must be at most the {count} GPUs of this machine; pass {remedy}, or "
                "start without arguments for the quickstart, which needs none"
            )
        labels = visible_devices() or [str(number) for number in range(count)]
        return ",".join(labels[: self.num_processes])

    def environment(self, device: str) -> dict[str, str]:
        """Variables with which Paddle's launcher can give each rank of this node its device.

        It needs an entry of CUDA_VISIBLE_DEVICES for each rank, of ranks on the CPU too, and cannot find an entry that
        follows a space.
        """
        if device == "cpu":
            return {"CUDA_VISIBLE_DEVICES": ",".join(["-1"] * self.num_processes)}
        visible = visible_devices()
        return {} if visible is None else {"CUDA_VISIBLE_DEVICES": ",".join(visible)}


def read_ranks(flags: Mapping[str, str], num_processes: int, num_nodes: int = 1) -> Ranks:
    """The ranks that a launcher's flags ask for; the other arguments are the defaults."""
    return Ranks(
        whole_number("num_gpus", flags.get("num_gpus", str(num_processes))),
        whole_number("num_nodes", flags.get("num_nodes", str(num_nodes))),
        whole_number("node_rank", flags["node_rank"], least=0) if "node_rank" in flags else None,
        flags.get("master"),
    )


def num_gpus() -> int:
    """GPUs that the driver lists and CUDA_VISIBLE_DEVICES leaves visible; 0 without a driver."""
    count = len(nvidia_smi("--list-gpus"))
    visible = visible_devices()
    if visible is None:
        return count
    exists = [int(entry) < count if entry.isdecimal() else entry.startswith(("GPU-", "MIG-")) for entry in visible]
    return (exists + [False]).index(False) if count else 0  # CUDA ends the list at the first that does not exist


def num_usable_processors() -> int:
    """The processors that this process may use, within the quota of its container or job."""
    return max(1, int(min(len(allowed_processors()), cpu_quota() or float("inf")) + 0.5))


def quickstart_processes(device: str) -> int:
    """Ranks of a quickstart: on a CPU two if it has two processors, with the threads that then fall to each; else one.

    A second rank halves all the work on the sequences, a second thread the matrix products alone. Measured on Zen 5,
    CPU milliseconds of a phase-1 update of 32 sequences: one rank 67-72; one rank with two threads 85-91, of which some
    is waiting; each of two ranks 47, of which 18 are the update itself, that no rank saves, and 2-4 the exchange of its
    million gradients over Gloo: 1.4-1.7 ns for each, two thirds of it system time that copies through the loopback
    device. More ranks would divide the other 25.
    """
    return 2 if (device == "cpu" or not num_gpus()) and num_usable_processors() >= 2 else 1


def training_command(
    script: Path,
    settings_file: Path,
    ranks: Ranks,
    devices: str | None,
    log_dir: Path,
    job_id: str,
    meeting_point: tuple[str, str] | None = None,
) -> list[str]:
    """`script --config settings_file` on the ranks of this node, always through Paddle's launcher, even for one rank.

    Args:
        meeting_point: of several nodes, `rendezvous.launcher_addresses`.
    """
    options = ["--log_level", "ERROR", "--job_id", job_id]
    if meeting_point is not None:
        master, own_address = meeting_point
        options += ["--nnodes", str(ranks.num_nodes), "--master", master, "--host", own_address]
        options += ["--rank", str(ranks.node_rank)] if ranks.node_rank is not None else []
    options += ["--log_dir", str(log_dir)]
    options += ["--devices", devices] if devices else ["--nproc_per_node", str(ranks.num_processes)]
    launcher = [sys.executable, "-u", "-m", "paddle.distributed.launch"]
    return [*launcher, *options, str(script), "--config", str(settings_file)]


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

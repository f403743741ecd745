"""The ranks of a launch: their number, nodes and devices, and the command that starts them."""

import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field

from bert.config.flags import Flag
from bert.config.settings_base import ReadWith, Settings
from bert.launching.processes import RANK
from bert.runtime.topology import allowed_processors, cpu_quota, no_gpu, nvidia_smi, visible_devices

_OF_SEVERAL_NODES = ReadWith("num_nodes", above=1)


class Ranks(Settings):
    """The processes of a run and their nodes."""

    num_processes: Annotated[int, Flag(name="--num-gpus", hidden_aliases=("--num-processes",))] = Field(
        1, ge=1, description="processes (GPUs) on each node; without it, as many as the preset or the task takes"
    )
    num_nodes: int = Field(1, ge=1, description="nodes; start the same command on each of them")
    node_rank: Annotated[int | None, _OF_SEVERAL_NODES] = Field(
        None, ge=0, description="number of this node (default: the launchers agree on one)"
    )
    master: Annotated[str | None, _OF_SEVERAL_NODES] = Field(None, description="HOST:PORT of the first node")

    def world_size(self) -> int:
        return self.num_processes * self.num_nodes

    def devices(self, device: str) -> str | None:
        """GPUs of this node's ranks, such as `0,1`; None on the CPU, and if Paddle chooses for a single rank.

        Paddle's launcher looks them up in CUDA_VISIBLE_DEVICES, so they are named as there.
        """
        if self.num_nodes > 1 and self.master is None:
            raise ValueError(
                f"num_nodes={self.num_nodes} needs the address of the first node; pass --master HOST:PORT "
                "on every node, and --num-nodes 1 to train on this node alone"
            )
        count = gpus_for(device)
        if device == "cpu" or (device == "auto" and count == 0 and self.num_processes == 1):
            return None
        if count == 0 and device == "gpu":
            raise ValueError(no_gpu(device))
        if self.num_processes > count:
            remedy = f"--num-gpus {count}" if count else "--device cpu to start them on the CPU"
            raise ValueError(
                f"num_gpus={self.num_processes} must be at most the {count} GPUs of this machine; pass {remedy}, or "
                "start without arguments for the quickstart, which needs none"
            )
        labels = visible_devices() or [str(number) for number in range(count)]
        return ",".join(labels[: self.num_processes])

    def environment(self, device: str) -> dict[str, str]:
        """Variables by which Paddle's launcher assigns a device to each rank of this node.

        It needs an entry of CUDA_VISIBLE_DEVICES for each rank, of ranks on the CPU too, and cannot find an entry that
        follows a space.
        """
        if device == "cpu":
            return {"CUDA_VISIBLE_DEVICES": ",".join(["-1"] * self.num_processes)}
        visible = visible_devices()
        return {} if visible is None else {"CUDA_VISIBLE_DEVICES": ",".join(visible)}


def num_gpus() -> int:
    """Number of GPUs that the driver lists and CUDA_VISIBLE_DEVICES allows; 0 without a driver."""
    count = len(nvidia_smi("--list-gpus"))
    visible = visible_devices()
    if visible is None:
        return count
    exists = [int(entry) < count if entry.isdecimal() else entry.startswith(("GPU-", "MIG-")) for entry in visible]
    return (exists + [False]).index(False) if count else 0  # CUDA ends the list at the first that does not exist


def gpus_for(device: str) -> int:
    """Number of GPUs that a run with this --device (auto, cpu or gpu) can use."""
    return 0 if device == "cpu" else num_gpus()


def quickstart_processes(device: str) -> int:
    """Ranks and threads of a quickstart: two ranks on a CPU with two processors, otherwise one.

    A second rank halves all the work on the sequences, a second thread the matrix products alone. Measured on Zen 5,
    CPU milliseconds of a phase-1 update of 32 sequences: one rank 67-72; one rank with two threads 85-91, of which some
    is waiting; each of two ranks 47, of which 18 are the update itself, that no rank saves, and 2-4 the exchange of its
    million gradients over Gloo. More ranks would divide the other 25.
    """
    if gpus_for(device):
        return 1
    usable = min(len(allowed_processors()), cpu_quota() or float("inf"))  # the quota of the container or job
    return 2 if int(usable + 0.5) >= 2 else 1


def ranks_command(
    ranks: Ranks, devices: str | None, log_dir: Path, program: Sequence[str | Path], options: Sequence[str] = ()
) -> list[str]:
    """The command that runs a program on this node's ranks, through Paddle's launcher."""
    launcher = [sys.executable, "-u", "-m", "paddle.distributed.launch", *options, "--log_dir", str(log_dir)]
    placement = ["--devices", devices] if devices else ["--nproc_per_node", str(ranks.num_processes)]
    return [*launcher, *placement, *map(str, program)]


class RanksStart(NamedTuple):
    """The command that starts the ranks of this node, and its environment variables."""

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
    """How to start a program on this node's ranks; a single rank runs without Paddle's launcher.

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

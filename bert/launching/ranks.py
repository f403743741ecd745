"""The ranks of a run: how many on how many nodes, on which GPUs, and the command of Paddle's launcher for them."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bert.launching.arguments import whole_number
from bert.runtime.topology import allowed_processors, cpu_quota, nvidia_smi, visible_devices


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

        Args:
            device: the setting: auto, cpu or gpu.
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

        Args:
            device: the setting: auto, cpu or gpu.
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
        log_dir: of the output of this node's ranks.
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

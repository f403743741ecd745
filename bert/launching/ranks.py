"""The ranks of a launch: how many, on which nodes and devices."""

from typing import Annotated

from pydantic import Field

from bert.config.settings_base import ReadWith, Settings
from bert.runtime.topology import allowed_processors, cpu_quota, no_gpu, nvidia_smi, visible_devices

_OF_SEVERAL_NODES = ReadWith("num_nodes", above=1)


class Ranks(Settings):
    """The processes of a run and the nodes they run on."""

    num_processes: int = Field(
        1, ge=1, description="processes (GPUs) on each node; without it, as many as the preset or the task takes"
    )
    num_nodes: int = Field(1, ge=1, description="nodes; start the same command on each of them")
    node_rank: Annotated[int | None, _OF_SEVERAL_NODES] = Field(
        None, ge=0, description="number of this node; none: the launchers agree on one"
    )
    master: Annotated[str | None, _OF_SEVERAL_NODES] = Field(None, description="HOST:PORT of the first node")

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
        """Variables with which Paddle's launcher can give each rank of this node its device.

        It needs an entry of CUDA_VISIBLE_DEVICES for each rank, of ranks on the CPU too, and cannot find an entry that
        follows a space.
        """
        if device == "cpu":
            return {"CUDA_VISIBLE_DEVICES": ",".join(["-1"] * self.num_processes)}
        visible = visible_devices()
        return {} if visible is None else {"CUDA_VISIBLE_DEVICES": ",".join(visible)}


def num_gpus() -> int:
    """GPUs that the driver lists and CUDA_VISIBLE_DEVICES leaves visible; 0 without a driver."""
    count = len(nvidia_smi("--list-gpus"))
    visible = visible_devices()
    if visible is None:
        return count
    exists = [int(entry) < count if entry.isdecimal() else entry.startswith(("GPU-", "MIG-")) for entry in visible]
    return (exists + [False]).index(False) if count else 0  # CUDA ends the list at the first that does not exist


def gpus_for(device: str) -> int:
    """GPUs that a run with this --device (auto, cpu or gpu) can use."""
    return 0 if device == "cpu" else num_gpus()


def quickstart_processes(device: str) -> int:
    """Ranks of a quickstart: on a CPU two if it has two processors, with the threads that then fall to each; else one.

    A second rank halves all the work on the sequences, a second thread the matrix products alone. Measured on Zen 5,
    CPU milliseconds of a phase-1 update of 32 sequences: one rank 67-72; one rank with two threads 85-91, of which some
    is waiting; each of two ranks 47, of which 18 are the update itself, that no rank saves, and 2-4 the exchange of its
    million gradients over Gloo. More ranks would divide the other 25.
    """
    if gpus_for(device):
        return 1
    usable = min(len(allowed_processors()), cpu_quota() or float("inf"))  # the quota of the container or job
    return 2 if int(usable + 0.5) >= 2 else 1

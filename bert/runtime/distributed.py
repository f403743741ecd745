"""Ranks and their communication: Fleet, the PADDLE_* variables, NCCL on GPUs and Gloo on CPU.

`python -m paddle.distributed.launch` starts one process per rank and describes the group in the environment. On GPUs
Fleet does the rest. On CPU, Paddle 2.6.2 has Gloo kernels for `c_allreduce_sum` and `c_broadcast`, but Fleet always
creates an NCCL communicator. `gloo_on_cpu` prevents that, so the same program runs on both.
"""

import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext, redirect_stderr
from dataclasses import dataclass
from io import StringIO
from typing import Any

import numpy as np
import psutil

from bert.runtime.paddle_api import CollectiveHelper, core, paddle, static

# Operators that synchronise CUDA streams; they have no CPU kernel, and a CPU has nothing to synchronise.
_STREAM_OPERATORS = ("c_sync_calc_stream", "c_sync_comm_stream", "c_wait_compute", "c_wait_comm")


@dataclass(frozen=True)
class Group:
    """The rank of this process and the size of its group."""

    rank: int
    world_size: int
    device: str  # "cpu" | "gpu"
    local_rank: int = 0  # among the ranks on this host
    local_world_size: int = 1

    @property
    def is_main(self) -> bool:
        return self.rank == 0


def group_from_environment(device: str) -> Group:
    """The group that the launcher describes; a single rank without a launcher."""
    endpoints = [e for e in os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",") if e]
    rank = int(os.environ.get("PADDLE_TRAINER_ID", "0"))
    world_size = int(os.environ.get("PADDLE_TRAINERS_NUM", "1"))
    if world_size > 1 and len(endpoints) != world_size:
        raise ValueError(
            f"PADDLE_TRAINERS_NUM={world_size} but PADDLE_TRAINER_ENDPOINTS lists {len(endpoints)} addresses; start "
            "the ranks with `python -m paddle.distributed.launch`"
        )
    hosts = [endpoint.rsplit(":", 1)[0] for endpoint in endpoints] or ["localhost"]
    mine = [other for other, host in enumerate(hosts) if host == hosts[rank]]
    return Group(rank, world_size, device, mine.index(rank), len(mine))


def initialize(group: Group) -> None:
    """Join the group: Gloo's rendezvous on CPU, which rank 0's endpoint serves, and Fleet's environment."""
    if group.world_size > 1 and group.device == "cpu":
        endpoint = os.environ["PADDLE_TRAINER_ENDPOINTS"].split(",")[0]
        interface = interface_of(os.environ["PADDLE_TRAINER_ENDPOINTS"], group.rank)
        # The rendezvous server writes http.log into the current folder, and its clients print while they wait.
        with (
            tempfile.TemporaryDirectory() as folder,
            chdir(folder),
            redirect_stderr(StringIO()),
            _gloo_interface(interface),
        ):
            paddle.distributed.gloo_init_parallel_env(group.rank, group.world_size, endpoint)
    paddle.distributed.fleet.init(is_collective=True, log_level="ERROR")


def interface_of(endpoints: str, rank: int) -> str:
    """Name of the network interface of the rank's address; `lo` if all ranks are on one host.

    Raises:
        ValueError: no interface of this host has the rank's address.
    """
    addresses = [endpoint.rsplit(":", 1)[0] for endpoint in endpoints.split(",")]
    if len(set(addresses)) == 1:
        return "lo"
    found = {
        address.address: name
        for name, listed in psutil.net_if_addrs().items()
        for address in listed
        if address.family == socket.AF_INET
    }
    if addresses[rank] in found:
        return found[addresses[rank]]
    has = ", ".join(f"{address} on {name}" for address, name in found.items())
    raise ValueError(
        f"rank {rank} should be at {addresses[rank]}, which is not an address of this host ({has}); "
        "pass one of these to paddle.distributed.launch with --host"
    )


def _gloo_interface(name: str) -> AbstractContextManager[None]:
    """Make Paddle's Gloo use this network interface; Paddle 2.6.2 always leaves it at loopback."""
    original = core.GlooParallelStrategy

    def strategy():
        made = original()
        made.iface = name
        return made

    return _replaced(core, "GlooParallelStrategy", strategy)


@contextmanager
def _replaced(holder: Any, name: str, value: Any) -> Iterator[None]:
    original = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, original)


def finalize(group: Group) -> None:
    """Leave the group once all ranks have called this."""
    if group.world_size > 1 and group.device == "cpu":
        paddle.distributed.gloo_barrier()
        paddle.distributed.gloo_release()


def exchange_texts(group: Group, key: str, text: str) -> list[str]:
    """The text of every rank, in their order.

    It goes over the store at rank 0's endpoint, so it works on GPUs before the start-up program has made NCCL's
    communicator. Each key can be used once.
    """
    if group.world_size == 1:
        return [text]
    store = core.create_or_get_global_tcp_store()
    store.set(f"{key}/{group.rank}", text)
    return [store.get(f"{key}/{rank}").decode() for rank in range(group.world_size)]


def gloo_on_cpu(group: Group) -> AbstractContextManager[None]:
    """Prevent Fleet's `minimize` from appending the NCCL communicator's operators on CPU ranks."""
    if group.device != "cpu" or group.world_size == 1:
        return nullcontext()
    return _replaced(CollectiveHelper, "_init_communicator", lambda *args, **kwargs: None)


def remove_stream_operators(program) -> None:
    """Remove the CUDA stream operators from every block of a program for CPU."""
    for block in program.blocks:
        for index in reversed(range(len(block.ops))):
            if block.ops[index].type in _STREAM_OPERATORS:
                block._remove_op(index, sync=False)
        block._sync_with_cpp()


class Collective:
    """Sums of small host vectors over all ranks, by the operators that also sum gradients (NCCL or Gloo)."""

    def __init__(self, group: Group, executor):
        self.group = group
        self._executor = executor
        self._programs: dict[Any, tuple] = {}

    def sum(self, values) -> np.ndarray:
        """Sum over ranks of a 1-D float64 or int64 array of the same length on every rank."""
        values = np.atleast_1d(np.asarray(values))
        if self.group.world_size == 1:
            return values
        dtype = values.dtype.name
        if dtype not in self._programs:
            self._programs[dtype] = self._build(dtype)
        program, output = self._programs[dtype]
        return np.array(self._executor.run(program, feed={"values": values}, fetch_list=[output])[0])

    def gather(self, values) -> np.ndarray:
        """[world_size, len(values)] on every rank: the values of all ranks."""
        values = np.atleast_1d(np.asarray(values))
        table = np.zeros((self.group.world_size, len(values)), values.dtype)
        table[self.group.rank] = values
        return self.sum(table.reshape(-1)).reshape(table.shape)

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on any rank."""
        return bool(self.sum(np.array([int(flag)], "int64"))[0])

    def count_differences(self, program: static.Program, names: Sequence[str], scope) -> np.ndarray:
        """For each persistable variable of a program, how many values of all ranks differ from rank 0's: int64 [names].

        Broadcast and compared on the device, one variable after the other; NaN equals NaN.
        """
        key = ("differences", id(program))
        if key not in self._programs:
            self._programs[key] = self._build_comparison(program, names)
        comparison, output = self._programs[key]
        return self.sum(np.array(self._executor.run(comparison, fetch_list=[output], scope=scope)[0]))

    @staticmethod
    def _build_comparison(program: static.Program, names: Sequence[str]):
        comparison = static.Program()
        with static.program_guard(comparison, static.Program()):
            block, counts = comparison.global_block(), []
            for name in names:
                known = program.global_block().var(name)
                mine = block.create_var(name=name, shape=known.shape, dtype=known.dtype, persistable=True)
                theirs = paddle.assign(mine)  # Gloo broadcasts in place only
                block.append_op(
                    type="c_broadcast",
                    inputs={"X": theirs},
                    outputs={"Out": theirs},
                    attrs={"ring_id": 0, "root": 0, "use_calc_stream": True},
                )
                # not_equal would take two floats within 1e-8 for equal
                differ = paddle.logical_or(mine > theirs, mine < theirs)
                differ = paddle.logical_or(differ, paddle.logical_xor(paddle.isnan(mine), paddle.isnan(theirs)))
                counts.append(paddle.cast(differ, "int64").sum().reshape([1]))
            output = paddle.concat(counts)
        return comparison, output

    def _build(self, dtype: str):
        program = static.Program()
        with static.program_guard(program, static.Program()):
            data = static.data("values", [-1], dtype)
            block = program.global_block()
            output = block.create_var(name="sum_over_ranks", dtype=data.dtype, shape=[-1])
            block.append_op(
                type="c_allreduce_sum",
                inputs={"X": data},
                outputs={"Out": output},
                attrs={"ring_id": 0, "use_calc_stream": True},
            )
        return program, output

"""Ranks and their communication: Fleet, the PADDLE_* variables, NCCL on GPUs and Gloo on CPU.

`python -m paddle.distributed.launch` starts one process per rank and describes the group in the environment. On GPUs
Fleet does the rest. On CPU its programs run too: all-reduce and broadcast have Gloo kernels, but Fleet always creates
an NCCL communicator. `gloo_on_cpu` prevents that, and `fit_to_gloo` fits the programs.
"""

import itertools
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert.runtime import gloo
from bert.runtime.paddle_api import IS_PADDLE_3, CollectiveHelper, core, paddle, static


@dataclass(frozen=True)
class Group:
    rank: int
    world_size: int
    device: str  # "cpu" or "gpu"
    local_rank: int = 0  # number of the rank on this host
    local_world_size: int = 1

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def uses_gloo(self) -> bool:
        return self.world_size > 1 and self.device == "cpu"


def group_from_environment(device: str) -> Group:
    """The group that the launcher's variables describe; a single rank without a launcher."""
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
    """Join the group: Gloo's rendezvous on CPU, at rank 0's endpoint, and Fleet's environment."""
    if group.uses_gloo:
        gloo.join(group.rank, os.environ["PADDLE_TRAINER_ENDPOINTS"].split(","))
    paddle.distributed.fleet.init(is_collective=True, log_level="ERROR")


def finalize(group: Group) -> None:
    """Leave the group once all ranks have called this."""
    if group.uses_gloo:
        gloo.leave()


_exchanges = itertools.count()


def exchange_texts(group: Group, text: str) -> list[str]:
    """Gather the text of every rank, in rank order. Every rank must call it equally often.

    It goes over the store at rank 0's endpoint, so it works on GPUs before the start-up program has made NCCL's
    communicator.
    """
    if group.world_size == 1:
        return [text]
    store, key = core.create_or_get_global_tcp_store(), f"exchanged_text/{next(_exchanges)}"
    store.set(f"{key}/{group.rank}", text)
    return [store.get(f"{key}/{rank}").decode() for rank in range(group.world_size)]


def gloo_on_cpu(group: Group) -> AbstractContextManager[None]:
    """Context manager that keeps NCCL's operators out of programs that Fleet's `minimize` builds for CPU."""
    if not group.uses_gloo:
        return nullcontext()
    return gloo.replaced(CollectiveHelper, "_init_communicator", lambda *args, **kwargs: None)


def sums_as_updated(in_half_precision: bool) -> AbstractContextManager[None]:
    """Context manager: Fleet's `minimize` sums gradients in float32, unless configured otherwise.

    `decorate` names to Fleet, in the place of a cast to float32, the operator before it.
    """
    if in_half_precision:
        return nullcontext()
    return gloo.replaced(static.amp.decorator, "update_role_var_grad", lambda *args: None)


def fit_to_gloo(program: static.Program, group: Group) -> None:
    """Convert a program that Fleet built for NCCL to CPU ranks; unchanged on GPUs and for a single rank."""
    if group.uses_gloo:
        gloo.fit_program(program)


# What sums over the ranks and what copies rank 0's values: operator, its input and output, its attributes.
if IS_PADDLE_3:
    _SUM = ("all_reduce", "x", "out", {"ring_id": 0, "reduce_type": 0})
    _BROADCAST = ("broadcast", "x", "out", {"ring_id": 0, "root": 0})
else:
    _SUM = ("c_allreduce_sum", "X", "Out", {"ring_id": 0, "use_calc_stream": True})
    _BROADCAST = ("c_broadcast", "X", "Out", {"ring_id": 0, "root": 0, "use_calc_stream": True})


def _append_in_place(block, collective: tuple, values) -> None:
    """Append _SUM or _BROADCAST of a variable in place; Gloo cannot broadcast in another way."""
    operator, read, written, attributes = collective
    block.append_op(type=operator, inputs={read: values}, outputs={written: values}, attrs=attributes)


def append_sum(block, values) -> None:
    """Append an all-reduce sum of a variable, in place."""
    _append_in_place(block, _SUM, values)


def reduce_on_compute_stream(program: static.Program) -> None:
    """Run the all-reduces of a program in the stream of its computations.

    A stream of their own lets them overlap the backward pass, but the host waits for both streams. With accumulation
    there is nothing to overlap. Those of Paddle 3 (`all_reduce`) are there already: only the waits go.
    """
    for block in program.blocks:
        if not {"c_allreduce_sum", "all_reduce"} & {operator.type for operator in block.ops}:
            continue
        for index in reversed(range(len(block.ops))):
            operator = block.ops[index]
            if operator.type == "c_allreduce_sum":
                operator._set_attr("use_calc_stream", True)
            elif operator.type in ("c_sync_calc_stream", "c_sync_comm_stream"):
                block._remove_op(index, sync=False)
        block._sync_with_cpp()


class Collective:
    """Sums small host vectors over all ranks, by the operators that also sum gradients (NCCL or Gloo)."""

    def __init__(self, group: Group, executor):
        self.group = group
        self._executor = executor
        self._programs: dict[Any, tuple] = {}

    def sum(self, values) -> np.ndarray:
        """Sum a 1-D float64 or int64 array over the ranks; all ranks pass the same length."""
        values = np.atleast_1d(np.asarray(values))
        if self.group.world_size == 1:
            return values
        dtype = values.dtype.name
        if dtype not in self._programs:
            self._programs[dtype] = self._build(dtype)
        program, output = self._programs[dtype]
        return np.array(self._executor.run(program, feed={"values": values}, fetch_list=[output])[0])

    def gather(self, values) -> np.ndarray:
        """Values of all ranks on every rank: [world_size, len(values)]."""
        values = np.atleast_1d(np.asarray(values))
        table = np.zeros((self.group.world_size, len(values)), values.dtype)
        table[self.group.rank] = values
        return self.sum(table.reshape(-1)).reshape(table.shape)

    def any(self, flag: bool) -> bool:
        return bool(self.sum(np.array([int(flag)], "int64"))[0])

    def from_main(self, number: int) -> int:
        """Rank 0's number on every rank; also a barrier."""
        return int(self.sum(np.array([number if self.group.is_main else 0], "int64"))[0])

    def count_differences(self, program: static.Program, names: Sequence[str], scope) -> np.ndarray:
        """Number of values that differ from rank 0's, for each persistable variable: int64 [names].

        Broadcast and compared on the device, one variable after the other; NaN equals NaN.
        """
        key = ("differences", id(program))
        if key not in self._programs:
            self._programs[key] = self._build_comparison(program, names)
        comparison, output = self._programs[key]
        return self.sum(np.array(self._executor.run(comparison, fetch_list=[output], scope=scope)[0]))

    def _build_comparison(self, program: static.Program, names: Sequence[str]):
        comparison = static.Program()
        with static.program_guard(comparison, static.Program()):
            block, counts = comparison.global_block(), []
            for name in names:
                known = program.global_block().var(name)
                mine = block.create_var(name=name, shape=known.shape, dtype=known.dtype, persistable=True)
                of_rank_0 = paddle.assign(mine)
                _append_in_place(block, _BROADCAST, of_rank_0)
                # not_equal would take two floats within 1e-8 for equal
                differ = paddle.logical_or(mine > of_rank_0, mine < of_rank_0)
                differ = paddle.logical_or(differ, paddle.logical_xor(paddle.isnan(mine), paddle.isnan(of_rank_0)))
                counts.append(paddle.cast(differ, "int64").sum().reshape([1]))
            output = paddle.concat(counts)
        fit_to_gloo(comparison, self.group)
        return comparison, output

    def _build(self, dtype: str):
        program = static.Program()
        with static.program_guard(program, static.Program()):
            total = paddle.assign(static.data("values", [-1], dtype))
            append_sum(program.global_block(), total)
        fit_to_gloo(program, self.group)
        return program, total

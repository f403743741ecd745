"""Assigns CPU cores and threads to a rank, and finds the peak rate of its device."""

import os
import time
import warnings

from bert.runtime.paddle_api import paddle, set_cpu_threads, static
from bert.runtime.topology import (
    allowed_processors,
    cpu_quota,
    gpu_local_processors,
    num_threads_of,
    share_of_rank,
    usable_cores,
    visible_devices,
)

_num_threads = 1  # of Paddle, which has no function that tells it


def use_cores(cpu_threads: int, is_bound: bool, local_rank: int, local_world_size: int) -> int:
    """Choose the number of Paddle's CPU threads, set it and return it.

    Args:
        cpu_threads: 0: the number of this rank's cores.
        is_bound: whether the process is bound to its share of the cores, near its GPU where these are known.
    """
    cores, near = usable_cores(allowed_processors()), near_gpus(local_rank, local_world_size)
    mine = share_of_rank(cores, local_rank, local_world_size, near)
    if is_bound:
        try:
            os.sched_setaffinity(0, [processor for core in mine for processor in core.processors])
        except OSError as error:  # a sandbox may forbid it; the run is slower then
            warnings.warn(f"enable_cpu_affinity has no effect here: {error}")
    global _num_threads
    _num_threads = cpu_threads or num_threads_of(mine, local_world_size, cpu_quota())
    set_cpu_threads(_num_threads)
    return _num_threads


def near_gpus(local_rank: int, local_world_size: int) -> list[list[int]]:
    """Processors near each local rank's GPU; empty unless local rank i uses visible GPU i."""
    if os.environ.get("FLAGS_selected_gpus", "").split(",")[0] != str(local_rank):
        return []
    return gpu_local_processors(visible_devices())[:local_world_size]


def peak_tflops(executor, device: str, arithmetic: str) -> float:
    """Peak rate of one rank's device in TFLOP/s, by its data sheet or a measured float32 product.

    Args:
        arithmetic: short (half precision), tf32 or float32.
    """
    if device == "gpu":
        from bert.planning.hardware_parts import load_parts, part_of  # which ranks on a CPU do not load

        if name := part_of(paddle.device.cuda.get_device_name()):
            tflops = load_parts()[name].tflops
            return getattr(tflops, arithmetic) or tflops.float32
    return measured_gemm_tflops(executor, num_threads=_num_threads if device == "cpu" else None)


def measured_gemm_tflops(executor, size: int = 1024, seconds: float = 0.4, num_threads: int | None = None) -> float:
    """Best rate of a square float32 matrix product within about `seconds`, in TFLOP/s.

    Args:
        num_threads: of a CPU: one thread is measured by its processor time, which other processes on a busy machine
            do not lengthen, and multiplied. None: by the wall clock.
    """
    program = static.Program()
    with static.program_guard(program, static.Program()):
        product = paddle.ones([size, size], "float32")
        for _ in range(8):
            product = paddle.matmul(product, paddle.full([size, size], 1.0 / size, "float32"))
        checksum = product.sum()
    clock = time.perf_counter if num_threads is None else time.process_time
    if num_threads is not None:
        set_cpu_threads(1)
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        start = clock()
        executor.run(program, fetch_list=[checksum])
        best = min(best, max(clock() - start, 1e-9))
    if num_threads is not None:
        set_cpu_threads(num_threads)
    return 8 * 2 * size**3 / best / 1e12 * (num_threads or 1)

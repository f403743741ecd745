"""The processor under a rank: its cores, its peak, and Paddle's threads."""

import os
import re
import time

import numpy as np

from bert.framework import paddle, set_cpu_threads, static

# Dense peak of the tensor cores in TFLOP/s, from NVIDIA's data sheets: float16 or bfloat16, TF32, float32.
KNOWN_PEAKS = {
    "A100": {"short": 312.0, "tf32": 156.0, "float32": 19.5},
    "H100": {"short": 989.0, "tf32": 494.0, "float32": 67.0},
    "A10": {"short": 125.0, "tf32": 62.5, "float32": 31.2},
    "V100": {"short": 125.0, "tf32": 15.7, "float32": 15.7},
    "T4": {"short": 65.0, "tf32": 8.1, "float32": 8.1},
}


def cores_of_rank(available: list[int], local_rank: int, local_world_size: int) -> list[int]:
    """This rank's share of the cores the host's ranks may use; with fewer cores than ranks, ranks share them."""
    if not 0 <= local_rank < local_world_size:
        raise ValueError(f"local_rank={local_rank} must be below local_world_size={local_world_size}")
    if len(available) < local_world_size:
        return [available[local_rank % len(available)]]
    bounds = np.linspace(0, len(available), local_world_size + 1).astype(int)
    return available[bounds[local_rank] : bounds[local_rank + 1]]


def use_cores(cpu_threads: int, affinity: bool, local_rank: int, local_world_size: int) -> int:
    """Give Paddle its CPU threads (all cores of this rank unless told) and bind if asked; returns the threads."""
    mine = cores_of_rank(sorted(os.sched_getaffinity(0)), local_rank, local_world_size)
    if affinity:
        os.sched_setaffinity(0, mine)
    num_threads = cpu_threads or len(mine)
    set_cpu_threads(num_threads)
    return num_threads


def peak_tflops(executor, device: str, arithmetic: str) -> tuple[float, str]:
    """(TFLOP/s, where the figure is from) of one rank's device; `arithmetic` is short, tf32 or float32.

    Known parts have their data-sheet figure; any other, and CPUs, are measured with a float32 matrix product.
    """
    if device == "gpu":
        name = paddle.device.cuda.get_device_name()
        for part, peaks in sorted(KNOWN_PEAKS.items(), key=lambda item: -len(item[0])):
            if re.search(rf"\b{part}\b", name):
                return peaks[arithmetic], f"data sheet of {part}"
    return measured_gemm_tflops(executor), "measured: float32 matrix product of 1,024 x 1,024"


def measured_gemm_tflops(executor, size: int = 1024, seconds: float = 0.4) -> float:
    """Best rate of a square float32 matrix product over about `seconds`, on the executor's device, in TFLOP/s."""
    program = static.Program()
    with static.program_guard(program, static.Program()):
        product = paddle.ones([size, size], "float32")
        for _ in range(8):
            product = paddle.matmul(product, paddle.full([size, size], 1.0 / size, "float32"))
        checksum = product.sum()
    best, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or best == float("inf"):
        start = time.perf_counter()
        executor.run(program, fetch_list=[checksum])
        best = min(best, time.perf_counter() - start)
    return 8 * 2 * size**3 / best / 1e12

"""The one door to Paddle: every module that needs Paddle takes it from here, and no other file imports it.

Importing `bert` loads zlib before this file loads libpaddle.so, whose exported zlib symbols would otherwise break
decompression in the process. A test walks all sources and refuses `import paddle` anywhere else.
"""

import contextlib
import ctypes
import logging
import os
import warnings
from pathlib import Path

# glog chatter of level INFO and WARNING ("standalone executor is used") hides the lines a user wants to read.
os.environ.setdefault("GLOG_minloglevel", "2")
warnings.filterwarnings("ignore", message=".*Dynamic loss scaling for bfloat16.*")


def _mkl_kernels(cpuinfo: str) -> str | None:
    """The kernels Paddle's MKL (of 2019) shall use on an AMD processor, where it would fall back to its slowest.

    Measured on a Zen 5 core, float32 matrix product of 1,024 x 1,024: 38 GFLOP/s as it comes, 101 with the AVX2 kernels
    ("5"), 164 with the AVX-512 kernels ("7"). On Intel it chooses well by itself.
    """
    if "AuthenticAMD" not in cpuinfo:
        return None
    return "7" if " avx512f" in cpuinfo and " avx512bw" in cpuinfo else "5" if " avx2" in cpuinfo else None


# OpenMP threads otherwise spin for 200 ms after each matrix product and take the core from operators and readers.
os.environ.setdefault("KMP_BLOCKTIME", "1")
if "MKL_DEBUG_CPU_TYPE" not in os.environ and Path("/proc/cpuinfo").exists():
    if _kernels := _mkl_kernels(Path("/proc/cpuinfo").read_text()):
        os.environ["MKL_DEBUG_CPU_TYPE"] = _kernels  # read when MKL is loaded, so before Paddle

# glibc gives each of the executor's threads its own arena and hands little of them back: training held half as much
# memory again (bert-mini, 32 x 128 tokens: 3.0 GB at its peak against 2.0 with one arena), at the same speed.
_M_ARENA_MAX = -8
if "MALLOC_ARENA_MAX" not in os.environ:
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)

import paddle  # noqa: E402
from paddle import nn, static  # noqa: E402
from paddle.base import core, framework, unique_name  # noqa: E402
from paddle.distributed.fleet.meta_optimizers.common import CollectiveHelper  # noqa: E402

paddle.enable_static()
if not paddle.is_compiled_with_cuda():
    # It says of a CPU "on current GPU, float16 is not supported"; what is true there is said once, by the run.
    logging.getLogger("paddle.static.amp.fp16_lists").addFilter(lambda record: "On current" not in record.getMessage())

__all__ = [
    "CollectiveHelper",
    "core",
    "framework",
    "nn",
    "paddle",
    "place_of",
    "read_variable",
    "set_cpu_threads",
    "static",
    "unique_name",
    "write_variable",
]


def place_of(device: str):
    """Paddle place of `cpu` or `gpu`; on `gpu` the card the launcher gave to this process."""
    if device == "gpu":
        return paddle.CUDAPlace(int(os.environ.get("FLAGS_selected_gpus", "0").split(",")[0]))
    return paddle.CPUPlace()


def default_device() -> str:
    """`gpu` when this Paddle has CUDA and a card is visible, else `cpu`."""
    return "gpu" if paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0 else "cpu"


def set_cpu_threads(num_threads: int) -> None:
    """Threads of Paddle's GEMM on CPU, which are 1 unless set (104 against 239 GFLOP/s measured on two cores)."""
    core.set_num_threads(num_threads)


def read_variable(scope, name: str, into=None):
    """A copy of the scope's variable `name` as a numpy array (synchronises with the device).

    `into` is an array of that shape and type to copy to: memory that was used before is several times faster.
    """
    import numpy as np

    variable = scope.find_var(name)
    if variable is None:
        raise KeyError(f"the scope has no variable {name!r}")
    tensor = variable.get_tensor()
    if into is None:
        return np.array(tensor)
    np.copyto(into, np.asarray(tensor), casting="no")
    return into


def write_variable(scope, name: str, value, place) -> None:
    """Overwrite the scope's variable `name`; its shape must be that of `value` once it has been initialised."""
    variable = scope.find_var(name)
    if variable is None:
        raise KeyError(f"the scope has no variable {name!r}")
    variable.get_tensor().set(value, place)

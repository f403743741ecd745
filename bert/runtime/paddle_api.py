"""Import and configure Paddle. All other modules import Paddle from here, which a test checks.

`bert` loads zlib before this file loads libpaddle.so, whose exported zlib symbols would otherwise break decompression
in the process.
"""

import contextlib
import ctypes
import logging
import os
import sys
import traceback
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from bert.interpreter import install_command
from bert.runtime.topology import no_gpu

# glog's lines of level INFO and WARNING ("standalone executor is used") would hide the run's lines.
os.environ.setdefault("GLOG_minloglevel", "2")
warnings.filterwarnings("ignore", message=".*Dynamic loss scaling for bfloat16.*")
warnings.filterwarnings("ignore", message="No ccache found.*")  # Paddle 3 would compile extensions with it
# Paddle 3.0 and 3.1 build programs of the old kind (ProgramDesc), which Fleet's strategies change, only if this is off.
# Other versions do not know the flag, or ignore it. Paddle reads it when it is loaded.
os.environ["FLAGS_enable_pir_api"] = "0"


def _mkl_kernels(cpuinfo: str) -> str | None:
    """MKL's kernel choice for an AMD processor, where Paddle's MKL (2019) would choose the slowest.

    Measured on a Zen 5 core, float32 matrix product of 1,024 x 1,024: 38 GFLOP/s by default, 101 with the AVX2 kernels
    ("5"), 164 with the AVX-512 kernels ("7"). None on Intel, where its own choice is right.
    """
    if "AuthenticAMD" not in cpuinfo:
        return None
    return "7" if " avx512f" in cpuinfo and " avx512bw" in cpuinfo else "5" if " avx2" in cpuinfo else None


# By default OpenMP threads spin for 200 ms after each matrix product and take the core from operators and readers.
os.environ.setdefault("KMP_BLOCKTIME", "1")
if "MKL_DEBUG_CPU_TYPE" not in os.environ and Path("/proc/cpuinfo").exists():
    if _kernels := _mkl_kernels(Path("/proc/cpuinfo").read_text()):
        os.environ["MKL_DEBUG_CPU_TYPE"] = _kernels  # MKL reads it when Paddle loads it

# By default glibc gives each of the executor's threads its own arena and returns little memory of it: a training took
# 3.0 GB at its peak against 2.0 with one arena (bert-mini, 32 x 128 tokens), at the same speed. It also returns every
# large tensor to the system when it is freed, and clears its pages again when the next one is made: keeping them saves
# 7 to 15% of the CPU time of the same training, at the same peak.
_MALLOC_SETTINGS = {
    "MALLOC_ARENA_MAX": (-8, 1),
    "MALLOC_TRIM_THRESHOLD_": (-1, 2**31 - 1),
    "MALLOC_TOP_PAD_": (-2, 64 << 20),
    "MALLOC_MMAP_THRESHOLD_": (-3, 1 << 30),
}
with contextlib.suppress(OSError, AttributeError):  # another C library
    for _name, (_parameter, _value) in _MALLOC_SETTINGS.items():
        if _name not in os.environ:
            ctypes.CDLL(None).mallopt(_parameter, _value)

_handlers = logging.getLogger().handlers[:]

# Paddle's downloads take httpx, whose command line would load rich, click and pygments: a tenth of the CPU time of
# importing Paddle. httpx starts without them, and who imports its command line later gets it.
_is_left_out = "httpx" not in sys.modules
if _is_left_out:
    sys.modules["httpx._main"] = None  # type: ignore[assignment]

import numpy as np  # noqa: E402
import paddle  # noqa: E402

if _is_left_out:
    del sys.modules["httpx._main"]
from paddle import nn, static  # noqa: E402
from paddle.base import core, framework, unique_name  # noqa: E402
from paddle.base.layers import math_op_patch  # noqa: E402
from paddle.distributed.fleet.meta_optimizers.common import CollectiveHelper  # noqa: E402

VERSION = tuple(int(part) for part in paddle.__version__.split(".")[:2] if part.isdecimal())
if not (2, 6) <= VERSION <= (3, 1):
    raise ValueError(
        f"Paddle {paddle.__version__} must be 2.6, 3.0 or 3.1, whose programs Fleet's strategies can change; "
        f"{install_command()}"
    )
IS_PADDLE_3 = VERSION[0] == 3

# Importing Paddle gives the root logger a handler, which would show every message of a run a second time.
logging.getLogger().handlers[:] = _handlers
paddle.enable_static()


def _stack_of_the_warning() -> list[tuple]:
    """A fast replacement of `inspect.stack()` for Paddle's warning: two entries (frame, file, line)."""
    frames = [sys._getframe(1), sys._getframe(2)]
    return [(frame, frame.f_code.co_filename, frame.f_lineno) for frame in frames]


if not IS_PADDLE_3:
    # Paddle writes the Python stack into every operator, for its errors. All of it takes a third of the time to build a
    # program, and most of its size; the innermost calls are Paddle's own and the layer's.
    framework.traceback = SimpleNamespace(extract_stack=partial(traceback.extract_stack, limit=8))
    # For a warning at additions of batches Paddle reads the source of every caller, a fifth of the same time; it shows
    # two parts of one entry.
    math_op_patch.inspect = SimpleNamespace(stack=_stack_of_the_warning)
if not paddle.is_compiled_with_cuda():
    # One thread runs the operators in one order, and at once frees what none reads any more. Paddle's several threads,
    # most of them waiting, took 2 to 4% more CPU time and 2 to 5% more memory (bert-tiny, bert-mini).
    paddle.set_flags({"FLAGS_new_executor_serial_run": True})
    # Paddle warns about float16 "on current GPU" even on a CPU; the run itself warns once.
    logging.getLogger("paddle.static.amp.fp16_lists").addFilter(lambda record: "On current" not in record.getMessage())

__all__ = ["CollectiveHelper", "core", "framework", "nn", "paddle", "static", "unique_name"]


def place_of(device: str):
    """The Paddle place of `cpu` or `gpu`; for `gpu`, the card assigned to this process."""
    return paddle.CUDAPlace(card_number()) if device == "gpu" else paddle.CPUPlace()


def card_number() -> int:
    """Number of the card that the launcher assigned to this process."""
    return int(os.environ.get("FLAGS_selected_gpus", "0").split(",")[0])


def default_device() -> str:
    """The device `gpu` if this Paddle has CUDA and sees a card, otherwise `cpu`."""
    return "gpu" if paddle.is_compiled_with_cuda() and paddle.device.cuda.device_count() > 0 else "cpu"


def chosen_device(setting: str) -> str:
    """The device of these settings: `cpu`, `gpu` or `tensorrt`; ValueError for a GPU that Paddle does not see."""
    if setting in ("gpu", "tensorrt") and default_device() != "gpu":
        raise ValueError(no_gpu(setting))
    return default_device() if setting == "auto" else setting


def truncated_normal(std: float):
    """Initializer N(0, std), truncated at two standard deviations; a seed gives the same bytes in every Paddle."""
    # Paddle 2.6 cuts at -2 and 2 standard deviations; in Paddle 3 these bounds are values of the weights.
    bounds = {"a": -2 * std, "b": 2 * std} if IS_PADDLE_3 else {}
    return nn.initializer.TruncatedNormal(std=std, **bounds)


def set_cpu_threads(num_threads: int) -> None:
    """Set the threads of Paddle's matrix products on CPU; the default is 1 (104 against 239 GFLOP/s on two cores)."""
    core.set_num_threads(num_threads)


def page_locked(array):
    """Copy an array to page-locked memory, from which a GPU copies asynchronously; executors accept it as a feed."""
    tensor = core.LoDTensor()
    tensor.set(array, paddle.CUDAPinnedPlace())
    return tensor


def read_variable(scope, name: str, into=None):
    """Copy the scope's variable `name` to a numpy array, after synchronising with the device.

    Args:
        into: an array of that shape and type to copy to; used memory is several times faster than new.
    """
    tensor = _tensor(scope, name)
    if into is None:
        return np.array(tensor)
    np.copyto(into, np.asarray(tensor), casting="no")
    return into


def write_variable(scope, name: str, value, place) -> None:
    """Overwrite the scope's variable `name`; an initialised variable must have the shape of `value`."""
    _tensor(scope, name).set(value, place)


def _tensor(scope, name: str):
    variable = scope.find_var(name)
    if variable is None:
        raise KeyError(f"the scope has no variable {name!r}")
    return variable.get_tensor()

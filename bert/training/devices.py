"""Opens the device of a rank: chooses it, sets its precision and threads, and joins the other ranks."""

import logging
import os
from dataclasses import dataclass
from typing import Any

from bert.config.training_settings import TrainingConfig
from bert.runtime.cpu_linear import computes_bfloat16
from bert.runtime.distributed import Collective, Group, initialize
from bert.runtime.hardware import peak_tflops, use_cores
from bert.runtime.paddle_api import default_device, paddle, place_of, static

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Device:
    """The executor, scope and communication with which a rank runs its programs."""

    executor: Any
    scope: Any
    place: Any
    group: Group
    collective: Collective
    peak_tflops: float  # of one rank


def choose_device(config: TrainingConfig) -> str:
    """The device of the run: `cpu` or `gpu`."""
    device = default_device() if config.hardware.device == "auto" else config.hardware.device
    if device == "gpu" and default_device() != "gpu":
        raise ValueError(
            "device=gpu needs paddlepaddle-gpu and a visible CUDA card, found none; install "
            "it (bash scripts/setup.sh gpu), check CUDA_VISIBLE_DEVICES, or pass --device cpu"
        )
    if device == "cpu" and config.precision.use_pure_fp16:
        raise ValueError(
            "use_pure_fp16=true on device=cpu: float16 parameters (--use-pure-fp16) need a GPU: Paddle has no CPU "
            "kernels for them; drop --use-pure-fp16"
        )
    if device == "cpu" and config.precision.amp and paddle.is_compiled_with_cuda():
        raise ValueError(
            "amp=true on device=cpu: this Paddle, made for GPUs, has no such operators on a CPU; train on a GPU, "
            "install the CPU's Paddle, which computes in float32 instead, or pass --no-amp to a new run"
        )
    return device


def open_device(config: TrainingConfig, group: Group) -> Device:
    """An executor on this rank's device, and the scope that its programs share."""
    place = place_of(group.device)
    executor = static.Executor(place)
    arithmetic = "short" if config.precision.amp else "tf32" if config.precision.tf32 else "float32"
    peak = config.hardware.peak_tflops or peak_tflops(executor, group.device, arithmetic)[0]
    return Device(executor, static.global_scope(), place, group, Collective(group, executor), peak)


def join_ranks(config: TrainingConfig, group: Group) -> int:
    """Bind this process to its cores and meet the other ranks; returns the threads of a rank."""
    # float32 means float32 unless TF32 is asked for: cuBLAS would otherwise use it on Ampere. Before CUDA starts.
    os.environ["NVIDIA_TF32_OVERRIDE"] = "1" if config.precision.tf32 else "0"
    hardware = config.hardware
    threads = use_cores(hardware.cpu_threads, hardware.enable_cpu_affinity, group.local_rank, group.local_world_size)
    initialize(group)
    precision = config.precision
    if precision.amp and group.device == "cpu":
        logger.info(mixed_precision_notice(precision.amp_dtype, computes_bfloat16()))
    if precision.amp_dtype == "bfloat16" and not precision.amp:
        logger.warning("amp_dtype=bfloat16 has no effect without mixed precision: arithmetic is float32; pass --amp")
    return threads


def mixed_precision_notice(amp_dtype: str, has_bfloat16: bool) -> str:
    """What --amp does on a CPU whose wheel and processor compute in bfloat16, or do not."""
    if amp_dtype == "bfloat16" and has_bfloat16:
        return "mixed precision on CPU: the linear layers' products in bfloat16, all else in float32"
    if amp_dtype == "bfloat16":
        return (
            "mixed precision on CPU: arithmetic stays float32: this processor (or this build of Paddle) has no fast "
            "bfloat16; it needs AVX512-BF16 or AMX"
        )
    remedy = "; --amp-dtype bfloat16 is faster here" if has_bfloat16 else ""
    return (
        "mixed precision on CPU: Paddle has no float16 kernels there: arithmetic stays float32; loss scaling and its "
        f"checks run as on a GPU{remedy}"
    )

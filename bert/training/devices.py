"""Opens the device of a rank: chooses it, sets its precision and threads, and joins the other ranks."""

import logging
import os
from dataclasses import dataclass
from typing import Any

from bert.config.automatic import CPU, DeviceFeatures, DeviceKind, resolve_auto
from bert.config.training_settings import TrainingConfig
from bert.runtime.cpu_linear import computes_bfloat16
from bert.runtime.distributed import Collective, Group, initialize
from bert.runtime.hardware import near_gpus, peak_tflops, use_cores
from bert.runtime.paddle_api import chosen_device, core, paddle, place_of, static

logger = logging.getLogger(__name__)

TF32_VARIABLE = "NVIDIA_TF32_OVERRIDE"  # cuBLAS and cuDNN read it when CUDA starts


@dataclass(frozen=True)
class Device:
    """Executor, scope and communication with which a rank runs programs."""

    executor: Any
    scope: Any
    place: Any
    group: Group
    collective: Collective
    peak_tflops: float  # peak rate of one rank


def choose_device(config: TrainingConfig) -> str:
    """The device `cpu` or `gpu`; ValueError for a GPU that Paddle does not see, or unsupported settings."""
    device = chosen_device(config.hardware.device)
    if device == "cpu" and config.precision.amp and paddle.is_compiled_with_cuda():
        raise ValueError(
            "amp=true on device=cpu: this Paddle, made for GPUs, has no such operators on a CPU; train on a GPU, "
            "install the CPU's Paddle, which computes in float32 instead, or pass --no-amp to a new run"
        )
    return device


def device_features(group: Group) -> DeviceFeatures:
    """Features of this rank's device. Call it after `join_ranks`, because reading them starts CUDA."""
    if group.device == "cpu":
        return CPU
    return DeviceFeatures(
        "gpu",
        compute_capability=tuple(paddle.device.cuda.get_device_capability()),
        operators=frozenset(core.get_all_op_names()),
        allows_tf32=os.environ.get(TF32_VARIABLE) != "0",
        has_near_cores=bool(near_gpus(group.local_rank, group.local_world_size)),
    )


def open_device(config: TrainingConfig, group: Group) -> Device:
    place = place_of(group.device)
    executor = static.Executor(place)
    uses_tf32 = resolve_auto(config, device_features(group)).precision.tf32 == "on"
    arithmetic = "short" if config.precision.amp else "tf32" if uses_tf32 else "float32"
    peak = config.hardware.peak_tflops or peak_tflops(executor, group.device, arithmetic)
    return Device(executor, static.global_scope(), place, group, Collective(group, executor), peak)


def join_ranks(config: TrainingConfig, group: Group) -> int:
    """Bind this process to its cores and join the group of ranks; returns the number of threads."""
    precision, hardware = config.precision, config.hardware
    if precision.tf32 == "auto":  # a user's own variable stays
        os.environ.setdefault(TF32_VARIABLE, "1")
    else:
        os.environ[TF32_VARIABLE] = "1" if precision.tf32 == "on" else "0"
    place = (group.local_rank, group.local_world_size)
    kind: DeviceKind = "gpu" if group.device == "gpu" else "cpu"
    known = DeviceFeatures(kind, has_near_cores=bool(near_gpus(*place)))  # CUDA, which tells the rest, starts later
    is_bound = resolve_auto(config, known).hardware.enable_cpu_affinity == "on"
    threads = use_cores(hardware.cpu_threads, is_bound, *place)
    initialize(group)
    device = device_features(group)
    uses_tf32 = resolve_auto(config, device).precision.tf32 == "on"
    if notice := tf32_notice(precision.tf32, uses_tf32, device):
        logger.info(notice)
    if precision.amp and group.device == "cpu":
        logger.info(mixed_precision_notice(precision.amp_dtype, computes_bfloat16()))
    if precision.amp_dtype == "bfloat16" and not precision.amp:
        logger.warning("amp_dtype=bfloat16 has no effect without mixed precision: arithmetic is float32; pass --amp")
    return threads


def tf32_notice(setting: str, uses_tf32: bool, device: DeviceFeatures) -> str:
    """A notice if float32 products use TF32, or not the requested setting; otherwise empty.

    Args:
        setting: auto | on | off.
        uses_tf32: what the setting is resolved to on this device.
    """
    major, minor = device.compute_capability
    name = "a CPU" if device.kind == "cpu" else f"this card of compute capability {major}.{minor}"
    if uses_tf32:
        return f"float32 matrix products are computed in TF32 on {name}; --no-tf32 computes them in float32"
    return f"tf32=on has no effect on {name}: Ampere (8.0) and newer have TF32" if setting == "on" else ""


def mixed_precision_notice(amp_dtype: str, has_bfloat16: bool) -> str:
    """A notice on whether --amp computes in bfloat16 on this CPU and wheel."""
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

"""Resolves every setting that is `auto` for the device on which a run takes place.

The ranks pass the device that they have. The planner and the dry run pass the device that is named or assumed.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from bert.config.training_settings import AnyConfig, TrainingConfig

DeviceKind = Literal["cpu", "gpu"]
AMPERE = (8, 0)  # compute capability of the first GPUs with TF32, and for which FlashAttention is compiled
OPERATORS = {"linear": "fused_gemm_epilogue", "dropout_add": "fused_dropout_add", "attention": "flash_attn"}
ATTENTION_OF_PACKED_TOKENS = "flash_attn_unpadded"


@dataclass(frozen=True)
class DeviceFeatures:
    """Properties of one rank's device that decide the automatic settings.

    Attributes:
        kind: cpu | gpu.
        compute_capability: of a GPU, as NVIDIA numbers them: (8, 0) is an A100. A CPU has (0, 0).
        operators: names of the operators of the rank's Paddle; None: all that the settings may need.
        allows_tf32: False if the variable NVIDIA_TF32_OVERRIDE forbids TF32.
        has_near_cores: whether it is known which processor cores are near the rank's GPU.
    """

    kind: DeviceKind
    compute_capability: tuple[int, int] = (0, 0)
    operators: Collection[str] | None = None
    allows_tf32: bool = True
    has_near_cores: bool = True

    def has_tf32(self) -> bool:
        return self.kind == "gpu" and self.compute_capability >= AMPERE


CPU = DeviceFeatures("cpu")


def lacking_kernels(config: TrainingConfig, device: DeviceFeatures) -> dict[str, str]:
    """The requested fused kernels that this device cannot use, each with the reason.

    Returns:
        {name of `FusedKernels`: reason}; the reason of a kernel that can be used is empty. `on` wants a kernel; `auto`
        wants FlashAttention if the run computes in mixed precision, and no other kernel.
    """
    settings = config.hardware.fusions()
    wanted = {name for name, value in settings.items() if value == "on"}
    if settings["attention"] == "auto" and config.precision.amp:
        wanted.add("attention")
    packs_tokens = _unpads(config, device)
    reasons = {name: lacking_kernel(name, device, packs_tokens) for name in sorted(wanted)}
    if "attention" in wanted and packs_tokens and config.model.has_window() and not reasons["attention"]:
        reasons["attention"] = "FlashAttention of packed tokens has no local attention; --unpad off has it"
    return reasons


def lacking_kernel(name: str, device: DeviceFeatures, packs_tokens: bool = False) -> str:
    """Why a device cannot use a fused kernel; empty if it can.

    Args:
        name: linear | dropout_add | attention.
        packs_tokens: whether attention reads packed tokens, without padding.
    """
    if device.kind == "cpu":
        return "there is no GPU"
    operator = ATTENTION_OF_PACKED_TOKENS if packs_tokens and name == "attention" else OPERATORS[name]
    if device.operators is not None and operator not in device.operators:
        return f"this Paddle has no {operator}"
    if name == "attention" and device.compute_capability < AMPERE:
        major, minor = device.compute_capability
        return f"{operator} needs compute capability {AMPERE[0]}.{AMPERE[1]}, this card has {major}.{minor}"
    return ""


def resolve_auto(config: AnyConfig, device: DeviceFeatures, lacking: Mapping[str, str] | None = None) -> AnyConfig:
    """The settings with `on` or `off` in place of every `auto`, for this device.

    The setting `device` becomes the kind of the device. A fused kernel that the device lacks is off, also if it was set
    to on: the run then uses plain operators. TF32 is on if float32 matrix products are computed in TF32. Resolved
    settings stay as they are if they are resolved again for the same device.

    Args:
        lacking: of a run on several ranks, what any of them lacks; None: what this device lacks.
    """
    if lacking is None:
        lacking = lacking_kernels(config, device)
    hardware = config.hardware
    is_bound = hardware.enable_cpu_affinity == "on"
    if hardware.enable_cpu_affinity == "auto":  # ranks on a CPU, and runs that share it, would crowd on the same cores
        is_bound = device.kind == "gpu" and device.has_near_cores
    uses_tf32 = device.has_tf32() and config.precision.tf32 != "off"
    if config.precision.tf32 == "auto" and not device.allows_tf32:
        uses_tf32 = False
    changes = {f"fuse_{name}": _switch(lacking.get(name) == "") for name in OPERATORS}
    changes |= {"unpad": _switch(_unpads(config, device)), "enable_cpu_affinity": _switch(is_bound)}
    return config.model_copy(
        update={
            "hardware": hardware.model_copy(update={"device": device.kind, **changes}),
            "precision": config.precision.model_copy(update={"tf32": _switch(uses_tf32)}),
        }
    )


def _unpads(config: TrainingConfig, device: DeviceFeatures) -> bool:
    """Whether programs read packed tokens; `auto` turns it on only on a CPU."""
    return config.hardware.unpad == "on" or (config.hardware.unpad == "auto" and device.kind == "cpu")


def _switch(value: bool) -> str:
    return "on" if value else "off"

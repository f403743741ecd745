"""The device of a dry run: this machine's, or an assumed one if the run is for another machine.

The planner (`--plan --hardware`) is told its device. Both then resolve the automatic settings by the same function.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from bert.config.automatic import CPU, DeviceFeatures, resolve_auto
from bert.config.training_settings import TrainingConfig
from bert.planning.hardware import Hardware
from bert.planning.hardware_parts import HardwarePart, load_parts, part_of

Config = TypeVar("Config", bound=TrainingConfig)
Gpu = tuple[str, tuple[int, int]]  # its name as the driver has it, and its compute capability
ASSUMED_GPU = "A100-80GB"  # for which the micro-batches of the published recipes were chosen
CPU_PART = "CPU-core"
_GPUS_OF_A_NODE = 8


@dataclass(frozen=True)
class RunDevice:
    """Device of each rank of a planned run.

    Attributes:
        part: the device in the planner's table; None if the table lacks it.
        origin: how the device is known, for a reader, in brackets.
    """

    name: str
    features: DeviceFeatures
    part: HardwarePart | None
    origin: str
    is_assumed: bool = False

    def resolve(self, config: Config) -> Config:
        """The settings with every `auto` resolved for this device."""
        return resolve_auto(config, self.features)

    def hardware(self, world_size: int) -> Hardware | None:
        """The run's hardware for the planner: nodes of eight devices, or a single device; None if unknown."""
        if self.part is None:
            return None
        nodes, rest = divmod(world_size, _GPUS_OF_A_NODE)
        if self.features.kind == "cpu" or nodes == 0 or rest:
            return Hardware(self.name, self.part, 1, world_size)
        return Hardware(self.name, self.part, nodes, _GPUS_OF_A_NODE)

    def describe(self, world_size: int) -> str:
        """Text of the row `hardware` in a dry run."""
        if self.features.kind == "cpu":
            return f"{world_size} {'ranks' if world_size > 1 else 'rank'} on a CPU {self.origin}"
        return f"{world_size} x {self.name} {self.origin}"


def run_device(config: TrainingConfig, world_size: int, gpus: Sequence[Gpu]) -> RunDevice:
    """The device on which a run with these settings takes place.

    A run that this machine can start takes the device that it takes here. A run for GPUs that this machine lacks takes
    ASSUMED_GPU: with --device gpu, with several ranks, or with a precision that only GPUs have.

    Args:
        gpus: the visible GPUs of this machine.
    """
    parts, setting = load_parts(), config.hardware.device
    if setting == "cpu":
        return RunDevice(CPU_PART, CPU, parts[CPU_PART], "(device=cpu)")
    # More ranks than GPUs are nodes like this machine; nodes with a single GPU are rare.
    if gpus and (world_size <= len(gpus) or (len(gpus) > 1 and world_size % len(gpus) == 0)):
        card, capability = gpus[0]
        name = part_of(card)
        features = DeviceFeatures("gpu", capability)
        return RunDevice(name or card, features, parts[name] if name else None, "(this machine's)")
    is_for_gpus = config.precision.amp or config.precision.tf32 == "on"
    if setting == "gpu" or world_size > 1 or is_for_gpus or gpus:
        part, count = parts[ASSUMED_GPU], len(gpus)
        here = "no GPU" if count == 0 else "only 1 GPU" if count == 1 else f"only {count} GPUs"
        origin = f"(assumed: this machine has {here}; --plan --hardware PART and --device cpu plan for others)"
        return RunDevice(ASSUMED_GPU, part.features(), part, origin, is_assumed=True)
    return RunDevice(CPU_PART, CPU, parts[CPU_PART], "(this machine has no GPU)")

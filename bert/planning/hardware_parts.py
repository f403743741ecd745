"""Reads the planner's editable table of devices, hardware_parts.yaml."""

import re
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from bert.config.automatic import AMPERE, CPU, DeviceFeatures
from bert.config.optimizer_settings import PrecisionSettings
from bert.config.settings_base import Settings

PARTS_FILE = Path(__file__).with_name("hardware_parts.yaml")


class Peaks(Settings):
    """Peak rate of dense matrix products by dtype, in TFLOP/s; without an entry a dtype runs as float32."""

    short: float | None = Field(None, gt=0)
    tf32: float | None = Field(None, gt=0)
    float32: float = Field(gt=0)


class Efficiency(Settings):
    """Fraction of the data sheet's rates that programs reach, for each kind of work."""

    gemm: float = Field(gt=0, le=1)
    gemm_float32: float | None = Field(None, gt=0, le=1)
    attention: float | None = Field(None, gt=0, le=1)
    bandwidth: float = Field(gt=0, le=1)
    link: float = Field(gt=0, le=1)
    network: float = Field(gt=0, le=1)


class HardwarePart(Settings):
    """One device, a GPU or a CPU core. Units as in hardware_parts.yaml."""

    device: Literal["cpu", "gpu"] = "gpu"
    tflops: Peaks
    memory_gb: float = Field(gt=0)
    reserved_gb: float = Field(ge=0)
    bandwidth: float = Field(gt=0)
    link: float = Field(gt=0)
    network: float = Field(gt=0)
    bfloat16: bool
    efficiency: Efficiency
    update_overhead_ms: float = Field(ge=0)
    node_exponent: float = Field(0.0, ge=0, lt=1)
    speed_range: tuple[float, float] = (0.75, 1.1)  # lower and upper limit, as fractions of the planned speed
    sources: str = "the table of parts"
    checked: str

    def arithmetic(self, precision: PrecisionSettings) -> tuple[float, int]:
        """(peak of matrix products in TFLOP/s, bytes of an activation) with these settings."""
        if precision.amp and self.tflops.short is not None:
            if precision.amp_dtype == "bfloat16" and not self.bfloat16:
                raise ValueError(
                    "amp_dtype=bfloat16 must be float16 on this part, which has no bfloat16; pass "
                    "--amp-dtype float16, or choose other --hardware"
                )
            return self.tflops.short, 2
        return (self.tflops.tf32 if precision.tf32 != "off" and self.tflops.tf32 else self.tflops.float32), 4

    def usable_bytes(self) -> float:
        return (self.memory_gb - self.reserved_gb) * 1e9

    def features(self) -> DeviceFeatures:
        """Features that decide automatic settings. GPUs with bfloat16 count as Ampere, others as V100."""
        if self.device == "cpu":
            return CPU
        return DeviceFeatures("gpu", AMPERE if self.bfloat16 else (7, 0))


def part_of(device_name: str) -> str | None:
    """Name in the table of the device that a driver names; None if it is not in the table.

    `NVIDIA A100-SXM4-80GB` is A100-80GB. If the driver does not name the memory, the first part of that model is taken.
    """
    words = re.findall(r"\w+", device_name)
    of_model = []
    for name in load_parts():
        model = [word for word in name.split("-") if not re.fullmatch(r"\d+GB", word)]
        if all(word in words for word in model):
            of_model.append(name)
    complete = (name for name in of_model if all(word in words for word in name.split("-")))
    return next(complete, next(iter(of_model), None))


def load_parts(path: Path = PARTS_FILE) -> dict[str, HardwarePart]:
    """Read the table of devices."""
    import yaml  # not for --help

    try:
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
        defaults, parts = dict(table["defaults"]), dict(table["parts"])
        return {name: _part(name, {**defaults, **values}, defaults) for name, values in parts.items()}
    except (OSError, yaml.YAMLError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"parts={path} must be a YAML table with `defaults` and `parts`, like {PARTS_FILE}; reading "
            f"it failed: {' '.join(str(error).split())}"
        ) from None


def _part(name: str, values: dict[str, Any], defaults: dict[str, Any]) -> HardwarePart:
    values["efficiency"] = {**defaults["efficiency"], **values["efficiency"]}
    try:
        return HardwarePart.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(
            f"{name}: {'.'.join(map(str, first['loc']))}={first['input']!r} in the table of parts: "
            f"{first['msg'].lower()}; correct it"
        ) from None

"""Hardware by name (`4x8xA100-80GB`) from the editable table hardware_parts.yaml."""

import dataclasses
import difflib
import re
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from bert.config.settings_base import Settings
from bert.config.training_settings import PrecisionSettings
from bert.planning.operators import Unit

PARTS_FILE = Path(__file__).with_name("hardware_parts.yaml")


class Peaks(Settings):
    """Dense peak of matrix products by dtype, TFLOP/s; a missing dtype runs as float32. short: half precision."""

    short: float | None = Field(None, gt=0)
    tf32: float | None = Field(None, gt=0)
    float32: float = Field(gt=0)


class Efficiency(Settings):
    """The share of the data sheet's figure that programs reach: matrix products in half precision (gemm), in float32
    and TF32 (gemm_float32), fused attention, memory, links. Where a table lacks the second and third, gemm stands.
    """

    gemm: float = Field(gt=0, le=1)
    gemm_float32: float | None = Field(None, gt=0, le=1)
    attention: float | None = Field(None, gt=0, le=1)
    bandwidth: float = Field(gt=0, le=1)
    link: float = Field(gt=0, le=1)
    network: float = Field(gt=0, le=1)


class Part(Settings):
    """One device: a GPU, or a CPU core. Units as in hardware_parts.yaml."""

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
    checked: str

    def arithmetic(self, precision: PrecisionSettings) -> tuple[float, int]:
        """(peak of matrix products in TFLOP/s, bytes of an activation) under these settings."""
        if precision.amp and self.tflops.short is not None:
            if precision.amp_dtype == "bfloat16" and not self.bfloat16:
                raise ValueError(
                    "amp_dtype=bfloat16 must be float16 on this part, which has no bfloat16; pass "
                    "--amp-dtype float16, or choose other --hardware"
                )
            return self.tflops.short, 2
        return (self.tflops.tf32 if precision.tf32 and self.tflops.tf32 else self.tflops.float32), 4

    def flops_rates(self, precision: PrecisionSettings) -> dict[Unit, float]:
        """FLOP/s that operators reach under these settings; those bound by memory have none."""
        peak, width = self.arithmetic(precision)
        share = self.efficiency
        gemm = share.gemm if width == 2 else share.gemm_float32 or share.gemm
        return {"product": peak * 1e12 * gemm, "fused attention": peak * 1e12 * (share.attention or share.gemm)}

    def usable_bytes(self) -> float:
        return (self.memory_gb - self.reserved_gb) * 1e9


@dataclasses.dataclass(frozen=True)
class Hardware:
    """`num_nodes` machines of `devices_per_node` equal parts."""

    name: str  # of the part
    part: Part
    num_nodes: int
    devices_per_node: int

    def world_size(self) -> int:
        return self.num_nodes * self.devices_per_node

    def lengthened(self) -> float:
        """How many times as long an update takes on these nodes as its work and its all-reduce: stragglers."""
        return self.num_nodes**self.part.node_exponent

    def all_reduce_seconds(self, num_bytes: float) -> float:
        """A ring over all devices: each link, and each node's network, carries 2 (n - 1) / n of the bytes."""
        efficiency, world_size = self.part.efficiency, self.world_size()
        if world_size == 1:
            return 0.0
        moved = 2 * (world_size - 1) / world_size * num_bytes
        slowest = self.part.link * efficiency.link if self.devices_per_node > 1 else float("inf")
        if self.num_nodes > 1:
            slowest = min(slowest, self.part.network * efficiency.network)
        return moved / (slowest * 1e9)


def load_parts(path: Path = PARTS_FILE) -> dict[str, Part]:
    """The table of parts."""
    try:
        table = yaml.safe_load(path.read_text(encoding="utf-8"))
        defaults, parts = dict(table["defaults"]), dict(table["parts"])
        return {name: _part(name, {**defaults, **values}, defaults) for name, values in parts.items()}
    except (OSError, yaml.YAMLError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(
            f"parts={path} must be a YAML table with `defaults` and `parts`, like {PARTS_FILE}; reading "
            f"it failed: {' '.join(str(error).split())}"
        ) from None


def _part(name: str, values: dict[str, Any], defaults: dict[str, Any]) -> Part:
    values["efficiency"] = {**defaults["efficiency"], **values["efficiency"]}
    try:
        return Part.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(
            f"{name}: {'.'.join(map(str, first['loc']))}={first['input']!r} in the table of parts: "
            f"{first['msg'].lower()}; correct it"
        ) from None


def parse_hardware(text: str, parts: dict[str, Part] | None = None) -> Hardware:
    """`PART`, `GPUSxPART` or `NODESxGPUSxPART` -> hardware."""
    parts = load_parts() if parts is None else parts
    found = re.fullmatch(r"(?:(?:(\d+)x)?(\d+)x)?([A-Za-z].*)", text.strip())
    nodes, devices = (int(number or 1) for number in found.group(1, 2)) if found else (0, 0)
    if found is None or nodes < 1 or devices < 1:
        raise ValueError(
            f"hardware={text} must be PART, GPUSxPART or NODESxGPUSxPART, such as 8xA100-80GB or "
            "4x8xA100-80GB; change --hardware"
        )
    names = {name.lower(): name for name in parts}
    name = names.get(found.group(3).lower())
    if name is None:
        wanted = found.group(3).lower()
        close = [key for key in names if key.startswith(wanted)] or difflib.get_close_matches(wanted, names, n=1)
        hint = f"did you mean {' or '.join(names[key] for key in close)}?" if close else f"they are {', '.join(parts)}"
        raise ValueError(f"hardware={text} must name a part of the table {PARTS_FILE.name}; {hint}")
    return Hardware(name, parts[name], nodes, devices)

"""The machine of the self-test: its GPUs, their features, and what results say about it."""

import dataclasses
import importlib.metadata
import platform
import re
import subprocess
import time

from bert import REPOSITORY
from bert.doctor.facts import Gpu, gpus
from bert.launching.ranks import num_gpus
from bert.planning.hardware import Hardware
from bert.planning.hardware_parts import HardwarePart, load_parts
from bert.runtime.topology import visible_devices

PACKAGES = ("paddlepaddle-gpu", "paddlepaddle", "numpy", "safetensors", "pyarrow")
HALF_PRECISION = (8, 0)  # compute capability of bfloat16 and FlashAttention
NO_GPU = (
    "the self-test needs a GPU, and nvidia-smi lists none; check the driver (.venv/bin/python -m bert.doctor) and "
    "CUDA_VISIBLE_DEVICES, or pass --device cpu for what can be tried without"
)


@dataclasses.dataclass(frozen=True)
class Machine:
    """`num_ranks` are the most that a check starts: one on each GPU, two on a CPU; 0 where no GPU was found."""

    device: str  # cpu | gpu
    num_ranks: int
    gpus: tuple[Gpu, ...] = ()

    def capability(self) -> tuple[int, int]:
        """Return the lowest capability of the cards; (0, 0) without cards."""
        pairs = [gpu.compute_capability.split(".") for gpu in self.gpus]
        return min(((int(major), int(minor)) for major, minor in pairs), default=(0, 0))

    def lacks_bfloat16(self) -> str:
        if self.device == "gpu" and self.capability() < HALF_PRECISION:
            return f"bfloat16 needs compute capability 8.0, this card has {'.'.join(map(str, self.capability()))}"
        return ""

    def has_flash_attention(self) -> bool:
        return self.capability() >= HALF_PRECISION

    def hardware(self, num_ranks: int) -> Hardware | None:
        """Return this machine as the planner knows it; None if the table of parts lacks the card."""
        parts = load_parts()
        name = part_name(self.gpus[0], parts) if self.gpus else "CPU-core"
        return Hardware(name, parts[name], 1, num_ranks) if name else None


def part_name(gpu: Gpu, parts: dict[str, HardwarePart]) -> str | None:
    """Return the part whose words are all in the card's name; of several, the part with the closest memory."""
    fitting = []
    for name, part in parts.items():
        words = [word for word in name.split("-") if not re.fullmatch(r"\d+GB", word)]
        if all(re.search(rf"\b{re.escape(word)}\b", gpu.name) for word in words):
            fitting.append((abs(part.memory_gb - gpu.memory_mib / 1024), name))
    return min(fitting)[1] if fitting else None


def find_machine(device: str, wanted: int | None) -> Machine:
    """Return the machine for --device and --gpus.

    Args:
        device: auto | cpu | gpu; auto needs a GPU, as gpu does.
        wanted: GPUs to use; None: all that are visible.
    Raises:
        ValueError: there are fewer than wanted, or none are used.
    """
    if device == "cpu":
        if wanted is not None:
            raise ValueError(f"gpus={wanted} is for GPUs; drop --gpus, or --device cpu")
        return Machine("cpu", 2)
    count = num_gpus()
    if count == 0:
        return Machine("gpu", 0)
    if wanted is not None and not 1 <= wanted <= count:
        raise ValueError(f"gpus={wanted} must be from 1 to the {count} visible GPUs; change --gpus")
    ranks, cards, visible = wanted or count, gpus(), visible_devices() or []
    if visible and all(entry.isdecimal() for entry in visible[:ranks]):
        cards = tuple(cards[int(entry)] for entry in visible[:ranks])
    return Machine("gpu", ranks, cards[:ranks])


def describe(machine: Machine) -> dict:
    """Return versions and hardware, for the first line of the results."""
    return {
        "date": time.strftime("%Y-%m-%d %H:%M %Z"),
        "commit": _output("git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        **dataclasses.asdict(machine),
        "links between GPUs": _output("nvidia-smi", "topo", "-m") if machine.gpus else "",
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()

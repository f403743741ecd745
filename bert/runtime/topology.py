"""Assigns CPU cores to ranks (physical cores, one memory node, near the rank's GPU), and reads container limits.

Everything is read below `root`, which is "/" except in tests. If a machine does not describe its topology (containers,
other architectures), every processor counts as one core on a single node.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

ROOT = Path("/")
_GPU_SECONDS = 60.0  # for nvidia-smi, which takes seconds where its daemon does not run


@dataclass(frozen=True)
class Core:
    """A physical core, and its usable logical processors (hyper-threads)."""

    processors: tuple[int, ...]
    node: int  # number of the memory (NUMA) node


def usable_cores(allowed: Sequence[int], root: Path = ROOT) -> list[Core]:
    """Physical cores of the `allowed` logical processors, ordered by memory node."""
    nodes = _nodes(root)
    cores: dict[tuple[int, ...], list[int]] = {}
    for processor in sorted(allowed):
        siblings = _read(root / f"sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
        cores.setdefault(tuple(parse_list(siblings)) or (processor,), []).append(processor)
    return sorted(
        (Core(tuple(processors), nodes.get(processors[0], 0)) for processors in cores.values()),
        key=lambda core: (core.node, core.processors),
    )


def share_of_rank(
    cores: Sequence[Core], local_rank: int, local_world_size: int, near: Sequence[Sequence[int]] = ()
) -> list[Core]:
    """Cores of one of this host's `local_world_size` ranks; ranks share cores if there are too few.

    Args:
        near: for each local rank the processors near its GPU; empty: no preference. Ranks with the same processors
            divide them equally. If the sets overlap or too few of them are allowed, the ranks divide all cores.
    """
    if not 0 <= local_rank < local_world_size:
        raise ValueError(f"local_rank={local_rank} must be below local_world_size={local_world_size}")
    if len(near) == local_world_size:
        places = [frozenset(place) for place in near]
        disjoint = all(a == b or not a & b for a in places for b in places)
        mine = [core for core in cores if places[local_rank].issuperset(core.processors)]
        rivals = [rank for rank, place in enumerate(places) if place == places[local_rank]]
        if disjoint and len(mine) >= len(rivals):
            cores, local_rank, local_world_size = mine, rivals.index(local_rank), len(rivals)
    if len(cores) < local_world_size:
        return [cores[local_rank % len(cores)]]
    first, after = (len(cores) * rank // local_world_size for rank in (local_rank, local_rank + 1))
    return list(cores[first:after])


def num_threads_of(cores: Sequence[Core], local_world_size: int, quota: float | None) -> int:
    """Number of threads for matrix products: one per core, at most the rank's share of the CPU quota."""
    if quota is None:
        return len(cores)
    return max(1, min(len(cores), int(quota / local_world_size + 0.5)))


def cpu_quota(root: Path = ROOT) -> float | None:
    """Number of processors that this container's or job's control group may use; None without a limit.

    Read from `cpu.max` (cgroups version 2) or `cpu.cfs_quota_us` (1); the lowest limit of this group and its parents.
    """
    quotas = []
    for folder in _cgroup_folders(root):
        amount, _, period = _read(folder / "cpu.max").partition(" ")
        if not period:
            amount, period = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
        if amount.isdecimal() and period.isdecimal() and int(amount) > 0 and int(period) > 0:
            quotas.append(int(amount) / int(period))
    return min(quotas, default=None)


def memory_limit(root: Path = ROOT) -> int | None:
    """Bytes of memory that the control group may use; None without a limit."""
    limits = [
        _read(folder / name) for folder in _cgroup_folders(root) for name in ("memory.max", "memory.limit_in_bytes")
    ]
    return min((int(limit) for limit in limits if limit.isdecimal() and int(limit) < 2**60), default=None)


def visible_devices() -> list[str] | None:
    """Entries of CUDA_VISIBLE_DEVICES, numbers or UUIDs; None without a limit."""
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if text is None or text == "all" else [entry.strip() for entry in text.split(",") if entry.strip()]


@lru_cache(maxsize=None)
def nvidia_smi(*arguments: str) -> list[str]:
    """Output lines of nvidia-smi, cached; empty without a driver, or if it fails or hangs."""
    command = ["nvidia-smi", *arguments]
    try:  # a broken driver may not answer at all
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GPU_SECONDS, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def no_gpu(device: str) -> str:
    """The error for a --device that needs a GPU on a machine without one."""
    return (
        f"device={device} needs paddlepaddle-gpu and a visible CUDA card, found none; install it (bash "
        "scripts/setup.sh gpu), check CUDA_VISIBLE_DEVICES, or pass --device cpu"
    )


def processor_facts() -> dict[str, str]:
    """Fields of the first processor in /proc/cpuinfo: "model name", "vendor_id", "flags" ..."""
    pairs = (line.partition(":") for line in _read(ROOT / "proc/cpuinfo").split("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, colon, value in pairs if colon}


def device_name(device: str) -> str | None:
    """Model name of this machine's GPU or processor; None if unknown."""
    listed = nvidia_smi("--query-gpu=name", "--format=csv,noheader") if device == "gpu" else []
    return next(iter(listed), None) if device == "gpu" else processor_facts().get("model name")


def visible_gpus() -> list[tuple[str, tuple[int, int]]]:
    """(name, compute capability) of each GPU that the driver lists and CUDA_VISIBLE_DEVICES allows."""
    listed = nvidia_smi("--query-gpu=index,uuid,compute_cap,name", "--format=csv,noheader")
    rows = [[cell.strip() for cell in line.split(",", 3)] for line in listed]
    rows = [row for row in rows if len(row) == 4 and re.fullmatch(r"\d+\.\d+", row[2])]
    visible = visible_devices()
    if visible is not None:
        rows = [row for entry in visible for row in rows if row[0] == entry or _is_uuid(entry, row[1])]
    gpus = []
    for _, _, capability, name in rows:
        major, minor = map(int, capability.split("."))
        gpus.append((name, (major, minor)))
    return gpus


def gpu_local_processors(visible: Sequence[str] | None = None, root: Path = ROOT) -> list[list[int]]:
    """Processors near each GPU, in the driver's order; empty if there are no GPUs or it is unknown.

    Args:
        visible: only these GPUs in this order, by number or UUID (or the beginning of one).
    """
    listed = nvidia_smi("--query-gpu=index,uuid,pci.bus_id", "--format=csv,noheader")
    rows = [line.replace(" ", "").split(",") for line in listed if line.strip()]
    if any(len(row) != 3 for row in rows):
        return []
    if visible is not None:
        chosen = [[row for row in rows if row[0] == entry or _is_uuid(entry, row[1])] for entry in visible]
        rows = [matches[0] for matches in chosen if len(matches) == 1]
        if len(rows) < len(visible):
            return []
    processors = []
    for _, _, bus_id in rows:
        domain, rest = bus_id.lower().split(":", 1)  # the driver's 00000000:07:00.0 is Linux's 0000:07:00.0
        processors.append(parse_list(_read(root / f"sys/bus/pci/devices/{domain[-4:]}:{rest}/local_cpulist")))
    return processors if all(processors) else []


def _is_uuid(entry: str, uuid: str) -> bool:
    return entry.startswith("GPU-") and uuid.startswith(entry)


def allowed_processors() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def parse_list(text: str) -> list[int]:
    """Parse a list of numbers as the kernel writes it: "0-3,8" is 0, 1, 2, 3, 8; empty for other text."""
    numbers: list[int] = []
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            return []
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def _nodes(root: Path) -> dict[int, int]:
    node_of = {}
    for folder in (root / "sys/devices/system/node").glob("node[0-9]*"):
        for processor in parse_list(_read(folder / "cpulist")):
            node_of[processor] = int(folder.name.removeprefix("node"))
    return node_of


def _cgroup_folders(root: Path) -> list[Path]:
    """Folders of this process's control groups and their parents, for both versions of cgroups."""
    folders = []
    for line in _read(root / "proc/self/cgroup").splitlines():
        if line.count(":") < 2:
            continue
        _, controllers, path = line.split(":", 2)
        names = controllers.split(",")
        if controllers and not {"cpu", "memory"} & set(names):
            continue
        mounts = (
            [root / "sys/fs/cgroup" / name for name in (controllers, *names)]
            if controllers
            else [root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"]
        )
        inner = Path(path.lstrip("/"))
        folders += [mount / above for mount in mounts for above in (inner, *inner.parents)]
    return list(dict.fromkeys(folders))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""

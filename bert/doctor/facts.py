"""Reads the facts about this machine that `python -m bert.doctor` checks. Only a child process loads Paddle.

A fact that cannot be read is None or empty. Reading never raises.
"""

import json
import locale
import os
import platform
import re
import resource
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bert import REPOSITORY
from bert.doctor import requirements as environment
from bert.doctor.requirements import installed_version
from bert.files import lock
from bert.interpreter import is_installed
from bert.runtime import topology

# Runs in a separate process, because Paddle may crash. The matrix product tests that the device computes.
_ASK_PADDLE = """
import faulthandler
import json
from bert.runtime.paddle_api import core, paddle, static
import gzip
faulthandler.dump_traceback_later(20, exit=True)  # with the wrong zlib it may corrupt the heap and hang
compressed = gzip.decompress(gzip.compress(b"zlib" * 1000)) == b"zlib" * 1000
faulthandler.cancel_dump_traceback_later()
cuda = paddle.is_compiled_with_cuda()
facts = dict(version=paddle.__version__, cuda=paddle.version.cuda() if cuda else None,
             cudnn=paddle.version.cudnn() if cuda else None, decompresses=compressed)
try:
    facts["gpus"] = paddle.device.cuda.device_count() if cuda else 0
    place = paddle.CUDAPlace(0) if facts["gpus"] else paddle.CPUPlace()
    product = paddle.matmul(paddle.ones([64, 64]), paddle.ones([64, 64])).sum()
    result = static.Executor(place).run(static.default_main_program(), fetch_list=[product])[0]
    facts["product"] = float(result)
except Exception as error:
    facts["error"] = f"{type(error).__name__}: {error}".strip().splitlines()[0]
try:
    facts["nccl"] = core.nccl_version() if cuda else None
except Exception:
    facts["nccl"] = None
print("FACTS " + json.dumps(facts))
"""


@dataclass(frozen=True)
class Gpu:
    name: str
    compute_capability: str  # "8.0"
    memory_mib: int
    driver: str


def _host_address() -> str | None:
    """The address that Paddle's launcher would choose for this node."""
    with suppress(OSError):
        return socket.gethostbyname(socket.getfqdn(socket.gethostname()))
    return None


def _can_listen() -> bool:
    with suppress(OSError), socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
        return True
    return False


def _memory() -> int:
    available = psutil.virtual_memory().available
    return min(available, topology.memory_limit() or available)


def _free(folder: str | Path) -> tuple[int | None, int | None]:
    """(bytes, files) that can still be written in a folder; None: unlimited number of files."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return None, None
    return status.f_bavail * status.f_frsize, status.f_favail if status.f_files else None


def _read(function: Callable[[], Any]) -> Any:
    return field(default_factory=function)


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Input of the checks in bert.doctor.checks. A fact with a default is read from this machine."""

    gpus: tuple[Gpu, ...]
    paddle: dict  # facts that Paddle reports; empty: it could not be loaded
    paddle_problem: str  # why Paddle could not be loaded
    extras: tuple[str, ...]
    requirement_differences: tuple[str, ...]
    has_ranges: bool  # installed package, which accepts more versions than uv.lock
    cpu_vendor: str
    cpu_model: str
    cpu_flags: frozenset[str]
    usable_cores: int
    usable_processors: int
    memory_nodes: int
    output_dir: Path
    output_problem: str  # why the output folder cannot be written to
    output_free_bytes: int
    output_free_files: int | None
    output_file_system: str
    output_locks: bool
    python: str = _read(platform.python_version)
    paddle_loaded_early: bool = _read(lambda: "paddle" in sys.modules)  # Paddle was loaded when Python started
    preloaded: str = _read(lambda: os.environ.get("LD_PRELOAD", ""))
    encoding: str = _read(lambda: locale.getpreferredencoding(False).lower())
    logical_processors: int = _read(lambda: os.cpu_count() or 1)
    cpu_quota: float | None = _read(topology.cpu_quota)
    mkl_debug_cpu_type: str | None = _read(lambda: os.environ.get("MKL_DEBUG_CPU_TYPE"))
    memory_bytes: int = _read(_memory)  # available memory, within the control group's limit
    shm_bytes: int | None = _read(lambda: _free("/dev/shm")[0])
    open_files: int = _read(lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    locked_memory_bytes: int = _read(lambda: resource.getrlimit(resource.RLIMIT_MEMLOCK)[0])  # -1: unlimited
    hostname: str = _read(socket.gethostname)
    host_address: str | None = _read(_host_address)
    ports_free: bool = _read(_can_listen)


def collect(output_dir: Path) -> Facts:
    cards = gpus()
    extras = extras_for(cards)
    paddle, problem = ask_paddle(sys.executable)
    unmet = environment.unmet_by_installation() if is_installed() else None
    different = environment.differences(environment.pins(extras)) if unmet is None else unmet
    cpu = topology.processor_facts()
    cores = topology.usable_cores(topology.allowed_processors())
    return Facts(
        gpus=cards,
        paddle=paddle,
        paddle_problem=problem,
        extras=extras,
        requirement_differences=tuple(different),
        has_ranges=unmet is not None,
        cpu_vendor=cpu.get("vendor_id", platform.machine()),
        cpu_model=cpu.get("model name", ""),
        cpu_flags=frozenset(cpu.get("flags", "").split()),
        usable_cores=len(cores),
        usable_processors=sum(len(core.processors) for core in cores),
        memory_nodes=len({core.node for core in cores}),
        **_output(output_dir),
    )


def ask_paddle(python: str, timeout_seconds: float = 180.0) -> tuple[dict, str]:
    """Facts that Paddle reports and "", or {} and the reason why it cannot be loaded."""
    try:
        done = subprocess.run(
            [python, "-c", _ASK_PADDLE],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {}, f"it did not answer within {timeout_seconds:.0f} s"
    for line in done.stdout.splitlines():
        if line.startswith("FACTS "):
            return json.loads(line.removeprefix("FACTS ")), ""
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {}, f"exit code {done.returncode}: {last}"


def extras_for(cards: tuple[Gpu, ...]) -> tuple[str, ...]:
    """The extras to install on this machine: with the installed Paddle, or the version that its GPUs need."""
    installed = installed_version("paddlepaddle-gpu") or installed_version("paddlepaddle") or ""
    is_new = any(int(card.compute_capability.split(".")[0]) >= 9 for card in cards)  # 2.6 has no code for it
    has_gpu = bool(cards) or has_package("paddlepaddle-gpu")
    if is_new or installed.startswith("3."):
        return ("train", "paddle3-gpu" if has_gpu else "paddle3")
    return ("train", "gpu" if has_gpu else "paddle")


def has_package(package: str) -> bool:
    return installed_version(package) is not None


def gpus() -> tuple[Gpu, ...]:
    query = "--query-gpu=name,compute_cap,memory.total,driver_version"
    lines = topology.nvidia_smi(query, "--format=csv,noheader,nounits")
    rows = [[cell.strip() for cell in line.split(",")] for line in lines]
    return tuple(
        Gpu(row[0], row[1], int(row[2]) if row[2].isdecimal() else 0, row[3])
        for row in rows
        if len(row) == 4 and re.fullmatch(r"\d+\.\d+", row[1])
    )


def _output(folder: Path) -> dict[str, Any]:
    """Facts about the output folder. Tries to write, flush, lock and rename a file, and removes it again."""
    above = (folder.absolute(), *folder.absolute().parents)
    existing = next(filter(os.path.lexists, above))  # which may be a file
    problem, locks = "", True
    try:
        with tempfile.TemporaryDirectory(prefix=".doctor-", dir=existing) as inside:
            path = Path(inside) / "file"
            with open(path, "w") as file:
                file.write("x")
                os.fsync(file.fileno())
                locks = lock(file)
            path.rename(Path(inside) / "renamed")
    except OSError as error:
        problem = str(error)
    free_bytes, free_files = _free(existing)
    mounts = {mount.mountpoint: mount.fstype for mount in psutil.disk_partitions(all=True)}
    return {
        "output_dir": folder,
        "output_problem": problem,
        "output_free_bytes": free_bytes or 0,
        "output_free_files": free_files,
        "output_file_system": next((mounts[str(path)] for path in above if str(path) in mounts), ""),
        "output_locks": locks,
    }

"""Reads facts about this machine for the checks of `python -m bert.doctor`. Paddle is loaded in another process only.

A fact that cannot be read is None or empty. Reading never raises.
"""

import importlib.metadata
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
from dataclasses import dataclass, field
from pathlib import Path

from bert import REPOSITORY
from bert.doctor import requirements as environment
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


@dataclass(frozen=True)
class Facts:
    """The input of the checks in bert.doctor.checks."""

    python: str = "3.11.0"
    requirement_differences: tuple[str, ...] = ()
    requirements_file: str = "requirements.txt"
    has_ranges: bool = False  # the installed package is asked, which accepts more versions than the file
    paddle: dict = field(default_factory=dict)  # empty: could not be loaded
    paddle_problem: str = ""  # why not
    paddle_loaded_early: bool = False  # by something that runs when Python starts, before zlib
    gpus: tuple[Gpu, ...] = ()
    cpu_vendor: str = ""
    cpu_model: str = ""
    cpu_flags: frozenset[str] = frozenset()
    logical_processors: int = 1
    usable_cores: int = 1
    usable_processors: int = 1
    memory_nodes: int = 1
    cpu_quota: float | None = None
    mkl_debug_cpu_type: str | None = None
    memory_bytes: int = 0  # available, within the control group's limit
    shm_bytes: int | None = None
    open_files: int = 0
    locked_memory_bytes: int = -1  # -1: unlimited
    output_dir: Path = Path("results")
    output_problem: str = ""  # why the folder cannot be written to
    output_free_bytes: int = 0
    output_free_files: int | None = None
    output_file_system: str = ""
    output_locks: bool = True
    hostname: str = ""
    host_address: str | None = None
    ports_free: bool = True
    proxies: tuple[str, ...] = ()
    encoding: str = "utf-8"
    preloaded: str = ""  # LD_PRELOAD


def collect(output_dir: Path) -> Facts:
    cards = gpus()
    requirements = requirements_for(cards)
    paddle, problem = ask_paddle(sys.executable)
    unmet = environment.unmet_by_installation() if is_installed() else None
    different = environment.differences(environment.pins(REPOSITORY / requirements)) if unmet is None else unmet
    cpu = _cpu_info()
    cores = topology.usable_cores(topology.allowed_processors())
    soft_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft_memory, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Facts(
        python=platform.python_version(),
        requirements_file=requirements,
        has_ranges=unmet is not None,
        paddle=paddle,
        paddle_problem=problem,
        paddle_loaded_early="paddle" in sys.modules,  # nothing of ours did, in this process
        requirement_differences=tuple(different),
        gpus=cards,
        cpu_vendor=cpu.get("vendor_id", platform.machine()),
        cpu_model=cpu.get("model name", ""),
        cpu_flags=frozenset(cpu.get("flags", "").split()),
        logical_processors=os.cpu_count() or 1,
        usable_cores=len(cores),
        usable_processors=sum(len(core.processors) for core in cores),
        memory_nodes=len({core.node for core in cores}),
        cpu_quota=topology.cpu_quota(),
        mkl_debug_cpu_type=os.environ.get("MKL_DEBUG_CPU_TYPE"),
        memory_bytes=_memory(),
        shm_bytes=_free("/dev/shm")[0],
        open_files=soft_files,
        locked_memory_bytes=soft_memory,
        **_output(output_dir),
        hostname=socket.gethostname(),
        host_address=_host_address(),
        ports_free=_can_listen(),
        proxies=tuple(name for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY") if os.environ.get(name)),
        encoding=locale.getpreferredencoding(False).lower(),
        preloaded=os.environ.get("LD_PRELOAD", ""),
    )


def ask_paddle(python: str, timeout_seconds: float = 180.0) -> tuple[dict, str]:
    """(facts, "") or ({}, why Paddle cannot be loaded)."""
    try:
        done = _output_of([python, "-c", _ASK_PADDLE], timeout_seconds)
    except subprocess.TimeoutExpired:
        return {}, f"it did not answer within {timeout_seconds:.0f} s"
    for line in done.stdout.splitlines():
        if line.startswith("FACTS "):
            return json.loads(line.removeprefix("FACTS ")), ""
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {}, f"exit code {done.returncode}: {last}"


def _output_of(command: list[str], timeout_seconds: float) -> subprocess.CompletedProcess:
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=timeout_seconds, check=False)


def requirements_for(cards: tuple[Gpu, ...]) -> str:
    """The requirements file of this machine: of the Paddle that is installed, or that the cards need."""
    installed = installed_version("paddlepaddle-gpu") or installed_version("paddlepaddle") or ""
    is_new = any(int(card.compute_capability.split(".")[0]) >= 9 for card in cards)  # 2.6 has no code for it
    kind = "-gpu" if cards or has_package("paddlepaddle-gpu") else ""
    return f"requirements{'-paddle3' if is_new or installed.startswith('3.') else ''}{kind}.txt"


def installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def has_package(package: str) -> bool:
    return installed_version(package) is not None


def gpus() -> tuple[Gpu, ...]:
    """The GPUs that the driver lists; empty without a driver, or where it does not answer."""
    query = "--query-gpu=name,compute_cap,memory.total,driver_version"
    listed = topology.nvidia_smi(query, "--format=csv,noheader,nounits")
    rows = [[cell.strip() for cell in line.split(",")] for line in listed]
    return tuple(
        Gpu(row[0], row[1], int(row[2]) if row[2].isdecimal() else 0, row[3])
        for row in rows
        if len(row) == 4 and re.fullmatch(r"\d+\.\d+", row[1])
    )


def _cpu_info() -> dict[str, str]:
    """The first processor's lines of /proc/cpuinfo."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, value in pairs}


def _memory() -> int:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    available = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable")), 0)
    return min(available, topology.memory_limit() or available)


def _free(folder: str | Path) -> tuple[int | None, int | None]:
    """(bytes, files) that can still be written there; None for files without a limit."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return None, None
    return status.f_bavail * status.f_frsize, status.f_favail if status.f_files else None


def _output(folder: Path) -> dict:
    """The facts about the output folder. Tries to write, flush, lock and rename a file; leaves the folder as it was."""
    existing = folder.absolute()
    while not existing.is_dir() and existing != existing.parent:
        existing = existing.parent
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
    return {
        "output_dir": folder,
        "output_problem": problem,
        "output_free_bytes": free_bytes or 0,
        "output_free_files": free_files,
        "output_file_system": _file_system(existing),
        "output_locks": locks,
    }


def _file_system(folder: Path) -> str:
    """Type of the folder's file system, that of its longest mount point."""
    try:
        lines = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    mounts = {line.split()[1].replace("\\040", " "): line.split()[2] for line in lines if len(line.split()) > 2}
    return next((mounts[str(above)] for above in (folder, *folder.parents) if str(above) in mounts), "")


def _host_address() -> str | None:
    """The address that Paddle's launcher would take for this node."""
    try:
        return socket.gethostbyname(socket.getfqdn(socket.gethostname()))
    except OSError:
        return None


def _can_listen() -> bool:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError:
        return False
    return True

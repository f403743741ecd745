"""`python -m bert.doctor [--output-dir DIR] [--json]`: is this machine fit to train, and if not, what to do.

Each check is a function of the facts (bert.doctor.facts) and gives a finding: ok, a warning (slower, or a
risk), or a failure (training would not start, or would give wrong results). Exit code 0 without failures, 1 with.
"""

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bert.doctor.facts import Facts, collect
from bert.doctor.requirements import SUPPORTED

OK, WARNING, FAILURE = "ok", "warning", "failure"
GIB = 2**30
# Machine code in PyPI's wheel of 2.6.2 by its CUDA: compute capabilities. It has no PTX that newer GPUs could compile.
WHEEL_ARCHITECTURES = {"11.8": ((6, 1), (7, 0), (7, 5), (8, 0), (8, 6))}


@dataclasses.dataclass(frozen=True)
class Finding:
    level: str  # ok | warning | failure
    name: str
    found: str
    advice: str = ""


def judged(name: str, found: str, *problems: tuple[bool, str, str]) -> Finding:
    """The first (condition, level, advice) whose condition holds, else ok."""
    for holds, level, advice in problems:
        if holds:
            return Finding(level, name, found, advice)
    return Finding(OK, name, found)


# ---- software --------------------------------------------------------------------------------------------------------


def python(facts: Facts) -> Finding:
    version = tuple(int(part) for part in facts.python.split(".")[:2])
    names = " or ".join(".".join(map(str, supported)) for supported in SUPPORTED)
    return judged(
        "Python",
        facts.python,
        (version not in SUPPORTED, FAILURE, f"install Python {names}; the pinned packages have no wheels for others"),
    )


def requirements(facts: Facts) -> Finding:
    different = facts.requirement_differences
    found = "; ".join(different[:4]) + (f" and {len(different) - 4} more" if len(different) > 4 else "")
    return judged(
        "packages",
        found or f"as {facts.requirements_file} pins them",
        (bool(different), WARNING, f"pip install -r {facts.requirements_file}"),
    )


def paddle(facts: Facts) -> Finding:
    built = facts.paddle
    if not built:
        return Finding(
            FAILURE,
            "Paddle",
            facts.paddle_problem or "not loaded",
            f"pip install -r {facts.requirements_file} in a fresh environment, and see what "
            "`python -c 'from bert.runtime.paddle_api import paddle'` prints",
        )
    found = f"{built['version']}, {'CUDA ' + str(built['cuda']) if built['cuda'] else 'CPU'}"
    return judged(
        "Paddle",
        found if "error" not in built else f"{found}: {built['error']}",
        ("error" in built, FAILURE, "Paddle loads and cannot compute; see the lines on GPU and driver"),
        (
            built.get("product") != 64.0**3,
            FAILURE,
            "a product of ones is wrong: the build does not fit this processor; install the wheel of the requirements",
        ),
        (
            not built["version"].startswith("2.6."),
            FAILURE,
            f"static graphs of other versions do not fit; pip install -r {facts.requirements_file}",
        ),
    )


def zlib_order(facts: Facts) -> Finding:
    built = facts.paddle
    return judged(
        "zlib before Paddle",
        "decompression works beside Paddle" if built.get("decompresses") else "-",
        (
            facts.paddle_loaded_early,
            FAILURE,
            "something loads Paddle when Python starts (a .pth file, "
            "sitecustomize); then gzip and scipy break: remove it",
        ),
        (
            bool(built) and not built.get("decompresses"),
            FAILURE,
            "Paddle's own zlib hides Python's; import bert (or zlib) before anything imports paddle",
        ),
        (
            "zlib" in facts.preloaded or "paddle" in facts.preloaded,
            WARNING,
            f"LD_PRELOAD={facts.preloaded} changes the order in which zlib is found; unset it",
        ),
    )


def encoding(facts: Facts) -> Finding:
    return judged(
        "text encoding",
        facts.encoding,
        (
            facts.encoding.replace("-", "") != "utf8",
            WARNING,
            "export PYTHONUTF8=1 (the scripts do), or non-ASCII paths fail",
        ),
    )


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def gpus(facts: Facts) -> Finding:
    cuda = facts.paddle.get("cuda")
    if not facts.gpus:
        return judged(
            "GPU",
            "none; training runs on the CPU",
            (
                cuda is not None,
                WARNING,
                f"this Paddle is built for CUDA {cuda} and nvidia-smi lists no GPU: install the "
                "driver, or start the container with GPUs (docker --gpus all)",
            ),
        )
    first = facts.gpus[0]
    found = f"{len(facts.gpus)} x {first.name}, compute capability {first.compute_capability}, driver {first.driver}"
    lacking = sorted({gpu.compute_capability for gpu in facts.gpus if not runs_on(gpu.compute_capability, str(cuda))})
    return judged(
        "GPU",
        found,
        (cuda is None, FAILURE, "this Paddle is the CPU build: pip install -r requirements-gpu.txt"),
        (
            bool(lacking),
            FAILURE,
            f"PyPI's wheel for CUDA {cuda} has no code for {', '.join(lacking)}: use "
            "Paddle's CUDA 12 wheel, or the container (scripts/docker)",
        ),
        (
            facts.paddle.get("gpus", 0) < len(facts.gpus),
            WARNING,
            f"Paddle sees {facts.paddle.get('gpus', 0)} "
            "of them: check CUDA_VISIBLE_DEVICES, and that the driver is new enough for its CUDA",
        ),
        (
            len({gpu.name for gpu in facts.gpus}) > 1,
            WARNING,
            "they differ: the slowest sets the pace, and the smallest memory the batch",
        ),
    )


def runs_on(compute_capability: str, cuda: str) -> bool:
    """Whether the wheel has machine code for the GPU: of its generation, and not newer. True for unknown builds."""
    major, minor = (int(part) for part in compute_capability.split("."))
    codes = WHEEL_ARCHITECTURES.get(cuda, ((major, 0),))
    return any(code_major == major and code_minor <= minor for code_major, code_minor in codes)


def nccl(facts: Facts) -> Finding:
    version = facts.paddle.get("nccl")
    return judged(
        "NCCL",
        str(version) if version else "not needed" if len(facts.gpus) < 2 else "not found",
        (
            len(facts.gpus) > 1 and not version,
            FAILURE,
            "several GPUs need it: install NCCL for Paddle's CUDA "
            "(libnccl2 and libnccl-dev), and have libnccl.so on LD_LIBRARY_PATH",
        ),
    )


# ---- processor and memory --------------------------------------------------------------------------------------------


def processor(facts: Facts) -> Finding:
    mkl = facts.mkl_debug_cpu_type
    is_amd = facts.cpu_vendor == "AuthenticAMD"
    found = facts.cpu_model or facts.cpu_vendor
    kind = next((flag for flag in ("amx_tile", "avx512f", "avx2", "avx") if flag in facts.cpu_flags), "")
    return judged(
        "processor",
        f"{found}{', ' + kind if kind else ''}",
        (
            bool(facts.cpu_flags) and "avx" not in facts.cpu_flags,
            FAILURE,
            "Paddle's wheels need AVX: they end with `illegal instruction` here",
        ),
        (
            is_amd and mkl is not None and mkl not in ("5", "7"),
            WARNING,
            f"MKL_DEBUG_CPU_TYPE={mkl} chooses "
            "slow kernels on AMD (38 against 164 GFLOP/s measured): unset it, the program chooses",
        ),
        (
            bool(facts.cpu_flags) and "avx2" not in facts.cpu_flags,
            WARNING,
            "without AVX2 matrix products are several times slower",
        ),
    )


def cores(facts: Facts) -> Finding:
    limit = "" if facts.cpu_quota is None else f", limited to {facts.cpu_quota:g} by the control group"
    found = (
        f"{facts.usable_cores} of {facts.logical_processors} processors' cores usable, on {facts.memory_nodes} "
        f"memory node(s){limit}"
    )
    return judged(
        "cores",
        found,
        (
            facts.cpu_quota is not None and facts.cpu_quota < facts.usable_cores,
            WARNING,
            "ask the container or the job for more (docker --cpus, sbatch --cpus-per-task), or train fewer ranks",
        ),
        (
            facts.usable_processors * 2 <= facts.logical_processors,
            WARNING,
            "this process is bound to a few "
            "of the processors: in Slurm use srun --cpu-bind=none (run.sub does), elsewhere look for taskset",
        ),
    )


def memory(facts: Facts) -> Finding:
    return judged(
        "memory",
        f"{facts.memory_bytes / GIB:.1f} GiB available",
        (facts.memory_bytes < GIB, FAILURE, "the quickstart alone needs about 1 GiB a rank: free some"),
        (facts.memory_bytes < 4 * GIB, WARNING, "enough for the quickstart; --dry-run says what others need"),
    )


def shared_memory(facts: Facts) -> Finding:
    size = facts.shm_bytes
    return judged(
        "/dev/shm",
        "not there" if size is None else f"{size / GIB:.1f} GiB free",
        (
            len(facts.gpus) > 1 and (size or 0) < GIB,
            FAILURE,
            "NCCL's ranks exchange through it: docker --shm-size=8g or --ipc=host (scripts/docker/launch.sh does)",
        ),
        ((size or 0) < GIB // 4, WARNING, "docker gives 64 MB unless told: --shm-size=1g"),
    )


def limits(facts: Facts) -> Finding:
    unlimited = facts.locked_memory_bytes < 0
    locked = "unlimited" if unlimited else facts.locked_memory_bytes // 1024
    found = f"{facts.open_files} open files, {locked} kB locked"
    return judged(
        "limits",
        found,
        (0 <= facts.open_files < 1024, FAILURE, "ulimit -n 65536: readers keep shards open"),
        (0 <= facts.open_files < 4096, WARNING, "ulimit -n 65536: many shards or ranks need more"),
        (
            len(facts.gpus) > 1 and not unlimited,
            WARNING,
            "ulimit -l unlimited (docker --ulimit memlock=-1), or NCCL cannot use InfiniBand",
        ),
    )


# ---- disk and network ------------------------------------------------------------------------------------------------


def output(facts: Facts) -> Finding:
    where = (
        f"{facts.output_dir} ({facts.output_file_system or 'unknown file system'}), "
        f"{facts.output_free_bytes / GIB:.1f} GiB free"
    )
    return judged(
        "output folder",
        where if not facts.output_problem else f"{where}: {facts.output_problem}",
        (
            bool(facts.output_problem),
            FAILURE,
            "checkpoints cannot be written there: another --output-dir, or its permissions",
        ),
        (facts.output_free_bytes < GIB, FAILURE, "no room for checkpoints: free some, or another folder"),
        (
            facts.output_free_files is not None and facts.output_free_files < 1000,
            FAILURE,
            "the file system is out of inodes: delete files",
        ),
        (
            not facts.output_locks,
            WARNING,
            "file locks do not work there, so nothing stops two runs from using one folder: mount it with locks",
        ),
        (
            facts.output_file_system in ("tmpfs", "ramfs", "overlay"),
            WARNING,
            "what is written there is gone with the machine or container: mount a disk for --output-dir",
        ),
        (
            facts.output_free_bytes < 16 * GIB,
            WARNING,
            "BERT-large keeps three checkpoints of 4 GiB: fine for smaller models",
        ),
    )


def network(facts: Facts) -> Finding:
    address = facts.host_address
    return judged(
        "network",
        f"{facts.hostname} is {address or 'unknown'}",
        (
            not facts.ports_free,
            FAILURE,
            "this machine cannot connect to itself on 127.0.0.1; ranks meet there: check the firewall or the sandbox",
        ),
        (
            bool(facts.proxies),
            WARNING,
            f"{', '.join(facts.proxies)} is set; with several nodes Paddle's "
            "launcher would ask the proxy for the first node and wait for ever: add the nodes to no_proxy",
        ),
        (
            address is None,
            WARNING,
            "its own name has no address; the launcher falls back to 127.0.0.1: add "
            "the name to /etc/hosts if ranks do not find each other",
        ),
    )


CHECKS: tuple[Callable[[Facts], Finding], ...] = (
    python,
    requirements,
    paddle,
    zlib_order,
    encoding,
    gpus,
    nccl,
    processor,
    cores,
    memory,
    shared_memory,
    limits,
    output,
    network,
)


def examine(facts: Facts) -> list[Finding]:
    return [check(facts) for check in CHECKS]


def table(findings: Sequence[Finding]) -> Iterator[str]:
    marks = {OK: "ok  ", WARNING: "WARN", FAILURE: "FAIL"}
    width = max(len(finding.name) for finding in findings)
    for finding in findings:
        yield f"{marks[finding.level]}  {finding.name:{width}}  {finding.found}"
        if finding.advice:
            yield f"{'':{width + 8}}-> {finding.advice}"


def _as_text(findings: Sequence[Finding]) -> str:
    failures, warnings = (sum(finding.level == level for finding in findings) for level in (FAILURE, WARNING))
    verdict = "not fit to train" if failures else "fit to train"
    return "\n".join([*table(findings), f"\n{verdict}: {failures} failure(s), {warnings} warning(s)"])


def _as_json(facts: Facts, findings: Sequence[Finding]) -> str:
    values = {**dataclasses.asdict(facts), "cpu_flags": sorted(facts.cpu_flags)}
    rows = [dataclasses.asdict(finding) for finding in findings]
    fit = all(finding.level != FAILURE for finding in findings)
    return json.dumps({"fit": fit, "findings": rows, "facts": values}, indent=2, default=str)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bert.doctor", description="Is this machine fit to train?")
    parser.add_argument("--output-dir", type=Path, default=Path("results"), help="where checkpoints would go")
    parser.add_argument("--json", action="store_true", help="print facts and findings as JSON")
    arguments = parser.parse_args(argv)
    facts = collect(arguments.output_dir)
    findings = examine(facts)
    try:
        print(_as_json(facts, findings) if arguments.json else _as_text(findings), flush=True)
    except BrokenPipeError:  # `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if any(finding.level == FAILURE for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())

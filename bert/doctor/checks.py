"""Checks the facts about this machine: `python -m bert.doctor [--output-dir DIR] [--json]`.

Each check is a function of the facts (bert.doctor.facts) and gives a finding: ok, a warning (slower, or a risk), or a
failure (training would not start, or would give wrong results). Exit code 0 without failures, 1 with.
"""

import dataclasses
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from bert.command_errors import command
from bert.doctor.facts import Facts, collect
from bert.doctor.requirements import SUPPORTED
from bert.help_parser import HelpParser
from bert.interpreter import install_command, shell_command

OK, WARNING, FAILURE = "ok", "warning", "failure"
GIB = 2**30
# Compute capabilities of the machine code in PyPI's wheel of 2.6.2, by its CUDA. It has no PTX for newer GPUs.
WHEEL_ARCHITECTURES = {"11.8": ((6, 1), (7, 0), (7, 5), (8, 0), (8, 6))}
# Paddle 3, from its own index: the newest generation (first number of the compute capability) of a wheel, by its CUDA.
NEWEST_GENERATION = {"11.8": 8, "12.6": 9, "12.9": 12}
SUPPORTED_PADDLES = ("2.6.", "3.0.", "3.1.")


@dataclasses.dataclass(frozen=True)
class Finding:
    level: str  # ok | warning | failure
    name: str
    found: str
    advice: str = ""


Problem = tuple[bool, str, str]  # whether it applies, level, advice


def fails(holds: bool, advice: str) -> Problem:
    return holds, FAILURE, advice


def warns(holds: bool, advice: str) -> Problem:
    return holds, WARNING, advice


def judged(name: str, found: str, *problems: Problem) -> Finding:
    """The finding for the first problem that applies, otherwise ok."""
    for holds, level, advice in problems:
        if holds:
            return Finding(level, name, found, advice)
    return Finding(OK, name, found)


# ---- software --------------------------------------------------------------------------------------------------------


def python(facts: Facts) -> Finding:
    version = tuple(int(part) for part in facts.python.split(".")[:2])
    names = " or ".join(".".join(map(str, supported)) for supported in SUPPORTED)
    advice = f"install Python {names}; the pinned packages have no wheels for others"
    return judged("Python", facts.python, fails(version not in SUPPORTED, advice))


def requirements(facts: Facts) -> Finding:
    different = facts.requirement_differences
    found = "; ".join(different[:4]) + (f" and {len(different) - 4} more" if len(different) > 4 else "")
    return judged(
        "packages",
        found or ("as the package requires" if facts.has_ranges else "as the lock has them"),
        warns(bool(different), install_command()),
    )


def paddle(facts: Facts) -> Finding:
    built, install = facts.paddle, install_command()
    if not built:
        probe = f"{sys.executable} -c 'import paddle'"
        advice = f"{install} in a fresh environment, and see what `{probe}` prints"
        return Finding(FAILURE, "Paddle", facts.paddle_problem or "not loaded", advice)
    found = f"{built['version']}, {'CUDA ' + str(built['cuda']) if built['cuda'] else 'CPU'}"
    return judged(
        "Paddle",
        f"{found}: {built['error']}" if "error" in built else found,
        fails("error" in built, "Paddle loads but cannot compute; see the lines on GPU and driver"),
        fails(
            built.get("product") != 64.0**3,
            "a product of ones is wrong: the build does not fit this processor; install the wheel of the requirements",
        ),
        fails(
            not built["version"].startswith(SUPPORTED_PADDLES), f"static graphs of other versions do not fit; {install}"
        ),
    )


def zlib_order(facts: Facts) -> Finding:
    built = facts.paddle
    return judged(
        "zlib before Paddle",
        "decompression works beside Paddle" if built.get("decompresses") else "-",
        fails(
            facts.paddle_loaded_early,
            "something loads Paddle when Python starts (a .pth file, sitecustomize), which breaks gzip: remove it",
        ),
        fails(
            bool(built) and not built.get("decompresses"),
            "Paddle's own zlib hides Python's; import bert (or zlib) before anything imports paddle",
        ),
        warns(
            "zlib" in facts.preloaded or "paddle" in facts.preloaded,
            f"LD_PRELOAD={facts.preloaded} changes the order in which zlib is found; unset it",
        ),
    )


def encoding(facts: Facts) -> Finding:
    is_utf8 = facts.encoding.replace("-", "") == "utf8"
    advice = "export PYTHONUTF8=1 (the scripts do), or non-ASCII paths fail"
    return judged("text encoding", facts.encoding, warns(not is_utf8, advice))


# ---- GPUs ------------------------------------------------------------------------------------------------------------


def gpus(facts: Facts) -> Finding:
    cuda = facts.paddle.get("cuda")
    if not facts.gpus:
        advice = (
            f"this Paddle is built for CUDA {cuda} and nvidia-smi lists no GPU: install the "
            "driver, or start the container with GPUs (docker --gpus all)"
        )
        return judged("GPU", "none; training runs on the CPU", warns(cuda is not None, advice))
    first, visible = facts.gpus[0], facts.paddle.get("gpus", 0)
    version, cards = str(facts.paddle.get("version")), {gpu.compute_capability for gpu in facts.gpus}
    lacking = sorted(card for card in cards if not runs_on(card, str(cuda), version))
    return judged(
        "GPU",
        f"{len(facts.gpus)} x {first.name}, compute capability {first.compute_capability}, driver {first.driver}",
        fails(cuda is None, f"this Paddle is the CPU build: {wheel_for(cards)}"),
        fails(
            bool(lacking),
            f"Paddle's wheel for CUDA {cuda} has no code for {', '.join(lacking)}: {wheel_for(cards)}, or use the "
            "container (scripts/docker)",
        ),
        warns(
            visible < len(facts.gpus),
            f"Paddle sees {visible} of them: check CUDA_VISIBLE_DEVICES, "
            "and that the driver is new enough for its CUDA",
        ),
        warns(
            len({gpu.name for gpu in facts.gpus}) > 1,
            "they differ: the slowest limits the speed, and the smallest memory the batch",
        ),
    )


def runs_on(compute_capability: str, cuda: str, version: str = "2.6.2") -> bool:
    """Whether the wheel has machine code for the GPU: of its generation, and not newer. True for unknown builds."""
    major, minor = (int(part) for part in compute_capability.split("."))
    if version.startswith("3."):
        return major <= NEWEST_GENERATION.get(cuda, major)
    codes = WHEEL_ARCHITECTURES.get(cuda, ((major, 0),))
    return any(code_major == major and code_minor <= minor for code_major, code_minor in codes)


def wheel_for(compute_capabilities: Iterable[str]) -> str:
    """The command that installs the wheel with machine code for these GPUs."""
    newest = max(int(capability.split(".")[0]) for capability in compute_capabilities)
    if newest < NEWEST_GENERATION["12.6"]:
        return install_command()
    cuda = "cu126" if newest == NEWEST_GENERATION["12.6"] else "cu129"
    return f"BERT_PADDLE=3.1 BERT_CUDA={cuda} {shell_command('scripts/setup.sh')}"


def nccl(facts: Facts) -> Finding:
    version = facts.paddle.get("nccl")
    return judged(
        "NCCL",
        str(version) if version else "not needed" if len(facts.gpus) < 2 else "not found",
        fails(
            len(facts.gpus) > 1 and not version,
            "several GPUs need it: install NCCL for Paddle's CUDA "
            "(libnccl2 and libnccl-dev), and have libnccl.so on LD_LIBRARY_PATH",
        ),
    )


# ---- processor and memory --------------------------------------------------------------------------------------------


def processor(facts: Facts) -> Finding:
    mkl, flags = facts.mkl_debug_cpu_type, facts.cpu_flags
    kind = next((flag for flag in ("amx_tile", "avx512f", "avx2", "avx") if flag in flags), "")
    return judged(
        "processor",
        f"{facts.cpu_model or facts.cpu_vendor}{', ' + kind if kind else ''}",
        fails(bool(flags) and "avx" not in flags, "Paddle's wheels need AVX: they end with `illegal instruction` here"),
        warns(
            facts.cpu_vendor == "AuthenticAMD" and mkl not in (None, "5", "7"),
            f"MKL_DEBUG_CPU_TYPE={mkl} chooses "
            "slow kernels on AMD (38 against 164 GFLOP/s measured): unset it, the program chooses",
        ),
        warns(bool(flags) and "avx2" not in flags, "without AVX2 matrix products are several times slower"),
    )


def cores(facts: Facts) -> Finding:
    quota, usable = facts.cpu_quota, facts.usable_cores
    return judged(
        "cores",
        f"{usable} of {facts.logical_processors} processors' cores usable, on {facts.memory_nodes} memory node(s)"
        + ("" if quota is None else f", limited to {quota:g} by the control group"),
        warns(
            quota is not None and quota < usable,
            "ask the container or the job for more (docker --cpus, sbatch --cpus-per-task), or train fewer ranks",
        ),
        warns(
            facts.usable_processors * 2 <= facts.logical_processors,
            "this process is bound to a few "
            "of the processors: in Slurm use srun --cpu-bind=none (run.sub does), elsewhere look for taskset",
        ),
    )


def memory(facts: Facts) -> Finding:
    size = facts.memory_bytes
    return judged(
        "memory",
        f"{size / GIB:.1f} GiB available",
        fails(size < GIB, "the quickstart alone needs about 1 GiB a rank: free some"),
        warns(size < 4 * GIB, "enough for the quickstart; --dry-run prints the needs of other runs"),
    )


def shared_memory(facts: Facts) -> Finding:
    size = facts.shm_bytes or 0
    return judged(
        "/dev/shm",
        "not there" if facts.shm_bytes is None else f"{size / GIB:.1f} GiB free",
        fails(
            len(facts.gpus) > 1 and size < GIB,
            "NCCL's ranks exchange through it: docker --shm-size=8g or --ipc=host (scripts/docker/launch.sh does)",
        ),
        warns(size < GIB // 4, "docker gives 64 MB by default: --shm-size=1g"),
    )


def limits(facts: Facts) -> Finding:
    is_limited = facts.locked_memory_bytes >= 0
    locked = facts.locked_memory_bytes // 1024 if is_limited else "unlimited"
    return judged(
        "limits",
        f"{facts.open_files} open files, {locked} kB locked",
        fails(0 <= facts.open_files < 1024, "ulimit -n 65536: readers keep shards open"),
        warns(0 <= facts.open_files < 4096, "ulimit -n 65536: many shards or ranks need more"),
        warns(
            len(facts.gpus) > 1 and is_limited,
            "ulimit -l unlimited (docker --ulimit memlock=-1), or NCCL cannot use InfiniBand",
        ),
    )


# ---- disk and network ------------------------------------------------------------------------------------------------


def output(facts: Facts) -> Finding:
    system, free, files = facts.output_file_system, facts.output_free_bytes, facts.output_free_files
    where = f"{facts.output_dir} ({system or 'unknown file system'}), {free / GIB:.1f} GiB free"
    problem = facts.output_problem
    return judged(
        "output folder",
        f"{where}: {problem}" if problem else where,
        fails(bool(problem), "checkpoints cannot be written there: another --output-dir, or its permissions"),
        fails(free < GIB, "no room for checkpoints: free some, or another folder"),
        fails(files is not None and files < 1000, "the file system is out of inodes: delete files"),
        warns(
            not facts.output_locks,
            "file locks do not work there, so nothing stops two runs from using one folder: mount it with locks",
        ),
        warns(
            system in ("tmpfs", "ramfs", "overlay"),
            "files there are lost with the machine or container: mount a disk for --output-dir",
        ),
        warns(free < 16 * GIB, "BERT-large keeps three checkpoints of 4 GiB: enough for smaller models"),
    )


def network(facts: Facts) -> Finding:
    return judged(
        "network",
        f"{facts.hostname} is {facts.host_address or 'unknown'}",
        fails(
            not facts.ports_free,
            "this machine cannot connect to itself on 127.0.0.1; ranks meet there: check the firewall or the sandbox",
        ),
        warns(
            bool(facts.proxies),
            f"{', '.join(facts.proxies)} is set; with several nodes Paddle's "
            "launcher would ask the proxy for the first node and wait for ever: add the nodes to no_proxy",
        ),
        warns(
            facts.host_address is None,
            "its own name has no address; the launcher falls back to 127.0.0.1: add "
            "the name to /etc/hosts if ranks do not find each other",
        ),
    )


SOFTWARE = (python, requirements, paddle, zlib_order, encoding)
HARDWARE = (gpus, nccl, processor, cores, memory, shared_memory, limits)
CHECKS: tuple[Callable[[Facts], Finding], ...] = (*SOFTWARE, *HARDWARE, output, network)


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
    parser = HelpParser(prog="bert.doctor", description="Is this machine fit to train?")
    parser.add_argument("--output-dir", type=Path, default=Path("results"), help="where checkpoints would go")
    parser.add_argument("--json", action="store_true", help="print facts and findings as JSON")
    arguments = parser.parse_args(argv)
    facts = collect(arguments.output_dir)
    findings = examine(facts)
    with command():
        print(_as_json(facts, findings) if arguments.json else _as_text(findings))
    return 1 if any(finding.level == FAILURE for finding in findings) else 0


if __name__ == "__main__":
    sys.exit(main())

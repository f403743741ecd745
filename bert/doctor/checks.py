"""Checks this machine: `python -m bert.doctor [--output-dir DIR] [--json]`.

Each check judges facts (bert.doctor.facts) and gives a finding: ok, a warning (slower, or a risk), or a failure
(training would not start, or would give wrong results). Exit code 0 without failures, 1 with.
"""

import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bert.command_errors import command
from bert.doctor.facts import Facts, collect
from bert.doctor.requirements import SUPPORTED
from bert.help_parser import HelpParser
from bert.interpreter import install_command, shell_command

PASSED, WARNING, FAILURE = "ok", "warning", "failure"
_LEVEL_NAMES = {PASSED: "ok  ", WARNING: "WARN", FAILURE: "FAIL"}
GIB = 2**30
# Compute capabilities of the machine code in PyPI's wheel of 2.6.2, by its CUDA. It has no PTX for newer GPUs.
WHEEL_ARCHITECTURES = {"11.8": ((6, 1), (7, 0), (7, 5), (8, 0), (8, 6))}
# Paddle 3, from its own index: the newest generation (first number of the compute capability) of a wheel, by its CUDA.
NEWEST_GENERATION = {"11.8": 8, "12.6": 9, "12.9": 12}
SUPPORTED_PADDLES = ("2.6.", "3.0.", "3.1.")


@dataclasses.dataclass(frozen=True)
class Finding:
    level: str
    name: str
    found: str
    advice: str = ""


Problem = tuple[bool, str, str]  # whether the machine has it, level, advice


def failure_if(holds: bool, advice: str) -> Problem:
    return holds, FAILURE, advice


def warning_if(holds: bool, advice: str) -> Problem:
    return holds, WARNING, advice


def finding_of(name: str, found: str, *problems: Problem) -> Finding:
    """The finding for the first problem of a check, otherwise the finding PASSED."""
    _, level, advice = next((problem for problem in problems if problem[0]), (False, PASSED, ""))
    return Finding(level, name, found, advice)


def examine(facts: Facts) -> list[Finding]:
    sections = (_python, _paddle, _gpus, _processors, _memory, _limits_and_network, _output)
    return [finding for section in sections for finding in section(facts)]


def _python(facts: Facts) -> Iterator[Finding]:
    version = tuple(int(part) for part in facts.python.split(".")[:2])
    names = " or ".join(".".join(map(str, supported)) for supported in SUPPORTED)
    advice = f"install Python {names}; the pinned packages have no wheels for others"
    yield finding_of("Python", facts.python, failure_if(version not in SUPPORTED, advice))
    different = facts.requirement_differences
    text = "; ".join(different[:4]) + (f" and {len(different) - 4} more" if len(different) > 4 else "")
    expected = "as the package requires" if facts.has_ranges else "as the lock has them"
    yield finding_of("packages", text or expected, warning_if(bool(different), install_command()))
    is_utf8 = facts.encoding.replace("-", "") == "utf8"
    advice = "export PYTHONUTF8=1 (the scripts do), or non-ASCII paths fail"
    yield finding_of("text encoding", facts.encoding, warning_if(not is_utf8, advice))


def _paddle(facts: Facts) -> Iterator[Finding]:
    built, install, preloaded = facts.paddle, install_command(), facts.preloaded
    version, cuda, decompresses = str(built.get("version")), built.get("cuda"), built.get("decompresses")
    text = f"{version}, {f'CUDA {cuda}' if cuda else 'CPU'}" if built else facts.paddle_problem or "not loaded"
    probe = f"{sys.executable} -c 'import paddle'"
    yield finding_of(
        "Paddle",
        f"{text}: {built['error']}" if "error" in built else text,
        failure_if(not built, f"{install} in a fresh environment, and see what `{probe}` prints"),
        failure_if("error" in built, "Paddle loads but cannot compute; see the lines on GPU and driver"),
        failure_if(
            built.get("product") != 64.0**3,
            "a product of ones is wrong: the build does not fit this processor; install the wheel of the requirements",
        ),
        failure_if(not version.startswith(SUPPORTED_PADDLES), f"static graphs of other versions do not fit; {install}"),
    )
    yield finding_of(
        "zlib before Paddle",
        "decompression works beside Paddle" if decompresses else "-",
        failure_if(
            facts.paddle_loaded_early,
            "something loads Paddle when Python starts (a .pth file, sitecustomize), which breaks gzip: remove it",
        ),
        failure_if(
            bool(built) and not decompresses,
            "Paddle's own zlib hides Python's; import bert (or zlib) before anything imports paddle",
        ),
        warning_if(
            "zlib" in preloaded or "paddle" in preloaded,
            f"LD_PRELOAD={preloaded} changes the order in which zlib is found; unset it",
        ),
    )


def _gpus(facts: Facts) -> Iterator[Finding]:
    version, cuda, nccl = str(facts.paddle.get("version")), facts.paddle.get("cuda"), facts.paddle.get("nccl")
    visible, cards = facts.paddle.get("gpus", 0), {gpu.compute_capability for gpu in facts.gpus}
    lacking = sorted(card for card in cards if not runs_on(card, str(cuda), version))
    text, first = "none; training runs on the CPU", facts.gpus[0] if facts.gpus else None
    if first is not None:
        capability = f"compute capability {first.compute_capability}"
        text = f"{len(facts.gpus)} x {first.name}, {capability}, driver {first.driver}"
    yield finding_of(
        "GPU",
        text,
        warning_if(
            first is None and cuda is not None,
            f"this Paddle is built for CUDA {cuda} and nvidia-smi lists no GPU: install the driver, or start the "
            "container with GPUs (docker --gpus all)",
        ),
        failure_if(first is not None and cuda is None, f"this Paddle is the CPU build: {wheel_for(cards)}"),
        failure_if(
            bool(lacking),
            f"Paddle's wheel for CUDA {cuda} has no code for {', '.join(lacking)}: {wheel_for(cards)}, or use the "
            "container (scripts/docker)",
        ),
        warning_if(
            visible < len(facts.gpus),
            f"Paddle sees {visible} of them: check CUDA_VISIBLE_DEVICES, and whether the driver is new enough for its "
            "CUDA",
        ),
        warning_if(
            len({gpu.name for gpu in facts.gpus}) > 1,
            "they differ: the slowest limits the speed, and the smallest memory the batch",
        ),
    )
    is_needed = len(facts.gpus) > 1
    yield finding_of(
        "NCCL",
        str(nccl or ("not found" if is_needed else "not needed")),
        failure_if(
            is_needed and not nccl,
            "several GPUs need it: install NCCL for Paddle's CUDA (libnccl2 and libnccl-dev), and have libnccl.so on "
            "LD_LIBRARY_PATH",
        ),
    )


def runs_on(compute_capability: str, cuda: str, version: str = "2.6.2") -> bool:
    """Whether the Paddle wheel has machine code for a GPU; True if the wheel's architectures are unknown."""
    major, minor = (int(part) for part in compute_capability.split("."))
    if version.startswith("3."):
        return major <= NEWEST_GENERATION.get(cuda, major)
    codes = WHEEL_ARCHITECTURES.get(cuda, ((major, 0),))
    return any(code_major == major and code_minor <= minor for code_major, code_minor in codes)


def wheel_for(compute_capabilities: Iterable[str]) -> str:
    """The command that installs the Paddle wheel with machine code for these GPUs."""
    newest = max((int(capability.split(".")[0]) for capability in compute_capabilities), default=0)
    if newest < NEWEST_GENERATION["12.6"]:
        return install_command()
    cuda = "cu126" if newest == NEWEST_GENERATION["12.6"] else "cu129"
    return f"BERT_PADDLE=3.1 BERT_CUDA={cuda} {shell_command('scripts/setup.sh')}"


def _processors(facts: Facts) -> Iterator[Finding]:
    mkl, flags, vendor = facts.mkl_debug_cpu_type, facts.cpu_flags, facts.cpu_vendor
    kind = next((f", {flag}" for flag in ("amx_tile", "avx512f", "avx2", "avx") if flag in flags), "")
    yield finding_of(
        "processor",
        f"{facts.cpu_model or vendor}{kind}",
        failure_if(
            bool(flags) and "avx" not in flags, "Paddle's wheels need AVX: they end with `illegal instruction` here"
        ),
        warning_if(
            vendor == "AuthenticAMD" and mkl not in (None, "5", "7"),
            f"MKL_DEBUG_CPU_TYPE={mkl} chooses slow kernels on AMD (38 against 164 GFLOP/s measured): unset it, the "
            "program chooses",
        ),
        warning_if(bool(flags) and "avx2" not in flags, "without AVX2 matrix products are several times slower"),
    )
    quota, usable, processors = facts.cpu_quota, facts.usable_cores, facts.logical_processors
    limit = "" if quota is None else f", limited to {quota:g} by the control group"
    yield finding_of(
        "cores",
        f"{usable} of {processors} processors' cores usable, on {facts.memory_nodes} memory node(s){limit}",
        warning_if(
            quota is not None and quota < usable,
            "ask the container or the job for more (docker --cpus, sbatch --cpus-per-task), or train fewer ranks",
        ),
        warning_if(
            facts.usable_processors * 2 <= processors,
            "this process is bound to a few of the processors: in Slurm use srun --cpu-bind=none (run.sub does), "
            "elsewhere look for taskset",
        ),
    )


def _memory(facts: Facts) -> Iterator[Finding]:
    size, shared = facts.memory_bytes, facts.shm_bytes or 0
    yield finding_of(
        "memory",
        f"{size / GIB:.1f} GiB available",
        failure_if(size < GIB, "the quickstart alone needs about 1 GiB a rank: free some"),
        warning_if(size < 4 * GIB, "enough for the quickstart; --dry-run prints the needs of other runs"),
    )
    yield finding_of(
        "/dev/shm",
        "not there" if facts.shm_bytes is None else f"{shared / GIB:.1f} GiB free",
        failure_if(
            len(facts.gpus) > 1 and shared < GIB,
            "NCCL's ranks exchange through it: docker --shm-size=8g or --ipc=host (scripts/docker/launch.sh does)",
        ),
        warning_if(shared < GIB // 4, "docker gives 64 MB by default: --shm-size=1g"),
    )


def _limits_and_network(facts: Facts) -> Iterator[Finding]:
    is_limited, files = facts.locked_memory_bytes >= 0, facts.open_files
    locked = facts.locked_memory_bytes // 1024 if is_limited else "unlimited"
    yield finding_of(
        "limits",
        f"{files} open files, {locked} kB locked",
        failure_if(0 <= files < 1024, "ulimit -n 65536: readers keep shards open"),
        warning_if(0 <= files < 4096, "ulimit -n 65536: many shards or ranks need more"),
        warning_if(
            len(facts.gpus) > 1 and is_limited,
            "ulimit -l unlimited (docker --ulimit memlock=-1), or NCCL cannot use InfiniBand",
        ),
    )
    yield finding_of(
        "network",
        f"{facts.hostname} is {facts.host_address or 'unknown'}",
        failure_if(
            not facts.ports_free,
            "this machine cannot connect to itself on 127.0.0.1; ranks meet there: check the firewall or the sandbox",
        ),
        warning_if(
            facts.host_address is None,
            "its own name has no address; the launcher falls back to 127.0.0.1: add the name to /etc/hosts if ranks "
            "do not find each other",
        ),
    )


def _output(facts: Facts) -> Iterator[Finding]:
    system, free, files = facts.output_file_system, facts.output_free_bytes, facts.output_free_files
    where = f"{facts.output_dir} ({system or 'unknown file system'}), {free / GIB:.1f} GiB free"
    problem = facts.output_problem
    yield finding_of(
        "output folder",
        f"{where}: {problem}" if problem else where,
        failure_if(bool(problem), "checkpoints cannot be written there: another --output-dir, or its permissions"),
        failure_if(free < GIB, "no room for checkpoints: free some, or another folder"),
        failure_if(files is not None and files < 1000, "the file system is out of inodes: delete files"),
        warning_if(
            not facts.output_locks,
            "file locks do not work there, so nothing stops two runs from using one folder: mount it with locks",
        ),
        warning_if(
            system in ("tmpfs", "ramfs", "overlay"),
            "files there are lost with the machine or container: mount a disk for --output-dir",
        ),
        warning_if(free < 16 * GIB, "BERT-large keeps three checkpoints of 4 GiB: enough for smaller models"),
    )


def _as_text(findings: Sequence[Finding]) -> str:
    failures, warnings = (sum(finding.level == level for finding in findings) for level in (FAILURE, WARNING))
    verdict = "not fit to train" if failures else "fit to train"
    width = max(len(finding.name) for finding in findings)
    lines = []
    for finding in findings:
        lines.append(f"{_LEVEL_NAMES[finding.level]}  {finding.name:{width}}  {finding.found}")
        if finding.advice:
            lines.append(f"{'':{width + 8}}-> {finding.advice}")
    return "\n".join([*lines, f"\n{verdict}: {failures} failure(s), {warnings} warning(s)"])


def main(argv: Sequence[str] | None = None) -> int:
    parser = HelpParser(
        prog="bert.doctor",
        description="Check whether this machine is fit to train, and say what to install or change.",
        examples=("", "--output-dir /data/results --json"),
    )
    parser.add_argument(
        "--output-dir", type=Path, default=Path("results"), help="where checkpoints would go (default: results)"
    )
    parser.add_argument("--json", action="store_true", help="print facts and findings as JSON")
    arguments = parser.parse_args(argv)
    facts = collect(arguments.output_dir)
    findings = examine(facts)
    fit = all(finding.level != FAILURE for finding in findings)
    with command():
        if arguments.json:
            values = {**dataclasses.asdict(facts), "cpu_flags": sorted(facts.cpu_flags)}
            rows = [dataclasses.asdict(finding) for finding in findings]
            print(json.dumps({"fit": fit, "findings": rows, "facts": values}, indent=2, default=str))
        else:
            print(_as_text(findings))
    return 0 if fit else 1

"""The plan of a Slurm job on a login node, before it is submitted: `bash run.sub --dry-run -N4 --time=4:00:00`."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bert.commands.pretrain import job_of, planned
from bert.help_parser import wrapped
from bert.jobs.job import show_steps
from bert.launching.settings import LaunchPlan
from bert.planning.planner import make_plan
from bert.planning.run_device import run_device
from bert.pretraining.preparation import MissingShards
from bert.reporting.progress import duration
from bert.runtime.topology import visible_gpus

_FIRST_NODE = {"MASTER_ADDR": "first-node", "MASTER_PORT": "20000", "SLURM_NODEID": "0"}  # Slurm knows them in a job
_NODES, _TIME = ("-N", "--nodes"), ("-t", "--time")
_TIMES = (  # as sbatch reads them: the pattern, and the seconds of each of its groups
    (r"(\d+)", (60,)),
    (r"(\d+):(\d\d)", (60, 1)),
    (r"(\d+):(\d\d):(\d\d)", (3600, 60, 1)),
    (r"(\d+)-(\d+)", (86400, 3600)),
    (r"(\d+)-(\d+):(\d\d)", (86400, 3600, 60)),
    (r"(\d+)-(\d+):(\d\d):(\d\d)", (86400, 3600, 60, 1)),
)


@dataclass(frozen=True)
class SbatchOptions:
    """The options of sbatch that a plan needs.

    Attributes:
        seconds: its time limit; None: not known here.
    """

    num_nodes: int = 1
    seconds: float | None = None


def read_sbatch_options(
    words: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[SbatchOptions, list[str]]:
    """Take sbatch's -N and -t from the words (else from its variables SBATCH_...); returns the other words too."""
    environment = environment or {}
    nodes, time = environment.get("SLURM_JOB_NUM_NODES", "1"), environment.get("SBATCH_TIMELIMIT")
    others, remaining = list[str](), iter(words)
    for word in remaining:
        option, value = _split(word)
        if option not in (*_NODES, *_TIME):
            if re.match("-[A-Za-z]", word):
                raise ValueError(f"{word} is for sbatch, and the plan reads only -N and -t of its options; drop it")
            others.append(word)
            continue
        value = next(remaining, "") if value is None else value
        nodes, time = (value, time) if option in _NODES else (nodes, value)
    if not re.fullmatch(r"[1-9]\d*", nodes):
        raise ValueError(f"nodes={nodes} must be a number of nodes, at least 1; change -N")
    return SbatchOptions(int(nodes), None if time is None else limit_seconds(time)), others


def _split(word: str) -> tuple[str, str | None]:
    """Split `--nodes=4`, `-N4` or `-N` into the option and the value in the same word."""
    if word.startswith("--"):
        option, equals, value = word.partition("=")
        return option, value if equals else None
    return word[:2], word[2:] or None


def limit_seconds(text: str) -> float:
    """Seconds of a time limit of sbatch, such as 30 (minutes), 4:00:00 or 1-12."""
    for pattern, factors in _TIMES:
        if found := re.fullmatch(pattern, text):
            return float(sum(int(number) * factor for number, factor in zip(found.groups(), factors, strict=True)))
    raise ValueError(
        f"time={text} must be a time of sbatch, such as 30 (minutes), 4:00:00 or 1-12:00:00; change --time"
    )


def variables_of(options: SbatchOptions) -> dict[str, str]:
    """The environment variables that Slurm and run.sub set in a job with these options."""
    return {"SLURM_JOB_NUM_NODES": str(options.num_nodes), **_FIRST_NODE}


def show(words: Sequence[str], options: SbatchOptions) -> None:
    """Print the plan or other answers for a command line; a dry run is compared with the time limit."""
    command = planned(words)
    plan, job = command.plan, command.job
    if plan.phases:  # whose shards the first node makes for all
        job = job_of(plan, command.line.words, for_all_nodes=True)
    job.check(here=False)
    if not plan.answers():
        raise ValueError("nothing is asked; pass --dry-run, --show-config or --plan, or submit the job with sbatch")
    if "dry_run" in command.line.launch:
        if plan.phases:
            show_steps(job)
        print("\n" + wrapped(f"Slurm: {_nodes(options, plan)}; {_limit_sentence(options, plan)}"))
        if missing := [step.title for step in job.all_steps() if isinstance(step, MissingShards) and not step.exist()]:
            print(wrapped(f"The first node is alone at first: {' and '.join(missing)}"))
        plan.warn()


def _nodes(options: SbatchOptions, plan: LaunchPlan) -> str:
    nodes = "1 node" if options.num_nodes == 1 else f"{options.num_nodes} nodes"
    return (
        f"{nodes} of {plan.ranks.num_processes} ranks"
        if plan.phases
        else f"{nodes}, planned as if it were this machine"
    )


def _limit_sentence(options: SbatchOptions, plan: LaunchPlan) -> str:
    needed = _needed_seconds(plan)
    takes = "" if needed is None else f"the updates take about {duration(needed)}"
    if not plan.phases and needed is None:
        limit = "not known (pass sbatch's --time)" if options.seconds is None else duration(options.seconds)
        return f"the time limit is {limit}; the plan above has the time of the training"
    if options.seconds is None:
        return f"{takes or 'how long the training takes is not known'}; pass sbatch's --time to see if that is enough"
    limit = duration(options.seconds)
    if needed is None:
        return f"the time limit is {limit}; how long the training takes is not known"
    if needed <= options.seconds:
        return f"{takes}, within the time limit of {limit} if start, data and evaluations fit in what is left"
    starts = math.ceil(needed / options.seconds)
    return (
        f"{takes}, and the time limit is {limit}: two minutes before it the job saves, is queued again and resumes, so "
        f"there will be at least {starts} runs of it"
    )


def _needed_seconds(plan: LaunchPlan) -> float | None:
    """Seconds that the job needs: --hours, otherwise the planner's time of all updates."""
    if plan.hours is not None:
        return 3600 * plan.hours
    seconds, world_size = list[float](), plan.world_size()
    for config in plan.phases:
        device = run_device(config, world_size, visible_gpus())
        hardware = device.hardware(world_size)
        if hardware is None or device.features.kind == "cpu":
            return None
        time = make_plan(device.resolve(config.with_known_steps(world_size)), hardware).seconds()
        if time is None:
            return None
        seconds.append(time)
    return sum(seconds) if seconds else None

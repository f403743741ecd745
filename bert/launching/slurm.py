"""`python -m bert.launching.slurm prepare|train [FLAGS]`: what run.sub starts on the nodes of a Slurm job.

Environment variables become flags of scripts/run_pretraining.sh; a flag among FLAGS wins over its variable. `prepare`
runs once, on the first node: it checks the settings, makes missing shards and refuses a job that is requeued for ever
without progress. `train` runs on every node. Exit codes are those of bert.launching.pretraining.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from bert.checkpoints.directories import list_steps
from bert.config.command_line import usage_errors
from bert.exit_codes import BAD_INPUT, INTERRUPTED
from bert.files import read_json
from bert.launching.arguments import PRECISIONS, one_of
from bert.launching.pretraining import main as pretraining
from bert.launching.pretraining import prepare_data
from bert.launching.pretraining_plan import LaunchPlan, parse_launch_arguments
from bert.launching.previous_run import is_done
from bert.launching.process_runner import Runner
from bert.samples.manifest import UNFINISHED_NAME

MAX_RUNS_WITHOUT_PROGRESS = 3
_NOT_GIVEN = ("", "none", "None")


class Variable(NamedTuple):
    """An environment variable and the flag it sets."""

    flag: str
    meaning: str


# Of one phase: NAME is for the phase that PHASE names, and for phase 1 of both; NAME_PHASE2 for phase 2.
OF_A_PHASE = {
    "TRAIN_BATCH_SIZE": Variable("--batch-size", "sequences per micro-batch on one rank"),
    "GRADIENT_ACCUMULATION_STEPS": Variable(
        "--gradient-merge-steps",
        "micro-batches per update; none: from the recipe's global batch, whatever the number of ranks",
    ),
    "LEARNING_RATE": Variable("--learning-rate", "peak learning rate"),
    "WARMUP_PROPORTION": Variable("--warmup-proportion", "share of the updates spent warming up"),
    "MAX_STEPS": Variable("--max-steps", "updates"),
    "INPUT_DIR": Variable("--input-dir", "shards"),
    "EVAL_DIR": Variable("--eval-dir", "held-out shards"),
    "BIN_SIZE": Variable(
        "--bin-size",
        "width in tokens of the shards' bins, or none; names their folder below "
        "BERT_PREP_WORKING_DIR unless INPUT_DIR does",
    ),
}
OF_ALL_PHASES = {
    "SEED": Variable("--seed", "decides initial weights, order of samples and dropout"),
    "NUM_WORKERS": Variable("--num-workers", "background readers of each rank"),
    "MASKING": Variable("--masking", "static or dynamic"),
    "VOCAB_FILE": Variable("--vocab-file", "WordPiece vocabulary"),
    "OUTPUT_DIR": Variable("--output-dir", "results and checkpoints"),
    "SAVE_STEPS": Variable("--num-steps-per-checkpoint", "updates between checkpoints"),
    "WIKIPEDIA_SOURCE": Variable("--wikipedia-source", "text to make missing shards from"),
    "SAMPLE_RATIO": Variable("--sample-ratio", "share of the documents to use"),
    "DASK_TASKS_PER_NODE": Variable("--num-dask-workers", "processes that make missing shards"),
    "NUM_SHARDS_PER_WORKER": Variable("--num-shards-per-worker", "shards for each reader of each rank"),
}
SPECIAL = {
    "CONFIG": "preset of both phases (default: large)",
    "PHASE": "1, 2 or both (default): phase 2 follows phase 1 in the same job",
    "GPUS": "GPUs, so ranks, of each node (default: 8); 0: train on the CPU",
    "CPU_RANKS": "ranks of each node when GPUS=0 (default: 1)",
    "PRECISION": "amp (also called fp16), fp32 or tf32; default: as the preset says",
    "INIT_CHECKPOINT": "the start: a run to continue (PHASE=1, both), or phase 1's result (PHASE=2; default: "
    "that in OUTPUT_DIR)",
    "PREPROCESS": "auto (default), only or never: see run.sub",
}


def launch_arguments(environment: Mapping[str, str]) -> list[str]:
    """The flags of scripts/run_pretraining.sh that correspond to the variables."""
    given = {name: value for name, value in environment.items() if value != ""}
    if given.get("RERUN_DASK", "false") != "false":
        raise ValueError(
            f"RERUN_DASK={given['RERUN_DASK']} would make the shards anew at each requeue; delete "
            "their folder instead, they are made when they are missing"
        )
    phase = one_of("PHASE", given.get("PHASE", "both"), ("both", "1", "2"))
    words = ["--config", given.get("CONFIG", "large"), *([f"--phase{phase}"] if phase != "both" else [])]
    for name, variable in OF_ALL_PHASES.items():
        words += [variable.flag, given[name]] if name in given else []
    for number in (1, 2) if phase == "both" else (int(phase),):
        words += _of_a_phase(given, number, both=phase == "both")
    return words + _devices(given) + _precision(given) + _start(given, phase)


def node_arguments(environment: Mapping[str, str]) -> list[str]:
    """This node's place in the job, as Slurm and run.sub have set it."""
    num_nodes = environment.get("SLURM_JOB_NUM_NODES", "1")
    if num_nodes == "1":
        return ["--num-nodes", "1"]  # a preset may be for more
    master = f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"
    return ["--num-nodes", num_nodes, "--node-rank", environment.get("SLURM_NODEID", "0"), "--master", master]


def _of_a_phase(given: Mapping[str, str], phase: int, both: bool) -> list[str]:
    values: dict[str, str] = {}
    for name in OF_A_PHASE:
        plain = "" if both and phase == 2 else given.get(name, "")
        values[name] = given.get(f"{name}_PHASE2", plain) if phase == 2 else plain
    words, prefix = list[str](), f"--phase{phase}-" if both else "--"
    if bins := values.pop("BIN_SIZE"):
        words += [f"--phase{phase}-bin-size", bins.lower()]
        folder = "unbinned" if bins in _NOT_GIVEN else f"bin_size_{bins}"
        values["INPUT_DIR"] = values["INPUT_DIR"] or f"$BERT_PREP_WORKING_DIR/pretrain/phase{phase}/{folder}/parquet"
    if values["GRADIENT_ACCUMULATION_STEPS"] in _NOT_GIVEN:
        del values["GRADIENT_ACCUMULATION_STEPS"]
    else:
        words += [f"{prefix}global-batch-size", "none"]
    for name, value in values.items():
        words += [prefix + OF_A_PHASE[name].flag[2:], value] if value else []
    return words


def _devices(given: Mapping[str, str]) -> list[str]:
    gpus = given.get("GPUS", "8")
    return ["--num-gpus", gpus] if gpus != "0" else ["--device", "cpu", "--num-gpus", given.get("CPU_RANKS", "1")]


def _precision(given: Mapping[str, str]) -> list[str]:
    if "PRECISION" not in given:
        return []
    name = one_of("PRECISION", given["PRECISION"], (*PRECISIONS, "fp16"))
    settings = PRECISIONS["amp" if name == "fp16" else name]
    return [word for flag, value in settings.items() for word in (f"--{flag}", str(value).lower())]


def _start(given: Mapping[str, str], phase: str) -> list[str]:
    """The flags for the start of the first phase, used until it has a checkpoint in OUTPUT_DIR."""
    checkpoint = given.get("INIT_CHECKPOINT", "none")
    if phase != "2":
        return (
            [] if checkpoint in _NOT_GIVEN else ["--from-checkpoint", checkpoint, "--last-step-of-checkpoint", "auto"]
        )
    if checkpoint in _NOT_GIVEN:
        checkpoint = given.get("OUTPUT_DIR", "results")
        if not read_json(Path(checkpoint) / "phase1/summary.json").get("finished"):
            raise ValueError(
                f"PHASE=2 starts from phase 1, which is not finished in OUTPUT_DIR={checkpoint}; train "
                "PHASE=1 there first, or set INIT_CHECKPOINT"
            )
    return ["--from-phase1-final-params", checkpoint]


# ---- the first node's step -----------------------------------------------------------------------------------------


def prepare(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Check everything once, and make the shards that are missing (PREPROCESS)."""
    with usage_errors():
        plan = parse_launch_arguments(argv)
        if plan.show_config or plan.dry_run or plan.planning is not None:
            return 0  # the next step answers
        when = one_of("PREPROCESS", environment.get("PREPROCESS") or "auto", ("auto", "only", "never"))
        if when != "only":
            _check_gpus(plan)
        note_progress(plan, environment)
    if when == "never":
        return 0
    runner = Runner()
    for config in plan.phases:
        if not is_done(config) and (code := prepare_data(plan, config, runner, only_this_node=True)):
            return INTERRUPTED if runner.stop_requested else code
    return 0


def _check_gpus(plan: LaunchPlan) -> None:
    """ValueError if this node has too few GPUs, before shards are made and not after."""
    try:
        plan.ranks.devices(plan.device())
    except ValueError as error:
        raise ValueError(f"{error}; where Slurm manages GPUs, ask for them: sbatch --gpus-per-node 8 ...") from None


def note_progress(plan: LaunchPlan, environment: Mapping[str, str]) -> None:
    """Count the runs of this job that changed nothing: a time limit below the start-up time requeues it for ever."""
    job = environment.get("SLURM_JOB_ID", "")
    record_file = plan.phases[0].run.output_dir / f"slurm-{job}.json"
    state, known = _state(plan), read_json(record_file)
    idle = known.get("runs_without_progress", 0) + 1 if known.get("state") == state else 0
    if idle >= MAX_RUNS_WITHOUT_PROGRESS:
        record_file.unlink()
        raise ValueError(
            f"{idle} runs of job {job} in a row saved no checkpoint and made no shards; raise --time, or lower "
            "SAVE_STEPS or the lead of --signal, and submit again"
        )
    record_file.parent.mkdir(parents=True, exist_ok=True)
    record_file.write_text(json.dumps({"state": state, "runs_without_progress": idle}) + "\n", encoding="utf-8")


def _state(plan: LaunchPlan) -> list[list[str]]:
    """The checkpoints of each phase and the number of its shard files, which change if a run makes progress."""
    folders = []
    for config in plan.phases:
        shards = config.data.input_dir
        made = [*shards.glob("*"), *(shards / UNFINISHED_NAME).rglob("*")]
        folders.append([*map(str, list_steps(config.checkpoint_dir())), f"{len(made)} files of shards"])
    return folders


def _help() -> str:
    rows = list(SPECIAL.items())
    rows += [(name, variable.meaning) for name, variable in OF_ALL_PHASES.items()]
    rows += [(f"{name}, {name}_PHASE2", variable.meaning) for name, variable in OF_A_PHASE.items()]
    title = "Variables (NAME is for the phase that PHASE names, and for phase 1 of both; NAME_PHASE2 for phase 2):"
    return "\n".join([str(__doc__), title, *(f"  {name}\n      {text}" for name, text in rows)])


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return 0 if words else BAD_INPUT
    task, flags = words[0], words[1:]
    with usage_errors():
        if task not in ("prepare", "train"):
            raise ValueError(f"{task} must be prepare or train; see run.sub")
        arguments = [*launch_arguments(os.environ), *node_arguments(os.environ), *flags]
    return prepare(arguments, os.environ) if task == "prepare" else pretraining(arguments)


if __name__ == "__main__":
    sys.exit(main())

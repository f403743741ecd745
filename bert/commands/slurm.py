"""`python -m bert.commands.slurm prepare|train [FLAGS]`: what run.sub starts on the nodes of a Slurm job.

Environment variables become flags of scripts/run_pretraining.sh; a flag among FLAGS wins over its variable. `prepare`
runs once, on the first node: it checks the settings, makes missing shards and refuses a job that is requeued for ever
without progress. `train` runs on every node. Exit codes are those of bert.commands.pretrain.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bert.checkpoints.directories import list_steps
from bert.commands.pretrain import job_of, parse_launch_arguments
from bert.commands.pretrain import main as pretraining
from bert.config.flags import flat_fields
from bert.config.setting_errors import usage_errors
from bert.exit_codes import BAD_INPUT, OK
from bert.files import read_json
from bert.help_parser import wrapped
from bert.jobs.job import Job, Step, execute
from bert.launching.arguments import PRECISIONS, one_of
from bert.launching.previous_run import is_done
from bert.launching.processes import flags_of
from bert.launching.settings import LaunchPlan
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.launch_settings import PretrainingLaunch
from bert.pretraining.preparation import data_steps
from bert.samples.manifest import UNFINISHED_NAME

MAX_RUNS_WITHOUT_PROGRESS = 3
_NOT_GIVEN = ("", "none", "None")


# The settings that variables set. Of one phase: NAME is for the phase that PHASE names, and for phase 1 of both;
# NAME_PHASE2 for phase 2.
OF_A_PHASE = {
    "TRAIN_BATCH_SIZE": "batch_size",
    "GRADIENT_ACCUMULATION_STEPS": "gradient_merge_steps",
    "LEARNING_RATE": "learning_rate",
    "WARMUP_PROPORTION": "warmup_proportion",
    "MAX_STEPS": "max_steps",
    "INPUT_DIR": "input_dir",
    "EVAL_DIR": "eval_dir",
    "BIN_SIZE": "bin_size",
}
OF_ALL_PHASES = {
    "SEED": "seed",
    "NUM_WORKERS": "num_workers",
    "MASKING": "masking",
    "VOCAB_FILE": "vocab_file",
    "OUTPUT_DIR": "output_dir",
    "SAVE_STEPS": "num_steps_per_checkpoint",
    "WIKIPEDIA_SOURCE": "wikipedia_source",
    "SAMPLE_RATIO": "sample_ratio",
    "DASK_TASKS_PER_NODE": "num_dask_workers",
    "NUM_SHARDS_PER_WORKER": "num_shards_per_worker",
}
NOTES = {
    "GRADIENT_ACCUMULATION_STEPS": "; none: from the recipe's global batch, whatever the number of ranks",
    "BIN_SIZE": "; names the folder of the shards below BERT_PREP_WORKING_DIR unless INPUT_DIR does",
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
    "IMAGE_VERSION, USE_JEMALLOC": "of NVIDIA's run.sub, without effect: CONT names the container",
}


def launch_arguments(environment: Mapping[str, str]) -> list[str]:
    """The flags of scripts/run_pretraining.sh that correspond to the variables."""
    variables = {name: value for name, value in environment.items() if value != ""}
    if variables.get("NUM_SHARDS_PER_WORKER") in _NOT_GIVEN:
        del variables["NUM_SHARDS_PER_WORKER"]
    if variables.get("RERUN_DASK", "false") != "false":
        raise ValueError(
            f"RERUN_DASK={variables['RERUN_DASK']} would make the shards anew at each requeue; delete "
            "their folder instead, they are made when they are missing"
        )
    phase = one_of("PHASE", variables.get("PHASE", "both"), ("both", "1", "2"))
    settings: dict[str, Any] = {"config": variables.get("CONFIG", "large")}
    settings |= {setting: variables[name] for name, setting in OF_ALL_PHASES.items() if name in variables}
    settings |= {} if phase == "both" else {f"phase{phase}": True}
    for number in (1, 2) if phase == "both" else (int(phase),):
        settings |= _of_a_phase(variables, number, both=phase == "both")
    settings["num_processes"] = gpus = variables.get("GPUS", "8")
    if gpus == "0":
        settings |= {"device": "cpu", "num_processes": variables.get("CPU_RANKS", "1")}
    if "PRECISION" in variables:
        settings |= PRECISIONS[one_of("PRECISION", variables["PRECISION"], PRECISIONS)]
    return flags_of(settings | _start(variables, phase))


def node_arguments(environment: Mapping[str, str]) -> list[str]:
    """This node's place in the job, as Slurm and run.sub have set it."""
    num_nodes = environment.get("SLURM_JOB_NUM_NODES", "1")
    if num_nodes == "1":
        return ["--num-nodes", "1"]  # a preset may be for more
    master = f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"
    return ["--num-nodes", num_nodes, "--node-rank", environment.get("SLURM_NODEID", "0"), "--master", master]


def _of_a_phase(variables: Mapping[str, str], phase: int, both: bool) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, setting in OF_A_PHASE.items():
        value = "" if both and phase == 2 else variables.get(name, "")
        if value := variables.get(f"{name}_PHASE2", value) if phase == 2 else value:
            values[setting] = value
    of_shards = {}
    if bins := values.pop("bin_size", None):
        of_shards[f"phase{phase}_bin_size"] = bins.lower()
        folder = "unbinned" if bins in _NOT_GIVEN else f"bin_size_{bins}"
        values.setdefault("input_dir", f"$BERT_PREP_WORKING_DIR/pretrain/phase{phase}/{folder}/parquet")
    if values.get("gradient_merge_steps", "none") in _NOT_GIVEN:
        values.pop("gradient_merge_steps", None)
    else:
        values["global_batch_size"] = "none"
    prefix = f"phase{phase}_" if both else ""
    return of_shards | {prefix + setting: value for setting, value in values.items()}


def _start(variables: Mapping[str, str], phase: str) -> dict[str, str]:
    """The start of the first phase, used until it has a checkpoint in OUTPUT_DIR."""
    checkpoint = variables.get("INIT_CHECKPOINT", "none")
    if phase != "2":
        is_new = checkpoint in _NOT_GIVEN
        return {} if is_new else {"from_checkpoint": checkpoint, "last_step_of_checkpoint": "auto"}
    if checkpoint in _NOT_GIVEN:
        checkpoint = variables.get("OUTPUT_DIR", "results")
        if not read_json(Path(checkpoint) / "phase1/summary.json").get("finished"):
            raise ValueError(
                f"PHASE=2 starts from phase 1, which is not finished in OUTPUT_DIR={checkpoint}; train "
                "PHASE=1 there first, or set INIT_CHECKPOINT"
            )
    return {"from_phase1_final_params": checkpoint}


# ---- the first node's step -----------------------------------------------------------------------------------------


def prepare(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Check everything once, and make the shards that are missing (PREPROCESS)."""
    with usage_errors():
        plan = parse_launch_arguments(argv)
        if plan.questions:
            if environment.get("PREPROCESS") == "only":
                plan.answers()
            return OK  # else the next step answers
        when = one_of("PREPROCESS", environment.get("PREPROCESS") or "auto", ("auto", "only", "never"))
        if when != "only":
            try:  # before shards are made and not after
                plan.ranks.devices(plan.phases[0].hardware.device)
            except ValueError as error:
                ask = "where Slurm manages GPUs, ask for them: sbatch --gpus-per-node 8 ..."
                raise ValueError(f"{error}; {ask}") from None
        job_of(plan).check(here=False)
        note_progress(plan, environment)
    if when == "never":
        return OK
    steps = list[Step]()
    for config in plan.phases:
        if not is_done(config):
            steps += data_steps(plan.name, config, plan.launch.shards, plan.ranks, for_all_nodes=True)
    return execute(Job("shards", plan.phases[0].run.output_dir, tuple(steps)))


def note_progress(plan: LaunchPlan, environment: Mapping[str, str]) -> None:
    """Count the runs of this job that changed nothing: a time limit below the start-up time requeues it for ever."""
    job = environment.get("SLURM_JOB_ID", "")
    record_file = plan.phases[0].run.output_dir / f"slurm-{job}.json"
    state, known = [], read_json(record_file)  # of each phase what changes if a run makes progress
    for config in plan.phases:
        shards = config.data.input_dir
        files = [*shards.glob("*"), *(shards / UNFINISHED_NAME).rglob("*")]
        state.append([*map(str, list_steps(config.checkpoint_dir())), f"{len(files)} files of shards"])
    idle = known.get("runs_without_progress", 0) + 1 if known.get("state") == state else 0
    if idle >= MAX_RUNS_WITHOUT_PROGRESS:
        record_file.unlink()
        raise ValueError(
            f"{idle} runs of job {job} in a row saved no checkpoint and made no shards; raise --time, or lower "
            "SAVE_STEPS or the lead of --signal, and submit again"
        )
    record_file.parent.mkdir(parents=True, exist_ok=True)
    record_file.write_text(json.dumps({"state": state, "runs_without_progress": idle}) + "\n", encoding="utf-8")


def _help() -> str:
    fields = {
        name: field
        for settings in (PretrainingConfig, PretrainingLaunch)
        for name, (_, field) in flat_fields(settings).items()
    }
    fields["bin_size"] = fields["phase1_bin_size"]
    rows = dict(SPECIAL)
    for suffix, variables in (("", OF_ALL_PHASES), (", {}_PHASE2", OF_A_PHASE)):
        for name, setting in variables.items():
            text = str(fields[setting].description).replace("phase 1's bins", "bins")
            rows[name + suffix.format(name)] = f"{text}{NOTES.get(name, '')}"
    title = "Variables (NAME is for the phase that PHASE names, and for phase 1 of both; NAME_PHASE2 for phase 2):"
    return "\n".join([str(__doc__), title, *(f"  {name}\n      {text}" for name, text in rows.items())])


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(wrapped(_help()))
        return 0 if words else BAD_INPUT
    task, flags = words[0], words[1:]
    with usage_errors():
        if task not in ("prepare", "train"):
            raise ValueError(f"{task} must be prepare or train; see run.sub")
        arguments = [*launch_arguments(os.environ), *node_arguments(os.environ), *flags]
    return prepare(arguments, os.environ) if task == "prepare" else pretraining(arguments)


if __name__ == "__main__":
    sys.exit(main())

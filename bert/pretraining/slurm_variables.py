"""Turns the environment variables of run.sub into flags of scripts/run_pretraining.sh.

A flag that was typed wins over its variable. An error in a setting that a variable gave names the variable.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bert.config.flags import flag_name
from bert.config.setting_errors import explain, refuse_mistakes
from bert.files import read_json
from bert.launching.arguments import PRECISIONS, one_of
from bert.launching.processes import flags_of

NOT_GIVEN = ("", "none", "None")

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
    "OUTPUT_DIR": "; with --text the default is results/NAME, by the name of the text",
}
SPECIAL = {
    "CONFIG": "preset of both phases (default: large); with --text the size of the model (default: by the text)",
    "PHASE": "1, 2 or both (default): phase 2 follows phase 1 in the same job",
    "GPUS": "GPUs, so ranks, of each node (default: 8; with --text: all); 0: train on the CPU",
    "CPU_RANKS": "ranks of each node when GPUS=0 (default: 1; with --text: by the cores)",
    "PRECISION": "amp (also called fp16), fp32 or tf32; default: as the preset says",
    "INIT_CHECKPOINT": "the start: a run to continue (PHASE=1, both), or phase 1's result (PHASE=2; default: "
    "that in OUTPUT_DIR)",
    "PREPROCESS": "auto (default), only or never: see run.sub",
    "IMAGE_VERSION, USE_JEMALLOC": "of NVIDIA's run.sub, without effect: CONT names the container",
}
# Variables of shards and phases, which a training on own text has not.
_NOT_OF_TEXT = (
    *("INPUT_DIR", "EVAL_DIR", "BIN_SIZE", "WIKIPEDIA_SOURCE", "SAMPLE_RATIO", "DASK_TASKS_PER_NODE"),
    *("NUM_SHARDS_PER_WORKER", "INIT_CHECKPOINT", "GRADIENT_ACCUMULATION_STEPS"),
    *(f"{name}_PHASE2" for name in OF_A_PHASE),
)


def launch_arguments(environment: Mapping[str, str], is_text: bool = False) -> list[str]:
    """The flags of scripts/run_pretraining.sh that correspond to the variables.

    Args:
        is_text: of a training on own text (--text, --config evening).
    """
    variables = {name: value for name, value in environment.items() if value != ""}
    if variables.get("NUM_SHARDS_PER_WORKER") in NOT_GIVEN:
        del variables["NUM_SHARDS_PER_WORKER"]
    if variables.get("RERUN_DASK", "false") != "false":
        raise ValueError(
            f"RERUN_DASK={variables['RERUN_DASK']} would make the shards again at each requeue; "
            "delete their folder instead, as missing shards are made"
        )
    return flags_of(_text_settings(variables) if is_text else _settings(variables))


def node_arguments(environment: Mapping[str, str], is_text: bool = False) -> list[str]:
    """Flags for this node's place in the job, from the variables of Slurm and run.sub."""
    num_nodes = environment.get("SLURM_JOB_NUM_NODES", "1")
    if is_text:
        if num_nodes != "1":
            raise ValueError(
                f"the job has {num_nodes} nodes, and --text trains on one machine; submit it with -N1, or train on "
                "shards with CONFIG"
            )
        return []
    if num_nodes == "1":
        return ["--num-nodes", "1"]  # a preset may be for more
    master = f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"
    return ["--num-nodes", num_nodes, "--node-rank", environment.get("SLURM_NODEID", "0"), "--master", master]


@contextlib.contextmanager
def errors_name_variables(environment: Mapping[str, str]) -> Iterator[None]:
    """Context manager whose errors name the environment variable that set a setting."""
    try:
        yield
    except ValueError as error:
        refuse_mistakes([_with_variable(line, environment) for line in explain(error)])


def _with_variable(line: str, environment: Mapping[str, str]) -> str:
    variables = {**OF_A_PHASE, **OF_ALL_PHASES, "GPUS": "num_gpus", "CPU_RANKS": "num_processes", "CONFIG": "config"}
    named = list[str]()
    for variable, setting in variables.items():
        for name in (variable, f"{variable}_PHASE2") if variable in OF_A_PHASE else (variable,):
            value = environment.get(name, "")
            words = "|".join((flag_name(setting)[2:], setting))
            pattern = rf"(--|\b)(phase\d[-_])?({words})(?![\w-])"
            if value and value in line and re.search(pattern, line) and f"{name}=" not in line:
                named.append(f"{name}={value}")
    return f"{line} (here it comes from {' and '.join(named)} in the environment)" if named else line


def _settings(variables: Mapping[str, str]) -> dict[str, Any]:
    phase = one_of("PHASE", variables.get("PHASE", "both"), ("both", "1", "2"))
    settings: dict[str, Any] = {"config": variables.get("CONFIG", "large")}
    settings |= {setting: variables[name] for name, setting in OF_ALL_PHASES.items() if name in variables}
    settings |= {} if phase == "both" else {f"phase{phase}": True}
    for number in (1, 2) if phase == "both" else (int(phase),):
        settings |= _of_a_phase(variables, number, both=phase == "both")
    settings["num_processes"] = gpus = variables.get("GPUS", "8")
    if gpus == "0":
        settings |= {"device": "cpu", "num_processes": variables.get("CPU_RANKS", "1")}
    return settings | _precision(variables) | _start(variables, phase)


def _text_settings(variables: Mapping[str, str]) -> dict[str, Any]:
    """Settings of a training with --text; settings without a variable are left to the plan."""
    for name in _NOT_OF_TEXT:
        if variables.get(name, "none") not in NOT_GIVEN:
            raise ValueError(
                f"{name}={variables[name]} is for a training on shards; unset it, as --text makes its own data, "
                "counts its own batches and resumes by itself"
            )
    for name, usual in {"PHASE": "both", "PREPROCESS": "auto"}.items():
        if (value := variables.get(name, usual)) != usual:
            raise ValueError(
                f"{name}={value} is for a training on shards; unset it: --text makes its data and trains in one step"
            )
    names = OF_A_PHASE | OF_ALL_PHASES | {"CONFIG": "config"}
    settings: dict[str, Any] = {setting: variables[name] for name, setting in names.items() if name in variables}
    settings.pop("gradient_merge_steps", None)
    if settings.get("output_dir") == f"{variables.get('CODE_DIR')}/results":  # run.sub's default
        del settings["output_dir"]
    if variables.get("GPUS") == "0":
        ranks = {"num_processes": variables["CPU_RANKS"]} if "CPU_RANKS" in variables else {}
        settings |= {"device": "cpu", **ranks}
    elif "GPUS" in variables:
        settings["num_processes"] = variables["GPUS"]
    return settings | _precision(variables)


def _precision(variables: Mapping[str, str]) -> dict[str, Any]:
    if "PRECISION" not in variables:
        return {}
    return dict(PRECISIONS[one_of("PRECISION", variables["PRECISION"], PRECISIONS)])


def _of_a_phase(variables: Mapping[str, str], phase: int, both: bool) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, setting in OF_A_PHASE.items():
        value = "" if both and phase == 2 else variables.get(name, "")
        if value := variables.get(f"{name}_PHASE2", value) if phase == 2 else value:
            values[setting] = value
    of_shards = {}
    if bins := values.pop("bin_size", None):
        of_shards[f"phase{phase}_bin_size"] = bins.lower()
        folder = "unbinned" if bins in NOT_GIVEN else f"bin_size_{bins}"
        values.setdefault("input_dir", f"$BERT_PREP_WORKING_DIR/pretrain/phase{phase}/{folder}/parquet")
    if values.get("gradient_merge_steps", "none") in NOT_GIVEN:
        values.pop("gradient_merge_steps", None)
    else:
        values["global_batch_size"] = "none"
    prefix = f"phase{phase}_" if both else ""
    return of_shards | {prefix + setting: value for setting, value in values.items()}


def _start(variables: Mapping[str, str], phase: str) -> dict[str, str]:
    """Initial weights of the first phase, used until it has a checkpoint in OUTPUT_DIR."""
    checkpoint = variables.get("INIT_CHECKPOINT", "none")
    if phase != "2":
        is_new = checkpoint in NOT_GIVEN
        return {} if is_new else {"from_checkpoint": checkpoint, "last_step_of_checkpoint": "auto"}
    if checkpoint in NOT_GIVEN:
        checkpoint = variables.get("OUTPUT_DIR", "results")
        if not read_json(Path(checkpoint) / "phase1/summary.json").get("finished"):
            raise ValueError(
                f"PHASE=2 starts from phase 1, which is not finished in OUTPUT_DIR={checkpoint}; train "
                "PHASE=1 there first, or set INIT_CHECKPOINT"
            )
    return {"from_phase1_final_params": checkpoint}

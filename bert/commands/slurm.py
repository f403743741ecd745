"""Pre-train as a Slurm job: run.sub starts this command on the nodes.

Environment variables become flags of scripts/run_pretraining.sh; a flag among FLAGS wins over its variable. `prepare`
runs once, on the first node: it checks the settings, makes missing shards and refuses a job that is requeued for ever
without progress. With --dry-run it only names the shards that it would make. `train` runs on every node. `plan`
answers --dry-run, --show-config and --plan on a login node, where sbatch's -N (--nodes) and -t (--time) may be among
FLAGS. Exit codes are as for bert.commands.pretrain.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from bert.checkpoints.directories import list_steps
from bert.commands import slurm_plan
from bert.commands.pretrain import LAUNCHER, planned
from bert.commands.pretrain import main as pretraining
from bert.config.flags import flat_fields
from bert.config.setting_errors import usage_errors
from bert.exit_codes import BAD_INPUT, OK
from bert.files import read_json
from bert.help_parser import HelpParser, wrapped
from bert.jobs.job import Execution, Job, Planned, Step, execute
from bert.jobs.record import JobRecord
from bert.launching.arguments import one_of, read_command_line
from bert.launching.previous_run import is_done
from bert.launching.settings import LaunchPlan
from bert.own_text.flags import is_about_own_text
from bert.own_text.start import checkpoint_steps
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.launch_settings import PretrainingLaunch
from bert.pretraining.preparation import data_steps
from bert.pretraining.slurm_variables import (
    NOTES,
    OF_A_PHASE,
    OF_ALL_PHASES,
    SPECIAL,
    errors_name_variables,
    launch_arguments,
    node_arguments,
)
from bert.samples.manifest import UNFINISHED_NAME

MAX_RUNS_WITHOUT_PROGRESS = 3
_TASKS = ("prepare", "train", "plan")


def command_line(flags: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Arguments of scripts/run_pretraining.sh: from the variables, for this node, then the user's flags."""
    named = {"config": environment["CONFIG"]} if environment.get("CONFIG") else {}
    is_text = is_about_own_text(named | read_command_line(LAUNCHER, flags).launch)
    return [*launch_arguments(environment, is_text), *node_arguments(environment, is_text), *flags]


# ---- the first node's step -----------------------------------------------------------------------------------------


def prepare(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Check everything once, and make missing shards unless PREPROCESS forbids it."""
    with usage_errors(), errors_name_variables(environment):
        command = planned(argv)
        plan = command.plan
        if plan.questions:
            if environment.get("PREPROCESS") == "only":
                plan.answers()
            elif "dry_run" in command.line.launch:  # the step `train` shows the plan of the training
                _show_preparation(command, environment)
            return OK
        when = _when_to_prepare(environment)
        if when != "only" and plan.phases:
            try:  # before shards are made and not after
                plan.ranks.devices(plan.phases[0].hardware.device)
            except ValueError as error:
                ask = "where Slurm manages GPUs, ask for them: sbatch --gpus-per-node 8 ..."
                raise ValueError(f"{error}; {ask}") from None
        command.job.check(here=False)
        note_progress(command, environment)
    if when == "never":
        return OK
    job = _preparation(plan, command.job.output_dir)
    return execute(job) if job.steps else OK


def _when_to_prepare(environment: Mapping[str, str]) -> str:
    return one_of("PREPROCESS", environment.get("PREPROCESS") or "auto", ("auto", "only", "never"))


def _preparation(plan: LaunchPlan, output_dir: Path) -> Job:
    """The job that makes the missing data of the phases that are not trained yet."""
    steps = list[Step]()
    for config in plan.phases:
        if not is_done(config):
            steps += data_steps(plan.name, config, plan.launch.shards, plan.ranks, for_all_nodes=True)
    return Job("shards", output_dir, tuple(steps))


def _show_preparation(command: Planned, environment: Mapping[str, str]) -> None:
    """Print the steps that `prepare` would run."""
    job = _preparation(command.plan, command.job.output_dir)
    missing = Execution(job, JobRecord.of(job.output_dir)).steps_left()
    if _when_to_prepare(environment) == "never":
        print("prepare: checks the settings; PREPROCESS=never, so no shards are made")
    elif missing:
        print("prepare: checks the settings, then makes the missing data:")
        for number, step in enumerate(missing, 1):
            product = "" if step.product is None else f": {step.product}"
            print(wrapped(f"{number}. {step.title}{product}", indent="  "))
    else:
        print("prepare: checks the settings; no data are missing before the training")


def note_progress(command: Planned, environment: Mapping[str, str]) -> None:
    """Count the runs of this job without progress: if its time limit is too short, it would be requeued for ever."""
    job, output_dir = environment.get("SLURM_JOB_ID", ""), command.job.output_dir
    record_file = output_dir / f"slurm-{job}.json"
    state, known = [], read_json(record_file)  # of each phase what changes if a run makes progress
    for config in command.plan.phases:
        shards = config.data.input_dir
        files = [*shards.glob("*"), *(shards / UNFINISHED_NAME).rglob("*")]
        state.append([*map(str, list_steps(config.checkpoint_dir())), f"{len(files)} files of shards"])
    if not command.plan.phases:  # own text, whose data lie in the output folder
        files = [*(output_dir / "data").rglob("*")]
        state.append([*map(str, sorted(checkpoint_steps(output_dir))), f"{len(files)} files of data"])
    idle = known.get("runs_without_progress", 0) + 1 if known.get("state") == state else 0
    if idle >= MAX_RUNS_WITHOUT_PROGRESS:
        record_file.unlink()
        raise ValueError(
            f"{idle} runs of job {job} in a row saved no checkpoint and made no shards; raise --time, or lower "
            "SAVE_STEPS or the lead of --signal, and submit again"
        )
    record_file.parent.mkdir(parents=True, exist_ok=True)
    record_file.write_text(json.dumps({"state": state, "runs_without_progress": idle}) + "\n", encoding="utf-8")


# ---- the command ---------------------------------------------------------------------------------------------------


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
            text, *default = str(fields[setting].description).replace("phase 1's bins", "bins").partition(" (default: ")
            rows[name + suffix.format(name)] = "".join([text, NOTES.get(name, ""), *default])
    title = "Variables (NAME is for the phase that PHASE names, and for phase 1 of both; NAME_PHASE2 for phase 2):"
    parser = HelpParser(
        prog="bert.commands.slurm",
        usage="%(prog)s prepare|train|plan [flags]",
        description=__doc__,
        examples=("plan --dry-run", "plan --config large --show-config"),
    )
    listed = "\n".join([title, *(f"  {name}\n      {text}" for name, text in rows.items())])
    return f"{parser.introduction()}\n\n{wrapped(listed)}"


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("-h", "--help"):
        print(_help())
        return 0 if words else BAD_INPUT
    task, flags, environment = words[0], words[1:], dict(os.environ)
    with usage_errors(), errors_name_variables(environment):
        if task not in _TASKS:
            raise ValueError(f"{task} must be {', '.join(_TASKS[:-1])} or {_TASKS[-1]}; see run.sub")
        if task == "plan":
            options, flags = slurm_plan.read_sbatch_options(flags, environment)
            environment |= slurm_plan.variables_of(options)
            slurm_plan.show(command_line(flags, environment), options)
            return OK
        arguments = command_line(flags, environment)
    return prepare(arguments, environment) if task == "prepare" else pretraining(arguments)


if __name__ == "__main__":
    sys.exit(main())

"""Prints the plan of a training on the user's text, and checks that an earlier training can continue with it."""

from bert.config.run_file import dump_yaml
from bert.config.unread_settings import unread_warnings
from bert.help_parser import wrapped
from bert.jobs.record import JobRecord
from bert.launching.previous_run import refuse_other_run
from bert.own_text.plan_table import table
from bert.own_text.record import TextRecord
from bert.own_text.request import TextRequest
from bert.own_text.start import checkpoint_steps, training_config
from bert.pretraining.config import PretrainingConfig
from bert.reporting.progress import duration


def show(request: TextRequest, record: TextRecord, job: JobRecord) -> PretrainingConfig:
    """Print the plan and return the settings. ValueError if the earlier training cannot continue with them."""
    plan, done = record.plan, max(checkpoint_steps(request.output_dir), default=0)
    config = training_config(request, record)
    if request.shows_config:
        print(dump_yaml(config))
        return config
    print(f"\n{table(plan, request, has_begun=done > 0)}\n")
    if request.weights is not None:
        head = "is kept" if "masked-LM head" in request.weights.heads else "is missing there and starts at random"
        print(f"The masked-LM head of {request.weights.path.name} {head}.")
    for line in (*plan.warnings, *unread_warnings(config, request.settings)):
        print(wrapped(f"warning: {line}"))
    if done:
        print(f"The training is at update {done:,}; {duration(job.used())} were used.")
    print(flush=True)
    config.batch.gradient_accumulation_steps(plan.ranks)
    if config.run.max_steps < done:
        asked = f"max_steps={config.run.max_steps}"
        if request.length.epochs is not None:
            asked = f"epochs={request.length.epochs:g} are {config.run.max_steps:,} updates and"
        raise ValueError(
            f"{asked} must be at least the {done:,} updates that were made (more extends it); for a shorter training "
            "pass another --output-dir"
        )
    refuse_other_run(config, plan.ranks)
    return config

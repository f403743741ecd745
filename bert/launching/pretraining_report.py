"""The results of a pre-training: one summary of both phases, one picture, one table, and what to try next."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert.files import read_json
from bert.interpreter import shell_command
from bert.launching.pretraining_plan import LaunchPlan
from bert.reporting.curves import curves_command
from bert.reporting.figures import duration
from bert.reporting.report_reading import RunRecord, read_run

_ROWS = (  # title, key of summary.json, format
    ("updates", "steps", ","),
    ("epochs over the samples", "epochs", ".2f"),
    ("training loss (masked LM + next sentence)", "final_loss", ".3f"),
    ("masked-LM loss before training, held out (nats)", "initial_eval_masked_lm_loss", ".3f"),
    ("masked-LM loss, held out (nats)", "eval_masked_lm_loss", ".3f"),
    ("lowest masked-LM loss, held out (nats)", "best_eval_masked_lm_loss", ".3f"),
    ("... after update, kept as a checkpoint", "best_step", ","),
    ("unigram entropy, to be below (nats)", "unigram_entropy", ".3f"),
    ("masked-LM accuracy, held out", "eval_masked_lm_accuracy", ".1%"),
    ("next-sentence accuracy, held out", "eval_next_sentence_accuracy", ".1%"),
    ("sequences a second", "training_sequences_per_second", ",.1f"),
    ("tokens a second", "tokens_per_second", ",.0f"),
    ("model FLOPs utilisation", "mfu", ".1%"),
    ("updates skipped for overflow", "skipped_steps", ",.0f"),
)


def show(plan: LaunchPlan, seconds: float | None) -> None:
    """Write summary.json and loss.png beside the phases, print the table and what to do next.

    Args:
        seconds: of this start; None: it trained nothing.
    """
    show_figures(plan, seconds)
    show_commands(next_commands(plan))


def show_commands(commands: Sequence[tuple[str, str]]) -> None:
    """Print (purpose, command)."""
    print("\n".join(["Next, try:", *(f"  {command}   # {purpose}" for purpose, command in commands)]))


def show_figures(plan: LaunchPlan, seconds: float | None) -> None:
    """Write summary.json and loss.png beside the phases, and print the table; `seconds` as for `show`."""
    output_dir = plan.phases[0].run.output_dir
    runs = [read_run(config.stage_dir(), config.stage()) for config in plan.phases]
    summaries = {run.name: run.summary for run in runs}
    summary_file, picture = output_dir / "summary.json", output_dir / "loss.png"
    known = read_json(summary_file)  # of the other phase, when this plan has only one
    summary_file.write_text(json.dumps({**known, "preset": plan.name, **summaries}, indent=2) + "\n", encoding="utf-8")
    try:
        draw(picture, runs, [config.run.max_steps for config in plan.phases])
    except Exception as error:  # a picture is never worth a failed run
        print(f"no picture: {error}")
    print_table(summaries)
    if seconds is None:
        trained = sum(summary.get("e2e_train_time") or 0.0 for summary in summaries.values())
        took = f"Trained before{f', in {duration(trained)}' if trained else ''}"
    else:
        took = duration(seconds)
    print(f"\n{took}. Summary: {summary_file}. Picture: {picture}")


def print_table(summaries: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Held-out results")
    table.add_column("")
    for phase in summaries:
        table.add_column(phase.replace("phase", "phase "), justify="right")
    evaluated = [summary for summary in summaries.values() if "eval_masked_lm_loss" in summary]
    is_mlm = bool(evaluated) and not any("eval_next_sentence_accuracy" in summary for summary in evaluated)
    for title, key, form in _ROWS:
        values = [summary.get(key) for summary in summaries.values()]
        if key.startswith("initial_") and not any(values):  # the weights were random
            continue
        if is_mlm and "next_sentence" in key:
            continue
        title = title.replace(" + next sentence", "") if is_mlm else title
        table.add_row(title, *("-" if value is None else format(value, form) for value in values))
    console = Console()
    with console.capture() as text:  # on a closed pipe rich would end the process
        console.print(table)
    print(text.get())


def next_commands(plan: LaunchPlan) -> list[tuple[str, str]]:
    """(purpose, command)."""
    pretrain, longer = "scripts/run_pretraining.sh", ["--output-dir", "results/longer", "--phase1-max-steps", "4000"]
    return [
        curves_command(plan.phases[-1].run.output_dir),
        ("train longer", shell_command(pretrain, *longer)),
        ("what BERT-large on 8 GPUs would take", shell_command(pretrain, "--config", "large", "--dry-run")),
        ("fine-tune what was trained", shell_command("scripts/run_squad.sh", "--help")),
    ]


def draw(picture: Path, runs: Sequence[RunRecord], max_steps: Sequence[int]) -> None:
    """Masked-LM loss over the updates of all phases: training, held out, and the unigram entropy."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    start = 0
    for run, steps in zip(runs, max_steps, strict=True):
        title, color = run.name.replace("phase", "phase "), f"C{int(run.name[-1]) - 1}"
        for key, style, label, alpha in (
            ("masked_lm_loss", "-", "training", 0.6),
            ("eval_masked_lm_loss", "o--", "held out", 1.0),
        ):
            if points := [(start + step, value) for step, value in run.curve(key)]:
                curve = zip(*points, strict=True)
                axes.plot(*curve, style, markersize=4, label=f"{title}, {label}", color=color, alpha=alpha)
        if (entropy := run.summary.get("unigram_entropy")) is not None:
            label = "unigram entropy" if start == 0 else "_"
            axes.hlines(entropy, start, start + steps, colors="0.5", linestyles="dotted", label=label)
        start += steps
    axes.set_xlabel("update")
    axes.set_ylabel("masked-LM loss (nats)")
    axes.legend()
    figure.tight_layout()
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)

"""The results of a pre-training: a table of its phases, a plot of the losses, the next commands."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert.config.training_settings import TrainingConfig
from bert.files import read_json
from bert.help_parser import WIDTH, wrapped, wrapped_command
from bert.reporting.metric_titles import metric_title
from bert.reporting.progress import duration, figure
from bert.reporting.run_record import RunRecord, read_run

_ROWS = (  # title, key of summary.json, format
    ("updates", "steps", ","),
    ("epochs", "epochs", ".2f"),
    ("training loss (masked LM + next sentence)", "final_loss", ".3f"),
    ("masked-LM loss before training, held out (nats)", "initial_eval_masked_lm_loss", ".3f"),
    (metric_title("eval_masked_lm_loss"), "eval_masked_lm_loss", ".3f"),
    ("lowest masked-LM loss, held out (nats)", "best_eval_masked_lm_loss", ".3f"),
    ("... after update, kept as a checkpoint", "best_step", ","),
    (metric_title("unigram_entropy"), "unigram_entropy", ".3f"),
    (metric_title("eval_masked_lm_accuracy"), "eval_masked_lm_accuracy", ".1%"),
    (metric_title("eval_next_sentence_accuracy"), "eval_next_sentence_accuracy", ".1%"),
    (metric_title("training_sequences_per_second"), "training_sequences_per_second", ",.1f"),
    (metric_title("tokens_per_second"), "tokens_per_second", ",.0f"),
    (metric_title("mfu"), "mfu", ".1%"),
    (metric_title("skipped_steps"), "skipped_steps", ",.0f"),
)

_TERMS = (
    "An update changes the weights once. Losses are in nats, lower is better. The unigram entropy is the loss of "
    "guessing by the frequency of words."
)


def show_figures(preset: str, phases: Sequence[TrainingConfig], seconds: float | None) -> None:
    """Write summary.json and loss.png, and print the table; `seconds` is None if nothing was trained."""
    output_dir = phases[0].run.output_dir
    runs = [read_run(config.stage_dir(), config.stage()) for config in phases]
    summaries = {run.name: run.summary for run in runs}
    summary_file, picture = output_dir / "summary.json", output_dir / "loss.png"
    known = read_json(summary_file)  # of the other phase, if this command trains only one
    summary_file.write_text(json.dumps({**known, "preset": preset, **summaries}, indent=2) + "\n", encoding="utf-8")
    try:
        draw(picture, runs)
    except Exception as error:  # a picture is never worth a failed run
        print(f"no picture: {error}")
    print_table(summaries)
    if seconds is None:
        times = [time for summary in summaries.values() if (time := summary.get("e2e_train_time")) is not None]
        is_known = len(times) == len(summaries)
        took = f"Trained before{f', in {duration(sum(times))}' if is_known else ''}"
    else:
        took = duration(seconds)
    print(f"\n{wrapped(f'{took}. Summary: {summary_file}. Picture: {picture}')}")


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
        if all(value is None for value in values):  # such as what labelled lines or given weights alone have
            continue
        title = title.replace(" + next sentence", "") if is_mlm else title
        table.add_row(title, *(figure(value, form) for value in values))
    if any("unigram_entropy" in summary for summary in evaluated):
        table.caption, table.caption_justify = _TERMS, "left"
    console = Console()
    with console.capture() as text:  # on a closed pipe rich would end the process
        console.print(table)
    print(text.get())


def next_commands(commands: Sequence[tuple[str, str]]) -> str:
    """Lines with purposes and commands; long commands are wrapped for a shell."""
    lines = ["Next, try:"]
    for purpose, command in commands:
        lines.append(f"  {command}   # {purpose}")
        if len(lines[-1]) > WIDTH:
            lines[-1] = f"  {wrapped(f'# {purpose}', WIDTH - 2, '  # ')}\n{wrapped_command(command)}"
    return "\n".join(lines)


def draw(picture: Path, runs: Sequence[RunRecord]) -> None:
    """Plot masked-LM loss over the updates of all phases: training, held out, and the unigram entropy."""
    from matplotlib.figure import Figure  # slow to import; a Figure without pyplot needs no display

    figure = Figure(figsize=(8, 4.5), layout="tight")
    axes, start = figure.subplots(), 0
    for run in runs:
        title, color = run.name.replace("phase", "phase "), f"C{int(run.name[-1]) - 1}"
        for key, style, label, alpha in (
            ("masked_lm_loss", "-", "training", 0.6),
            ("eval_masked_lm_loss", "o--", "held out", 1.0),
            ("eval_expected_masked_lm_loss", "x:", "held out, expected", 0.6),
        ):
            if points := [(start + step, value) for step, value in run.curve(key)]:
                curve = zip(*points, strict=True)
                axes.plot(*curve, style, markersize=4, label=f"{title}, {label}", color=color, alpha=alpha)
        end = start + run.summary.get("steps", 0)
        if (entropy := run.summary.get("unigram_entropy")) is not None:
            label = "unigram entropy" if start == 0 else "_"
            axes.hlines(entropy, start, end, colors="0.5", linestyles="dotted", label=label)
        start = end
    axes.set(xlabel="update", ylabel="masked-LM loss (nats)")
    axes.legend()
    figure.savefig(picture, dpi=120)

"""What came out of a run of both phases: one summary, one picture, one table, and what to try next."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from bert.config.command_line import dump_yaml
from bert.launching.plan import LaunchPlan
from bert.pretraining.config import PretrainingConfig

_LEARNING_SECTIONS = ("model", "optimizer", "precision")  # a change of the batch is refused with its checkpoint
_LEARNING_FIELDS = (
    "input_dir",
    "max_seq_length",
    "max_predictions_per_seq",
    "masking",
    "whole_word_masking",
    "masked_lm_ratio",
    "seed",
    "max_steps",
)


def read_summary(config: PretrainingConfig) -> dict[str, Any] | None:
    """What run_pretraining.py left at the end of the phase; None before that."""
    return _read_json(config.stage_dir() / "summary.json")


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def learning_settings(source: "PretrainingConfig | Path") -> dict[str, Any]:
    """The settings that decide what is learned, from a config or from a file of `dump_yaml`."""
    if isinstance(source, PretrainingConfig):
        names = [name for section in _LEARNING_SECTIONS for name in type(getattr(source, section)).model_fields]
        values = yaml.safe_load(dump_yaml(source))
        return {name: values[name] for name in [*names, *_LEARNING_FIELDS]}
    values = yaml.safe_load(source.read_text(encoding="utf-8"))
    return values if isinstance(values, dict) else {}


def show(plan: LaunchPlan, seconds: float) -> None:
    """Write summary.json and loss.png beside the phases, and print the table."""
    output_dir = plan.phases[0].run.output_dir
    summaries = {f"phase{config.run.phase}": read_summary(config) or {} for config in plan.phases}
    summary_file = output_dir / "summary.json"
    known = _read_json(summary_file) or {}  # of the other phase, when this plan has only one
    summary_file.write_text(json.dumps({**known, "preset": plan.name, **summaries}, indent=2) + "\n", encoding="utf-8")
    picture = output_dir / "loss.png"
    try:
        draw(
            picture,
            [
                (config, _metrics(config), summary)
                for config, summary in zip(plan.phases, summaries.values(), strict=True)
            ],
        )
    except Exception as error:  # a picture is never worth a failed run
        print(f"no picture: {error}")
    print_table(summaries)
    print(f"\n{seconds / 60:.1f} minutes. Summary: {summary_file}. Picture: {picture}")
    print("\n".join(["Next, try:", *next_commands(plan)]))


def print_table(summaries: dict[str, dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Held-out results")
    table.add_column("")
    for phase in summaries:
        table.add_column(phase.replace("phase", "phase "), justify="right")
    for title, text_of in _ROWS:
        table.add_row(title, *(text_of(summary) for summary in summaries.values()))
    console = Console()
    with console.capture() as text:  # rich would end the process if nobody reads
        console.print(table)
    print(text.get())


def _row(key: str, form: str) -> Any:
    return lambda summary: format(summary[key], form) if summary.get(key) is not None else "-"


_ROWS = (
    ("updates", _row("steps", ",")),
    ("training loss (masked LM + next sentence)", _row("final_loss", ".3f")),
    ("masked-LM loss, held out (nats)", _row("eval_masked_lm_loss", ".3f")),
    ("unigram entropy, to be below (nats)", _row("unigram_entropy", ".3f")),
    ("masked-LM accuracy, held out", _row("eval_masked_lm_accuracy", ".1%")),
    ("next-sentence accuracy, held out", _row("eval_next_sentence_accuracy", ".1%")),
    ("sequences a second", _row("training_sequences_per_second", ",.1f")),
    ("tokens a second", _row("tokens_per_second", ",.0f")),
    ("model FLOPs utilisation", _row("mfu", ".1%")),
    ("updates skipped for overflow", _row("skipped_steps", ",.0f")),
)


def next_commands(plan: LaunchPlan) -> list[str]:
    output_dir = plan.phases[-1].run.output_dir
    commands = [
        ("the curves in a browser", f"visualdl --logdir {output_dir}"),
        ("train longer", "bash scripts/run_pretraining.sh --output-dir results/longer --phase1-max-steps 4000"),
        ("what BERT-large on 8 GPUs would take", "bash scripts/run_pretraining.sh --config large --dry-run"),
    ]
    if (plan.code_dir / "run_squad.py").exists():
        commands.append(("fine-tune what was trained", "bash scripts/run_squad.sh --help"))
    return [f"  {command}   # {purpose}" for purpose, command in commands]


def draw(picture: Path, phases: Iterable[tuple[PretrainingConfig, list[dict[str, Any]], dict[str, Any]]]) -> None:
    """Masked-LM loss over the updates of all phases: training, held out, and the unigram entropy to beat."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5))
    start = 0
    for config, rows, summary in phases:
        phase, end = config.run.phase, start + config.run.max_steps
        for key, style, label in (("masked_lm_loss", "-", "training"), ("eval_masked_lm_loss", "o--", "held out")):
            points = [(start + row["step"], row[key]) for row in rows if row.get(key) is not None]
            if points:
                axes.plot(
                    *zip(*points, strict=True),
                    style,
                    markersize=4,
                    label=f"phase {phase}, {label}",
                    color=f"C{phase - 1}",
                    alpha=0.6 if key == "masked_lm_loss" else 1.0,
                )
        if summary.get("unigram_entropy") is not None:
            axes.hlines(
                summary["unigram_entropy"],
                start,
                end,
                colors="0.5",
                linestyles="dotted",
                label="unigram entropy" if start == 0 else "_",
            )
        start = end
    axes.set_xlabel("update")
    axes.set_ylabel("masked-LM loss (nats)")
    axes.legend()
    figure.tight_layout()
    figure.savefig(picture, dpi=120)
    pyplot.close(figure)


def _metrics(config: PretrainingConfig) -> list[dict[str, Any]]:
    """Logged rows in order of their step; of a step repeated after a resume, the last."""
    rows: dict[tuple[int, bool], dict[str, Any]] = {}
    try:
        lines = (config.stage_dir() / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    for line in lines:
        try:
            row = json.loads(line)
            rows[int(row["step"]), "eval_masked_lm_loss" in row] = row
        except (ValueError, KeyError, TypeError):
            continue  # the last line of a killed run may be cut
    return [rows[key] for key in sorted(rows)]

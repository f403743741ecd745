"""Makes one report of one or more runs, with plots: HTML or Markdown in a single file.

    python -m bert.reporting results/quickstart/phase1 results/other/phase1 --html report.html

A RUN is the folder of a stage (phase1, squad, ...) with metrics.jsonl, config.yaml and summary.json, or a folder of
any number of such folders at any depth, as for `visualdl --logdir`. Runs that are not finished, were stopped or are
damaged are reported as far as they can be read; `--list` only names the runs.
"""

import base64
import html
import io
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.config.command_line import usage_errors
from bert.files import write_atomically
from bert.help_parser import HelpParser
from bert.reporting.progress import duration, metric_form
from bert.reporting.report_reading import RunRecord, find_runs, read_run


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Table:
    header: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Picture:
    title: str
    png: bytes

    def uri(self) -> str:
        return f"data:image/png;base64,{base64.b64encode(self.png).decode()}"


Block = Heading | Text | Table | Picture

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0;display:block;overflow-x:auto}
td,th{border:1px solid #ddd;padding:.25em .6em;text-align:left;vertical-align:top}
th{background:#f4f4f4}img{max-width:100%;width:530px}"""


def to_html(title: str, blocks: list[Block]) -> str:
    body = "\n".join(_html(block) for block in blocks)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>{html.escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def _html(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h{block.level}>{html.escape(block.text)}</h{block.level}>"
    if isinstance(block, Text):
        return f"<p>{html.escape(block.text)}</p>"
    if isinstance(block, Picture):
        return f'<img alt="{html.escape(block.title)}" src="{block.uri()}">'
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in block.header)
    rows = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in block.rows)
    return f"<table><tr>{head}</tr>{rows}</table>"


def to_markdown(title: str, blocks: list[Block]) -> str:
    return "\n\n".join([f"# {_plain(title)}", *(_markdown(block) for block in blocks)]) + "\n"


def _markdown(block: Block) -> str:
    if isinstance(block, Heading):
        return f"{'#' * block.level} {_plain(block.text)}"
    if isinstance(block, Text):
        return _plain(block.text)
    if isinstance(block, Picture):
        return f"![{_plain(block.title)}]({block.uri()})"
    lines = [block.header, ["---"] * len(block.header), *block.rows]
    return "\n".join("| " + " | ".join(_plain(cell) for cell in line) + " |" for line in lines)


def _plain(text: str) -> str:
    """The text on one line, with the characters escaped that Markdown interprets."""
    for mark in "\\`*_<>|[]":
        text = text.replace(mark, "\\" + mark)
    return " ".join(text.split())


_FIRST = tuple("loss eval_masked_lm_loss learning_rate gradient_norm seqs_per_sec loss_scale skipped_steps".split())
_UNPLOTTED = ("step_samples", "step_cost", "padded_tokens_per_sec", "eval_sequences")
_LOGARITHMIC = ("gradient_norm", "loss_scale")
_MOST_POINTS = 2_000  # of one curve
_MOST_LABELS = 12  # of one plot
_MOST_COLUMNS = 6  # of runs in one table


def blocks_of(runs: Sequence[RunRecord]) -> list[Block]:
    """The whole report."""
    now = time.strftime("%Y-%m-%d %H:%M")
    until = ", ".join(f"{run.name} until update {run.last_step() or 0:,}" for run in runs)
    blocks: list[Block] = [Text(f"Read at {now}: {until}."), Heading("Results"), _readable(results_table(runs))]
    blocks += [Text(f"{run.name}: {complaint}") for run in runs for complaint in run.complaints]
    blocks.append(Heading("Curves"))
    pictures = [picture for name in plotted_metrics(runs) if (picture := draw(name, runs)) is not None]
    blocks += pictures or [Text("There is nothing to draw yet.")]
    if len(runs) > 1:
        blocks += [Heading("Settings that differ"), *differences(runs)]
    blocks += [
        Heading("Starts"),
        Text("Each start of a run, with the steps it logged; those after the first continue a checkpoint."),
        _legs_table(runs),
    ]
    blocks += [Heading("Settings"), *_settings(runs)]
    return blocks


def results_table(runs: Sequence[RunRecord]) -> Table:
    """A column for each run, a row for each figure that any of them has."""
    rows: list[list[str]] = []

    def add(title: str, values: list[Any]) -> None:
        if any(value is not None for value in values):
            rows.append([title, *(_shown(value) for value in values)])

    add("updates", [_progress(run) for run in runs])
    final = [run.last("final_loss") for run in runs]
    add("final loss", [run.last("loss") if loss is None else loss for run, loss in zip(runs, final, strict=True)])
    names = {name for run in runs for name in [*run.summary, *run.metric_names()]}
    for name in sorted(name for name in names if name.startswith("eval_")):
        add(name.replace("_", " "), [_metric(name, run) for run in runs])
        if name == "eval_masked_lm_loss":
            add("unigram entropy, to be below", [run.summary.get("unigram_entropy") for run in runs])
    for title, name, else_median in (
        ("sequences/s", "training_sequences_per_second", "seqs_per_sec"),
        ("inference sequences/s", "inference_sequences_per_second", ""),
        ("tokens/s", "tokens_per_second", "tokens_per_sec"),
    ):
        add(title, [run.summary.get(name) or _median(run, else_median) for run in runs])
    utilisations = [run.summary.get("mfu") or _median(run, "mfu") for run in runs]
    add("model FLOPs utilisation", [None if value is None else f"{value:.1%}" for value in utilisations])
    add("skipped updates", [run.last("skipped_steps") for run in runs])
    add("loss scale", [run.last("loss_scale") for run in runs])
    add("ranks", [run.summary.get("world_size") for run in runs])
    add("starts", [len(run.legs) or None for run in runs])
    add("time, all starts", [duration(sum(leg.seconds for leg in run.legs)) if run.legs else None for run in runs])
    add("checkpoints", [_checkpoints(run) for run in runs])
    add("folder", [str(run.directory) for run in runs])
    return Table(["", *(run.name for run in runs)], rows)


def _checkpoints(run: RunRecord) -> str | None:
    steps = ", ".join(map(str, run.checkpoints))
    return f"{steps} ({run.checkpoint_bytes / 1e6:,.0f} MB)" if steps else None


def _progress(run: RunRecord) -> str | None:
    total = run.settings.get("max_steps")
    done = run.summary.get("steps") or max((row["step"] for row in run.training), default=None)
    if done is None:
        return None
    text = f"{done:,}" + (f" of {total:,}" if isinstance(total, int) and total > 0 else "")
    if run.summary.get("interrupted_by"):
        return f"{text}, stopped by {run.summary['interrupted_by']}"
    return text if run.summary.get("finished", "steps" in run.summary) else f"{text}, not finished"


def plotted_metrics(runs: Sequence[RunRecord]) -> list[str]:
    """The known metrics first, then the others that the runs logged."""
    names = dict.fromkeys(name for run in runs for name in run.metric_names())
    rest = sorted(name for name in names if name not in (*_FIRST, *_UNPLOTTED))
    return [name for name in (*_FIRST, *rest) if name in names]


def draw(name: str, runs: Sequence[RunRecord]) -> Picture | None:
    """The plot of one metric of all runs over the steps; phase 2 follows phase 1. None if no run has a number of it."""
    curves = [(run, run.curve(name)) for run in runs]
    curves = [(run, curve[:: max(1, -(-len(curve) // _MOST_POINTS))]) for run, curve in curves if curve]
    if not curves:
        return None
    from matplotlib.figure import Figure  # slow to import; a Figure without pyplot needs no display

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for run, curve in curves:
        before = updates_before(run, runs)
        steps, values = zip(*((before + step, value) for step, value in curve), strict=True)
        shown = run.name.replace("$", r"\$").lstrip(
            "_"
        )  # $ would begin a formula, and a first underscore hide the label
        (line,) = axes.plot(steps, values, label=shown, linewidth=1.2, marker="." if len(curve) < 30 else None)
        entropy = run.summary.get("unigram_entropy")
        if name == "eval_masked_lm_loss" and isinstance(entropy, float):
            ends = (before, max(before + (run.last_step() or 0), before + 1))
            axes.plot(
                ends, (entropy, entropy), color=line.get_color(), linestyle=":", label=f"{shown}: unigram entropy"
            )
    if name in _LOGARITHMIC and all(value > 0 for _, curve in curves for _, value in curve):
        axes.set_yscale("log", base=2 if name == "loss_scale" else 10)
    title = name.removeprefix("eval_").replace("_", " ") + (" (held out)" if name.startswith("eval_") else "")
    axes.set(title=title, xlabel="updates")
    axes.grid(alpha=0.3)
    if len(runs) > 1 or name == "eval_masked_lm_loss":
        lines, labels = axes.get_legend_handles_labels()
        note = f"the first of {len(lines)}" if len(lines) > _MOST_LABELS else None
        axes.legend(lines[:_MOST_LABELS], labels[:_MOST_LABELS], fontsize="small", title=note)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
    return Picture(title, file.getvalue())


def updates_before(run: RunRecord, runs: Sequence[RunRecord]) -> int:
    """Updates of the phase 1 in the same output folder, if the run is its phase 2; else 0."""
    if run.directory.name != "phase2":
        return 0
    first = run.directory.resolve().with_name("phase1")
    return next((other.last_step() or 0 for other in runs if other.directory.resolve() == first), 0)


def differences(runs: Sequence[RunRecord]) -> list[Block]:
    """The settings that are not the same in all runs."""
    names = dict.fromkeys(name for run in runs for name in run.settings)
    rows = [
        [name, *(_shown(run.settings.get(name)) for run in runs)]
        for name in names
        if len({repr(run.settings.get(name)) for run in runs}) > 1
    ]
    return [_readable(Table(["setting", *(run.name for run in runs)], rows))] if rows else [Text("None.")]


def _readable(table: Table) -> Table:
    """The table, with a row instead of a column for each run if they are many."""
    if len(table.header) - 1 <= _MOST_COLUMNS:
        return table
    header, *rows = zip(table.header, *table.rows, strict=True)
    return Table(["run", *header[1:]], [list(row) for row in rows])


def _legs_table(runs: Sequence[RunRecord]) -> Table:
    rows = [
        [run.name, leg.started, _shown(leg.first_step), _shown(leg.last_step), duration(leg.seconds)]
        for run in runs
        for leg in run.legs
    ]
    return Table(["run", "started", "first step logged", "last step logged", "time"], rows)


def _settings(runs: Sequence[RunRecord]) -> list[Block]:
    blocks: list[Block] = []
    for run in runs:
        if run.settings:
            rows = [[name, _shown(value)] for name, value in run.settings.items()]
            blocks += [Heading(run.name, 3), Table(["setting", "value"], rows)]
    return blocks or [Text("No run has a readable config.yaml.")]


def _metric(name: str, run: RunRecord) -> str | None:
    value, form = run.last(name), metric_form(name, dict.fromkeys(run.metric_names()))
    return value if value is None or form == ".4f" else format(value, form)


def _median(run: RunRecord, name: str) -> float | None:
    values = sorted(value for _, value in run.curve(name))
    return values[len(values) // 2] if values else None


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def run_names(directories: Sequence[Path]) -> list[str]:
    """The paths without the part that all have in common."""
    resolved = [directory.resolve() for directory in directories]
    common = os.path.commonpath([path.parent for path in resolved])
    return [os.path.relpath(path, common) for path in resolved]


def main(argv: Sequence[str] | None = None) -> None:
    parser = HelpParser(prog="bert.reporting", description=__doc__)
    parser.add_argument("run", nargs="+", type=Path, metavar="RUN", help="folder of a stage, or of several")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--list", action="store_true", help="only print the runs that were found")
    output.add_argument("--html", type=Path, metavar="FILE", help="write HTML (default: report.html in the first RUN)")
    output.add_argument("--markdown", type=Path, metavar="FILE", help="write Markdown")
    arguments = parser.parse_args(argv)
    with usage_errors():
        directories = find_runs(arguments.run)
        runs = [read_run(path, name) for path, name in zip(directories, run_names(directories), strict=True)]
        if arguments.list:
            print("\n".join(f"{run.directory}   {_progress(run) or 'nothing logged yet'}" for run in runs))
            return
        title = f"Training report: {', '.join(run.name for run in runs)}"
        path = arguments.markdown or arguments.html or arguments.run[0] / "report.html"
        render = to_markdown if arguments.markdown else to_html
        write_atomically(path, render(title, blocks_of(runs)).encode())
    print(f"wrote {path}{f', of {len(runs)} runs (--list names them)' if len(runs) > 1 else ''}")
    for run in runs:
        for complaint in run.complaints:
            print(f"{run.name}: {complaint}", file=sys.stderr)


if __name__ == "__main__":
    main()

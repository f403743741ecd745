"""Make a report of one or more runs with plots, in a single HTML or Markdown file.

A RUN is the folder of a stage (phase1, squad, ...) with metrics.jsonl, config.yaml and summary.json, or a folder of
any number of such folders at any depth, as for `visualdl --logdir`. Runs that are not finished, were stopped or are
damaged are reported as far as they can be read; `--list` only names the runs.
"""

import base64
import html
import io
import math
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bert.config.setting_errors import usage_errors
from bert.files import shown, write_atomically
from bert.help_parser import HelpParser
from bert.printable import printable
from bert.reporting.metric_titles import is_count, metric_title
from bert.reporting.opening import levels, opening, updates
from bert.reporting.progress import duration, metric_form
from bert.reporting.run_record import VERDICTS, RunRecord, read_runs
from bert.reporting.spread import repetition_tables

_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0;display:block;overflow-x:auto}
td,th{border:1px solid #ddd;padding:.25em .6em;text-align:left;vertical-align:top}
th{background:#f4f4f4}img{max-width:100%;width:530px}"""
_FIRST = tuple("loss eval_masked_lm_loss learning_rate gradient_norm seqs_per_sec loss_scale skipped_steps".split())
_UNPLOTTED = ("step_samples", "step_cost", "padded_tokens_per_sec")
_STATES = ("loss_scale", "skipped_steps")  # drawn only if they change
_LOGARITHMIC = ("gradient_norm", "loss_scale")
_MOST_POINTS = 2_000  # of one curve
_MOST_LABELS = 12  # of one plot
_LONGEST_LABEL = 20  # characters
_MOST_COLUMNS = 6  # of runs in one table
Rows = list[list[str]]


class ReportBlock(NamedTuple):
    html: str
    markdown: str


def heading(title: str, level: int = 2) -> ReportBlock:
    return ReportBlock(f"<h{level}>{html.escape(title)}</h{level}>", f"{'#' * level} {_escape_markdown(title)}")


def text(words: str) -> ReportBlock:
    return ReportBlock(f"<p>{html.escape(words)}</p>", _escape_markdown(words))


def picture(title: str, png: bytes) -> ReportBlock:
    uri = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    return ReportBlock(f'<img alt="{html.escape(title)}" src="{uri}">', f"![{_escape_markdown(title)}]({uri})")


def table(header: Sequence[str], rows: Rows) -> ReportBlock:
    def row(cells: Sequence[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    cells = [[_escape_markdown(cell) for cell in line] for line in (header, *rows)]
    lines = [cells[0], ["---"] * len(header), *cells[1:]]
    return ReportBlock(
        f"<table>{row(header, 'th')}{''.join(row(line, 'td') for line in rows)}</table>",
        "\n".join(f"| {' | '.join(line)} |" for line in lines),
    )


def table_of_runs(title: str, runs: Sequence[RunRecord], rows: Rows) -> ReportBlock:
    """A table of runs: a column for each run, or a row if there are many."""
    header = [title, *(run.name for run in runs)]
    if len(runs) > _MOST_COLUMNS:
        (_, *header), *rows = (list(line) for line in zip(header, *rows, strict=True))
        header = ["run", *header]
    return table(header, rows)


def _escape_markdown(words: str) -> str:
    """Text in one line, with Markdown's special characters escaped."""
    for mark in "\\`*_<>|[]":
        words = words.replace(mark, "\\" + mark)
    return " ".join(words.split())


def to_html(title: str, blocks: Sequence[ReportBlock]) -> str:
    title, body = html.escape(title), "\n".join(block.html for block in blocks)
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n{body}\n</body></html>\n"
    )


def to_markdown(title: str, blocks: Sequence[ReportBlock]) -> str:
    return "\n\n".join([f"# {_escape_markdown(title)}", *(block.markdown for block in blocks)]) + "\n"


def blocks_of(runs: Sequence[RunRecord]) -> list[ReportBlock]:
    now = time.strftime("%Y-%m-%d %H:%M")
    until = ", ".join(f"{run.name} until update {run.last_step() or 0:,}" for run in runs)
    blocks = [text(opening(run)) for run in runs[:_MOST_COLUMNS]]
    if len(runs) > _MOST_COLUMNS:
        blocks.append(text(f"Results of all {len(runs)} runs are in the first table."))
    blocks += [text(f"Read at {now}: {until}."), heading("Results"), table_of_runs("", runs, results(runs))]
    blocks += [table(*rows) for rows in repetition_tables(runs, fewest=2)]
    blocks += [text(f"{run.name}: {complaint}") for run in runs for complaint in run.complaints]
    logged = {name for run in runs for name in run.metric_names()}
    plotted = [name for name in _FIRST if name in logged] + sorted(logged - {*_FIRST, *_UNPLOTTED})
    plotted = [name for name in plotted if not is_count(name) and not _is_constant_state(name, runs)]
    pictures = [drawn for name in plotted if (drawn := draw(name, runs)) is not None]
    blocks += [block for run in runs if run.scores.get("classes") for block in classification(run.name, run.scores)]
    blocks += [heading("Curves"), *(pictures or [text("There is nothing to draw yet.")])]
    if len(runs) > 1:
        names = dict.fromkeys(name for run in runs for name in run.settings)
        settings = {name: [run.settings.get(name) for run in runs] for name in names}
        differing = {name: values for name, values in settings.items() if len(set(map(repr, values))) > 1}
        rows = [[name, *map(_cell_text, values)] for name, values in differing.items()]
        blocks += [heading("Settings that differ"), table_of_runs("setting", runs, rows) if rows else text("None.")]
    starts = [
        [run.name, leg.started(), _cell_text(leg.first_step), _cell_text(leg.last_step), duration(leg.seconds())]
        for run in runs
        for leg in run.legs
    ]
    blocks += [
        heading("Starts"),
        text("Each start of a run, with the steps it logged; those after the first continue a checkpoint."),
        table(["run", "started", "first step logged", "last step logged", "time"], starts),
        heading("Settings"),
    ]
    for run in runs:
        if run.settings:
            rows = [[name, _cell_text(value)] for name, value in run.settings.items()]
            blocks += [heading(run.name, 3), table(["setting", "value"], rows)]
    return blocks if any(run.settings for run in runs) else [*blocks, text("No run has a readable config.yaml.")]


def classification(name: str, scores: Mapping[str, Any]) -> list[ReportBlock]:
    """Blocks about a classifier: scores of each class, confusions, and the worst errors."""
    classes, columns = scores["classes"], ("precision", "recall", "f1-score", "auc", "support")
    rows = [[label, *(_cell_text(values.get(column)) for column in columns)] for label, values in classes.items()]
    blocks = [heading(f"Classes of {name}"), table(["class", *columns], rows)]
    blocks += [text(scores["verdict"])] if "verdict" in scores else []
    facts = {key: scores.get(key) for key in ("temperature", "threshold", "calibration_error") if scores.get(key)}
    blocks.append(
        table(["decision", "value"], [[key.replace("_", " "), _pairs(value)] for key, value in facts.items()])
    )
    if matrix := scores.get("confusion"):
        rows = [[label, *map(str, row)] for label, row in zip(classes, matrix, strict=True)]
        blocks += [table(["true \\ predicted", *classes], rows), _confusion_picture(list(classes), matrix)]
    if worst := scores.get("worst"):
        names = ("row", "text", "label", "prediction", "probability_of_label")
        rows = [[_cell_text(error[column]) for column in names] for error in worst]
        title = f"The {len(worst)} worst errors of {name}"
        blocks += [heading(title, 3), table([column.replace("_", " ") for column in names], rows)]
    return blocks


def _pairs(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_cell_text(item)}" for name, item in value.items())
    return _cell_text(value)


def _confusion_picture(classes: Sequence[str], matrix: Sequence[Sequence[int]]) -> ReportBlock:
    """Picture of the confusion matrix: the fraction of each true class that each class was predicted for."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes, shares = figure.subplots(), [[count / max(1, sum(row)) for count in row] for row in matrix]
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, label="share of the true class")
    labels = [label.replace("$", r"\$")[:_LONGEST_LABEL] for label in classes]
    axes.set_xticks(range(len(classes)), labels, rotation=90 if len(classes) > 6 else 0)
    axes.set_yticks(range(len(classes)), labels)
    axes.set(xlabel="predicted", ylabel="true")
    for row, counts in enumerate(matrix if len(classes) <= _MOST_LABELS else ()):
        for column, count in enumerate(counts):
            color = "white" if shares[row][column] > 0.5 else "black"
            axes.text(column, row, str(count), ha="center", va="center", color=color)
    return _png(figure, "confusion matrix")


def _png(figure: Any, title: str) -> ReportBlock:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # of names in a script that Matplotlib's font lacks: empty boxes
        figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
    return picture(title, file.getvalue())


def results(runs: Sequence[RunRecord]) -> Rows:
    """Table of results: a row for each figure, with its title and the values of the runs."""
    rows: Rows = []

    def add(title: str, values: list[Any]) -> None:
        if any(value is not None for value in values):
            rows.append([title, *map(_cell_text, values)])

    add("updates", [updates(run) for run in runs])
    losses = [run.last("loss" if run.last("final_loss") is None else "final_loss") for run in runs]
    add(metric_title("final_loss"), losses)
    names = {name for run in runs for name in [*run.summary, *run.metric_names()]}
    for name in sorted(name for name in names if name.startswith("eval_")):
        add(metric_title(name), [_metric(name, run) for run in runs])
        if not is_count(name):
            add(f"{metric_title(name)}, last update", [_metric(f"last_{name}", run) for run in runs])
        if name == "eval_masked_lm_loss":
            add(metric_title("unigram_entropy"), [run.summary.get("unigram_entropy") for run in runs])
    for name, else_median in (
        ("training_sequences_per_second", "seqs_per_sec"),
        ("inference_sequences_per_second", ""),
        ("tokens_per_second", "tokens_per_sec"),
    ):
        add(metric_title(name), [run.summary.get(name) or _median(run, else_median) for run in runs])
    utilisations = [run.summary.get("mfu") or _median(run, "mfu") for run in runs]
    for name in VERDICTS:
        add(name.replace("_", " "), [run.summary.get(name) for run in runs])
    add(metric_title("mfu"), [None if value is None else f"{value:.1%}" for value in utilisations])
    add(metric_title("skipped_steps"), [run.last("skipped_steps") for run in runs])
    add("loss scale", [run.last("loss_scale") for run in runs])
    add("ranks", [run.summary.get("world_size") for run in runs])
    add("starts", [len(run.legs) or None for run in runs])
    add("time, all starts", [duration(_seconds(run)) if run.legs else None for run in runs])
    add("checkpoints", [_checkpoints(run) for run in runs])
    add("folder", [str(run.directory) for run in runs])
    return rows


def _seconds(run: RunRecord) -> float:
    """Total time of all starts, in seconds."""
    return sum(leg.seconds() for leg in run.legs)


def _checkpoints(run: RunRecord) -> str | None:
    steps = ", ".join(map(str, run.checkpoints))
    return f"{steps} ({run.checkpoint_bytes / 1e6:,.0f} MB)" if steps else None


def _metric(name: str, run: RunRecord) -> str | None:
    value, form = run.last(name), metric_form(name, dict.fromkeys(run.metric_names()))
    return value if value is None or form == ".4f" else format(value, form)


def _median(run: RunRecord, name: str) -> float | None:
    values = sorted(value for _, value in run.curve(name))
    return values[len(values) // 2] if values else None


def _cell_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _is_constant_state(name: str, runs: Sequence[RunRecord]) -> bool:
    """Whether a state's curve never changes, so that the table of results suffices."""
    return name in _STATES and len({value for run in runs for _, value in run.curve(name)}) <= 1


def _thin_out(curve: Sequence[tuple[int, float]]) -> Sequence[tuple[int, float]]:
    """At most `_MOST_POINTS` points of a curve, at equal distances."""
    every = max(1, math.ceil(len(curve) / _MOST_POINTS))
    return curve[::every]


def draw(name: str, runs: Sequence[RunRecord]) -> ReportBlock | None:
    """Plot of one metric of all runs over the steps, phase 2 after phase 1; None without numbers."""
    curves = [(run, _thin_out(run.curve(name))) for run in runs if run.curve(name)]
    if not curves:
        return None
    from matplotlib.figure import Figure  # slow to import; a Figure without pyplot needs no display

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    axes = figure.subplots()
    for run, curve in curves:
        before = updates_before(run, runs)
        steps, values = zip(*((before + step, value) for step, value in curve), strict=True)
        # $ would begin a formula, and a first underscore hide the label.
        label = run.name.replace("$", r"\$").lstrip("_")
        (line,) = axes.plot(steps, values, label=label, linewidth=1.2, marker="." if len(curve) < 30 else None)
        ends = (before, max(before + (run.last_step() or 0), before + 1))
        for place, (method, level) in enumerate(levels(run, name).items()):
            style = (0, (1, 1 + place))  # dotted, of each method less densely
            axes.plot(ends, (level, level), color=line.get_color(), linestyle=style, label=f"{label}: {method}")
    if name in _LOGARITHMIC and all(value > 0 for _, curve in curves for _, value in curve):
        axes.set_yscale("log", base=2 if name == "loss_scale" else 10)
    title = metric_title(name)
    axes.set(title=title, xlabel="updates")
    minutes = _seconds(runs[0]) / 60 / (runs[0].last_step() or 1) if len(runs) == 1 else 0.0  # of an update
    if minutes:
        functions: Any = (lambda step: step * minutes, lambda time: time / minutes)
        axes.secondary_xaxis("top", functions=functions).set_xlabel("minutes")
    axes.grid(alpha=0.3)
    lines, labels = axes.get_legend_handles_labels()
    if len(lines) > 1 or name == "eval_masked_lm_loss":
        note = f"the first of {len(lines)}" if len(lines) > _MOST_LABELS else None
        axes.legend(lines[:_MOST_LABELS], labels[:_MOST_LABELS], fontsize="small", title=note)
    return _png(figure, title)


def updates_before(run: RunRecord, runs: Sequence[RunRecord]) -> int:
    """Number of updates of phase 1 in the same output folder, if the run is its phase 2; otherwise 0."""
    if run.directory.name != "phase2":
        return 0
    first = run.directory.resolve().with_name("phase1")
    return next((other.last_step() or 0 for other in runs if other.directory.resolve() == first), 0)


_EXAMPLES = ("results/quickstart", "results/quickstart/phase1 results/other/phase1 --html report.html")


def main(argv: Sequence[str] | None = None) -> None:
    parser = HelpParser(prog="bert.reporting", description=__doc__, examples=_EXAMPLES)
    parser.add_argument("run", nargs="+", type=Path, metavar="RUN", help="folder of a stage, or of several")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--list", action="store_true", help="only print the runs that were found")
    output.add_argument("--html", type=Path, metavar="FILE", help="write HTML (default: report.html in the first RUN)")
    output.add_argument("--markdown", type=Path, metavar="FILE", help="write Markdown")
    arguments = parser.parse_args(argv)
    with usage_errors():
        runs = read_runs(arguments.run)
        if arguments.list:
            print("\n".join(f"{shown(run.directory)}   {updates(run) or 'nothing logged yet'}" for run in runs))
            return
        title = f"Training report: {', '.join(run.name for run in runs)}"
        path = arguments.markdown or arguments.html or arguments.run[0] / "report.html"
        render = to_markdown if arguments.markdown else to_html
        write_atomically(path, render(title, blocks_of(runs)).encode())
    print(f"wrote {path}{f', of {len(runs)} runs (--list names them)' if len(runs) > 1 else ''}")
    for run in runs:
        for complaint in run.complaints:
            print(printable(f"{run.name}: {complaint}"), file=sys.stderr)

"""The scores of several tasks over rates and seeds: the chosen rates, the average, Markdown, JSON, a picture.

GLUE's rule: the score of a task is the mean of its metrics, of MNLI that of the matched and the mismatched set; the
average is the mean over the tasks. A task's rate is the one with the best mean score.
"""

import json
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.files import write_atomically
from bert.finetuning.glue.task_table import TASKS
from bert.reporting.progress import metric_form
from bert.reporting.spread import SPREAD, spread_cells, summary, table_head, table_row

Run = tuple[float, int]  # learning rate, seed


def score_names(parts: Collection[str]) -> list[str]:
    """Of the metrics of a run, by its evaluation sets."""
    return ["score"] if len(parts) == 1 else [f"{part}_score" for part in parts]


@dataclass(frozen=True)
class TaskScores:
    """The metrics of the runs of a task that have ended."""

    name: str
    is_of_glue: bool
    parts: tuple[str, ...]  # the evaluation sets
    runs: Mapping[Run, Mapping[str, float]]

    def score(self, run: Run) -> float:
        """Per cent."""
        return 100 * statistics.mean(self.runs[run][name] for name in score_names(self.parts))

    def scores(self, rate: float) -> dict[int, float]:
        """By seed."""
        return {seed: self.score((rate, seed)) for other, seed in self.runs if other == rate}

    def rates(self) -> list[float]:
        return sorted({rate for rate, _ in self.runs})

    def best_rate(self) -> float:
        return max(self.rates(), key=lambda rate: statistics.mean(self.scores(rate).values()))

    def best_run(self) -> Run | None:
        return max(self.runs, key=self.score, default=None)

    def metrics(self, rate: float) -> dict[str, float]:
        """The means over the seeds, without the scores, which follow from them."""
        runs = [metrics for (other, _), metrics in self.runs.items() if other == rate]
        left_out = ("score", "final_loss", "skipped_steps")
        names = [name for name in runs[0] if not name.endswith(left_out)]
        return {name: statistics.mean(run[name] for run in runs if name in run) for name in names}


class Results:
    def __init__(self, tasks: Sequence[TaskScores]) -> None:
        self.tasks = tasks
        self._ended = [task for task in tasks if task.runs]

    def average(self) -> tuple[str, list[float]]:
        """What it is of, and its values by seed: of the seeds that all tasks have."""
        of_glue = [task for task in self._ended if task.is_of_glue]
        averaged = of_glue or self._ended
        scores = [task.scores(task.best_rate()) for task in averaged]
        seeds = sorted(set[int].intersection(*(set(score) for score in scores))) if len(scores) > 1 else []
        known = [name.lower() for name, task in TASKS.items() if task.train]
        missing = [name for name in known if name not in {task.name.removesuffix("_large") for task in averaged}]
        title = f"average of {len(averaged)} tasks"
        if of_glue:
            title += " of GLUE" + (f", without {', '.join(missing)}" if missing else "")
        return title, [statistics.mean(score[seed] for score in scores) for seed in seeds]

    def lines(self) -> list[str]:
        """Markdown: a row for each task at its chosen rate, the average; the mean scores of all rates."""
        lines = table_head(["task", "learning rate", "metrics", "score", *SPREAD[1:], "seeds"])
        for task in self._ended:
            rate = task.best_rate()
            metrics = ", ".join(f"{n.replace('_', ' ')} {v:{metric_form(n)}}" for n, v in task.metrics(rate).items())
            lines.append(_row([task.name, f"{rate:g}", metrics], [*task.scores(rate).values()]))
        title, averages = self.average()
        lines += [_row([title, "", ""], averages)] if averages else []
        lines += ["", "Scores are on the evaluation sets, which chose each run's best weights" + self._chosen() + "."]
        lines.append("A task's score is the mean of its metrics (MNLI: matched and mismatched), times 100.")
        rates = sorted({rate for task in self._ended for rate in task.rates()})
        if self._has_grid():
            lines += ["", *table_head(["mean score", *(f"{rate:g}" for rate in rates)])]
            for task in self._ended:
                scores = [task.scores(rate).values() for rate in rates]
                means = (f"{statistics.mean(values):.1f} ({len(values)})" if values else "-" for values in scores)
                lines.append(table_row([task.name, *means]))
        return lines

    def _chosen(self) -> str:
        return " and, of several, the rate: both flatter" if self._has_grid() else ": that flatters"

    def _has_grid(self) -> bool:
        return any(len(task.rates()) > 1 for task in self._ended)

    def content(self) -> dict[str, Any]:
        """The figures of scores.json."""
        tasks = {}
        for task in self._ended:
            rate = task.best_rate()
            runs = [
                {"learning_rate": rate, "seed": seed, "score": task.score((rate, seed)), **metrics}
                for (rate, seed), metrics in task.runs.items()
            ]
            chosen = {"learning_rate": rate, **summary([*task.scores(rate).values()])}
            tasks[task.name] = {**chosen, "metrics": task.metrics(rate), "runs": runs}
        title, averages = self.average()
        return {"tasks": tasks, "average": {"of": title, **summary(averages)} if averages else None}

    def write(self, folder: Path, *, picture: bool) -> list[str]:
        """Write scores.md and scores.json, on request scores.png; returns the lines of the first."""
        if not self._ended:
            return ["no run has ended"]
        lines = self.lines()
        write_atomically(folder / "scores.md", ("\n".join(lines) + "\n").encode())
        write_atomically(folder / "scores.json", (json.dumps(self.content(), indent=1) + "\n").encode())
        if picture:
            self._draw(folder / "scores.png")
        return lines

    def _draw(self, file: Path) -> None:
        """A dot for each run, a bar at the mean of the chosen rate; runs of other rates are pale."""
        from matplotlib.figure import Figure  # slow to import; a Figure without pyplot needs no display

        figure = Figure(figsize=(7, 1.2 + 0.4 * len(self._ended)), layout="constrained")
        axes = figure.subplots()
        for place, task in enumerate(self._ended):
            chosen = task.best_rate()
            for rate in task.rates():
                scores = [*task.scores(rate).values()]
                axes.plot(scores, [place] * len(scores), "o", color="C0", alpha=1 if rate == chosen else 0.25)
            axes.plot([statistics.mean(task.scores(chosen).values())], [place], "|", color="black", markersize=18)
        names = [task.name.replace("$", r"\$") for task in self._ended]
        axes.set(yticks=range(len(names)), yticklabels=names, ylim=(len(names) - 0.5, -0.5))  # the first task on top
        axes.set_xlabel("score (dots: runs; pale: other rates; line: mean)")
        axes.grid(alpha=0.3)
        figure.savefig(file, format="png", dpi=110, metadata={"Software": None})


def _row(first: Sequence[str], scores: Sequence[float]) -> str:
    return table_row([*first, *spread_cells(scores, ".1f"), str(len(scores))])

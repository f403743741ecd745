"""The first sentence of a report: what was trained on which data, its score, and the baseline."""

import re

from bert.reporting.metric_titles import IN_NATS, is_count, short_title, with_baseline_title
from bert.reporting.progress import figure, metric_form
from bert.reporting.run_record import RunRecord

_PURPOSES = {  # by the stage of a run
    "ner": "fine-tuned to find named entities",
    "squad": "fine-tuned to answer questions",
    "reranker": "trained to rerank the passages of a query",
    "vectors": "trained to encode texts as vectors",
}
_LOSS, _HYBRID = "eval_masked_lm_loss", "hybrid"


def opening(run: RunRecord) -> str:
    """One sentence about a run, from its settings and summary, or from its newest figures while it trains."""
    data = _training_data(run)
    begin = f"{run.name}: {_model(run)} was {_purpose(run)}{f' on {data}' if data else ''}"
    name = main_metric(run)
    if name is None:
        loss = run.last("loss" if run.last("final_loss") is None else "final_loss")
        if loss is None:
            return f"{begin}; it has no figures yet."
        return f"{begin}; its training loss is {loss:.3f}, and no evaluation on held-out data was logged."
    value = run.last(name)
    so_far = "" if run.summary.get("finished", "steps" in run.summary) else " so far"
    comparison = _comparison(name, value, run)
    return f"{begin}; on held-out data its {short_title(name)} is {_figure(name, value, run)}{so_far}, {comparison}."


def main_metric(run: RunRecord) -> str | None:
    """Metric of the first sentence: the metric that selects the best checkpoint, otherwise the first one.

    A score is a mean of metrics, which says less than the first of them.
    """
    logged = [name for name in [*run.metric_names(), *run.summary] if name.startswith("eval_") and not is_count(name)]
    names = [name for name in logged if isinstance(run.last(name), (int, float))]
    if _LOSS in names:
        return _LOSS
    best = [name.removeprefix("best_") for name in run.summary if name.startswith("best_eval_")]
    chosen = [name for name in best if name in names and not name.endswith("score")]
    return next(iter([*chosen, *names]), None)


def levels(run: RunRecord, name: str) -> dict[str, float]:
    """Scores of baselines for an evaluation metric, baseline -> score."""
    if name == _LOSS:
        figures = {"unigram entropy": run.summary.get("unigram_entropy")}
    else:
        ends = sorted((each.removeprefix("eval_") for each in run.metric_names() if each.startswith("eval_")), key=len)
        pattern = re.compile(f"eval_(.+?)_({'|'.join(map(re.escape, reversed(ends)))})")
        matches = [(pattern.fullmatch(key), value) for key, value in run.summary.items() if not run.curve(key)]
        figures = {
            with_baseline_title(key[1].replace("_", " ")): value
            for key, value in matches
            if key and f"eval_{key[2]}" == name
        }
    return {method: level for method, level in figures.items() if isinstance(level, float)}


def updates(run: RunRecord) -> str | None:
    """Number of updates, such as `1,000 of 2,500, not finished`; None before the first update."""
    done = run.summary.get("steps") or max((row["step"] for row in run.training), default=None)
    if done is None:
        return None
    total = run.settings.get("max_steps")
    is_finished = run.summary.get("finished", "steps" in run.summary)
    has_total = isinstance(total, int) and total > 0 and not run.settings.get("finish_in")
    if is_finished and isinstance(total, int) and 0 < done < total:
        return f"{done:,}, {_early_end(run, done)}"
    steps = f"{done:,} of {total:,}" if has_total else f"{done:,}"
    if run.summary.get("interrupted_by"):
        return f"{steps}, stopped by {run.summary['interrupted_by']}"
    return steps if is_finished else f"{steps}, not finished"


def _early_end(run: RunRecord, done: int) -> str:
    """Why a finished run has fewer updates than max_steps."""
    if "decay_from" not in run.summary or done != run.summary.get("last_step"):
        return "stopped early"  # --early-stopping
    return "all that its time allowed" if run.settings.get("finish_in") else "ended by a file FINISH"


def _model(run: RunRecord) -> str:
    number = run.summary.get("parameters")
    size = f"{number / 1e6:,.1f} million parameters" if number else ""
    weights = run.settings.get("from_pretrained_params")
    if weights:
        return f"the model {weights}{f' ({size})' if size else ''}"
    return f"a model of {size}" if size else "a model"


def _purpose(run: RunRecord) -> str:
    stage = run.directory.name
    if "phase" in run.settings:
        return "pre-trained further" if run.settings.get("from_pretrained_params") else "pre-trained"
    if stage.startswith("glue-"):
        return "fine-tuned to label texts"
    return _PURPOSES.get(stage, "trained")


def _training_data(run: RunRecord) -> str:
    task = run.settings.get("task_name")
    values = [run.settings.get(name) for name in ("train_file", "input_dir")]
    named = next((str(value) for value in values if value), "")
    return named or (f"the task {task}" if task and task != "custom" else "")


def _figure(name: str, value: float, run: RunRecord) -> str:
    if name.endswith("loss"):
        return f"{figure(value, '.3f')}{' nats' if name.endswith(IN_NATS) else ''}"
    return figure(value, metric_form(name, dict.fromkeys(run.metric_names())))


def _comparison(name: str, value: float, run: RunRecord) -> str:
    """Text that compares a score with the best baseline, or with the most frequent class."""
    methods = levels(run, name)
    together = methods.pop(_HYBRID, None)  # of the model and BM25: no plain method
    if name == _LOSS and methods:
        (entropy,) = methods.values()
        relation = "below" if value < entropy else "not below"
        return f"{relation} the {_figure(name, entropy, run)} of guessing by the frequency of words"
    if methods:
        best = max(methods, key=lambda method: methods[method])
        more = "" if together is None else f", and with {_figure(name, together, run)} of the {_HYBRID} ranking of both"
        method = best if best == "BM25" else f"the {best}"
        return f"compared with {_figure(name, methods[best], run)} of {method}{more}"
    counts = [values.get("support", 0) for values in run.scores.get("classes", {}).values()]
    if name == "eval_accuracy" and sum(counts):
        return f"compared with {max(counts) / sum(counts):.1%} of the most frequent class"
    return "and no baseline was measured"

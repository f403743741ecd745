"""The table of GLUE's tasks (Wang et al., 2019): files, columns, labels, metrics and leaderboard files.

The files are UTF-8 text, one example per line, fields separated by tabs, without quoting. The first line names the
columns, except in CoLA's train.tsv and dev.tsv.
"""

from dataclasses import replace

from bert.glue.files import published_rows
from bert.labels.schema import LabelSchema
from bert.labels.table import Split
from data.text.columns import Column


def _split(file: str, texts: tuple[Column, ...], label: Column | None = None, index: Column | None = None) -> Split:
    return Split((file,), texts, label, index)


def _task(
    name: str,
    labels: tuple[str, ...] | None,
    metrics: tuple[str, ...],
    texts: tuple[Column, ...],
    label: Column,
    index: str = "index",
    value_range: tuple[float, float] | None = None,
) -> LabelSchema:
    """A task in the usual form: train.tsv, dev.tsv and test.tsv name their columns; test.tsv has an index, no label."""
    train, dev = _split("train.tsv", texts, label), _split("dev.tsv", texts, label)
    test = _split("test.tsv", texts, index=index)
    return LabelSchema(name, labels, metrics, train, {"dev": dev}, {name: test}, value_range)


_BINARY = ("0", "1")
_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
_THREE_WAY = ("entailment", "neutral", "contradiction")
_COLA = Split(("train.tsv",), (3,), 1, header=False)
_MRPC = Split(("train.tsv", "msr_paraphrase_train.txt"), ("#1 String", "#2 String"), "Quality")

TASKS: dict[str, LabelSchema] = {
    task.name: replace(task, rows=published_rows)
    for task in (
        replace(
            _task("CoLA", _BINARY, ("matthews",), ("sentence",), "label"),
            train=_COLA,
            dev={"dev": replace(_COLA, files=("dev.tsv",))},
        ),
        _task("SST-2", _BINARY, ("accuracy",), ("sentence",), "label"),
        # GLUE's files, or the corpus as Microsoft publishes it, whose test file has labels.
        LabelSchema(
            "MRPC",
            _BINARY,
            ("f1", "accuracy"),
            _MRPC,
            {"dev": replace(_MRPC, files=("dev.tsv", "msr_paraphrase_test.txt"))},
            {"MRPC": replace(_MRPC, files=("test.tsv", "msr_paraphrase_test.txt"), label=None)},
        ),
        _task("STS-B", None, ("pearson", "spearman"), _PAIR, "score", value_range=(0.0, 5.0)),
        _task("QQP", _BINARY, ("f1", "accuracy"), ("question1", "question2"), "is_duplicate", "id"),
        LabelSchema(
            "MNLI",
            _THREE_WAY,
            ("accuracy",),
            _split("train.tsv", _PAIR, "gold_label"),
            {name: _split(f"dev_{name}.tsv", _PAIR, "gold_label") for name in ("matched", "mismatched")},
            {
                "MNLI-m": _split("test_matched.tsv", _PAIR, index="index"),
                "MNLI-mm": _split("test_mismatched.tsv", _PAIR, index="index"),
            },
            no_label="-",  # pairs on which MultiNLI's annotators did not agree
        ),
        _task("QNLI", _ENTAILMENT, ("accuracy",), ("question", "sentence"), "label"),
        _task("RTE", _ENTAILMENT, ("accuracy",), _PAIR, "label"),
        _task("WNLI", _BINARY, ("accuracy",), _PAIR, "label"),
        LabelSchema(
            "AX",
            _THREE_WAY,
            ("matthews",),
            None,
            {"dev": _split("diagnostic-full.tsv", ("Premise", "Hypothesis"), "Label")},
            {"AX": Split(("diagnostic.tsv", "AX.tsv", "test.tsv"), _PAIR, index="index")},
            model_of="MNLI",
        ),
    )
}
TASK_NAMES = (*TASKS, "custom")


def find_task(name: str) -> LabelSchema:
    """The GLUE task of that name, ignoring case, hyphens and underscores."""
    by_plain_name = {_without_separators(task): TASKS[task] for task in TASKS}
    if _without_separators(name) not in by_plain_name:
        raise ValueError(
            f"task_name={name!r} is not one of {', '.join(TASK_NAMES)}; for files of your own, use --task-name custom"
        )
    return by_plain_name[_without_separators(name)]


def task_name(spelling: str) -> str:
    """The usual spelling of a task's name, or "custom"."""
    return "custom" if spelling.lower() == "custom" else find_task(spelling).name


def _without_separators(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")

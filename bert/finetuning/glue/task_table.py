"""The table of GLUE's tasks (Wang et al., 2019): files, columns, labels, metrics and leaderboard files.

The files are UTF-8 text, one example per line, fields separated by tabs, without quoting. The first line names the
columns, except in CoLA's train.tsv and dev.tsv. `custom_task` describes a task of the user's own files.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

Column = str | int  # a name in the header line, or the index from 0 in a file without one
_MAX_SHOWN_CHARACTERS = 60


def shown(value: str) -> str:
    return repr(value if len(value) <= _MAX_SHOWN_CHARACTERS else value[:_MAX_SHOWN_CHARACTERS] + "...")


@dataclass(frozen=True)
class Split:
    """One file of a task.

    Attributes:
        index: column of the leaderboard's identifier of the example; None: examples are numbered from 0.
    """

    files: tuple[str, ...]  # possible names; the first that exists is read
    texts: tuple[Column, ...]
    label: Column | None = None  # column of the label; None if the file has no labels
    index: Column | None = None
    group: Column | None = None  # column whose equal values are held out together; None: there is none
    header: bool = True  # whether the first line names the columns

    def columns(self) -> list[Column]:
        """The texts, then the label, the index and the group if there are any."""
        return [*self.texts, *(column for column in (self.label, self.index, self.group) if column is not None)]

    def flag(self, column: Column) -> str:
        """The flag that names a column of the user's own file."""
        if column in self.texts:
            return ("--text-column", "--text-pair-column")[self.texts.index(column)]
        return {self.label: "--label-column", self.index: "--index-column"}.get(column, "--group-column")


@dataclass(frozen=True)
class GlueTask:
    """The description of one task.

    Attributes:
        labels: as written in the files, in the order of the classes; None for a regression, or if the training file
            defines them.
    """

    name: str
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]  # keys of bert.finetuning.glue.metrics.METRICS; their mean is the task's score
    train: Split | None  # None for a task that uses the model of another, `model_of`
    dev: dict[str, Split]  # name -> labelled file to evaluate on
    test: dict[str, Split]  # name of the leaderboard's file, without .tsv -> file to predict
    value_range: tuple[float, float] | None = None  # of a regression; predictions are clipped to it for the leaderboard
    model_of: str | None = None
    no_label: str | None = None  # the label of unlabelled examples, which are skipped
    separator: str | None = None  # between the labels of an example, which may have several; None: each has one

    @property
    def is_regression(self) -> bool:
        return self.value_range is not None

    def with_labels(self, labels: tuple[str, ...] | None) -> "GlueTask":
        """The task with the classes that a file or a model defines."""
        metrics = self.metrics
        if self.name == "custom" and labels is not None and self.separator is None:
            metrics = ("accuracy", "f1" if len(labels) == 2 else "macro_f1")
        return replace(self, labels=labels, metrics=metrics)

    def problem(self, label: str) -> str:
        """The reason why a label is not valid; "" if it is valid."""
        if self.separator is not None:
            unknown = [name for name in self.parts(label) if self.labels is not None and name not in self.labels]
            return f"label {shown(unknown[0])} is not one of {', '.join(self.labels or ())}" if unknown else ""
        if self.labels is not None:
            return "" if label in self.labels else f"label {shown(label)} is not one of {', '.join(self.labels)}"
        if self.value_range is None:
            return "" if label.strip() else "its label is empty"
        low, high = self.value_range
        try:
            is_valid = low <= float(label) <= high and math.isfinite(float(label))
        except ValueError:
            return f"label {shown(label)} is not a number"
        return "" if is_valid else f"label {shown(label)} is not a finite number from {low:g} to {high:g}"

    def parts(self, label: str) -> list[str]:
        """The labels in a field, which may have several."""
        names = [label] if self.separator is None else label.split(self.separator)
        return [name.strip() for name in names if name.strip()]

    def encode(self, labels: Sequence[str]) -> np.ndarray:
        """int64 classes [n] or float32 numbers [n] of valid labels; of several labels, float32 0 or 1 [n, classes]."""
        if self.is_regression:
            return np.array([float(label) for label in labels], np.float32)
        assert self.labels is not None, "the labels must be known before they can be encoded"
        classes = {label: index for index, label in enumerate(self.labels)}
        if self.separator is not None:
            matrix = np.zeros((len(labels), len(classes)), np.float32)
            for row, label in enumerate(labels):
                matrix[row, [classes[name] for name in self.parts(label)]] = 1
            return matrix
        return np.array([classes[label] for label in labels], np.int64)


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
) -> GlueTask:
    """A task in the usual form: train.tsv, dev.tsv and test.tsv name their columns; test.tsv has an index, no label."""
    train, dev = _split("train.tsv", texts, label), _split("dev.tsv", texts, label)
    test = _split("test.tsv", texts, index=index)
    return GlueTask(name, labels, metrics, train, {"dev": dev}, {name: test}, value_range)


_BINARY = ("0", "1")
_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
_THREE_WAY = ("entailment", "neutral", "contradiction")
_COLA = Split(("train.tsv",), (3,), 1, header=False)
_MRPC = Split(("train.tsv", "msr_paraphrase_train.txt"), ("#1 String", "#2 String"), "Quality")

TASKS: dict[str, GlueTask] = {
    task.name: task
    for task in (
        replace(
            _task("CoLA", _BINARY, ("matthews",), ("sentence",), "label"),
            train=_COLA,
            dev={"dev": replace(_COLA, files=("dev.tsv",))},
        ),
        _task("SST-2", _BINARY, ("accuracy",), ("sentence",), "label"),
        # GLUE's files, or the corpus as Microsoft publishes it, whose test file has labels.
        GlueTask(
            "MRPC",
            _BINARY,
            ("f1", "accuracy"),
            _MRPC,
            {"dev": replace(_MRPC, files=("dev.tsv", "msr_paraphrase_test.txt"))},
            {"MRPC": replace(_MRPC, files=("test.tsv", "msr_paraphrase_test.txt"), label=None)},
        ),
        _task("STS-B", None, ("pearson", "spearman"), _PAIR, "score", value_range=(0.0, 5.0)),
        _task("QQP", _BINARY, ("f1", "accuracy"), ("question1", "question2"), "is_duplicate", "id"),
        GlueTask(
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
        GlueTask(
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


def find_task(name: str) -> GlueTask:
    """The task of that name, ignoring case, hyphens and underscores."""
    by_plain_name = {_plain(task): TASKS[task] for task in TASKS}
    if _plain(name) not in by_plain_name:
        raise ValueError(
            f"task_name={name!r} is not one of {', '.join(TASK_NAMES)}; for files of your own, use --task-name custom"
        )
    return by_plain_name[_plain(name)]


def task_name(spelling: str) -> str:
    """The name of a task of GLUE in any spelling that `find_task` knows; "custom"."""
    return "custom" if spelling.lower() == "custom" else find_task(spelling).name


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def custom_task(
    *,
    text: str,
    text_pair: str | None,
    label: str,
    index: str | None,
    regression: bool,
    group: str | None = None,
    separator: str | None = None,
) -> GlueTask:
    """A task on the user's own files, whose paths are given in place of train, dev and test.

    Two classes are scored by the F1 of the second, more by the macro F1.

    Args:
        text, text_pair, label, index, group: names of columns (TSV, CSV) or of keys (JSON lines).
        regression: the label is a number.
        separator: as of `GlueTask`.
    """
    labelled = Split((), (text,) if text_pair is None else (text, text_pair), label, index)
    train, dev, test = replace(labelled, group=group), {"dev": labelled}, {"predictions": replace(labelled, label=None)}
    if regression:
        return GlueTask("custom", None, ("pearson", "spearman"), train, dev, test, (-math.inf, math.inf))
    metrics = ("accuracy", "macro_f1") if separator is None else ("micro_f1", "macro_f1")
    return GlueTask("custom", None, metrics, train, dev, test, separator=separator)

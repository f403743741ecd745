"""The tasks of GLUE (Wang et al., 2019) as one table: files, columns, labels, metrics, and what the leaderboard takes.

All files are UTF-8, one example a line, fields between tabs, and nothing is quoted: a quotation mark is text. Columns
are named by the first line, but for CoLA's, which has none. `reading` reads them; `custom_task` makes a task of the
user's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

Column = str | int  # a name of the first line, or, in a file without one, a place counted from 0


@dataclass(frozen=True)
class Split:
    """One file of a task.

    Attributes:
        files: its names, the first that exists is read.
        texts: columns of the sentence, or of both sentences.
        label: column of the label; None where it is kept secret.
        index: column of the number that the leaderboard knows the example by; None: examples are numbered from 0.
        header: whether the first line names the columns.
    """

    files: tuple[str, ...]
    texts: tuple[Column, ...]
    label: Column | None = None
    index: Column | None = None
    header: bool = True


@dataclass(frozen=True)
class GlueTask:
    """Everything that sets a task apart.

    Attributes:
        name: as in GLUE's paper; also the name of its folder.
        labels: as they stand in the files, the order being the classes'; None: a number is to be predicted, or the
            labels are those that the training file has.
        metrics: keys of bert.finetuning.glue.metrics.METRICS; their mean is the task's score.
        train: None where another task's model is used.
        dev: name -> labelled file to evaluate on.
        test: name of the leaderboard's file, without .tsv -> file to predict.
        value_range: of a number to be predicted; predictions are clipped to it for the leaderboard.
        model_of: the task whose training gives the model, where it is not this one.
        no_label: the mark of an example without a label, which is left out.
    """

    name: str
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    train: Split | None
    dev: dict[str, Split]
    test: dict[str, Split]
    value_range: tuple[float, float] | None = None
    model_of: str | None = None
    no_label: str | None = None

    @property
    def is_regression(self) -> bool:
        return self.value_range is not None

    @property
    def is_pair(self) -> bool:
        splits = [self.train, *self.dev.values(), *self.test.values()]
        return any(len(split.texts) == 2 for split in splits if split)


def _table(texts: tuple[Column, ...], label: Column) -> tuple[Split, Split, Split]:
    """train.tsv, dev.tsv and test.tsv of the usual form: named columns, and `index` in place of the label."""
    train = Split(("train.tsv",), texts, label)
    return train, replace(train, files=("dev.tsv",)), Split(("test.tsv",), texts, index="index")


def _task(
    name: str,
    labels: tuple[str, ...] | None,
    metrics: tuple[str, ...],
    splits: tuple[Split, Split, Split],
    value_range: tuple[float, float] | None = None,
) -> GlueTask:
    train, dev, test = splits
    return GlueTask(name, labels, metrics, train, {"dev": dev}, {name: test}, value_range)


def _mnli(stem: str, label: str | None) -> Split:
    return Split((f"{stem}.tsv",), ("sentence1", "sentence2"), label, None if label else "index")


_BINARY = ("0", "1")
_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
_THREE_WAY = ("entailment", "neutral", "contradiction")
_COLA = Split(("train.tsv",), (3,), 1, header=False)
_MRPC_TEXTS = ("#1 String", "#2 String")

TASKS: dict[str, GlueTask] = {
    task.name: task
    for task in (
        _task(
            "CoLA",
            _BINARY,
            ("matthews",),
            (_COLA, replace(_COLA, files=("dev.tsv",)), Split(("test.tsv",), ("sentence",), index="index")),
        ),
        _task("SST-2", _BINARY, ("accuracy",), _table(("sentence",), "label")),
        # Besides GLUE's files: the corpus as Microsoft publishes it, whose test part has its labels.
        _task(
            "MRPC",
            _BINARY,
            ("f1", "accuracy"),
            (
                Split(("train.tsv", "msr_paraphrase_train.txt"), _MRPC_TEXTS, "Quality"),
                Split(("dev.tsv", "msr_paraphrase_test.txt"), _MRPC_TEXTS, "Quality"),
                Split(("test.tsv", "msr_paraphrase_test.txt"), _MRPC_TEXTS),
            ),
        ),
        _task("STS-B", None, ("pearson", "spearman"), _table(_PAIR, "score"), value_range=(0.0, 5.0)),
        _task(
            "QQP",
            _BINARY,
            ("f1", "accuracy"),
            (
                Split(("train.tsv",), ("question1", "question2"), "is_duplicate"),
                Split(("dev.tsv",), ("question1", "question2"), "is_duplicate"),
                Split(("test.tsv",), ("question1", "question2"), index="id"),
            ),
        ),
        GlueTask(
            "MNLI",
            _THREE_WAY,
            ("accuracy",),
            _mnli("train", "gold_label"),
            {"matched": _mnli("dev_matched", "gold_label"), "mismatched": _mnli("dev_mismatched", "gold_label")},
            {"MNLI-m": _mnli("test_matched", None), "MNLI-mm": _mnli("test_mismatched", None)},
            no_label="-",
        ),  # MultiNLI's mark of pairs on which its annotators did not agree
        _task("QNLI", _ENTAILMENT, ("accuracy",), _table(("question", "sentence"), "label")),
        _task("RTE", _ENTAILMENT, ("accuracy",), _table(_PAIR, "label")),
        _task("WNLI", _BINARY, ("accuracy",), _table(_PAIR, "label")),
        GlueTask(
            "AX",
            _THREE_WAY,
            ("matthews",),
            None,
            {"dev": Split(("diagnostic-full.tsv",), ("Premise", "Hypothesis"), "Label")},
            {"AX": Split(("diagnostic.tsv", "AX.tsv", "test.tsv"), _PAIR, index="index")},
            model_of="MNLI",
        ),
    )
}
TASK_NAMES = (*TASKS, "custom")


def find_task(name: str) -> GlueTask:
    """The task of that name, in any case and with or without its hyphen.

    Raises:
        ValueError: there is none.
    """
    by_plain_name = {_plain(task): TASKS[task] for task in TASKS}
    if _plain(name) not in by_plain_name:
        raise ValueError(
            f"task_name={name!r} is not one of {', '.join(TASK_NAMES)}; for files of your own, use --task-name custom"
        )
    return by_plain_name[_plain(name)]


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def custom_task(
    *, text: str, text_pair: str | None, label: str, index: str | None, regression: bool, num_labels: int = 0
) -> GlueTask:
    """A task of files whose paths the user gives: they stand in for train, dev and test.

    Args:
        text, text_pair, label, index: names of columns (TSV, CSV) or of keys (JSON lines).
        regression: the label is a number to be predicted.
        num_labels: of a classification, once known; two get F1 of the second label, more their mean F1.
    """
    texts = (text,) if text_pair is None else (text, text_pair)
    labelled = Split((), texts, label, index)
    if regression:
        metrics: tuple[str, ...] = ("pearson", "spearman")
    else:
        metrics = ("accuracy", "f1" if num_labels == 2 else "macro_f1")
    anything = (-math.inf, math.inf)
    return GlueTask(
        "custom",
        None,
        metrics,
        labelled,
        {"dev": labelled},
        {"predictions": replace(labelled, label=None)},
        anything if regression else None,
    )

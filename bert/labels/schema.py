"""Describes labelled files: their columns, their labels, and the metrics of the task."""

import math
import re
from ast import literal_eval
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bert.labels.table import RowReader, Split, own_rows, shown
from bert.tokenization.equal_letters import normal_form
from data.text.encodings import DETECTED, Decoding

if TYPE_CHECKING:  # not for --help
    import numpy as np

_DECIMAL_COMMA = re.compile(r"\s*[+-]?([0-9]+|[0-9]{1,3}([. \xa0][0-9]{3})+),[0-9]+\s*")
_LONGEST_LIST = 10_000  # characters
_SPACED = re.compile(r"""(?<=['"])\s+(?=['"])|(?<=[\d.])\s+(?=\d)(?!.*['"])""")  # between texts, numbers of NumPy
POSITION = "position {}"  # name of the class of a place in lists of 0 and 1; places are counted from 1


@dataclass(frozen=True)
class LabelSchema:
    """The description of a task with labelled texts.

    Attributes:
        labels: names of the classes as in the files, in order; None for a regression, or until the training file was
            read.
        rows: function that reads the columns of a split, and appends notes about the file to a list.
    """

    name: str
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]  # keys of bert.labels.metrics.METRICS; their mean is the task's score
    train: Split | None  # None for a task that uses the model of another, `model_of`
    dev: dict[str, Split]  # name -> labelled file to evaluate on
    test: dict[str, Split]  # name of the leaderboard's file, without .tsv -> file to predict
    value_range: tuple[float, float] | None = None  # range of a regression; predictions are clipped for the leaderboard
    model_of: str | None = None
    no_label: str | None = None  # the label of unlabelled examples, which are skipped
    separator: str | None = None  # separates labels if an example may have several; None: each has one
    rows: RowReader = own_rows

    @property
    def is_own(self) -> bool:
        """Whether the files are the user's, not published ones."""
        return self.name == "custom"

    @property
    def is_regression(self) -> bool:
        return self.value_range is not None

    def split(self, name: str) -> Split:
        """The description of a file, by name: "train", a file to evaluate on, or a file to predict."""
        split = {"train": self.train, **self.dev, **self.test}[name]
        assert split is not None, "the settings have checked it"
        return split

    def with_labels(self, labels: tuple[str, ...] | None) -> "LabelSchema":
        """A copy of the schema with these classes."""
        return replace(self, labels=labels)

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
            is_valid = low <= number(label) <= high and math.isfinite(number(label))
        except ValueError:
            return f"label {shown(label)} is not a number"
        return "" if is_valid else f"label {shown(label)} is not a finite number from {low:g} to {high:g}"

    def parts(self, label: str) -> list[str]:
        """Split a field into its labels."""
        names = [label] if self.separator is None else label.split(self.separator)
        names = [name.strip() for name in names if name.strip()]
        if self.labels and self.labels[0] == POSITION.format(1) and names != [POSITION.format(1)]:
            return [name for name, flag in zip(self.labels, names, strict=False) if flag != "0"]
        return names

    def spelled(self, label: str) -> str:
        """A label in the spelling of its class: Unicode forms are equal, and so are JSON's true and Python's True."""
        if self.labels is None:
            return normal_form(label)
        if self.separator is not None:
            return self.separator.join(map(self._spelled, label.split(self.separator)))
        return self._spelled(label)

    def _spelled(self, label: str) -> str:
        assert self.labels is not None
        name = label.strip()
        if name in self.labels:
            return label
        is_truth = name.lower() in ("true", "false")
        equal = [known for known in self.labels if normal_form(known) == normal_form(name)]
        equal += [known for known in self.labels if is_truth and known.lower() == name.lower()]
        return equal[0] if equal else label

    def encode(self, labels: Sequence[str]) -> "np.ndarray":
        """Convert valid labels to int64 classes [n], float32 numbers [n], or float32 0 or 1 [n, classes]."""
        import numpy as np

        if self.is_regression:
            return np.array([number(label) for label in labels], np.float32)
        assert self.labels is not None, "the labels must be known before they can be encoded"
        classes = {label: index for index, label in enumerate(self.labels)}
        if self.separator is not None:
            matrix = np.zeros((len(labels), len(classes)), np.float32)
            for row, label in enumerate(labels):
                matrix[row, [classes[name] for name in self.parts(label)]] = 1
            return matrix
        return np.array([classes[label] for label in labels], np.int64)


def labels_alike(labels: Sequence[str]) -> list[list[str]]:
    """Groups of labels that differ in case alone, or are the same number, such as 1 and 1.0."""
    alike = dict[str | float, list[str]]()
    for label in labels:
        try:
            key: str | float = number(label)
        except ValueError:
            key = label.casefold()
        alike.setdefault(key, []).append(label)
    return [some for some in alike.values() if len(some) > 1]


def number(label: str) -> float:
    """Parse the number in a label, also with a decimal comma or a percent sign. ValueError if it is no number."""
    label = label.removesuffix("%")
    return float(re.sub(r"[. \xa0]", "", label).replace(",", ".") if _DECIMAL_COMMA.fullmatch(label) else label)


def listed(value: object) -> list[str] | None:
    """The labels in a list, also if pandas or NumPy wrote it as text, such as ['joy', 'love']; None for no list."""
    if isinstance(value, str) and value.lstrip().startswith("[") and len(value) < _LONGEST_LIST:
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            value = literal_eval(_SPACED.sub(", ", value.strip()))
    if not isinstance(value, list):
        return None
    return [str(int(name) if _is_whole(name) else name).strip() for name in value]


def _is_whole(label: object) -> bool:
    """Whether a label is a boolean or a float without a fraction, such as true or 1.0, so that it equals an integer."""
    return isinstance(label, float | bool) and float(label).is_integer()


def own_schema(
    texts: tuple[str, ...],
    label: str,
    index: str | None = None,
    group: str | None = None,
    separator: str | None = None,
    is_regression: bool = False,
    decoding: Decoding = DETECTED,
) -> LabelSchema:
    """Make the schema of the user's files from the names of their columns or keys; settings hold the paths."""
    labelled = Split((), texts, label, index, header=decoding.header, decoding=decoding)
    train, dev, test = replace(labelled, group=group), {"dev": labelled}, {"predictions": replace(labelled, label=None)}
    if is_regression:
        return LabelSchema("custom", None, ("pearson", "spearman"), train, dev, test, (-math.inf, math.inf))
    # F1 of one class of two would favour a model that says nothing else.
    metrics = ("accuracy", "macro_f1") if separator is None else ("micro_f1", "macro_f1")
    return LabelSchema("custom", None, metrics, train, dev, test, separator=separator)

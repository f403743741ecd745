"""The protocol of a fine-tuning task: how its files are read, and how outputs become predictions, scores and files."""

import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from bert.finetuning.config import FineTuningConfig
from bert.finetuning.loader import FeatureTable
from bert.model.objectives import Objective
from bert.runtime.distributed import Group
from bert.tokenization.vocabulary import Vocabulary
from bert.training.task import Task

logger = logging.getLogger(__name__)
Outputs = Mapping[str, np.ndarray]  # of the objective, by name: float32 [n, ...], in the order of the table


@dataclass(frozen=True)
class Part:
    """One of a task's files."""

    name: str
    path: Path
    results: Mapping[str, "ResultsFile"] = field(default_factory=dict)


@dataclass(frozen=True)
class ResultsFile:
    """What stands before the results, between those of two windows, and after them."""

    head: bytes = b""
    separator: bytes = b""
    tail: bytes = b""


@dataclass(frozen=True)
class Features:
    """Examples as sequences.

    Attributes:
        examples: as the task reads them.
        table: their sequences; an example can have several.
        arrays: all arrays that were made of the examples, by name.
        counts: numbers of truncated texts and the like.
    """

    examples: Any
    table: FeatureTable
    arrays: Mapping[str, np.ndarray]
    counts: Mapping[str, int]

    def fingerprint(self) -> str:
        """sha256 over names, dtypes, shapes and bytes of the arrays."""
        digest = hashlib.sha256()
        for name, array in sorted(self.arrays.items()):
            digest.update(f"{name}\0{array.dtype.str}\0{array.shape}\0".encode())
            digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
        return digest.hexdigest()


@dataclass(frozen=True)
class FineTuningData:
    """A task's files, read.

    Attributes:
        train: None if nothing is trained.
        evaluated: files to score, in memory.
        predicted: files to predict, which were checked, and the numbers of their examples.
    """

    train: Features | None
    evaluated: Sequence[tuple[Part, Features]]
    predicted: Sequence[tuple[Part, int]]


class FineTuningTask(ABC):
    """A task and its files. Making one reads the file to train on, which can define the classes.

    Examples are of the task's own type; they have a length. Predictions are what `decode` returns. Rank 0 alone
    decodes, scores and renders.

    Attributes:
        best_metric: the evaluation metric that decides which weights are best; larger is better.
        predicted: files to predict; they are read while they are predicted.
    """

    unit: ClassVar[str] = "examples"
    summary_names: ClassVar[Mapping[str, str]] = {}
    best_metric: str = "eval_f1"
    training: Any = None
    training_file: Path | None = None
    evaluated: Sequence[Part] = ()
    predicted: Sequence[Part] = ()
    labels: tuple[str, ...] | None = None

    def __init__(self, config: FineTuningConfig) -> None:
        self.vocabulary = Vocabulary.from_file(config.data.vocab_file)

    @abstractmethod
    def objective(self) -> Objective: ...

    @abstractmethod
    def texts(self) -> dict[str, str]:
        """Files to keep in checkpoints, name -> content: what is needed to use the model (labels, settings)."""

    @abstractmethod
    def read(self, part: Part) -> Any:
        """All examples of a labelled file, checked."""

    @abstractmethod
    def windows(self, part: Part, start: int) -> Iterator[Any]:
        """The examples of a file to predict from number `start` on, as many at a time as run together."""

    @abstractmethod
    def features(self, examples: Any, training: bool = False) -> Features: ...

    @abstractmethod
    def describe(self, path: Path, counts: Mapping[str, int]) -> Sequence[str]:
        """Lines for the log on the features of a file."""

    @abstractmethod
    def decode(self, features: Features, outputs: Outputs) -> Any:
        """The predictions."""

    @abstractmethod
    def score(self, part: Part, features: Features, predictions: Any) -> dict[str, float]:
        """Metrics, their names starting with `eval_`."""

    @abstractmethod
    def render(self, part: Part, features: Features, predictions: Any) -> Sequence[bytes]:
        """What is appended to each of the results' files."""

    def read_data(self) -> FineTuningData:
        """Read, check and tokenise every file."""
        train = None
        if self.training is not None:
            assert self.training_file is not None
            train = self._described(self.training_file, self.features(self.training, training=True))
        evaluated = [(part, self._described(part.path, self.features(self.read(part)))) for part in self.evaluated]
        predicted = [(part, sum(map(len, self.windows(part, 0)))) for part in self.predicted]
        for part, number in predicted:
            logger.info(f"{part.path}: {number:,} {self.unit}")
        return FineTuningData(train, evaluated, predicted)

    def _described(self, path: Path, features: Features) -> Features:
        for line in self.describe(path, features.counts):
            logger.info(line)
        return features

    @classmethod
    def open(cls, config: Any, group: Group) -> Task:
        """The run of the task."""
        from bert.finetuning.run import FineTuning

        return FineTuning(config, group, cls(config))

"""The protocol of a fine-tuning task: how its files are read, and how outputs become predictions, scores and files."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bert.conversion.usage import Usage, usage_texts
from bert.finetuning.config import FineTuningConfig
from bert.finetuning.loader import FeatureTable, FineTuningLoader
from bert.finetuning.prediction_files import RowEnds, line_ends
from bert.model.objectives import Objective
from bert.tokenization.unknown import refuse_unknown
from bert.tokenization.vocabulary_files import read_vocabulary
from data.text.encodings import remembered

logger = logging.getLogger(__name__)
Outputs = Mapping[str, np.ndarray]  # of the objective, by name: float32 [n, ...], of tokens [T, ...], as in the table


class ResultsFile(NamedTuple):
    head: bytes = b""  # before the results
    separator: bytes = b""  # between those of two windows
    tail: bytes = b""
    row_ends: RowEnds = line_ends  # of predictions that are written a window at a time


@dataclass(frozen=True)
class Part:
    """One of a task's files, and the files of its results."""

    name: str
    path: Path
    results: Mapping[str, ResultsFile] = field(default_factory=dict)


class Features(NamedTuple):
    """Examples of the task's own type, their sequences, and numbers of truncated texts and the like."""

    examples: Any
    table: Any  # a FeatureTable
    counts: Mapping[str, int]


class FineTuningData(NamedTuple):
    """A task's files, read."""

    train: FeatureTable | None
    evaluated: Sequence[tuple[Part, Features]]
    predicted: Sequence[tuple[Part, int]]  # checked, and the numbers of their examples


class FineTuningTask(ABC):
    """A task and its files. Making one reads the file to train on, which can define the classes.

    Examples have a length. Predictions are what `decode` returns. Rank 0 alone decodes, scores and renders.
    """

    unit: ClassVar[str] = "examples"
    loader: ClassVar[type[FineTuningLoader]] = FineTuningLoader
    evaluates_first: ClassVar[bool] = False  # given weights are evaluated before the first update
    summary_names: ClassVar[Mapping[str, str]] = {}
    results_beside_checkpoints: ClassVar[bool] = False  # links there to the files of the results
    best_metric: str = "eval_f1"  # the evaluation metric that decides which weights are best; larger is better
    near_zero: ClassVar[float] = 0.05  # of this metric: below it the model has learned next to nothing
    baseline_is_trained: ClassVar[bool] = True  # on `training`; otherwise it stands beside any evaluation
    training: Any = None  # the examples to train on
    training_file: Path | None = None
    evaluated: Sequence[Part] = ()
    predicted: Sequence[Part] = ()  # files to predict; they are read while they are predicted
    labels: tuple[str, ...] | None = None
    notes: Sequence[str] = ()  # what was found and inferred about the files

    def __init__(self, config: FineTuningConfig) -> None:
        self.vocabulary = read_vocabulary(config.data.vocab_file)
        self._data = config.data

    @abstractmethod
    def objective(self) -> Objective: ...

    def objective_of(self, weights: Mapping[str, np.ndarray]) -> Objective:
        """The objective of a prediction with weights that are not trained, by name: with the parts that they have."""
        return self.objective()

    @abstractmethod
    def usage(self) -> Usage: ...

    def texts(self) -> dict[str, str]:
        """Files to keep in checkpoints, name -> content: what is needed to use the model (labels, settings)."""
        usage = replace(self.usage(), encoding=remembered(self._data.encoding), language=self._data.language)
        return usage_texts(usage, self._data.normalization(), self.labels)

    @abstractmethod
    def read(self, part: Part) -> Any:
        """All examples of a labelled file, checked."""

    @abstractmethod
    def windows(self, part: Part) -> Iterator[Any]:
        """The examples of a file to predict, as many at a time as run together."""

    @abstractmethod
    def features(self, examples: Any, training: bool = False) -> tuple[FeatureTable, dict[str, int]]:
        """The sequences of the examples, one or more for each, and counts."""

    @abstractmethod
    def describe(self, path: Path, counts: Mapping[str, int]) -> Sequence[str]:
        """Lines for the log on the features of a file."""

    def learn_to_decode(self, features: Features, outputs: Outputs) -> None:  # noqa: B027
        """Choose in a training how outputs become predictions. Called with the evaluation set before it is decoded."""

    def fitted_parameters(self) -> dict[str, np.ndarray]:
        """Parameters of the network that `learn_to_decode` has found, by name, for checkpoints."""
        return {}

    def final_head(self, trained: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Parameters of a calibrated head that predictions use instead of the trained one: float32, by name.

        Args:
            trained: the parameters of the training, by name.
        """
        return {}

    def decode(self, features: Features, outputs: Outputs) -> Any:
        """Turn outputs, which are finite, into predictions."""
        return outputs["logits"]

    @abstractmethod
    def score(self, part: Part, features: Features, predictions: Any) -> dict[str, float]:
        """Metrics, their names starting with `eval_`."""

    def num_rows(self, examples: Any) -> int:
        """The number of rows that `render` gives of examples."""
        return len(examples)

    @abstractmethod
    def render(self, part: Part, features: Features, predictions: Any) -> Sequence[bytes]:
        """The text that is appended to each file of results."""

    def details(self, part: Part, features: Features, predictions: Any, *, fits: bool) -> dict[str, Any] | None:
        """Details of the last evaluation for scores.json, which are also logged in short; None: there are only metrics.

        Args:
            fits: whether to choose from it how the model decides, which `texts` and `score` then follow.
        """
        return None

    def baseline(self, features: Features, predictions: Any) -> dict[str, Any]:
        """The scores of baselines on the same rows: eval_METHOD_METRIC, and a "verdict"."""
        return {}

    def read_data(self) -> FineTuningData:
        """Read, check and tokenise every file."""
        train = None
        if self.training_file is not None:
            train = self._described(self.training_file, self.training, training=True).table
        evaluated = [(part, self._described(part.path, self.read(part))) for part in self.evaluated]
        predicted = [(part, sum(map(len, self.windows(part)))) for part in self.predicted]
        for part, number in predicted:
            logger.info(f"{part.path}: {number:,} {self.unit}")
        for note in self.notes:
            logger.info(note)
        return FineTuningData(train, evaluated, predicted)

    def _described(self, path: Path, examples: Any, training: bool = False) -> Features:
        table, counts = self.features(examples, training)
        if training:
            refuse_unknown(table.input_ids, self.vocabulary, str(path))
        for line in self.describe(path, counts):
            logger.info(line)
        return Features(examples, table, counts)

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
    head: bytes = b""  # text before the results
    separator: bytes = b""  # text between the results of two windows
    tail: bytes = b""
    row_ends: RowEnds = line_ends  # finds the ends of rows, if predictions are written in parts


@dataclass(frozen=True)
class Part:
    """One of a task's data files, and the files with its results."""

    name: str
    path: Path
    results: Mapping[str, ResultsFile] = field(default_factory=dict)


class Features(NamedTuple):
    """Examples of the task's own type, their sequences, and counts, such as of truncated texts."""

    examples: Any
    table: Any  # a FeatureTable
    counts: Mapping[str, int]


class FineTuningData(NamedTuple):
    """The contents of a task's files."""

    train: FeatureTable | None
    evaluated: Sequence[tuple[Part, Features]]
    predicted: Sequence[tuple[Part, int]]  # checked files, and their numbers of examples


class FineTuningTask(ABC):
    """A task and its files. The constructor reads the training file, which can define the classes.

    Examples have a length. Predictions are what `decode` returns. Rank 0 alone decodes, scores and renders.
    """

    unit: ClassVar[str] = "examples"
    loader: ClassVar[type[FineTuningLoader]] = FineTuningLoader
    evaluates_first: ClassVar[bool] = False  # whether initial weights are evaluated before the first update
    summary_names: ClassVar[Mapping[str, str]] = {}
    results_beside_checkpoints: ClassVar[bool] = False  # whether the results are also linked there
    best_metric: str = "eval_f1"  # metric that selects the best weights; larger is better
    near_zero: ClassVar[float] = 0.05  # value of best_metric below which the model has learned almost nothing
    baseline_is_trained: ClassVar[bool] = True  # whether the baseline needs `training`
    training: Any = None  # training examples
    training_file: Path | None = None
    evaluated: Sequence[Part] = ()
    predicted: Sequence[Part] = ()  # files to predict, each read while it is predicted
    labels: tuple[str, ...] | None = None
    notes: Sequence[str] = ()  # remarks about the files, and settings inferred from them

    def __init__(self, config: FineTuningConfig) -> None:
        self.vocabulary = read_vocabulary(config.data.vocab_file)
        self._data = config.data

    @abstractmethod
    def objective(self) -> Objective: ...

    def objective_of(self, weights: Mapping[str, np.ndarray]) -> Objective:
        """The objective for a prediction without training, by name, with the heads that the weights have."""
        return self.objective()

    @abstractmethod
    def usage(self) -> Usage: ...

    def texts(self) -> dict[str, str]:
        """Files to save in checkpoints, name -> content, which the use of the model needs (labels, settings)."""
        usage = replace(self.usage(), encoding=remembered(self._data.encoding), language=self._data.language)
        return usage_texts(usage, self._data.normalization(), self.labels)

    @abstractmethod
    def read(self, part: Part) -> Any:
        """Read and check all examples of a labelled file."""

    @abstractmethod
    def windows(self, part: Part) -> Iterator[Any]:
        """Divide the examples of a file to predict into parts of limited size."""

    @abstractmethod
    def features(self, examples: Any, training: bool = False) -> tuple[FeatureTable, dict[str, int]]:
        """Tokenised sequences of the examples, one or more for each, and counts."""

    @abstractmethod
    def describe(self, path: Path, counts: Mapping[str, int]) -> Sequence[str]:
        """Log lines about the features of a file."""

    def learn_to_decode(self, features: Features, outputs: Outputs) -> None:  # noqa: B027
        """Fit, after training, how outputs become predictions, before the evaluation set is decoded."""

    def fitted_parameters(self) -> dict[str, np.ndarray]:
        """Parameters that `learn_to_decode` has fitted, by name, for checkpoints."""
        return {}

    def final_head(self, trained: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Parameters of a calibrated head that predictions use instead of the trained one: float32, by name.

        Args:
            trained: the parameters of the training, by name.
        """
        return {}

    def decode(self, features: Features, outputs: Outputs) -> Any:
        """Turn finite outputs into predictions."""
        return outputs["logits"]

    @abstractmethod
    def score(self, part: Part, features: Features, predictions: Any) -> dict[str, float]:
        """Evaluation metrics; their names begin with `eval_`."""

    def num_rows(self, examples: Any) -> int:
        """Number of rows that `render` writes for the examples."""
        return len(examples)

    @abstractmethod
    def render(self, part: Part, features: Features, predictions: Any) -> Sequence[bytes]:
        """The text to append to each file of results."""

    def details(self, part: Part, features: Features, predictions: Any, *, fits: bool) -> dict[str, Any] | None:
        """Details of the last evaluation for scores.json, of which a summary is logged; None: only metrics.

        Args:
            fits: whether to choose from it how the model decides, which `texts` and `score` then follow.
        """
        return None

    def baseline(self, features: Features, predictions: Any) -> dict[str, Any]:
        """Scores of baselines on the same rows: eval_METHOD_METRIC, and a "verdict"."""
        return {}

    def read_data(self) -> FineTuningData:
        """Read, check and tokenise every file."""
        train = None
        if self.training_file is not None:
            train = self._described_features(self.training_file, self.training, training=True).table
        evaluated = [(part, self._described_features(part.path, self.read(part))) for part in self.evaluated]
        predicted = [(part, sum(map(len, self.windows(part)))) for part in self.predicted]
        for part, number in predicted:
            logger.info(f"{part.path}: {number:,} {self.unit}")
        for note in self.notes:
            logger.info(note)
        return FineTuningData(train, evaluated, predicted)

    def _described_features(self, path: Path, examples: Any, training: bool = False) -> Features:
        table, counts = self.features(examples, training)
        if training:
            refuse_unknown(table.input_ids, self.vocabulary, str(path))
        for line in self.describe(path, counts):
            logger.info(line)
        return Features(examples, table, counts)

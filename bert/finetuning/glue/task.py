"""GLUE and users' own sentence tasks as fine-tuning tasks: files -> features, outputs -> scores and predictions."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion.model_description import Usage, usage_texts
from bert.finetuning.glue.config import GlueConfig
from bert.finetuning.glue.features import sentence_features
from bert.finetuning.glue.metrics import scores
from bert.finetuning.glue.reading import Examples, LabelRule, discover_labels, find_file, read_examples, stream_examples
from bert.finetuning.glue.task_table import Split
from bert.finetuning.loader import FeatureTable
from bert.finetuning.model_files import labels_of_the_weights
from bert.finetuning.prediction_stream import WINDOW_CHARACTERS, WINDOW_EXAMPLES
from bert.finetuning.task import Features, FineTuningTask, Outputs, Part, ResultsFile
from bert.model.objectives import Objective, SequenceClassificationObjective, SequenceRegressionObjective
from bert.tokenization.fast_tokenizer import FastTokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _File(Part):
    """Attributes:
    split: its columns.
    """

    split: Split


class SentenceTask(FineTuningTask):
    def __init__(self, config: GlueConfig) -> None:
        super().__init__(config)
        self._config, data, run = config, config.data, config.run
        self._tokenizer = FastTokenizer(self.vocabulary, data.do_lower_case)
        self._task = task = config.task()
        self.labels = task.labels
        if run.do_train:
            assert task.train is not None
            part = self._file("train", data.train_file, task.train)
            self.training, self.training_file = self.read(part), part.path
            if self.labels is None and not task.is_regression:
                self.labels = discover_labels(self.training)
        elif not task.is_regression:
            self.labels = labels_of_the_weights(config.initialization, self.labels)
        self._task = task = config.task(len(self.labels or ()))
        self.best_metric = "eval_score" if len(task.dev) == 1 else f"eval_{next(iter(task.dev))}_score"
        if run.do_eval:
            columns = ["prediction", "label"]
            self.evaluated = [
                self._file(name, data.eval_file, split, f"{name}_predictions.tsv", columns)
                for name, split in task.dev.items()
            ]
        if run.do_predict:
            self._with_probability = task.name == "custom" and not task.is_regression
            columns = ["prediction", *["probability"] * self._with_probability]
            self.predicted = [
                self._file(name, data.predict_file, split, f"{name}.tsv", columns) for name, split in task.test.items()
            ]

    def _file(self, name: str, own: Path | None, split: Split, results: str = "", columns: Sequence[str] = ()) -> _File:
        path = own
        if self._task.name != "custom":
            assert self._config.data.data_dir is not None
            path = find_file(self._config.data.data_dir, split)
        assert path is not None, "the settings have checked it"
        return _File(name, path, {results: ResultsFile(_lines([["index", *columns]]))} if results else {}, split=split)

    def objective(self) -> Objective:
        model, fuse_mha = self._config.model, self._config.hardware.fuse_mha
        if self.labels is None:
            return SequenceRegressionObjective(model, fuse_mha)
        return SequenceClassificationObjective(model, fuse_mha, num_labels=len(self.labels))

    def texts(self) -> dict[str, str]:
        task, data = self._task, self._config.data
        columns = tuple(map(str, next(iter(task.dev.values())).texts))
        usage = Usage(task.name, data.max_seq_length, columns, task.is_regression)
        return usage_texts(usage, data.do_lower_case, self.labels)

    def read(self, part: Any) -> Examples:
        # QQP's published files have broken lines; in a leaderboard file every line is needed.
        examples = read_examples(part.path, part.split, self._rule(), self._config.data.max_bad_line_fraction)
        for warning in examples.warnings:
            logger.info(warning)
        return examples

    def windows(self, part: Any, start: int) -> Iterator[Examples]:
        return stream_examples(part.path, part.split, start, WINDOW_EXAMPLES, WINDOW_CHARACTERS)

    def _rule(self) -> LabelRule:
        return LabelRule(self.labels, self._task.value_range, self._task.no_label)

    def features(self, examples: Examples, training: bool = False) -> Features:
        data, pad_id = self._config.data, self._config.model.pad_token_id
        arrays, counts = sentence_features(self._tokenizer, examples.texts, data.max_seq_length)
        labels = {} if examples.labels is None else {"labels": self._rule().encode(examples.labels)}
        table = FeatureTable(arrays["input_ids"], arrays["offsets"], arrays["first_lengths"], labels, pad_id=pad_id)
        counts = {"examples": len(examples), **examples.counts, **counts}
        return Features(examples, table, {**arrays, **labels}, counts)

    def describe(self, path: Path, counts: Mapping[str, int]) -> list[str]:
        parts = [f"{path}: {counts['examples']:,} examples, {counts['tokens'] / counts['examples']:.1f} tokens each"]
        if counts["truncated"]:
            parts.append(f"{counts['truncated']:,} cut to --max-seq-length {self._config.data.max_seq_length}")
        if counts["empty_texts"]:
            parts.append(f"{counts['empty_texts']:,} empty texts")
        return [", ".join(parts)]

    def decode(self, features: Features, outputs: Outputs) -> np.ndarray:
        """float32 [n, classes], or numbers [n, 1]."""
        logits = outputs["logits"]
        if not np.isfinite(logits).all():
            raise ValueError(
                f"the model's outputs are NaN or infinite for {int((~np.isfinite(logits)).any(-1).sum())} of "
                f"{len(logits)} examples; its weights are damaged, or its training diverged"
            )
        return logits

    def _values(self, logits: np.ndarray) -> np.ndarray:
        """int64 classes or float32 numbers [n]."""
        return logits[:, 0] if self._task.is_regression else logits.argmax(-1)

    def score(self, part: Part, features: Features, logits: np.ndarray) -> dict[str, float]:
        prefix = "eval_" if len(self._task.dev) == 1 else f"eval_{part.name}_"
        metrics = scores(self._task.metrics, self._values(logits), features.arrays["labels"])
        return {f"{prefix}{metric}": value for metric, value in metrics.items()}

    def render(self, part: Part, features: Features, logits: np.ndarray) -> list[bytes]:
        columns = [features.examples.indices, self._shown(self._values(logits))]
        if features.examples.labels is not None:
            columns.append(self._shown(features.arrays["labels"]))
        elif self._with_probability:
            odds = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
            columns.append([f"{value:.6f}" for value in odds.max(-1) / odds.sum(-1)])
        return [_lines(zip(*columns, strict=True))]

    def _shown(self, values: np.ndarray) -> list[str]:
        """The label of each class, or each number clipped to the task's range."""
        if self.labels is not None:
            return [self.labels[value] for value in values]
        low, high = self._task.value_range or (-np.inf, np.inf)
        return [f"{value:.6g}" for value in np.clip(values.astype(np.float64), low, high)]


def _lines(rows: Any) -> bytes:
    """Rows of fields, separated by tabs: the form of GLUE's leaderboard."""
    return "".join("\t".join(row) + "\n" for row in rows).encode()

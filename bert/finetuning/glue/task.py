"""GLUE and users' own sentence tasks as fine-tuning tasks: files -> features, outputs -> scores and predictions."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from bert.conversion.model_description import Usage
from bert.finetuning.glue.config import GlueConfig
from bert.finetuning.glue.features import sentence_features
from bert.finetuning.glue.metrics import scores
from bert.finetuning.glue.reading import Examples, discover_labels, find_file, read_examples, stream_examples
from bert.finetuning.glue.task_table import Split
from bert.finetuning.loader import FeatureTable
from bert.finetuning.model_files import labels_of_the_weights
from bert.finetuning.prediction_stream import WINDOW_CHARACTERS, WINDOW_EXAMPLES
from bert.finetuning.task import Features, FineTuningTask, Part, ResultsFile
from bert.model.objectives import Objective, SequenceClassificationObjective, SequenceRegressionObjective
from bert.tokenization.fast_tokenizer import FastTokenizer

logger = logging.getLogger(__name__)


class SentenceTask(FineTuningTask):
    def __init__(self, config: GlueConfig) -> None:
        super().__init__(config)
        self._config, data, run = config, config.data, config.run
        self._tokenizer = FastTokenizer(self.vocabulary, data.do_lower_case)
        self._task = task = config.task()
        if run.do_train:
            part = self._part("train", data.train_file)
            self.training, self.training_file = self.read(part), part.path
            if task.labels is None and not task.is_regression:
                self._task = task.with_labels(discover_labels(self.training))
        elif not task.is_regression:
            self._task = task.with_labels(labels_of_the_weights(config.initialization, task.labels))
        self.labels = self._task.labels
        self.best_metric = "eval_score" if len(task.dev) == 1 else f"eval_{next(iter(task.dev))}_score"
        self._with_probability = task.name == "custom" and not task.is_regression
        if run.do_eval:
            self.evaluated = [
                self._part(name, data.eval_file, f"{name}_predictions.tsv", "index\tprediction\tlabel\n")
                for name in task.dev
            ]
        if run.do_predict:
            head = "index\tprediction\tprobability\n" if self._with_probability else "index\tprediction\n"
            self.predicted = [self._part(name, data.predict_file, f"{name}.tsv", head) for name in task.test]

    def _split(self, name: str) -> Split:
        split = {"train": self._task.train, **self._task.dev, **self._task.test}[name]
        assert split is not None, "the settings have checked it"
        return split

    def _part(self, name: str, own: Path | None, results: str = "", head: str = "") -> Part:
        data = self._config.data
        path = own if data.data_dir is None else find_file(data.data_dir, self._split(name))
        assert path is not None, "the settings have checked it"
        return Part(name, path, {results: ResultsFile(head.encode())} if results else {})

    def objective(self) -> Objective:
        model, fuse_mha = self._config.model, self._config.hardware.fuse_mha
        if self.labels is None:
            return SequenceRegressionObjective(model, fuse_mha)
        return SequenceClassificationObjective(model, fuse_mha, num_labels=len(self.labels))

    def usage(self) -> Usage:
        task = self._task
        columns = tuple(map(str, next(iter(task.dev.values())).texts))
        return Usage(task.name, self._config.data.max_seq_length, columns, task.is_regression)

    def read(self, part: Part) -> Examples:
        # QQP's published files have broken lines; in a leaderboard file every line is needed.
        fraction = self._config.data.max_bad_line_fraction
        examples = read_examples(part.path, self._split(part.name), self._task, fraction)
        for warning in examples.warnings:
            logger.info(warning)
        return examples

    def windows(self, part: Part) -> Iterator[Examples]:
        split = self._split(part.name)
        return stream_examples(part.path, split, self._task, WINDOW_EXAMPLES, WINDOW_CHARACTERS)

    def features(self, examples: Examples, training: bool = False) -> tuple[FeatureTable, dict[str, int]]:
        table, counts = sentence_features(self._tokenizer, examples.texts, self._config.data.max_seq_length)
        if examples.labels is not None:
            table = replace(table, labels={"labels": self._task.encode(examples.labels)})
        return table, {"examples": len(examples), **examples.counts, **counts}

    def describe(self, path: Path, counts: Mapping[str, int]) -> list[str]:
        parts = [f"{path}: {counts['examples']:,} examples, {counts['tokens'] / counts['examples']:.1f} tokens each"]
        if counts["truncated"]:
            parts.append(f"{counts['truncated']:,} cut to --max-seq-length {self._config.data.max_seq_length}")
        if counts["empty_texts"]:
            parts.append(f"{counts['empty_texts']:,} empty texts")
        return [", ".join(parts)]

    def _values(self, logits: np.ndarray) -> np.ndarray:
        """int64 classes or float32 numbers [n], of logits float32 [n, classes] or [n, 1]."""
        return logits[:, 0] if self._task.is_regression else logits.argmax(-1)

    def score(self, part: Part, features: Features, logits: np.ndarray) -> dict[str, float]:
        prefix = "eval_" if len(self._task.dev) == 1 else f"eval_{part.name}_"
        metrics = scores(self._task.metrics, self._values(logits), features.table.labels["labels"])
        return {f"{prefix}{metric}": value for metric, value in metrics.items()}

    def render(self, part: Part, features: Features, logits: np.ndarray) -> list[bytes]:
        columns = [features.examples.indices, self._shown(self._values(logits))]
        if features.examples.labels is not None:
            columns.append(self._shown(features.table.labels["labels"]))
        elif self._with_probability:
            odds = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
            columns.append([f"{value:.6f}" for value in odds.max(-1) / odds.sum(-1)])
        return ["".join("\t".join(row) + "\n" for row in zip(*columns, strict=True)).encode()]

    def _shown(self, values: np.ndarray) -> list[str]:
        """The label of each class, or each number clipped to the task's range."""
        if self.labels is not None:
            return [self.labels[value] for value in values]
        low, high = self._task.value_range or (-np.inf, np.inf)
        return [f"{value:.6g}" for value in np.clip(values.astype(np.float64), low, high)]

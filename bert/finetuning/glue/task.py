"""GLUE and users' own sentence tasks as fine-tuning tasks: files -> features, outputs -> scores and predictions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion.model_usage import Usage, usage_texts
from bert.finetuning import sequences, text_files
from bert.finetuning.feature_cache import Arrays, FeatureCache, Notes, fingerprint, readable
from bert.finetuning.glue import features as glue_features
from bert.finetuning.glue import reading as glue_reading
from bert.finetuning.glue import rows as glue_rows
from bert.finetuning.glue.config import GlueConfig
from bert.finetuning.glue.metrics import scores
from bert.finetuning.glue.reading import (
    Examples,
    LabelRule,
    count_examples,
    discover_labels,
    find_file,
    read_examples,
    stream_examples,
)
from bert.finetuning.glue.submission import prediction_header, prediction_lines, prediction_texts, write_predictions
from bert.finetuning.glue.task_table import GlueTask, Split
from bert.finetuning.loader import FeatureTable
from bert.finetuning.model_files import labels_of_the_weights
from bert.finetuning.resumable_files import WINDOW_CHARACTERS, WINDOW_EXAMPLES
from bert.finetuning.streamed_prediction import StreamedSet, Window
from bert.finetuning.task import FineTuning, FineTuningData, Outputs, PredictedSet
from bert.model.objectives import SequenceClassificationObjective, SequenceRegressionObjective
from bert.runtime.distributed import Group
from bert.tokenization import fast_tokenizer
from bert.tokenization.fast_tokenizer import FastTokenizer
from bert.tokenization.vocabulary import Vocabulary

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedFile:
    """A file's features. `targets`: int64 classes or float32 numbers [n]; None without labels."""

    table: FeatureTable
    targets: np.ndarray | None
    indices: list[str]
    labels: tuple[str, ...] | None
    fingerprint: str


def open_task(config: GlueConfig, group: Group) -> FineTuning:
    return FineTuning(config, group, read_data(config))


def read_data(config: GlueConfig) -> FineTuningData:
    """Read, check and tokenise every file that the settings need.

    Raises:
        ValueError: a file that cannot be used, or classes that no file names.
    """
    reader = _Reader(config)
    task = config.task()
    train = None
    labels = task.labels
    if config.run.do_train:
        assert task.train is not None
        train = reader.prepare(
            _path(config, config.data.train_file, task.train),
            task,
            task.train,
            labels,
            config.data.max_bad_line_fraction,
        )
        labels = train.labels
    elif not task.is_regression:
        labels = labels_of_the_weights(config.initialization, labels)
    task = config.task(len(labels or ()))
    evaluation = []
    for name, split in task.dev.items() if config.run.do_eval else ():
        # QQP's published files have broken lines; in a leaderboard file every line is needed.
        part = reader.prepare(
            _path(config, config.data.eval_file, split), task, split, labels, config.data.max_bad_line_fraction
        )
        evaluation.append(_evaluated(task, name, part, alone=len(task.dev) == 1))
    prediction = []
    for name, split in task.test.items() if config.run.do_predict else ():
        prediction.append(reader.stream(_path(config, config.data.predict_file, split), task, name, split, labels))
    if labels is None:
        objective: Any = SequenceRegressionObjective(config.model, config.hardware.fuse_mha)
    else:
        objective = SequenceClassificationObjective(config.model, config.hardware.fuse_mha, num_labels=len(labels))
    first = next(iter(task.dev))
    return FineTuningData(
        objective,
        fingerprint=train.fingerprint if train else "",
        best_metric="eval_score" if len(task.dev) == 1 else f"eval_{first}_score",
        train=train.table if train else None,
        evaluation=evaluation,
        prediction=prediction,
        texts=usage_texts(_usage(config, task), config.data.do_lower_case, labels),
    )


def _usage(config: GlueConfig, task: GlueTask) -> Usage:
    split = next(iter(task.dev.values()))
    columns = tuple(map(str, split.texts))
    return Usage(task.name, config.data.max_seq_length, columns, task.is_regression)


class _Reader:
    """Builds features of files, or reads them from the cache."""

    def __init__(self, config: GlueConfig) -> None:
        self._config = config
        self._vocabulary = Vocabulary.from_file(config.data.vocab_file)
        self._tokenizer = FastTokenizer(self._vocabulary, config.data.do_lower_case)
        self._cache = FeatureCache(config.data.cache_dir)

    def prepare(
        self,
        path: Path,
        task: GlueTask,
        split: Split,
        labels: tuple[str, ...] | None,
        max_bad_line_fraction: float = 0.0,
    ) -> PreparedFile:
        """`labels`: the classes; None: those of the file."""
        data = self._config.data
        rule = LabelRule(labels, task.value_range, task.no_label)
        key = self._cache.key(
            f"{self._config.stage()}-{readable(path.stem)}",
            files=[path],
            vocabulary=self._vocabulary,
            settings={
                "split": asdict(split),
                "rule": repr(rule),
                "suffix": path.suffix,
                "lower": data.do_lower_case,
                "max_seq_length": data.max_seq_length,
                "max_bad_line_fraction": max_bad_line_fraction,
            },
            code=[glue_features, glue_reading, glue_rows, sequences, text_files, fast_tokenizer],
        )
        arrays, notes = self._cache.get_or_build(key, lambda: self._build(path, split, rule, max_bad_line_fraction))
        for line in (*notes["warnings"], _count_line(path, notes["counts"], data.max_seq_length)):
            logger.info(line)
        targets = arrays.get("labels")
        table = self._table(arrays, {} if targets is None else {"labels": targets})
        known = notes["labels"]
        return PreparedFile(
            table,
            targets,
            notes["indices"] or [str(number) for number in range(len(table))],
            tuple(known) if known else None,
            fingerprint(arrays),
        )

    def _build(self, path: Path, split: Split, rule: LabelRule, max_bad_line_fraction: float) -> tuple[Arrays, Notes]:
        examples = read_examples(path, split, rule, max_bad_line_fraction)
        arrays, counts = self._features(examples)
        if examples.labels is not None:
            if rule.labels is None and rule.value_range is None:
                rule = LabelRule(discover_labels(examples))
            arrays["labels"] = rule.encode(examples.labels)
        counts = {"examples": len(examples), **examples.counts, **counts}
        return arrays, {
            "labels": rule.labels,
            "indices": examples.indices if split.index is not None else None,
            "warnings": examples.warnings,
            "counts": counts,
        }

    def _features(self, examples: Examples) -> tuple[Arrays, dict[str, int]]:
        return glue_features.sentence_features(self._tokenizer, examples.texts, self._config.data.max_seq_length)

    def _table(self, arrays: Arrays, labels: dict[str, np.ndarray]) -> FeatureTable:
        pad_id = self._config.model.pad_token_id
        return FeatureTable(arrays["input_ids"], arrays["offsets"], arrays["first_lengths"], labels, pad_id=pad_id)

    def stream(
        self, path: Path, task: GlueTask, name: str, split: Split, labels: tuple[str, ...] | None
    ) -> StreamedSet:
        """A file to predict, which is checked now and read again while it is predicted."""
        with_probability = task.name == "custom" and not task.is_regression

        def windows(start: int) -> Iterator[Window]:
            for examples in stream_examples(path, split, start, WINDOW_EXAMPLES, WINDOW_CHARACTERS):
                arrays, counts = self._features(examples)
                counts = {"examples": len(examples), **examples.counts, **counts}
                render = _renderer(task, examples.indices, labels, with_probability)
                yield Window(self._table(arrays, {}), len(examples), render, counts)

        return StreamedSet(
            name,
            path,
            count_examples(path, split),
            "examples",
            windows,
            {f"{name}.tsv": (prediction_header(["prediction"] + ["probability"] * with_probability), b"")},
            lambda counts: [_count_line(path, counts, self._config.data.max_seq_length)],
            labels or (),
        )


def _path(config: GlueConfig, own: Path | None, split: Split) -> Path:
    if config.data.task_name == "custom":
        assert own is not None, "the settings have checked it"
        return own
    assert config.data.data_dir is not None
    return find_file(config.data.data_dir, split)


def _count_line(path: Path, counts: Mapping[str, int], max_seq_length: int) -> str:
    parts = [f"{path}: {counts['examples']:,} examples, {counts['tokens'] / counts['examples']:.1f} tokens each"]
    if counts["truncated"]:
        parts.append(f"{counts['truncated']:,} cut to --max-seq-length {max_seq_length}")
    if counts["empty_texts"]:
        parts.append(f"{counts['empty_texts']:,} empty texts")
    return ", ".join(parts)


def predicted_values(outputs: Outputs, is_regression: bool) -> np.ndarray:
    """int64 classes or float32 numbers [n].

    Raises:
        ValueError: the model's outputs are not finite.
    """
    logits = outputs["logits"]
    if not np.isfinite(logits).all():
        raise ValueError(
            f"the model's outputs are NaN or infinite for {int((~np.isfinite(logits)).any(-1).sum())} of "
            f"{len(logits)} examples; its weights are damaged, or its training diverged"
        )
    return logits[:, 0] if is_regression else logits.argmax(-1)


def _evaluated(task: GlueTask, name: str, part: PreparedFile, *, alone: bool) -> PredictedSet:
    prefix = "eval_" if alone else f"eval_{name}_"
    targets = part.targets
    assert targets is not None

    def score(outputs: Outputs) -> dict[str, float]:
        found = scores(task.metrics, predicted_values(outputs, task.is_regression), targets)
        return {f"{prefix}{metric}": value for metric, value in found.items()}

    def write(outputs: Outputs, directory: Path) -> None:
        predictions = prediction_texts(task, part.labels, predicted_values(outputs, task.is_regression))
        truths = prediction_texts(task, part.labels, targets)
        write_predictions(
            directory / f"{name}_predictions.tsv", part.indices, [predictions, truths], ("prediction", "label")
        )

    return PredictedSet(name, part.table, score, write)


def _renderer(
    task: GlueTask, indices: list[str], labels: tuple[str, ...] | None, with_probability: bool
) -> Callable[[Outputs], list[bytes]]:
    def render(outputs: Outputs) -> list[bytes]:
        columns: list[Sequence[str]] = [prediction_texts(task, labels, predicted_values(outputs, task.is_regression))]
        if with_probability:
            logits = outputs["logits"].astype(np.float64)
            odds = np.exp(logits - logits.max(-1, keepdims=True))
            columns.append([f"{value:.6f}" for value in odds.max(-1) / odds.sum(-1)])
        return [prediction_lines(indices, columns)]

    return render

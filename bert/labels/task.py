"""The fine-tuning task of labelled texts: makes features from files, and scores and predictions from outputs."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bert.config.setting_errors import suggest
from bert.conversion.usage import WHOLE, Usage, usage_texts
from bert.files import write_atomically
from bert.finetuning.loader import FeatureTable
from bert.finetuning.model_files import labels_of_the_weights, usage_of_the_weights
from bert.finetuning.prediction_files import WINDOW_CHARACTERS, WINDOW_EXAMPLES, tsv_ends
from bert.finetuning.run import RunnableTask
from bert.finetuning.task import Features, Outputs, Part, ResultsFile
from bert.labels.baseline import compare
from bert.labels.decision import Decision
from bert.labels.examples import Examples, discover_labels, read_examples, stream_examples
from bert.labels.features import sentence_features
from bert.labels.linear_model import LinearTextModel
from bert.labels.metrics import scores
from bert.labels.preparation import prepare
from bert.labels.scores import ScoredRows, best_by, class_scores, details, fitted, lines, with_threshold
from bert.labels.settings import LabelConfig
from bert.labels.split import count_in_both
from bert.labels.token_learning import MOST_LINES, MOST_NUMBERS, learned, logits_of, share
from bert.model.head_specs import HEAD_TENSORS, TOKEN_WEIGHTS, with_temperature
from bert.model.objectives import (
    MultiLabelObjective,
    Objective,
    SequenceClassificationObjective,
    SequenceRegressionObjective,
    TextHeadObjective,
)
from bert.randomness import permutation, stream_key
from bert.reporting.run_record import BASELINE_FILE, BASELINE_MODEL
from bert.tokenization.library import text_tokenizer

logger = logging.getLogger(__name__)


class LabelTask(RunnableTask):
    """Predicts classes, several labels or numbers of texts, for users' files and for GLUE."""

    def __init__(self, config: LabelConfig) -> None:
        super().__init__(config)
        self._config, self._schema = config, config.label_schema()
        self._tokenizer = text_tokenizer(self.vocabulary, config.data.normalization())
        self.notes: list[str] = []
        if config.model.classifier_pooling != "cls" and not config.model.is_modern():
            kind = config.model.model_type
            self.notes.append(f"not used: classifier_pooling, as classifiers on a {kind} read the first token")
        self._held_out: Examples | None = None
        self._unscaled: np.ndarray | None = None  # token weights before they are scaled
        self._usage = Usage()
        if config.run.do_train:
            self._read_training()
        elif not self._schema.is_regression:
            start = config.initialization
            self._schema = self._schema.with_labels(labels_of_the_weights(start, self._schema.labels))
            self._usage = usage_of_the_weights(start) if self._schema.is_own else Usage()
        self.labels = self._schema.labels
        self._has_decision = self._schema.is_own and not self._schema.is_regression
        self._prepare_decision()
        dev = self._schema.dev
        self.best_metric = "eval_score" if len(dev) == 1 else f"eval_{next(iter(dev))}_score"
        self._best_by = self._chosen_best_by() if self._schema.is_own else None
        self._name_parts()

    def _read_training(self) -> None:
        """Read the training file, infer its classes if they are not known, and prepare the user's rows."""
        part = self._part("train")
        self.training, self.training_file = self.read(part), part.path
        if self._schema.labels is None and not self._schema.is_regression:
            self._schema = self._schema.with_labels(self._ordered(discover_labels(self.training, self._schema)))
        if self._schema.is_own:
            prepared = prepare(self._config, self._schema, self.training)
            self.training, self._held_out = prepared.training, prepared.held_out
            self.notes += prepared.notes

    def _prepare_decision(self) -> None:
        """Set the decision of the start weights, and whether token weights are learned."""
        labels, config = self.labels or (), self._config
        self._decision = Decision.of(self._usage, labels)
        if self._schema.separator is not None:
            self._decision = replace(self._decision, several=True)
        self._token_weights: np.ndarray | None = None  # learned at the last evaluation of a training
        self._scores_without: dict[str, dict[str, float]] | None = None  # see `Usage.held_out`
        self._learns_token_weights = config.run.do_train and self._has_decision and config.data.token_weights
        if self._learns_token_weights and config.model.vocab_size * len(labels) > MOST_NUMBERS:
            self._learns_token_weights = False
            self.notes.append(f"not used: token_weights, which are over {MOST_NUMBERS:,} for these tokens and classes")

    def _name_parts(self) -> None:
        """Set the files to evaluate and to predict, with the header of each file of predictions."""
        columns, run = "index\tprediction\t", self._config.run
        if run.do_eval:
            head = columns + ("label\tprobability\ttext\n" if self._has_decision else "label\n")
            self.evaluated = [self._part(name, f"{name}_predictions.tsv", head) for name in self._schema.dev]
        if run.do_predict:
            head = columns + "probability\n" if self._has_decision else "index\tprediction\n"
            self.predicted = [self._part(name, f"{name}.tsv", head) for name in self._schema.test]

    def _chosen_best_by(self) -> tuple[str, str] | None:
        """Check the setting `best_by`, which selects the best weights; None if it is a metric of the task."""
        words = self._config.data.best_by
        chosen = best_by(words, self._schema.metrics, self.labels or ())
        if words != "score":
            self.best_metric = f"eval_{words.replace(':', '_')}"
        if chosen is not None and chosen[0] == "recall" and self._config.run.do_train:
            name = chosen[1]
            self.notes.append(
                f"best_by={words} may choose weights that always say {name}; --best-by f1:{name} or auc:{name} counts "
                "false alarms too"
            )
        return chosen

    def _ordered(self, labels: tuple[str, ...]) -> tuple[str, ...]:
        """The classes in order; of two classes the positive one is last."""
        positive = self._config.data.positive_label
        if positive is None:
            return labels
        if positive not in labels:
            hint = suggest(positive, labels, f"they are {', '.join(labels[:10])}")
            raise ValueError(f"positive_label={positive} is no label of {self.training.source}; {hint}")
        return (*(label for label in labels if label != positive), positive) if len(labels) == 2 else labels

    def _part(self, name: str, results: str = "", head: str = "") -> Part:
        files = {results: ResultsFile(head.encode(), row_ends=tsv_ends)} if results else {}
        return Part(name, self._config.file_of(name), files)

    def objective(self) -> TextHeadObjective:
        model, fuse_mha = self._config.model, self._config.hardware.fuse_mha
        if self.labels is None:
            return SequenceRegressionObjective(model, fuse_mha)
        if self._decision.several:
            return MultiLabelObjective(model, fuse_mha, num_labels=len(self.labels))
        return SequenceClassificationObjective(model, fuse_mha, num_labels=len(self.labels))

    def objective_of(self, weights: Mapping[str, np.ndarray]) -> Objective:
        """The objective for given weights, with their token weights unless the settings leave these out."""
        return replace(self.objective(), token_weights=TOKEN_WEIGHTS in weights and self._config.data.token_weights)

    def usage(self) -> Usage:
        schema = self._schema
        columns = tuple(map(str, next(iter(schema.dev.values())).texts))
        usage = Usage(schema.name, self._config.data.max_seq_length, columns, schema.is_regression)
        if not schema.is_own:
            return usage
        decision, labels = self._decision, self.labels or ()
        return replace(
            usage,
            label_column=self._config.data.label_column,
            header=self._config.data.header,
            label_separator=schema.separator,
            positive_label=None if decision.positive is None else labels[decision.positive],
            threshold=decision.threshold,
            held_out=self._scores_without,
        )

    def read(self, part: Part) -> Examples:
        if part.name == "dev" and self._held_out is not None:
            return self._held_out
        # QQP's published files have broken lines; in a leaderboard file every line is needed.
        fraction = self._config.data.max_bad_line_fraction
        examples = read_examples(part.path, self._schema.split(part.name), self._schema, fraction)
        self.notes += examples.warnings
        if part.name == "dev" and self.training is not None and self._schema.is_own:
            leaks, nearly = count_in_both(examples, self.training)
            if leaks:
                self.notes.append(
                    f"{leaks:,} of {len(examples):,} texts of {part.path} are in {self.training_file} too{nearly}: the "
                    "scores are better than on new texts; remove them from one of the files"
                )
        return examples

    def windows(self, part: Part) -> Iterator[Examples]:
        schema = self._schema
        return stream_examples(part.path, schema.split(part.name), schema, WINDOW_EXAMPLES, WINDOW_CHARACTERS)

    def features(self, examples: Examples, training: bool = False) -> tuple[FeatureTable, dict[str, int]]:
        table, counts = sentence_features(self._tokenizer, examples.texts, self._config.data.max_seq_length)
        if examples.labels is not None:
            table = replace(table, labels={"labels": self._schema.encode(examples.labels)})
        return table, {"examples": len(examples), **examples.counts, **counts}

    def describe(self, path: Path, counts: Mapping[str, int]) -> list[str]:
        parts = [f"{path}: {counts['examples']:,} examples, {counts['tokens'] / counts['examples']:.1f} tokens each"]
        if counts["truncated"]:
            parts.append(f"{counts['truncated']:,} cut to --max-seq-length {self._config.data.max_seq_length}")
        if counts["empty_texts"]:
            parts.append(f"{counts['empty_texts']:,} empty texts")
        return [", ".join(parts)]

    def learn_to_decode(self, features: Features, outputs: Outputs) -> None:
        """Learn the token weights, scaled by a share that is fitted to the encoder's present logits."""
        if not self._learns_token_weights:
            return
        several, table = self._decision.several, features.table
        if self._unscaled is None:
            order = permutation(stream_key(self._config.run.seed, "token weights"), len(self.training))
            lines = self.features(self.training.take(order[:MOST_LINES]))[0]
            kinds, classes = lines.labels["labels"], np.arange(len(self.labels or ()))
            truths = kinds > 0 if several else kinds[:, None] == classes
            self._unscaled = learned(self.vocabulary, lines, truths, self._config.model.padded_vocab_size())
        of_tokens = logits_of(self._unscaled, table.input_ids, table.offsets)
        by = share(outputs["logits"], of_tokens, table.labels["labels"], several)
        self._token_weights = None if by == 0 else by * self._unscaled

    def fitted_parameters(self) -> dict[str, np.ndarray]:
        return {} if self._token_weights is None else {TOKEN_WEIGHTS: self._token_weights}

    def final_head(self, trained: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The parameters of the classifier and its token weights, divided by the temperature."""
        if not self._has_decision:
            return {}
        head = {name: trained[name] for name in HEAD_TENSORS["classifier"]} | self.fitted_parameters()
        return with_temperature(head, self._decision.temperature)

    def decode(self, features: Features, outputs: Outputs) -> np.ndarray:
        """Logits, float32 [n, classes] or [n, 1]; in a training with the learned token weights, as in final use."""
        weights, table = self._token_weights, features.table
        of_tokens = 0.0 if weights is None else logits_of(weights, table.input_ids, table.offsets)
        return outputs["logits"] + of_tokens

    def _values(self, logits: np.ndarray) -> np.ndarray:
        """Convert logits, float32 [n, classes] or [n, 1], to classes (see `Decision`) or to float32 numbers [n]."""
        if self._schema.is_regression:
            return logits[:, 0]
        return self._decision.classes(self._decision.probabilities(logits))

    def score(self, part: Part, features: Features, logits: np.ndarray) -> dict[str, float]:
        prefix = "eval_" if len(self._schema.dev) == 1 else f"eval_{part.name}_"
        labels = features.table.labels["labels"]
        metrics = scores(self._schema.metrics, self._values(logits), labels)
        if self._best_by is not None:
            kind, name = self._best_by
            likely = self._decision.probabilities(logits)
            classes = class_scores(self.labels or (), labels, likely, self._values(logits))
            metrics[self.best_metric.removeprefix("eval_")] = classes[name].get(kind) or 0.0
        return {f"{prefix}{metric}": value for metric, value in metrics.items()}

    def details(self, part: Part, features: Features, predictions: Any, *, fits: bool) -> dict[str, Any] | None:
        if not self._has_decision or self.labels is None:
            return None
        labels, data = features.table.labels["labels"], self._config.data
        if fits:
            positive = None if data.positive_label is None else self.labels.index(data.positive_label)
            self._decision = fitted(predictions, labels, self._decision.several, positive, data.wanted_recall)
            if self._decision.positive is not None:
                logger.info("the scores that follow are with the threshold, scores of other evaluations without it")
        texts = [" | ".join(row) for row in zip(*features.examples.texts, strict=True)]
        rows = ScoredRows(self.labels, texts, features.examples.indices, labels, predictions)
        learned_from = self.training.labels if self.training is not None else None
        is_untrained = learned_from is not None and not set(features.examples.labels or ()) <= set(learned_from)
        content = details(rows, self._decision, data.balance or is_untrained)
        if fits and (without := self._measure_without(features, predictions)):
            self._scores_without = content["held_out"] = without
        if fits and self._token_weights is not None:
            logger.info("a linear model of the tokens is added to the logits, as it helps; --no-token-weights: without")
        for line in lines(content):
            logger.info(line)
        return content

    def _measure_without(self, features: Features, logits: np.ndarray) -> dict[str, dict[str, float]]:
        """Score the decision as a whole, and without each part that other libraries ignore; {} without such parts.

        A library that ignores token weights ignores the threshold too.
        """
        table, parts = features.table, dict[str, np.ndarray]()
        if self._decision.positive is not None:
            parts["threshold"] = logits
        if self._token_weights is not None:
            parts["token weights"] = logits - logits_of(self._token_weights, table.input_ids, table.offsets)
        if not parts:
            return {}

        def scored(decision: Decision, logits: np.ndarray) -> dict[str, float]:
            values = decision.classes(decision.probabilities(logits))
            metrics = scores(self._schema.metrics, values, table.labels["labels"])
            return {name: value for name, value in metrics.items() if name != "score"}

        plain = replace(self._decision, positive=None)
        whole = {WHOLE: scored(self._decision, logits)}
        return whole | {part: scored(plain, each) for part, each in parts.items()}

    def baseline(self, features: Features, predictions: np.ndarray) -> dict[str, Any]:
        """Score the word and character baselines; the model is compared without its threshold."""
        is_plain = self._decision.positive is None
        ours = self._values(predictions) if is_plain else predictions.argmax(-1)
        note, hint, keep = "" if is_plain else " Both are without the threshold.", "", None
        folder = self._config.stage_dir() / BASELINE_MODEL
        if self._schema.is_own and self._config.data.keep_baseline:
            note += f" The better of the two baselines is kept as a model: {folder}."
            keep = partial(self._keep_baseline, folder, features)
        elif self._schema.is_own:
            hint = " --keep-baseline keeps what is better as a model, for run_predict.py and the server."
        record, seed = self._config.stage_dir() / BASELINE_FILE, self._config.run.seed
        return compare(self._schema, self.training, features.examples, ours, seed, record, note, hint=hint, keep=keep)

    def _keep_baseline(self, folder: Path, features: Features, model: LinearTextModel) -> None:
        """Write a baseline as a model with its usage files; it gets a threshold of its own if this model has one."""
        usage, decision, examples = replace(self.usage(), max_seq_length=None), self._decision, features.examples
        if self.labels and decision.positive is not None and self._config.data.wanted_recall is not None:
            texts = model.read(zip(*examples.texts, strict=True))
            truths, recall = features.table.labels["labels"], self._config.data.wanted_recall
            found = with_threshold(Decision(), model.logits(texts), truths, decision.positive, recall)
            usage = replace(usage, threshold=found.threshold)
        model.write(folder)
        for name, content in usage_texts(usage, None, self.labels).items():
            write_atomically(folder / name, content.encode())

    def render(self, part: Part, features: Features, logits: np.ndarray) -> list[bytes]:
        columns = [features.examples.indices, self._label_texts(self._values(logits))]
        if features.examples.labels is not None:
            columns.append(self._label_texts(features.table.labels["labels"]))
        if self._has_decision:
            likely = self._decision.probabilities(logits)
            chosen = likely.max(-1) if self._decision.several else likely[np.arange(len(likely)), self._values(logits)]
            columns.append([f"{value:.6f}" for value in chosen])
        if self._has_decision and features.examples.labels is not None:
            columns.append([" ".join(text.split()) for text in features.examples.texts[0]])
        return ["".join("\t".join(row) + "\n" for row in zip(*columns, strict=True)).encode()]

    def _label_texts(self, values: np.ndarray) -> list[str]:
        """The label of each class as text, or each number, clipped to the task's range."""
        if self.labels is not None and values.ndim == 2:
            joined = f"{self._schema.separator} "
            return [joined.join(self.labels[index] for index in np.flatnonzero(row)) for row in values]
        if self.labels is not None:
            return [self.labels[value] for value in values]
        low, high = self._schema.value_range or (-np.inf, np.inf)
        return [f"{value:.6g}" for value in np.clip(values.astype(np.float64), low, high)]

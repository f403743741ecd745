"""What a program trains: a network on BERT's encoder, its inputs, its loss, and the sums its metrics are made of.

An objective is a value: two programs of equal objectives are the same program. Sums are kept on the device between two
log lines; the first two of every objective are `passes` and `loss`.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from bert.config.architecture import FusedKernels
from bert.config.base import BertConfig
from bert.model.losses import (
    answer_span_loss,
    classification_loss,
    masked_lm_loss,
    next_sentence_loss,
    regression_loss,
    token_classification_loss,
    weighted_correct,
)
from bert.model.modeling import (
    PLAIN,
    BertForPretraining,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from bert.runtime.paddle_api import paddle, static

ENCODER_INPUTS = {name: ([-1, -1], "int64") for name in ("input_ids", "token_type_ids", "attention_mask")}


@dataclass(frozen=True)
class Objective:
    """Common to all; subclasses give the network, the labels and the loss.

    Attributes:
        labels: what is fed beside the encoder's inputs in training: name -> (shape, dtype).
        metric_names: the sums of a pass, in order.
        outputs_per_token: whether outputs are [b, s, ...] rather than [b, ...].
    """

    model: BertConfig
    fuse_mha: bool = False
    kernels: FusedKernels = PLAIN

    labels: ClassVar[dict[str, tuple[list[int], str]]]
    metric_names: ClassVar[tuple[str, ...]]
    outputs_per_token: ClassVar[bool] = False

    def inputs(self, with_labels: bool = True) -> dict[str, Any]:
        """Declare the feed of a pass in the current program."""
        shapes = {**self.encoder_inputs(), **(self.labels if with_labels else {})}
        return {name: static.data(name, shape, dtype) for name, (shape, dtype) in shapes.items()}

    def encoder_inputs(self) -> dict[str, tuple[list[int], str]]:
        return ENCODER_INPUTS

    def network(self) -> Any:
        raise NotImplementedError

    def outputs(self, feed: dict[str, Any], network: Any) -> dict[str, Any]:
        """What prediction fetches, by name; also what the loss is made of."""
        raise NotImplementedError

    def loss(self, feed: dict[str, Any], outputs: dict[str, Any]) -> tuple[Any, list[Any]]:
        """-> (scalar loss, float32 scalars that follow `passes` and `loss` in metric_names)."""
        raise NotImplementedError

    def forward(self, training: bool):
        """The whole pass in the current program -> (loss, float64 [len(metric_names)])."""
        feed, network = self.inputs(), self.network()
        network.train() if training else network.eval()
        loss, sums = self.loss(feed, self.outputs(feed, network))
        values = (paddle.ones([], "float32"), loss, *sums)
        metrics = paddle.concat([value.detach().reshape([1]) for value in values]).astype("float64")
        if training:  # a pass that overflowed is skipped by the update; it must not blind the log until its next line
            metrics = paddle.where(paddle.isfinite(loss.detach()), metrics, paddle.zeros_like(metrics))
        metrics.stop_gradient = True
        return loss, metrics

    def summarise(self, sums: dict[str, float]) -> dict[str, float]:
        """Means for a log line, from sums over passes and ranks; NaN losses when every pass overflowed."""
        passes = sums["passes"]
        return {"loss": sums["loss"] / passes if passes else float("nan")}


@dataclass(frozen=True)
class PretrainingObjective(Objective):
    """Masked words and the next sentence (Devlin et al., 2019): b sequences of s tokens, n masked positions.

    Padded entries of the n positions weigh 0.
    """

    labels: ClassVar = {
        "masked_lm_labels": ([-1], "int64"),
        "masked_lm_weights": ([-1], "float32"),
        "masked_lm_normalizer": ([1], "float32"),
        "next_sentence_labels": ([-1], "int64"),
    }
    metric_names: ClassVar = (
        "passes",
        "loss",
        "masked_lm_loss",
        "next_sentence_loss",
        "masked_lm_correct",
        "masked_tokens",
        "next_sentence_correct",
        "sequences",
    )

    def encoder_inputs(self) -> dict[str, tuple[list[int], str]]:
        return {**ENCODER_INPUTS, "masked_lm_positions": ([-1], "int64")}

    def network(self) -> BertForPretraining:
        return BertForPretraining(self.model, fuse_mha=self.fuse_mha, kernels=self.kernels)

    def outputs(self, feed, network):
        logits, next_sentence_logits = network(
            feed["input_ids"], feed["token_type_ids"], feed["attention_mask"], feed["masked_lm_positions"]
        )
        return {"masked_lm_logits": logits, "next_sentence_logits": next_sentence_logits}

    def loss(self, feed, outputs):
        logits, next_sentence_logits = outputs["masked_lm_logits"], outputs["next_sentence_logits"]
        labels, weights = feed["masked_lm_labels"], feed["masked_lm_weights"]
        masked_lm = masked_lm_loss(logits, labels, weights, feed["masked_lm_normalizer"])
        next_sentence = next_sentence_loss(next_sentence_logits, feed["next_sentence_labels"])
        ones = paddle.ones_like(feed["next_sentence_labels"]).astype("float32")
        sums = [
            masked_lm,
            next_sentence,
            weighted_correct(logits, labels, weights),
            weights.sum(),
            weighted_correct(next_sentence_logits, feed["next_sentence_labels"], ones),
            ones.sum(),
        ]
        return masked_lm + next_sentence, sums

    def summarise(self, sums):
        passes = sums["passes"] or float("nan")
        return {
            **super().summarise(sums),
            "masked_lm_loss": sums["masked_lm_loss"] / passes,
            "next_sentence_loss": sums["next_sentence_loss"] / passes,
            "masked_lm_accuracy": sums["masked_lm_correct"] / max(sums["masked_tokens"], 1),
            "next_sentence_accuracy": sums["next_sentence_correct"] / max(sums["sequences"], 1),
        }


@dataclass(frozen=True)
class QuestionAnsweringObjective(Objective):
    """The first and the last token of an answer in a window of context (Devlin et al., 2019, section 4.2).

    A window without an answer has both positions at 0, [CLS].
    """

    labels: ClassVar = {"start_positions": ([-1], "int64"), "end_positions": ([-1], "int64")}
    metric_names: ClassVar = ("passes", "loss", "start_correct", "end_correct", "sequences")
    outputs_per_token: ClassVar = True

    def network(self) -> BertForQuestionAnswering:
        return BertForQuestionAnswering(self.model, fuse_mha=self.fuse_mha, kernels=self.kernels)

    def outputs(self, feed, network):
        start, end = network(feed["input_ids"], feed["token_type_ids"], feed["attention_mask"])
        return {"start_logits": start, "end_logits": end}

    def loss(self, feed, outputs):
        starts, ends = feed["start_positions"], feed["end_positions"]
        ones = paddle.ones_like(starts).astype("float32")
        sums = [
            weighted_correct(outputs["start_logits"], starts, ones),
            weighted_correct(outputs["end_logits"], ends, ones),
            ones.sum(),
        ]
        return answer_span_loss(outputs["start_logits"], outputs["end_logits"], starts, ends), sums

    def summarise(self, sums):
        sequences = max(sums["sequences"], 1)
        return {
            **super().summarise(sums),
            "start_accuracy": sums["start_correct"] / sequences,
            "end_accuracy": sums["end_correct"] / sequences,
        }


@dataclass(frozen=True)
class SequenceClassificationObjective(Objective):
    """A class of a text or a pair of texts, from the pooler."""

    num_labels: int = 2

    labels: ClassVar = {"labels": ([-1], "int64")}
    metric_names: ClassVar = ("passes", "loss", "correct", "sequences")

    def network(self) -> BertForSequenceClassification:
        return BertForSequenceClassification(self.model, self.num_labels, fuse_mha=self.fuse_mha, kernels=self.kernels)

    def outputs(self, feed, network):
        return {"logits": network(feed["input_ids"], feed["token_type_ids"], feed["attention_mask"])}

    def loss(self, feed, outputs):
        ones = paddle.ones_like(feed["labels"]).astype("float32")
        sums = [weighted_correct(outputs["logits"], feed["labels"], ones), ones.sum()]
        return classification_loss(outputs["logits"], feed["labels"]), sums

    def summarise(self, sums):
        return {**super().summarise(sums), "accuracy": sums["correct"] / max(sums["sequences"], 1)}


@dataclass(frozen=True)
class SequenceRegressionObjective(Objective):
    """A number for a text or a pair of texts, from the pooler."""

    labels: ClassVar = {"labels": ([-1], "float32")}
    metric_names: ClassVar = ("passes", "loss")

    def network(self) -> BertForSequenceClassification:
        return BertForSequenceClassification(self.model, 1, fuse_mha=self.fuse_mha, kernels=self.kernels)

    def outputs(self, feed, network):
        return {"logits": network(feed["input_ids"], feed["token_type_ids"], feed["attention_mask"])}

    def loss(self, feed, outputs):
        return regression_loss(outputs["logits"], feed["labels"]), []


@dataclass(frozen=True)
class TokenClassificationObjective(Objective):
    """A class of every labelled token; unlabelled tokens (later word pieces, specials, padding) have label -1."""

    num_labels: int = 2

    labels: ClassVar = {"labels": ([-1, -1], "int64"), "label_normalizer": ([1], "float32")}
    metric_names: ClassVar = ("passes", "loss", "correct", "tokens")
    outputs_per_token: ClassVar = True

    def network(self) -> BertForTokenClassification:
        return BertForTokenClassification(self.model, self.num_labels, fuse_mha=self.fuse_mha, kernels=self.kernels)

    def outputs(self, feed, network):
        return {"logits": network(feed["input_ids"], feed["token_type_ids"], feed["attention_mask"])}

    def loss(self, feed, outputs):
        labels = feed["labels"].reshape([-1])
        logits = outputs["logits"].reshape([-1, self.num_labels])
        weights = (labels >= 0).astype("float32")
        loss = token_classification_loss(logits, labels, weights, feed["label_normalizer"])
        return loss, [weighted_correct(logits, labels, weights), weights.sum()]

    def summarise(self, sums):
        return {**super().summarise(sums), "accuracy": sums["correct"] / max(sums["tokens"], 1)}

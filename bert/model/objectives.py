"""Training objectives: a network on BERT's encoder, its inputs, its loss, and the sums behind its metrics.

An objective is a value: equal objectives give equal programs. The sums are accumulated on the device between two log
lines; the first two of every objective are `passes` (micro-batches with a finite loss) and `loss`.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from bert.config.architecture import FusedKernels
from bert.config.training_settings import BertConfig
from bert.model.attention import MASKED_SCORE, packed_layout
from bert.model.losses import (
    answer_span_loss,
    classification_loss,
    masked_lm_loss,
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
from bert.samples.packing import NO_TOKEN, Packing

ENCODER_INPUTS = {name: ([-1, -1], "int64") for name in ("input_ids", "token_type_ids", "attention_mask")}

BINARY_INPUTS = ("token_type_ids", "attention_mask", "next_sentence_labels")


def _input(name: str, shape: list[int], dtype: str, small: bool):
    if not small or dtype != "int64":
        return static.data(name, shape, dtype)
    return static.data(name, shape, "uint8" if name in BINARY_INPUTS else "int32").astype(dtype)


@dataclass(frozen=True)
class Objective:
    """Base class; subclasses define the network, the labels and the loss.

    Attributes:
        labels: inputs that training needs beside the encoder's: name -> (shape, dtype).
        metric_names: the sums of a micro-batch, in order.
        outputs_per_token: whether outputs are [b, s, ...] rather than [b, ...].
        attention_groups: groups of like length that attention on CPU pads by themselves, if the tokens are packed.
            Micro-batches of pre-training have like lengths already.
    """

    model: BertConfig
    fuse_mha: bool = False
    kernels: FusedKernels = PLAIN

    labels: ClassVar[dict[str, tuple[list[int], str]]]
    metric_names: ClassVar[tuple[str, ...]]
    outputs_per_token: ClassVar[bool] = False
    attention_groups: ClassVar[int] = 4

    def inputs(self, with_labels: bool = True, *, small: bool = False) -> dict[str, Any]:
        """Declare the feed of a micro-batch in the current program.

        Args:
            small: the feed has integers of 32 bits or, where they are 0 or 1, 8 bits, which the device casts to 64.
        """
        shapes = {**self.encoder_inputs(), **(self.labels if with_labels else {})}
        return {name: _input(name, shape, dtype, small) for name, (shape, dtype) in shapes.items()}

    def encoder_inputs(self) -> dict[str, tuple[list[int], str]]:
        packing = self.packing()
        return ENCODER_INPUTS if packing is None else packing.inputs()

    def packing(self) -> Packing | None:
        """What `bert.samples.packing.pack` makes of a padded feed for this program; None: it reads the padded one."""
        if not self.kernels.unpad:
            return None
        groups = 0 if self.kernels.attention else self.attention_groups
        return Packing(self.model.num_attention_heads, groups, self.outputs_per_token)

    def encoder_arguments(self, feed: dict[str, Any]) -> list[Any]:
        """The arguments of `BertModel`."""
        packing = self.packing()
        if packing is None:
            return [feed[name] for name in ENCODER_INPUTS]
        layout = packed_layout(feed, packing, self.model.max_position_embeddings)
        return [feed["input_ids"], feed["token_type_ids"], layout]

    def network(self) -> Any:
        raise NotImplementedError

    def outputs(self, feed: dict[str, Any], network: Any) -> dict[str, Any]:
        """The outputs of the network by name: the input of the loss, and the result of a prediction."""
        return {"logits": network(*self.encoder_arguments(feed))}

    def loss(self, feed: dict[str, Any], outputs: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The scalar loss, and the float32 scalars that follow `passes` and `loss` in metric_names."""
        raise NotImplementedError

    def forward(self, training: bool, *, small_feed: bool = False):
        """Append the forward computation to the current program; return the loss and float64 [len(metric_names)]."""
        feed, network = self.inputs(small=small_feed), self.network()
        network.train() if training else network.eval()
        loss, sums = self.loss(feed, self.outputs(feed, network))
        values = (paddle.ones([], "float32"), loss, *sums)
        metrics = paddle.concat([value.detach().reshape([1]) for value in values]).astype("float64")
        if training:  # the update skips an overflow; it must not make the sums of the whole interval NaN
            metrics = paddle.where(paddle.isfinite(loss.detach()), metrics, paddle.zeros_like(metrics))
        metrics.stop_gradient = True
        return loss, metrics

    def chance_loss(self) -> float | None:
        """The loss of a uniform guess, in nats, which no trained model exceeds; None: not known."""
        return None

    def summarise(self, sums: dict[str, float]) -> dict[str, float]:
        """Means for a log line, from sums over micro-batches and ranks; NaN if every micro-batch overflowed."""
        passes = sums["passes"]
        return {"loss": sums["loss"] / passes if passes else float("nan")}


@dataclass(frozen=True)
class PretrainingObjective(Objective):
    """Masked-LM and next-sentence prediction (Devlin et al., 2019): b sequences of s tokens, n masked positions.

    Padding among the n positions has weight 0.
    """

    labels: ClassVar = {
        "masked_lm_labels": ([-1], "int64"),
        "masked_lm_weights": ([-1], "float32"),
        "masked_lm_normalizer": ([1], "float32"),
        "next_sentence_labels": ([-1], "int64"),
    }
    attention_groups: ClassVar[int] = 1
    metric_names: ClassVar[tuple[str, ...]] = (
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
        return {**super().encoder_inputs(), "masked_lm_positions": ([-1], "int64")}

    def network(self) -> BertForPretraining:
        return BertForPretraining(self.model, fuse_mha=self.fuse_mha, kernels=self.kernels)

    def outputs(self, feed, network):
        logits, next_sentence_logits = network(*self.encoder_arguments(feed), feed["masked_lm_positions"])
        return {"masked_lm_logits": logits, "next_sentence_logits": next_sentence_logits}

    def loss(self, feed, outputs):
        logits, next_sentence_logits = outputs["masked_lm_logits"], outputs["next_sentence_logits"]
        labels, weights = feed["masked_lm_labels"], feed["masked_lm_weights"]
        masked_lm = masked_lm_loss(logits, labels, weights, feed["masked_lm_normalizer"])
        next_sentence = classification_loss(next_sentence_logits, feed["next_sentence_labels"])  # 1 = random next
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

    def chance_loss(self) -> float:
        return math.log(self.model.vocab_size) + math.log(2)

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
class MaskedLMObjective(PretrainingObjective):
    """Masked-LM alone (Liu et al., 2019): no pooler, no next-sentence head."""

    labels: ClassVar = {name: kind for name, kind in PretrainingObjective.labels.items() if "next" not in name}
    metric_names: ClassVar = ("passes", "loss", "masked_lm_correct", "masked_tokens", "sequences")

    def network(self) -> BertForPretraining:
        return BertForPretraining(self.model, fuse_mha=self.fuse_mha, kernels=self.kernels, with_next_sentence=False)

    def outputs(self, feed, network):
        logits, _ = network(*self.encoder_arguments(feed), feed["masked_lm_positions"])
        return {"masked_lm_logits": logits}

    def loss(self, feed, outputs):
        logits, labels, weights = outputs["masked_lm_logits"], feed["masked_lm_labels"], feed["masked_lm_weights"]
        firsts = feed["attention_mask"][:, 0] if self.packing() is None else paddle.ones_like(feed["first_tokens"])
        sequences = firsts.astype("float32").sum()
        sums = [weighted_correct(logits, labels, weights), weights.sum(), sequences]
        return masked_lm_loss(logits, labels, weights, feed["masked_lm_normalizer"]), sums

    def chance_loss(self) -> float:
        return math.log(self.model.vocab_size)

    def summarise(self, sums):
        found = Objective.summarise(self, sums)
        accuracy = sums["masked_lm_correct"] / max(sums["masked_tokens"], 1)
        return {**found, "masked_lm_loss": found["loss"], "masked_lm_accuracy": accuracy}


@dataclass(frozen=True)
class QuestionAnsweringObjective(Objective):
    """The first and last token of the answer in a window (Devlin et al., 2019, section 4.2).

    In a window without an answer both are position 0, [CLS].
    """

    labels: ClassVar = {"start_positions": ([-1], "int64"), "end_positions": ([-1], "int64")}
    metric_names: ClassVar = ("passes", "loss", "start_correct", "end_correct", "sequences")
    outputs_per_token: ClassVar = True

    def network(self) -> BertForQuestionAnswering:
        return BertForQuestionAnswering(self.model, fuse_mha=self.fuse_mha, kernels=self.kernels)

    def outputs(self, feed, network):
        start, end = network(*self.encoder_arguments(feed))
        return {"start_logits": start, "end_logits": end}

    def loss(self, feed, outputs):
        starts, ends = feed["start_positions"], feed["end_positions"]
        bias = self._padding_bias(feed)  # no padding is an answer: the loss does not depend on it
        start_logits, end_logits = (outputs[name] + bias for name in ("start_logits", "end_logits"))
        ones = paddle.ones_like(starts).astype("float32")
        sums = [weighted_correct(start_logits, starts, ones), weighted_correct(end_logits, ends, ones), ones.sum()]
        return answer_span_loss(start_logits, end_logits, starts, ends), sums

    def _padding_bias(self, feed):
        """[b, s], 0 at real tokens."""
        padding = feed["attention_mask"] == 0 if self.packing() is None else feed["token_of_place"] == NO_TOKEN
        return paddle.cast(padding, "float32") * MASKED_SCORE

    def summarise(self, sums):
        sequences = max(sums["sequences"], 1)
        return {
            **super().summarise(sums),
            "start_accuracy": sums["start_correct"] / sequences,
            "end_accuracy": sums["end_correct"] / sequences,
        }


@dataclass(frozen=True)
class SequenceClassificationObjective(Objective):
    """Classification of a text or a pair of texts."""

    num_labels: int = 2

    labels: ClassVar = {"labels": ([-1], "int64")}
    metric_names: ClassVar = ("passes", "loss", "correct", "sequences")

    def network(self) -> BertForSequenceClassification:
        return BertForSequenceClassification(self.model, self.num_labels, fuse_mha=self.fuse_mha, kernels=self.kernels)

    def loss(self, feed, outputs):
        ones = paddle.ones_like(feed["labels"]).astype("float32")
        sums = [weighted_correct(outputs["logits"], feed["labels"], ones), ones.sum()]
        return classification_loss(outputs["logits"], feed["labels"]), sums

    def summarise(self, sums):
        return {**super().summarise(sums), "accuracy": sums["correct"] / max(sums["sequences"], 1)}


@dataclass(frozen=True)
class SequenceRegressionObjective(Objective):
    """Regression for a text or a pair of texts."""

    labels: ClassVar = {"labels": ([-1], "float32")}
    metric_names: ClassVar = ("passes", "loss")

    def network(self) -> BertForSequenceClassification:
        return BertForSequenceClassification(self.model, 1, fuse_mha=self.fuse_mha, kernels=self.kernels)

    def loss(self, feed, outputs):
        return regression_loss(outputs["logits"], feed["labels"]), []


@dataclass(frozen=True)
class TokenClassificationObjective(Objective):
    """Classification of tokens. Unlabelled tokens (later word pieces, special tokens, padding) have label -1."""

    num_labels: int = 2

    labels: ClassVar = {"labels": ([-1, -1], "int64"), "label_normalizer": ([1], "float32")}
    metric_names: ClassVar = ("passes", "loss", "correct", "tokens")
    outputs_per_token: ClassVar = True

    def network(self) -> BertForTokenClassification:
        return BertForTokenClassification(self.model, self.num_labels, fuse_mha=self.fuse_mha, kernels=self.kernels)

    def loss(self, feed, outputs):
        labels = feed["labels"].reshape([-1])
        logits = outputs["logits"].reshape([-1, self.num_labels])
        weights = (labels >= 0).astype("float32")
        loss = token_classification_loss(logits, labels, weights, feed["label_normalizer"])
        return loss, [weighted_correct(logits, labels, weights), weights.sum()]

    def summarise(self, sums):
        return {**super().summarise(sums), "accuracy": sums["correct"] / max(sums["tokens"], 1)}

"""Training objectives: a network with BERT's encoder, its inputs, its loss, and the sums for its metrics.

An objective is a value: equal objectives give equal programs. The sums are accumulated on the device between two log
lines; the first two of every objective are `passes` (micro-batches with a finite loss) and `loss`.

Losses are in float32: mixed precision casts the inputs of the operators in `program.AMP_BLACK_LIST`, once for all that
read them. A cast written here would copy the logits, the largest tensor of all.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from bert.config.architecture import FusedKernels
from bert.config.training_settings import BertConfig
from bert.model.attention import MASKED_SCORE, PaddedSequences, packed_layout
from bert.model.heads import ENCODERS, BertForPretraining, BertWithHead
from bert.model.modeling import PLAIN, BertModel
from bert.runtime.paddle_api import nn, paddle, static
from bert.samples.packing import NO_TOKEN, Packing

F = nn.functional

ENCODER_INPUTS = {name: ([-1, -1], "int64") for name in ("input_ids", "token_type_ids", "attention_mask")}
BINARY_INPUTS = ("token_type_ids", "attention_mask", "next_sentence_labels")

BATCH_VECTORS = "batch_vectors"  # the vectors of a whole batch, where a loss compares its samples with each other


def masked_lm_loss(logits, labels, weights, normalizer):
    """Cross-entropy summed over masked positions, divided by `normalizer` (Devlin et al., 2019).

    With normalizer = masked tokens of the global batch / number of its micro-batches, the mean of this loss over
    micro-batches and ranks is the exact mean over the global batch, however unevenly the masks are distributed.

    Args:
        logits: float [n, vocab_size].
        labels: int64 [n].
        weights: float32 [n], 0 for padding; all may be 0 (the loss is then 0, not NaN).
        normalizer: float32 [1], positive.
    Returns:
        float32 scalar, in nats.
    """
    per_token = F.cross_entropy(logits, labels, reduction="none")
    return (per_token.reshape([-1]) * weights).sum() / normalizer.sum()


def weighted_correct(logits, labels, weights):
    """Weighted number of rows whose arg-max is the label, float32 scalar."""
    hits = paddle.cast(paddle.argmax(logits, axis=-1) == labels, "float32")
    return (hits * weights).sum()


def _input(name: str, shape: list[int], dtype: str, small: bool):
    if not small or dtype != "int64":
        return static.data(name, shape, dtype)
    return static.data(name, shape, "uint8" if name in BINARY_INPUTS else "int32").astype(dtype)


@dataclass(frozen=True)
class Objective:
    """Base class of objectives; subclasses define the network, the labels and the loss.

    Attributes:
        separate_documents: whether attention and positions are of each document of a row alone, by its position_ids.
        labels: inputs that training needs beside the encoder's: name -> (shape, dtype).
        metric_names: the sums of a micro-batch, in order.
        accuracies: metric -> the sums of correct and of all predictions.
        outputs_per_token: whether outputs are [b, s, ...] rather than [b, ...].
        attention_groups: groups of like length that attention on CPU pads by themselves, if the tokens are packed.
            Micro-batches of pre-training have like lengths already.
    """

    model: BertConfig
    fuse_mha: bool = False
    kernels: FusedKernels = PLAIN
    separate_documents: bool = False

    labels: ClassVar[Mapping[str, tuple[list[int], str]]]
    metric_names: ClassVar[tuple[str, ...]]
    accuracies: ClassVar[Mapping[str, tuple[str, str]]] = {}
    outputs_per_token: ClassVar[bool] = False
    attention_groups: ClassVar[int] = 4

    def inputs(self, with_labels: bool = True, *, small: bool = False) -> dict[str, Any]:
        """Declare the inputs (feed) of a micro-batch in the current program.

        Args:
            small: the feed has integers of 32 bits or, where they are 0 or 1, 8 bits, which the device casts to 64.
        """
        shapes = {**self.encoder_inputs(), **(self.labels if with_labels else {})}
        return {name: _input(name, shape, dtype, small) for name, (shape, dtype) in shapes.items()}

    def encoder_inputs(self) -> dict[str, tuple[list[int], str]]:
        if (packing := self.packing()) is not None:
            return packing.inputs()
        return ENCODER_INPUTS | ({"position_ids": ([-1, -1], "int64")} if self.separate_documents else {})

    def packing(self) -> Packing | None:
        """Settings of `bert.samples.packing.pack` for this program; None if it reads padded feeds."""
        if not self.kernels.unpad:
            return None
        groups = Objective.attention_groups if self.separate_documents else self.attention_groups
        groups = 0 if self.kernels.attention else groups
        return Packing(self.model.num_attention_heads, groups, self.outputs_per_token)

    def encoder_arguments(self, feed: dict[str, Any]) -> list[Any]:
        """The arguments of `BertModel`."""
        packing = self.packing()
        if packing is None and not self.separate_documents:
            return [feed[name] for name in ENCODER_INPUTS]
        if packing is None:
            layout: Any = PaddedSequences(feed["attention_mask"], self.kernels, feed["position_ids"])
        else:
            layout = packed_layout(feed, packing, self.model.max_position_embeddings)
        return [feed["input_ids"], feed["token_type_ids"], layout]

    def network(self) -> Any:
        raise NotImplementedError

    def outputs(self, feed: dict[str, Any], network: Any) -> dict[str, Any]:
        """Outputs of the network by name, for the loss and for predictions."""
        return {"logits": network(*self.encoder_arguments(feed))}

    def loss(self, feed: dict[str, Any], outputs: dict[str, Any]) -> tuple[Any, list[Any]]:
        """The scalar loss, and the float32 scalars that follow `passes` and `loss` in metric_names."""
        raise NotImplementedError

    def forward(self, training: bool, *, small_feed: bool = False):
        """Append the forward computation; returns the loss, metric sums float64 [len(metric_names)], and outputs."""
        feed, network = self.inputs(small=small_feed), self.network()
        network.train() if training else network.eval()
        loss, sums = self.loss(feed, outputs := self.outputs(feed, network))
        values = (paddle.ones([], "float32"), loss, *sums)
        metrics = paddle.concat([value.detach().reshape([1]) for value in values]).astype("float64")
        if training:  # the update skips an overflow; it must not make the sums of the whole interval NaN
            metrics = paddle.where(paddle.isfinite(loss.detach()), metrics, paddle.zeros_like(metrics))
        metrics.stop_gradient = True
        return loss, metrics, outputs

    def chance_loss(self) -> float | None:
        """The loss of a uniform guess, in nats, as an upper limit for trained models; None if unknown."""
        return None

    def summarise(self, sums: dict[str, float]) -> dict[str, float]:
        """Mean metrics for a log line, from sums over micro-batches and ranks; NaN if all micro-batches overflowed."""
        passes = sums["passes"] or math.nan
        losses = {name: sums[name] / passes for name in self.metric_names if name.endswith("loss")}
        return losses | {
            name: sums[hits] / (sums[count] or math.nan) for name, (hits, count) in self.accuracies.items()
        }


@dataclass(frozen=True)
class EncoderObjective(Objective):
    """The outputs of the encoder, without a loss.

    Attributes:
        layers: whose states are also wanted, one after the other; 0 is the embeddings', 1 the first layer's.
    """

    with_pooler: bool = False
    layers: tuple[int, ...] = ()
    outputs_per_token: ClassVar[bool] = True

    def network(self) -> BertModel:
        return ENCODERS[self.model.model_type](self.model, with_pooler=self.with_pooler, kernels=self.kernels)

    def outputs(self, feed: dict[str, Any], network: Any) -> dict[str, Any]:
        input_ids, token_type_ids, sequences = self.encoder_arguments(feed)
        layout, of_layers = network.layout(sequences), dict[int, Any]()
        for number, layer in enumerate([network.embeddings, *network.encoder]) if self.layers else ():
            layer.register_forward_post_hook(lambda _, inputs, output, n=number: of_layers.update({n: output}))
        hidden, pooled = network(input_ids, token_type_ids, layout)
        states = {"last_hidden_state": layout.padded(hidden)}
        if self.layers:
            of_layers[len(network.encoder)] = hidden  # a ModernBERT's has its last norm
            states["hidden_states"] = paddle.concat([layout.padded(of_layers[n]) for n in self.layers], axis=-1)
        return states if pooled is None else states | {"pooler_output": pooled}


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
        *("passes", "loss", "masked_lm_loss", "next_sentence_loss"),
        *("masked_lm_correct", "masked_tokens", "next_sentence_correct", "sequences"),
    )
    accuracies: ClassVar = {
        "masked_lm_accuracy": ("masked_lm_correct", "masked_tokens"),
        "next_sentence_accuracy": ("next_sentence_correct", "sequences"),
    }
    with_next_sentence: ClassVar[bool] = True

    def encoder_inputs(self) -> dict[str, tuple[list[int], str]]:
        return {**super().encoder_inputs(), "masked_lm_positions": ([-1], "int64")}

    def network(self) -> BertForPretraining:
        kinds: dict[str, Any] = {"fuse_mha": self.fuse_mha, "kernels": self.kernels}
        return BertForPretraining(self.model, with_next_sentence=self.with_next_sentence, **kinds)

    def outputs(self, feed, network):
        logits, next_sentence_logits = network(*self.encoder_arguments(feed), feed["masked_lm_positions"])
        outputs = {"masked_lm_logits": logits}
        return outputs | ({"next_sentence_logits": next_sentence_logits} if self.with_next_sentence else {})

    def loss(self, feed, outputs):
        logits, next_sentence_logits = outputs["masked_lm_logits"], outputs["next_sentence_logits"]
        labels, weights = feed["masked_lm_labels"], feed["masked_lm_weights"]
        masked_lm = masked_lm_loss(logits, labels, weights, feed["masked_lm_normalizer"])
        next_sentence = F.cross_entropy(next_sentence_logits, feed["next_sentence_labels"])  # 1 = random next
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
        return math.log(self.model.vocab_size) + math.log(2) * self.with_next_sentence


@dataclass(frozen=True)
class MaskedLMObjective(PretrainingObjective):
    """Masked-LM only (Liu et al., 2019): no pooler, no next-sentence head."""

    labels: ClassVar = {name: kind for name, kind in PretrainingObjective.labels.items() if "next" not in name}
    metric_names: ClassVar = ("passes", "loss", "masked_lm_correct", "masked_tokens", "sequences")
    accuracies: ClassVar = {"masked_lm_accuracy": ("masked_lm_correct", "masked_tokens")}
    with_next_sentence: ClassVar = False

    def loss(self, feed, outputs):
        logits, labels, weights = outputs["masked_lm_logits"], feed["masked_lm_labels"], feed["masked_lm_weights"]
        firsts = feed["attention_mask"][:, 0] if self.packing() is None else paddle.ones_like(feed["first_tokens"])
        sequences = firsts.astype("float32").sum()
        sums = [weighted_correct(logits, labels, weights), weights.sum(), sequences]
        return masked_lm_loss(logits, labels, weights, feed["masked_lm_normalizer"]), sums

    def summarise(self, sums):
        means = super().summarise(sums)
        return means | {"masked_lm_loss": means["loss"]}


@dataclass(frozen=True)
class HeadObjective(Objective):
    """A head with `num_labels` outputs for each token or for the pooled first token."""

    num_labels: int = 2

    head: ClassVar[str] = "classifier"

    def packing(self) -> Packing | None:
        packing, config = super().packing(), self.model
        pools_all = config.is_modern() and config.classifier_pooling == "mean"
        return packing and replace(packing, per_token=packing.per_token or pools_all)

    def network(self) -> BertWithHead:
        kinds: dict[str, Any] = {"fuse_mha": self.fuse_mha, "kernels": self.kernels}
        return BertWithHead(self.model, self.num_labels, self.head, per_token=self.outputs_per_token, **kinds)


@dataclass(frozen=True)
class QuestionAnsweringObjective(HeadObjective):
    """Prediction of an answer's first and last token in a window (Devlin et al., 2019, section 4.2).

    In a window without an answer both are position 0, [CLS].
    """

    labels: ClassVar = {"start_positions": ([-1], "int64"), "end_positions": ([-1], "int64")}
    metric_names: ClassVar = ("passes", "loss", "start_correct", "end_correct", "sequences")
    accuracies: ClassVar = {f"{end}_accuracy": (f"{end}_correct", "sequences") for end in ("start", "end")}
    outputs_per_token: ClassVar = True
    head: ClassVar = "qa_outputs"

    def outputs(self, feed, network):
        """The outputs start_logits and end_logits, each float [b, s]."""
        start, end = paddle.unbind(super().outputs(feed, network)["logits"], axis=-1)
        return {"start_logits": start, "end_logits": end}

    def loss(self, feed, outputs):
        """Mean of the cross-entropies of the first and the last token."""
        starts, ends = feed["start_positions"], feed["end_positions"]
        # No padding is an answer: the loss does not depend on it.
        padding = feed["attention_mask"] == 0 if self.packing() is None else feed["token_of_place"] == NO_TOKEN
        bias = paddle.cast(padding, "float32") * MASKED_SCORE  # [b, s]
        start_logits, end_logits = (outputs[name] + bias for name in ("start_logits", "end_logits"))
        ones = paddle.ones_like(starts).astype("float32")
        sums = [weighted_correct(start_logits, starts, ones), weighted_correct(end_logits, ends, ones), ones.sum()]
        return (F.cross_entropy(start_logits, starts) + F.cross_entropy(end_logits, ends)) / 2, sums


@dataclass(frozen=True)
class TextHeadObjective(HeadObjective):
    """A head on the pooled first token of each text.

    Attributes:
        token_weights: whether `bert.model.heads.TokenWeights` are added to the logits: never in a training.
    """

    token_weights: bool = False

    def packing(self) -> Packing | None:
        packing = super().packing()
        return packing and replace(packing, per_token=packing.per_token or self.token_weights)

    def network(self) -> BertWithHead:
        kinds: dict[str, Any] = {"fuse_mha": self.fuse_mha, "kernels": self.kernels}
        kinds["token_weights"] = self.token_weights
        return BertWithHead(self.model, self.num_labels, self.head, per_token=False, **kinds)


@dataclass(frozen=True)
class SequenceClassificationObjective(TextHeadObjective):
    """Classification of a text or a pair of texts."""

    labels: ClassVar = {"labels": ([-1], "int64")}
    metric_names: ClassVar = ("passes", "loss", "correct", "sequences")
    accuracies: ClassVar = {"accuracy": ("correct", "sequences")}

    def loss(self, feed, outputs):
        ones = paddle.ones_like(feed["labels"]).astype("float32")
        sums = [weighted_correct(outputs["logits"], feed["labels"], ones), ones.sum()]
        return F.cross_entropy(outputs["logits"], feed["labels"]), sums


@dataclass(frozen=True)
class MultiLabelObjective(TextHeadObjective):
    """Classification of a text or a pair of texts with a separate yes/no decision for each label."""

    labels: ClassVar = {"labels": ([-1, -1], "float32")}
    metric_names: ClassVar = ("passes", "loss")

    def loss(self, feed, outputs):
        labels = feed["labels"].reshape([-1, self.num_labels])
        return F.binary_cross_entropy_with_logits(outputs["logits"].astype("float32"), labels), []


@dataclass(frozen=True)
class SequenceRegressionObjective(TextHeadObjective):
    """Regression for a text or a pair of texts, trained by the mean squared error."""

    num_labels: int = 1

    labels: ClassVar = {"labels": ([-1], "float32")}
    metric_names: ClassVar = ("passes", "loss")

    def loss(self, feed, outputs):
        return F.mse_loss(outputs["logits"].astype("float32").reshape([-1]), feed["labels"]), []


@dataclass(frozen=True)
class TokenClassificationObjective(HeadObjective):
    """Classification of tokens. Unlabelled tokens (later word pieces, special tokens, padding) have label -1."""

    labels: ClassVar = {"labels": ([-1, -1], "int64"), "label_normalizer": ([1], "float32")}
    metric_names: ClassVar = ("passes", "loss", "correct", "tokens")
    accuracies: ClassVar = {"accuracy": ("correct", "tokens")}
    outputs_per_token: ClassVar = True

    def loss(self, feed, outputs):
        labels = feed["labels"].reshape([-1])
        logits = outputs["logits"].reshape([-1, self.num_labels])
        weights = (labels >= 0).astype("float32")
        loss = masked_lm_loss(logits, paddle.clip(labels, min=0), weights, feed["label_normalizer"])
        return loss, [weighted_correct(logits, labels, weights), weights.sum()]


OBJECTIVES: dict[str, type[Objective]] = {  # of the heads that predict, by their names in `bert.model.head_specs`
    "masked-lm": MaskedLMObjective,
    "encoder": EncoderObjective,
    "question-answering": QuestionAnsweringObjective,
    "sequence-classification": SequenceClassificationObjective,
    "token-classification": TokenClassificationObjective,
}

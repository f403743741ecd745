"""The table of heads: one row for each, used by conversion, model cards, prediction and export.

A new head is a row of HEADS, a layer in `bert.model.heads`, an objective in `bert.model.objectives` and, to predict, a
class in `bert.inference.heads`. This module loads no Paddle.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

DECODER_BIAS = "cls.predictions.bias"
TOKEN_WEIGHTS = "classifier.token_weights.weight"  # [padded_vocab_size, classes], of `bert.model.heads.TokenWeights`
# What can stand on an encoder, by the names used in messages, and its tensors.
HEAD_TENSORS: dict[str, tuple[str, ...]] = {
    "pooler": ("bert.pooler.dense.weight", "bert.pooler.dense.bias"),
    "masked-LM head": (
        "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.bias",
        DECODER_BIAS,
    ),
    "next-sentence head": ("cls.seq_relationship.weight", "cls.seq_relationship.bias"),
    "question-answering head": ("qa_outputs.weight", "qa_outputs.bias"),
    "classifier": ("classifier.weight", "classifier.bias"),
    "token weights": (TOKEN_WEIGHTS,),  # of some classifiers of texts
}


@dataclass(frozen=True)
class HeadSpec:
    """One head of a model: its tensors, its names in other libraries, and its outputs."""

    noun: str  # completes the message "this model has NOUN"
    needs: tuple[str, ...]  # keys of HEAD_TENSORS that the head requires
    classes: tuple[str, ...]  # class names of a BERT with it: Hugging Face's (also ours) first, PaddleNLP's last
    pipeline: str = ""  # name of transformers' pipeline
    outputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # name -> shape after the batch; s: sequence
    is_exported: bool = True  # whether it can be exported for serving
    may_have: tuple[str, ...] = ()  # optional keys of HEAD_TENSORS
    predicts: str | None = None  # head that predictions use instead; None: this head


HEADS: dict[str, HeadSpec] = {
    "pretraining": HeadSpec(
        noun="heads of pre-training",
        needs=("pooler", "masked-LM head", "next-sentence head"),
        classes=("BertForPreTraining", "BertForPretraining"),
        pipeline="fill-mask",
        is_exported=False,
        predicts="masked-lm",
    ),
    "masked-lm": HeadSpec(
        noun="a masked-LM head",
        needs=("masked-LM head",),
        classes=("BertForMaskedLM",),
        pipeline="fill-mask",
        outputs={"masked_lm_logits": ("s", "vocabulary")},  # of an export; a checkpoint computes masked positions alone
    ),
    "encoder": HeadSpec(
        noun="an encoder (sentence vectors)",
        needs=(),
        classes=("BertModel",),
        pipeline="feature-extraction",
        outputs={"last_hidden_state": ("s", "hidden"), "pooler_output": ("hidden",)},
    ),
    "question-answering": HeadSpec(
        noun="a question-answering head",
        needs=("question-answering head",),
        classes=("BertForQuestionAnswering",),
        pipeline="question-answering",
        outputs={"start_logits": ("s",), "end_logits": ("s",)},
    ),
    "sequence-classification": HeadSpec(
        noun="a classifier of texts",
        needs=("pooler", "classifier"),
        classes=("BertForSequenceClassification",),
        pipeline="text-classification",
        outputs={"logits": ("labels",)},
        may_have=("token weights",),
    ),
    "token-classification": HeadSpec(
        noun="a tagger, which classifies words",
        needs=("classifier",),
        classes=("BertForTokenClassification",),
        pipeline="token-classification",
        outputs={"logits": ("s", "labels")},
    ),
    "next-sentence": HeadSpec(
        noun="a next-sentence head",
        needs=("pooler", "next-sentence head"),
        classes=("BertForNextSentencePrediction",),
        is_exported=False,
        predicts="encoder",
    ),
}
PREDICTIONS = tuple(name for name, head in HEADS.items() if head.predicts is None)


def with_temperature(parameters: Mapping[str, Any], temperature: float) -> dict[str, Any]:
    """Parameters of a text classifier with the temperature divided into its logits (Guo et al., 2017).

    Args:
        parameters: by name, arrays of float32; only the classifier's and its token weights change.
    """
    linear = (*HEAD_TENSORS["classifier"], TOKEN_WEIGHTS)
    return {name: array / temperature if name in linear else array for name, array in parameters.items()}

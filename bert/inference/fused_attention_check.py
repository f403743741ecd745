"""Checks --fused-qkv: only the right order of columns in fused attention gives the checkpoint a low masked-LM loss."""

import numpy as np
from scipy.special import logsumexp

from bert.conversion.model import Model, read
from bert.conversion.settings import ModelSource
from bert.conversion.untrusted_files import ConversionError
from bert.finetuning.loader import prediction_batches
from bert.inference.paddle_program import Network
from bert.labels.features import sentence_features
from bert.tokenization.library import text_tokenizer
from data.examples.sample_questions import read_source

_TEXTS, _LONGEST, _MASKED_EVERY = 16, 64, 7  # paragraphs, most tokens of each, one token in 7 is masked
MARGIN = 0.1  # nats that a wrong order costs a trained model at least


def check_fused_qkv(source: ModelSource) -> str:
    """A line with the losses of both orders if the checkpoint's attention is fused; "" for another checkpoint.

    Raises:
        ConversionError: the losses say that the columns lie in another order than `source.fused_qkv`.
    """
    model = read(source)
    if model.format != "nvidia-paddle" or any("fused-qkv was not needed" in note for note in model.notes):
        return ""
    order, tokens = str(source.fused_qkv), model.tokens
    if tokens is None or "cls.predictions.bias" not in model.parameters:
        return f"--fused-qkv {order} was not checked: that needs the masked-LM head and a vocabulary (--vocab-file)\n"
    own = f"heads:{model.config.num_attention_heads}"
    losses = {order: masked_lm_loss(model)}
    for other in ("blocks", own):
        if other != order:
            losses[other] = masked_lm_loss(read(source.model_copy(update={"fused_qkv": other})))
    best = min(losses, key=losses.__getitem__)
    figures = ", ".join(f"{name} {loss:.2f}" for name, loss in losses.items())
    line = f"masked-LM loss on sentences of this project: {figures}"
    if losses[order] > losses[best] + MARGIN:
        raise ConversionError(f"--fused-qkv {order} is wrong: {line}; pass --fused-qkv {best}")
    other_losses = [loss for name, loss in losses.items() if name != order]
    is_clear = min(other_losses) > losses[order] + MARGIN
    return f"--fused-qkv {order}: {line}{'' if is_clear else '; this does not tell which is right'}\n"


def masked_lm_loss(model: Model) -> float:
    """The mean masked-LM loss on paragraphs of this project, in nats."""
    assert model.tokens is not None
    vocabulary, texts = model.tokens.vocabulary, [paragraph["context"] for paragraph in read_source()[:_TEXTS]]
    longest = min(_LONGEST, model.config.max_position_embeddings)
    table, _ = sentence_features(text_tokenizer(vocabulary, model.tokens.normalization), [texts], longest)
    (batch,) = prediction_batches(table, _TEXTS, max_seq_length=longest)
    ids, special = batch.feed["input_ids"], [vocabulary.id_of(token) for token in ("[CLS]", "[SEP]", "[PAD]")]
    places = np.flatnonzero(~np.isin(ids, special))[::_MASKED_EVERY]
    masked, truth = ids.copy(), ids.ravel()[places]
    masked.ravel()[places] = vocabulary.id_of("[MASK]")
    feed = {**batch.feed, "input_ids": masked, "masked_lm_positions": places}
    logits = Network(model.parameters, model.config).run("masked-lm", feed)["masked_lm_logits"].astype(np.float64)
    logits = logits[:, : len(vocabulary)]
    return float((logsumexp(logits, axis=-1) - logits[np.arange(len(places)), truth]).mean())

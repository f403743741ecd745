"""Pre-training losses and the counts that metrics are made of."""

from bert.framework import nn, paddle

F = nn.functional


def masked_lm_loss(logits, labels, weights, normalizer):
    """Cross-entropy summed over masked positions, divided by `normalizer` (Devlin et al., 2019).

    With normalizer = masked tokens of the whole global batch / number of passes it is made of, the mean of this loss
    over passes and ranks is the exact mean over the global batch, however unevenly masks fall on the passes.

    Args:
        logits: float [n, vocab_size]; computed in float32.
        labels: int64 [n].
        weights: float32 [n], 0 for padding of n; all may be 0 (the loss is then 0, not NaN).
        normalizer: float32 [1], at least a positive number.
    Returns:
        float32 scalar, in nats.
    """
    per_token = F.cross_entropy(logits.astype("float32"), labels, reduction="none")
    return (per_token.reshape([-1]) * weights).sum() / normalizer.sum()


def next_sentence_loss(logits, labels):
    """Mean cross-entropy of the next-sentence task; logits [b, 2], labels int64 [b] (1 = random next)."""
    return F.cross_entropy(logits.astype("float32"), labels)


def weighted_correct(logits, labels, weights):
    """Number of rows whose arg-max is the label, counted with `weights`: float32 scalar."""
    hits = paddle.cast(paddle.argmax(logits, axis=-1) == labels, "float32")
    return (hits * weights).sum()

"""Losses of pre-training and fine-tuning, and the counts behind their metrics, computed in float32.

Mixed precision casts the inputs of the operators in `program.AMP_BLACK_LIST`, once for all operators that read
them. A cast written here would make a second copy of the logits, the largest tensor of all.
"""

from bert.runtime.paddle_api import nn, paddle

F = nn.functional


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


def token_classification_loss(logits, labels, weights, normalizer):
    """`masked_lm_loss` of token labels; those below 0 must have weight 0. logits [n, num_labels], labels int64 [n]."""
    return masked_lm_loss(logits, paddle.clip(labels, min=0), weights, normalizer)


def classification_loss(logits, labels):
    """Mean cross-entropy in nats; logits [b, num_labels], labels int64 [b]."""
    return F.cross_entropy(logits, labels)


def regression_loss(logits, labels):
    """Mean squared error; logits [b, 1], labels float32 [b]."""
    return F.mse_loss(logits.astype("float32").reshape([-1]), labels)


def answer_span_loss(start_logits, end_logits, start_positions, end_positions):
    """Mean of the cross-entropies of an answer's first and last token; logits [b, s], positions int64 [b] below s."""
    return (classification_loss(start_logits, start_positions) + classification_loss(end_logits, end_positions)) / 2


def weighted_correct(logits, labels, weights):
    """Weighted number of rows whose arg-max is the label: float32 scalar."""
    hits = paddle.cast(paddle.argmax(logits, axis=-1) == labels, "float32")
    return (hits * weights).sum()

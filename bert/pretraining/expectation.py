"""Expected held-out loss of a small model after so many updates, and whether a run is ahead or behind.

Measured: "What to expect" in tests/research/your_text.md. The loss falls below the unigram entropy with the logarithm
of the sum of the learning rates, whatever the text, its vocabulary and the batch.
"""

import math

from bert.config.architecture import BertConfig
from bert.pretraining.config import PretrainingConfig
from bert.samples.settings import MASKED_SHARE

_OFFSET, _GAIN = 1.5, 0.7  # nats, and nats for each e-fold of the sum of the rates
ERROR = 0.9  # nats; twice the root mean square
_LEAST, _MOST = 0.4, 8.0  # sums of the rates that were measured
_LAYERS, _HIDDEN_SIZE = (2, 4), 128  # of the models that were measured
_ENTROPIES = 5.3, 6.5  # nats; of the texts that were measured, with room


def is_measured(model: BertConfig, optimizer: str, objective: str, eval_masked_share: float, attention: str) -> bool:
    """Whether the measurement applies to this training, which must begin with random weights."""
    is_sized = model.is_modern() and model.num_hidden_layers in _LAYERS
    ways = (model.hidden_size, eval_masked_share, optimizer, objective, attention)
    return is_sized and ways == (_HIDDEN_SIZE, MASKED_SHARE, "AdamW", "mlm", "neighbours")


def nats_below_frequency(rate: float, updates: int, warmup: float) -> tuple[float, bool] | None:
    """How far the loss should be below the unigram entropy, and whether it is extrapolated.

    Args:
        rate: at the peak.
        warmup: updates of the warm-up.
    Returns:
        None where the rates are less than measured: the model learns how frequent words are.
    """
    total = rate * (updates - warmup / 2)
    return None if total < _LEAST else (_OFFSET + _GAIN * math.log(min(total, _MOST)), total > _MOST)


def expected_loss(config: PretrainingConfig, unigram_entropy: float, updates: int, warmup: int) -> float | None:
    """Expected held-out loss after so many updates; None if nothing comparable was measured."""
    start, optimizer = config.initialization, config.optimizer
    is_fresh = start.from_pretrained_params is None and start.from_phase1_final_params is None
    share, (least, most) = config.data.eval_masked_lm_ratio, _ENTROPIES
    ways = (optimizer.optimizer, config.run.objective, share, start.initial_attention)
    if not is_fresh or not is_measured(config.model, *ways):
        return None
    if updates < warmup or not least <= unigram_entropy <= most:
        return None
    below = nats_below_frequency(optimizer.learning_rate, updates, warmup)
    return None if below is None or below[1] else unigram_entropy - below[0]


def judgement(loss: float, expected: float) -> str:
    """Words that compare a held-out loss with the expected one."""
    word = "as expected" if abs(loss - expected) <= ERROR else "early" if loss < expected else "late"
    return f"{word}: the held-out loss is {loss:.2f}; {expected:.2f} +-{ERROR} is what other texts had at this point"

"""Evaluation of pre-training: an evaluation program over held-out batches -> losses and accuracies."""

from collections.abc import Iterable

import numpy as np

from bert.runtime.distributed import Collective
from bert.samples.loader import MicroBatch


def evaluate_pretraining(
    executor, program, batches: Iterable[MicroBatch], collective: Collective, scope=None
) -> dict[str, float]:
    """Held-out masked-LM loss and accuracy and next-sentence accuracy, over the batches of all ranks together.

    `program` is a `program.EvaluationProgram`. Losses are means over masked tokens and over sequences, in nats,
    whatever the division into batches and ranks.
    """
    sums = np.zeros(6)  # masked-LM loss, correct, tokens; next-sentence loss, correct, sequences
    for batch in batches:
        (values,) = executor.run(program.main, feed=batch.feed, fetch_list=[program.metrics], scope=scope)
        _, _, masked_lm, next_sentence, correct, tokens, next_correct, sequences = values
        sums += [masked_lm * tokens, correct, tokens, next_sentence * sequences, next_correct, sequences]
    masked_lm, correct, tokens, next_sentence, next_correct, sequences = collective.sum(sums)
    return {
        "eval_masked_lm_loss": masked_lm / max(tokens, 1.0),
        "eval_masked_lm_accuracy": correct / max(tokens, 1.0),
        "eval_next_sentence_loss": next_sentence / max(sequences, 1.0),
        "eval_next_sentence_accuracy": next_correct / max(sequences, 1.0),
        "eval_sequences": sequences,
    }

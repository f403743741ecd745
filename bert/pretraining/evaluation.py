"""Evaluation of pre-training: an evaluation program over held-out batches -> losses and accuracies."""

from collections.abc import Iterable, Sequence

import numpy as np

from bert.model.objectives import PretrainingObjective
from bert.runtime.distributed import Collective
from bert.samples.loader import MicroBatch


def evaluate_pretraining(
    executor,
    program,
    batches: Iterable[MicroBatch],
    collective: Collective,
    scope=None,
    metric_names: Sequence[str] = PretrainingObjective.metric_names,
) -> dict[str, float]:
    """Held-out masked-LM loss and accuracy, and those of next sentences, over the batches of all ranks together.

    `program` is a `program.EvaluationProgram`, `metric_names` are those of its objective. Losses are means over masked
    tokens and over sequences, in nats, whatever the division into batches and ranks. Without next-sentence prediction
    its metrics are absent.
    """
    has_next_sentence = "next_sentence_loss" in metric_names
    sums = np.zeros(6)  # masked-LM loss, correct, tokens; sequences; next-sentence loss, correct
    for batch in batches:
        (values,) = executor.run(program.main, feed=batch.feed, fetch_list=[program.metrics], scope=scope)
        of = dict(zip(metric_names, values.tolist(), strict=True))
        tokens, sequences = of["masked_tokens"], of["sequences"]
        sums[:4] += [of.get("masked_lm_loss", of["loss"]) * tokens, of["masked_lm_correct"], tokens, sequences]
        if has_next_sentence:
            sums[4:] += [of["next_sentence_loss"] * sequences, of["next_sentence_correct"]]
    masked_lm, correct, tokens, sequences, next_sentence, next_correct = collective.sum(sums)
    metrics = {
        "eval_masked_lm_loss": masked_lm / max(tokens, 1.0),
        "eval_masked_lm_accuracy": correct / max(tokens, 1.0),
    }
    if has_next_sentence:
        metrics["eval_next_sentence_loss"] = next_sentence / max(sequences, 1.0)
        metrics["eval_next_sentence_accuracy"] = next_correct / max(sequences, 1.0)
    return {**metrics, "eval_sequences": sequences}

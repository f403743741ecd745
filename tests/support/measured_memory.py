"""Run passes of a small model in a process of its own and print what its memory was said to be and what it was.

python tests/support/measured_memory.py PASSES DROPOUT  ->  {"predicted": bytes, "measured": bytes}
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

from bert.runtime.paddle_api import core
from tests.gpu.program_memory import bound_shapes, tensor_bytes, walk
from tests.support import tiny

SEQUENCES, LENGTH, MASKED = 24, 64, 240


def main(passes: int, dropout: float) -> None:
    model = tiny.MODEL.model_copy(
        update=dict(
            vocab_size=1000,
            hidden_size=128,
            num_hidden_layers=3,
            intermediate_size=512,
            max_position_embeddings=LENGTH,
            hidden_dropout_prob=dropout,
            attention_probs_dropout_prob=dropout,
        )
    )
    session = tiny.Session(model=model, passes=passes)
    rng = np.random.RandomState(0)
    feed = {
        "input_ids": rng.randint(5, 1000, (SEQUENCES, LENGTH)),
        "token_type_ids": np.zeros((SEQUENCES, LENGTH), "int64"),
        "attention_mask": np.ones((SEQUENCES, LENGTH), "int64"),
        "masked_lm_positions": rng.randint(0, SEQUENCES * LENGTH, MASKED),
        "masked_lm_labels": rng.randint(0, 1000, MASKED),
        "masked_lm_weights": np.ones(MASKED, "float32"),
        "masked_lm_normalizer": np.array([MASKED], "float32"),
        "next_sentence_labels": rng.randint(0, 2, SEQUENCES),
    }
    main = session.program.main
    shapes = bound_shapes(main, {name: value.shape for name, value in feed.items()})
    predicted = max(moment.live_bytes for moment in walk(main, tensor_bytes(main, shapes)))
    before = core.host_memory_stat_current_value("Allocated", 0)
    for _ in range(passes):
        session.executor.run(main, feed=feed, scope=session.scope)
    measured = core.host_memory_stat_peak_value("Allocated", 0) - before
    print(json.dumps({"predicted": predicted, "measured": measured}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))

"""Run updates of a small model, each in a process of its own, and print the predicted and the measured peaks of memory.

python tests/support/measured_memory.py MICRO_BATCHES DROPOUT  ->  {"predicted": bytes, "measured": [bytes, ...]}

Paddle frees variables on another thread. On a busy machine this thread lags behind, so a measured peak can be too high
but never too low. The update is repeated until one peak agrees with the prediction, at most `MAX_RUNS` times.
"""

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import program as programs
from bert.model.dropout import Dropout
from bert.model.objectives import PretrainingObjective
from bert.runtime.paddle_api import core
from tests.gpu.program_record import bound_shapes, tensor_bytes, walk
from tests.support import tiny

SEQUENCES, LENGTH, MASKED = 24, 64, 240
MAX_RUNS, CLOSE = 20, 0.02


def random_feed() -> dict[str, np.ndarray]:
    rng = np.random.RandomState(0)
    return {
        "input_ids": rng.randint(5, 1000, (SEQUENCES, LENGTH)),
        "token_type_ids": np.zeros((SEQUENCES, LENGTH), "int64"),
        "attention_mask": np.ones((SEQUENCES, LENGTH), "int64"),
        "masked_lm_positions": rng.randint(0, SEQUENCES * LENGTH, MASKED),
        "masked_lm_labels": rng.randint(0, 1000, MASKED),
        "masked_lm_weights": np.ones(MASKED, "float32"),
        "masked_lm_normalizer": np.array([MASKED], "float32"),
        "next_sentence_labels": rng.randint(0, 2, SEQUENCES),
    }


def predicted_peak(program, feed: dict[str, np.ndarray]) -> int:
    shapes = bound_shapes(program, {name: value.shape for name, value in feed.items()})
    return max(moment.live_bytes for moment in walk(program, tensor_bytes(program, shapes)))


def measured_peak(settings: dict, feed: dict[str, np.ndarray]) -> int:
    """Return the peak of one update by the allocator's count, in a fork: the count cannot be reset."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        session = tiny.Session(**settings)
        before = core.host_memory_stat_current_value("Allocated", 0)
        for _ in range(settings["micro_steps"]):
            session.executor.run(session.program.main, feed=feed, scope=session.scope)
        peak = core.host_memory_stat_peak_value("Allocated", 0) - before
        os.write(writer, str(peak).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        text = answer.read()
    os.waitpid(pid, 0)
    return int(text)


def main(num_micro_batches: int, dropout: float) -> None:
    sizes = {"vocab_size": 1000, "hidden_size": 128, "num_hidden_layers": 3, "intermediate_size": 512}
    dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    model = tiny.MODEL.model_copy(update=sizes | dropouts | {"max_position_embeddings": LENGTH})
    # As on a GPU: dropout draws by itself, and no operator is replaced.
    programs.dropout_of = lambda *_, **__: Dropout()
    programs.use_cpu_kernels = lambda *_, **__: None
    settings, feed = dict(model=model, micro_steps=num_micro_batches), random_feed()
    tiny.join(tiny.ONE_RANK)
    objective, steps = PretrainingObjective(model, False), {"num_scheduled_steps": tiny.NUM_STEPS, "seed": 3}
    steps = {"gradient_accumulation_steps": num_micro_batches, **steps}
    # As tiny.Session does, which then finds it in the cache.
    program = tiny.build(objective, tiny.LAMB, tiny.FLOAT32, tiny.ONE_RANK, **steps)
    predicted = predicted_peak(program.main, feed)
    measured: list[int] = []
    while len(measured) < MAX_RUNS and not (measured and min(measured) <= (1 + CLOSE) * predicted):
        measured.append(measured_peak(settings, feed))
    print(json.dumps({"predicted": predicted, "measured": measured}))


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))

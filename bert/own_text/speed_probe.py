"""Measures the speed of training programs on this machine, for a plan.

    python -m paddle.distributed.launch bert/own_text/speed_probe.py TO.json CONFIG.yaml ...

Each CONFIG is the settings of one candidate. TO.json gets, after each of them again, as "speeds"
{CONFIG: sequences per second of all ranks}, and as "began" the time of the first step, in seconds
since 1970.
Measures a second or two of each, with made-up batches.
"""

import json
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert.config.setting_sources import resolve_config
from bert.config.training_settings import derive
from bert.files import write_atomically
from bert.own_text import constants
from bert.parent_death import end_with_launcher
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.entry import ENTRY
from bert.pretraining.task import objective_of
from bert.runtime.distributed import Group, finalize, group_from_environment
from bert.samples.packing import pack
from bert.training.devices import Device, choose_device, join_ranks
from bert.training.feeding import Feeding
from bert.training.training_run import build
from program import TrainingProgram

SECONDS = 1.5  # of each program


def main(argv: Sequence[str]) -> int:
    if "--help" in argv:
        print(__doc__)
        return 0
    end_with_launcher()
    # Ends this rank, also inside of Paddle, and then the launcher the others.
    signal.alarm(constants.PROBE_TIMEOUT_SECONDS)
    target, *files = argv
    unmeasured = {"peak_tflops": 1.0}  # it would be measured otherwise
    configs = {file: derive(resolve_config({"config": file}, ENTRY), **unmeasured) for file in files}
    first = next(iter(configs.values()))
    group = group_from_environment(choose_device(first))
    join_ranks(first, group)
    speeds, began = dict[str, float](), 0.0
    for file, config in configs.items():
        first_step, seconds = measure(config, group)
        began = began or first_step
        speeds[file] = config.batch.batch_size * group.world_size / seconds
        if group.is_main:
            write_atomically(target, json.dumps({"began": began, "speeds": speeds}).encode())
    finalize(group)
    return 0


def measure(config: PretrainingConfig, group: Group) -> tuple[float, float]:
    """Measure (time of the first step in seconds since 1970, seconds of a micro-step on the slowest rank)."""
    program, device = build(config, objective_of(config), group)
    feeding, feed, began = Feeding(program, device), made_up_batch(config, program, group.rank), time.time()
    _step(program, device, feeding, feed)  # the first one also prepares the program
    steps, start = 0, time.perf_counter()
    while steps < 1 or not device.collective.any(time.perf_counter() - start > SECONDS):
        _step(program, device, feeding, feed)
        steps += 1
    return began, (time.perf_counter() - start) / steps


def _step(program: TrainingProgram, device: Device, feeding: Feeding, feed: dict[str, np.ndarray]) -> None:
    program.dropout.draw(device.scope, device.place, feed, np.uint64(0))
    device.executor.run(program.main, feed=feeding.arrays(feed), scope=device.scope)
    device.collective.any(False)  # on a GPU a step is finished only once something waits for it


def made_up_batch(config: PretrainingConfig, program: TrainingProgram, seed: int) -> dict[str, np.ndarray]:
    """A micro-batch of random tokens with realistic lengths and masks, in the program's layout."""
    rng = np.random.default_rng(seed)
    rows, length = config.batch.batch_size, config.data.max_seq_length
    real = round(constants.FILLED_BY_A_SAMPLE * length)
    masked = -(-rows * min(config.data.max_predictions_per_seq, round(config.data.masked_lm_ratio * real)) // 8) * 8
    vocab, lengths = config.model.vocab_size, rng.integers(2 * real - length, length, rows, endpoint=True)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    feed: dict[str, Any] = {
        "input_ids": rng.integers(0, vocab, (rows, length)),
        "token_type_ids": np.zeros((rows, length), np.int64),
        "attention_mask": mask,
        "masked_lm_positions": rng.choice(np.flatnonzero(mask), masked),
        "masked_lm_labels": rng.integers(0, vocab, masked),
        "masked_lm_weights": np.ones(masked, np.float32),
        "next_sentence_labels": rng.integers(0, 2, rows),
        "masked_lm_normalizer": np.array([masked], np.float32),
    }
    packing, block = program.objective.packing(), program.main.global_block()
    feed = feed if packing is None else pack(feed, packing)
    return {name: values for name, values in feed.items() if block.has_var(name)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

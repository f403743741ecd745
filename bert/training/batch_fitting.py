"""`--fit-batch-size`: halves a micro-batch that does not fit in memory, before the training, and accumulates more.

A trial is the first of two micro-steps of the training's own program, with the longest sequences. It sums nothing over
the ranks, so a rank that lacks the memory leaves none waiting.
"""

import gc
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bert.config.architecture import FusedKernels
from bert.config.training_settings import AnyConfig, derive
from bert.model.objectives import Objective
from bert.model.optimization import APPLIED_UPDATES
from bert.runtime.distributed import Group
from bert.runtime.paddle_api import paddle, read_variable, static
from bert.samples.packing import pack
from bert.training.devices import Device
from bert.training.feeding import Feeding
from program import TrainingProgram

logger = logging.getLogger(__name__)

Build = Callable[[Any, Objective, Group], tuple[TrainingProgram, Device]]


def fitted(config: AnyConfig, objective: Objective, group: Group, build: Build) -> AnyConfig:
    """The settings, with the largest micro-batch that fits on all ranks; an update has as many sequences as before."""
    batch_size, total = config.batch.batch_size, config.batch.resolved_global_batch_size(group.world_size)
    while not _fits(config, objective, group, build, batch_size):
        if batch_size % 2:
            raise ValueError(
                f"batch_size={batch_size} does not fit in memory and is odd, so it cannot be halved; pass a smaller "
                "--batch-size, --recompute, or a shorter --max-seq-length"
            )
        batch_size //= 2
        if group.is_main:
            logger.info(f"a micro-batch of {2 * batch_size} sequences does not fit in memory: {batch_size} are tried")
    if batch_size == config.batch.batch_size:
        return config
    fitting = derive(config, batch_size=batch_size, gradient_merge_steps=1, global_batch_size=total)
    if group.is_main:
        steps = fitting.batch.gradient_accumulation_steps(group.world_size)
        logger.info(f"an update has {steps} micro-batches of {batch_size} sequences: the same {total:,} as before")
    return fitting


def _fits(config: Any, objective: Objective, group: Group, build: Build, batch_size: int) -> bool:
    """Whether a trial, in a scope of its own that ends with it, has memory on all ranks."""
    with static.scope_guard(static.Scope()):
        fits = _runs(config, objective, group, build, batch_size)
    gc.collect()
    if group.device == "gpu":
        paddle.device.cuda.empty_cache()
    return fits


def _runs(config: Any, objective: Objective, group: Group, build: Build, batch_size: int) -> bool:
    trial = derive(config, batch_size=batch_size, gradient_merge_steps=2, global_batch_size=None)
    program, device = build(trial, objective, group)
    failed, feed = False, fullest_feed(program.objective, trial)
    try:
        program.dropout.draw(device.scope, device.place, feed, np.uint64(0))
        Feeding(program, device).run(feed)
        read_variable(device.scope, APPLIED_UPDATES)  # waits for the device
    except Exception as error:  # Paddle's is a MemoryError, or another with these words
        failed = isinstance(error, MemoryError) or "ResourceExhausted" in str(error) or "out of memory" in str(error)
        if not failed:
            raise
    return not device.collective.any(failed)


def fullest_feed(objective: Objective, config: Any) -> dict[str, np.ndarray]:
    """A micro-batch of sequences as long as any can be."""
    batch_size, length = config.batch.batch_size, config.data.max_seq_length
    feed = {}
    padded = replace(objective, kernels=FusedKernels(), separate_documents=False)
    encoder_inputs = padded.encoder_inputs()
    for name, (shape, dtype) in {**encoder_inputs, **objective.labels}.items():
        masked = getattr(config.data, "max_predictions_per_seq", 1) if name.startswith("masked_lm_") else 1
        of_tokens = name in encoder_inputs or objective.outputs_per_token  # otherwise a column for each label
        width = length if of_tokens else getattr(objective, "num_labels", 1)
        sizes = [size if size > 0 else (batch_size * masked, width)[axis] for axis, size in enumerate(shape)]
        feed[name] = np.ones(sizes, dtype)
    if objective.separate_documents:
        feed["position_ids"] = np.arange(length)[None].repeat(batch_size, axis=0)
    packing = objective.packing()
    return feed if packing is None else pack(feed, packing)

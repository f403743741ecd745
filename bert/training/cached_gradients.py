"""Cached gradients (Gao et al., 2021): the vectors of a whole global batch, before the micro-steps that train on them."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from bert.model.contrastive import BATCH_VECTORS
from bert.samples.collation import MicroBatch
from bert.training.devices import Device
from bert.training.feeding import Feeding
from program import TrainingProgram


def with_batch_vectors(
    micro_batches: Iterable[MicroBatch],
    program: TrainingProgram,
    device: Device,
    feeding: Feeding,
    draw: Callable[[int, Any], None],
) -> Iterable[MicroBatch]:
    """This rank's micro-batches of an update, with the vectors of all texts of all ranks, which every rank computes.

    The vectors of one micro-batch that is alone are live: none is needed from before.

    Args:
        draw: (micro-step, its feed) -> draws the dropout of the micro-step.
    """
    if program.forward is None:
        return micro_batches
    batches = list(micro_batches)
    vectors = np.zeros((len(batches[0].feed["text_groups"]), program.objective.model.hidden_size), "float32")
    if len(batches) * device.group.world_size > 1:
        for micro_step, batch in enumerate(batches):
            draw(micro_step, batch.feed)
            vectors[batch.feed["text_places"]] = feeding.forward(batch.feed)
        vectors = device.collective.sum(vectors.reshape(-1)).reshape(vectors.shape)
    return [replace(batch, feed={**batch.feed, BATCH_VECTORS: vectors}) for batch in batches]

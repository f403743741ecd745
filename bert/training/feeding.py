"""Feeds micro-batches to a training program; on a GPU the host does not wait for the device."""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bert.model.gradient_accumulation import FACTOR, MICRO_STEPS
from bert.model.objectives import BATCH_VECTORS
from bert.model.optimization import APPLIED_UPDATES
from bert.runtime.paddle_api import page_locked, place_of, read_variable, write_variable
from bert.samples.collation import MicroBatch
from bert.training.devices import Device
from program import TrainingProgram

logger = logging.getLogger(__name__)

MOST_IN_FLIGHT = 64  # micro-batches in page-locked memory, some 0.2 MB each


class Feeding:
    """Prepares arrays for a program's micro-steps, in the declared types.

    A GPU copies an array of ordinary memory only after all that it has been given to do, while the host waits; so it
    would idle until the host had launched the next operators. From page-locked memory it copies in its own time. The
    arrays are kept until the device has surely read them: the host waits once in MOST_IN_FLIGHT micro-steps.
    """

    def __init__(self, program: TrainingProgram, device: Device) -> None:
        self._program, self._device = program, device
        self._locks_pages = device.group.device == "gpu"
        self._in_flight: list[dict[str, Any]] = []
        self._forward: Any = None  # the part of the program that makes vectors
        self._micro_steps = 0  # that were written; 0: those that the program has
        self._types = {
            variable.name: str(variable.dtype).split(".")[-1].lower()
            for variable in program.main.global_block().vars.values()
            if variable.is_data
        }

    def accumulate(self, num_micro_steps: int) -> None:
        """Set the number of micro-steps of later updates, and reset the accumulation."""
        if self._program.accumulation_varies and num_micro_steps != self._micro_steps:
            scope, factor = self._device.scope, np.array([1 / num_micro_steps], "float32")
            write_variable(scope, MICRO_STEPS, np.array([num_micro_steps], "int32"), place_of("cpu"))
            write_variable(scope, FACTOR, factor, self._device.place)
            self._micro_steps = num_micro_steps

    def arrays(self, feed: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Arrays of a micro-step in the program's types; for a GPU in page-locked memory.

        Args:
            feed: as `bert.samples.collation.MicroBatch.feed`; its integers fit into the types of the program.
        """
        arrays = self._in_declared_types(feed)
        return self._in_page_locked_memory(arrays) if self._locks_pages else arrays

    def with_batch_vectors(
        self, micro_batches: Iterable[MicroBatch], draw: Callable[[int, Any], None]
    ) -> Iterable[MicroBatch]:
        """This rank's micro-batches of an update; `ContrastiveObjective` also gets all vectors of the batch.

        A micro-batch that is alone needs none from before.

        Args:
            draw: (micro-step, its feed) -> draws its dropout.
        """
        main, device, hidden = self._program.main, self._device, self._program.objective.model.hidden_size
        if not main.global_block().has_var(BATCH_VECTORS):
            return micro_batches
        batches = list(micro_batches)
        name = self._program.outputs["vectors"]
        self._forward = self._forward or main._prune([main.global_block().var(name)])
        known = self._forward.global_block()
        vectors = np.zeros((sum(batches[0].feed["not_negatives"].shape), hidden), "float32")
        for micro_step, batch in enumerate(batches if len(batches) * device.group.world_size > 1 else ()):
            draw(micro_step, batch.feed)
            feed = self._in_declared_types({key: batch.feed[key] for key in batch.feed if known.has_var(key)})
            (live,) = device.executor.run(self._forward, feed=feed, fetch_list=[name], scope=device.scope)
            vectors[batch.feed["text_places"]] = live
        vectors = device.collective.sum(vectors.reshape(-1)).reshape(vectors.shape)
        return [replace(batch, feed={**batch.feed, BATCH_VECTORS: vectors}) for batch in batches]

    def _in_declared_types(self, feed: Mapping[str, np.ndarray]) -> dict[str, Any]:
        return {name: array.astype(self._types[name], copy=False) for name, array in feed.items()}

    def _in_page_locked_memory(self, arrays: dict[str, Any]) -> dict[str, Any]:
        if len(self._in_flight) == MOST_IN_FLIGHT:
            read_variable(self._device.scope, APPLIED_UPDATES)  # waits for the device
            self._in_flight.clear()
        try:
            arrays = {name: page_locked(array) for name, array in arrays.items()}
        except (OSError, RuntimeError, MemoryError) as error:
            self._locks_pages = False
            logger.warning("no page-locked memory (%s): batches are copied while the host waits", error)
        self._in_flight.append(arrays)
        return arrays

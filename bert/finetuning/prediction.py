"""Runs a prediction program over a table of features and gathers the outputs on the host."""

from collections.abc import Callable

import numpy as np

from bert.finetuning.loader import FeatureTable, prediction_batches
from bert.samples.packing import pack


def predict(
    device,
    program,
    table: FeatureTable,
    batch_size: int,
    *,
    max_seq_length: int,
    sequence_length_multiple: int = 8,
    after_batch: Callable[[int], None] | None = None,
) -> dict[str, np.ndarray]:
    """The outputs of a `program.PredictionProgram` for every sequence of the table, on every rank.

    Args:
        after_batch: called with the number of sequences that all ranks have run, about.

    Returns:
        by the objective's names, float32 [n, ...] in the order of the table. Outputs of tokens are [n, longest, ...]
        where `longest` is the longest sequence; values at padding are 0.
    """
    tokens = (int(table.lengths().max()) if len(table) else 0,) if program.objective.outputs_per_token else ()
    found = {}
    for name, variable in program.outputs.items():
        shape = program.main.global_block().var(variable).shape[1 + len(tokens) :]
        found[name] = np.zeros((len(table), *tokens, *shape), "float32")
    batches = prediction_batches(
        table,
        batch_size,
        rank=device.group.rank,
        world_size=device.group.world_size,
        sequence_length_multiple=sequence_length_multiple,
        max_seq_length=max_seq_length,
    )
    packing = program.objective.packing()
    for number, batch in enumerate(batches, start=1):
        feed = batch.feed if packing is None else pack(batch.feed, packing)
        values = device.executor.run(
            program.main, feed=feed, fetch_list=list(program.outputs.values()), scope=device.scope
        )
        for name, value in zip(program.outputs, values, strict=True):
            if not tokens:
                found[name][batch.rows] = value
                continue
            width = min(value.shape[1], *tokens)
            mask = batch.feed["attention_mask"][:, :width].reshape(len(batch.rows), width, *[1] * (value.ndim - 2))
            found[name][batch.rows, :width] = value[:, :width] * mask
        if after_batch is not None:
            after_batch(number * batch_size * device.group.world_size)
    # Every rank has zeros where the others have values, so sums are exact.
    return {name: device.collective.sum(values.reshape(-1)).reshape(values.shape) for name, values in found.items()}

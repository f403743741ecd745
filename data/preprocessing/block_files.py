"""Reads and writes the intermediate file of a block: its tokens, and the ranges of tokens that are pairs.

Shards of either format are cut from it. It takes about half the space of the source, and a little more for each
repetition of the documents (--duplicate-factor).
"""

from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pyarrow as pa

from bert.arrays.ragged import arrow_array, numpy_array, offsets_of
from bert.files import write_atomically
from bert.samples.formats.arrow import columns_to_arrow, read_arrow
from data.preprocessing.pairs import Spans


@dataclass(frozen=True)
class BlockSamples:
    """Pairs of a block, by bin.

    Attributes:
        token_ids: [T].
        spans: n pairs.
        ids: int64 [n], their numbers in the block, which name their masks.
        continues: bool [T], tokens that belong to the word of the one before, if a segmenter found the words.
    """

    token_ids: np.ndarray
    spans: Spans
    ids: np.ndarray
    continues: np.ndarray | None = None


def write_block(
    path: Path, token_ids: np.ndarray, spans: Spans, ids: np.ndarray, continues: np.ndarray | None = None
) -> None:
    """Write the file of a block atomically."""
    columns = {
        "token_ids": token_ids,
        "ids": ids,
        **{field.name: getattr(spans, field.name) for field in fields(Spans)},
    }
    columns["is_random_next"] = spans.is_random_next.view(np.uint8)
    if continues is not None:
        columns["continues"] = continues.view(np.uint8)
    lists = {
        name: pa.LargeListArray.from_arrays(arrow_array(offsets_of([len(values)])), arrow_array(_small(values)))
        for name, values in columns.items()
    }
    write_atomically(path, columns_to_arrow(pa.table(lists)))


def _small(values: np.ndarray) -> np.ndarray:
    """int64 as int32 where it fits."""
    fits = values.dtype == np.int64 and (len(values) == 0 or values.max() <= np.iinfo(np.int32).max)
    return values.astype(np.int32) if fits else values


def read_block(path: Path) -> BlockSamples:
    """The file that `write_block` wrote."""
    with pa.memory_map(str(path)) as source:
        table = read_arrow(source)
        arrays = {name: numpy_array(table.column(name).chunk(0).values, name) for name in table.column_names}
        spans = Spans(
            *(
                arrays[field.name].view(bool) if field.name == "is_random_next" else arrays[field.name].astype(np.int64)
                for field in fields(Spans)
            )
        )
        continues = arrays["continues"].view(bool) if "continues" in arrays else None
        return BlockSamples(arrays["token_ids"], spans, arrays["ids"].astype(np.int64), continues)

"""Reads and writes shards in our own Arrow schema: uncompressed token ids, read without decoding."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from bert.arrays.ragged import numpy_array
from bert.samples.formats.shard_writer import (
    WORD_COLUMN,
    ShardDescription,
    check_columns,
    check_mask_counts,
    check_positions,
    continues_at,
    refuse,
)
from bert.samples.sample_table import SampleTable, StaticMasks, word_positions
from bert.tokenization.token_strings import TokenStrings
from bert.tokenization.vocabulary import Vocabulary

_IDS = [pa.large_list(kind) for kind in (pa.uint16(), pa.int32())]
_TYPES = {"input_ids": _IDS, "first_length": [pa.uint16()], "is_random_next": [pa.bool_()]}


def describe(path: Path) -> ShardDescription:
    with pa.memory_map(str(path)) as source:
        table = _to_table(source)
        longest = int(table.lengths().max(initial=0))
        return ShardDescription(len(table), longest, table.masks is not None, table.continues is not None)


def read(data: bytes, strings: TokenStrings) -> SampleTable:
    """Decode a shard; its arrays are views of `data`. ArrowInvalid or ValueError if it is damaged."""
    table = _to_table(pa.BufferReader(data))
    check_values(table, strings.vocabulary)
    return table


def arrow_columns(table: SampleTable) -> pa.Table:
    columns = {
        "input_ids": _lists(table.token_ids, table.offsets),
        "first_length": pa.array(table.first_lengths.astype(np.uint16)),
        "is_random_next": pa.array(table.is_random_next),
    }
    if table.masks:
        columns["masked_lm_positions"] = _lists(table.masks.positions.astype(np.uint16), table.masks.offsets)
        columns["masked_lm_labels"] = _lists(table.masks.labels, table.masks.offsets)
    if table.continues is not None:
        columns[WORD_COLUMN] = _lists(*word_positions(table.continues, table.offsets))
    return pa.table(columns)


def _lists(values: np.ndarray, offsets: np.ndarray) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(offsets), pa.array(values))


def _to_table(source: pa.NativeFile) -> SampleTable:
    """Sample table of a shard; ArrowInvalid or ValueError if the file's structure is damaged."""
    with pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(use_threads=False)) as file:
        table = file.read_all()
    schema = check_columns(table.schema, _TYPES, (_IDS[:1], _IDS), _IDS[:1])
    table.validate(full=True)  # offsets of a damaged file could point outside of its buffers
    table = table.select(schema.names).cast(schema).combine_chunks()
    columns = {
        name: column.chunk(0) if column.num_chunks else pa.array([], column.type)
        for name, column in zip(table.column_names, table.columns, strict=True)
    }

    def flat(name: str) -> tuple[np.ndarray, np.ndarray]:
        offsets, values = numpy_array(columns[name].offsets, name), numpy_array(columns[name].values, name)
        if columns[name].null_count or offsets[0] or offsets[-1] != len(values):
            raise ValueError(
                f"column {name!r}: {columns[name].null_count} rows are missing, the others hold values "
                f"{offsets[0]} to {offsets[-1]} of {len(values)}; no row may be missing and each value "
                "belongs to one: make the shard again"
            )
        return offsets, values

    offsets, ids = flat("input_ids")
    masks = continues = None
    if "masked_lm_positions" in columns:
        label_offsets, labels = flat("masked_lm_labels")
        masks = StaticMasks(*flat("masked_lm_positions"), labels)
        check_mask_counts(masks.offsets, label_offsets)
    if WORD_COLUMN in columns:
        word_offsets, positions = flat(WORD_COLUMN)
        continues = continues_at(positions, word_offsets, offsets)
    first_lengths = numpy_array(columns["first_length"], "first_length").astype(np.int32)
    is_random_next = numpy_array(columns["is_random_next"], "is_random_next")
    return SampleTable(ids, offsets, first_lengths, is_random_next, masks, continues)


def check_values(table: SampleTable, vocabulary: Vocabulary) -> None:
    """Raise ValueError if a sample is not [CLS] A [SEP] (B [SEP]) of its own ids, or has a mask outside of it."""
    masks, size = table.masks, len(vocabulary)
    for name, ids in (("input_ids", table.token_ids), *((("masked_lm_labels", masks.labels),) if masks else ())):
        if len(ids) and int(ids.view(f"u{ids.itemsize}").max()) >= size:  # as unsigned, a negative id is large
            raise ValueError(
                f"{name} reach from {ids.min()} to {ids.max()}, {vocabulary.source} has {size} tokens; ids must be "
                "below that: use the vocabulary the shard was made with; if it is damaged, make it again"
            )
    starts, ends, lengths, first = table.offsets[:-1], table.offsets[1:], table.lengths(), table.first_lengths
    wrong = (first < 2) | (first > lengths)
    if not wrong.any():
        cls_id, sep_id = vocabulary.id_of("[CLS]"), vocabulary.id_of("[SEP]")
        wrong = (table.token_ids[starts] != cls_id) | (table.token_ids[ends - 1] != sep_id)
        wrong |= table.token_ids[starts + first - 1] != sep_id
    refuse(
        wrong,
        lambda row: (
            f"sample {row}: its {lengths[row]} tokens with first_length={first[row]} are not [CLS] A [SEP] and "
            "B [SEP], as they must be with this vocabulary"
        ),
    )
    if masks:
        check_positions(masks.positions, masks.offsets, lengths)

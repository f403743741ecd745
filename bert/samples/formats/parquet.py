"""Reads shards in LDDL's parquet schema: tokens as text, masks as packed positions."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert.arrays.ragged import numpy_array
from bert.interpreter import shell_command
from bert.samples.formats.shard_writer import MASK_COLUMNS, WORD_COLUMN, Description, check_mask_counts, check_positions
from bert.samples.sample_table import SampleTable, StaticMasks, continues_at, join_pairs, lengths_with_end
from bert.tokenization.token_strings import TokenStrings, decode_positions


def describe(path: Path) -> Description:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        masked, has_words = check_parquet_schema(file.schema_arrow), WORD_COLUMN in file.schema_arrow.names
        # Not from the footer's statistics: they have no checksum, and damaged ones end the process.
        lengths = _num_tokens(file)
        return Description(file.metadata.num_rows, int(lengths.max()) if len(lengths) else 0, masked, has_words)


def _num_tokens(file: pq.ParquetFile) -> np.ndarray:
    return numpy_array(file.read(["num_tokens"], use_threads=False).column(0).combine_chunks(), "num_tokens")


def check_parquet_schema(schema: pa.Schema) -> bool:
    """True if the schema is LDDL's with static masks, False without; ValueError names the first wrong column."""
    wanted = {"A": pa.string(), "B": pa.string(), "is_random_next": pa.bool_(), "num_tokens": pa.uint16()}
    masked = any(name in schema.names for name in MASK_COLUMNS)
    if masked:
        wanted.update(masked_lm_positions=pa.binary(), masked_lm_labels=pa.string())
    if WORD_COLUMN in schema.names:
        wanted[WORD_COLUMN] = pa.binary()
    for name, kind in wanted.items():
        if name not in schema.names:
            raise ValueError(
                f"has no column {name!r} (it has {', '.join(schema.names)}); a shard in LDDL's schema "
                f"has {', '.join(wanted)}: make it with {shell_command('data.preprocess_bert_pretrain')}"
            )
        if schema.field(name).type != kind:
            raise ValueError(
                f"column {name!r} is {schema.field(name).type}, it must be {kind}: make the shard with "
                f"{shell_command('data.preprocess_bert_pretrain')}"
            )
        if not schema.field(name).nullable:  # LDDL's all are; a flipped bit of the footer would cause misread values
            raise ValueError(
                f"column {name!r} is required, in LDDL's schema it is optional; the footer is damaged: "
                "copy the shard again or make it again"
            )
    return masked


def read(data: bytes, strings: TokenStrings) -> SampleTable:
    """Decode a shard in LDDL's schema; ValueError if tokens, counts or masks do not agree."""
    with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
        masked = check_parquet_schema(file.schema_arrow)
        names = ["A", "B", "is_random_next", "num_tokens", *(MASK_COLUMNS if masked else ())]
        names += [WORD_COLUMN] if WORD_COLUMN in file.schema_arrow.names else []
        read = file.read(names, use_threads=False)
    columns = {name: read.column(name).combine_chunks() for name in names}
    first_ids, first_offsets = strings.split(columns["A"], "A")
    second_ids, second_offsets = strings.split(columns["B"], "B")
    first, second = np.diff(first_offsets), np.diff(second_offsets)
    lengths = numpy_array(columns["num_tokens"], "num_tokens").astype(np.int64)
    wrong = np.flatnonzero(first + 2 + lengths_with_end(second) != lengths)
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"sample {row}: num_tokens={lengths[row]} but A and B hold {first[row]} + {second[row]} "
            "tokens, and num_tokens must be their sum + 3 (+ 2 where B is empty); the shard is damaged: make it again"
        )
    vocabulary = strings.vocabulary
    ids, offsets = join_pairs(
        first_ids, first, second_ids, second, vocabulary.id_of("[CLS]"), vocabulary.id_of("[SEP]"), single=True
    )
    masks = None
    if masked:
        positions, mask_offsets = decode_positions(columns["masked_lm_positions"])
        labels, label_offsets = strings.split(columns["masked_lm_labels"], "masked_lm_labels")
        check_mask_counts(mask_offsets, label_offsets)
        check_positions(positions, mask_offsets, lengths)
        masks = StaticMasks(mask_offsets, positions, labels)
    continues = None
    if WORD_COLUMN in columns:
        positions, word_offsets = decode_positions(columns[WORD_COLUMN])
        check_positions(positions, word_offsets, lengths, "word")
        continues = continues_at(positions, np.diff(word_offsets), offsets)
    is_random_next = numpy_array(columns["is_random_next"], "is_random_next")
    return SampleTable(ids, offsets, (first + 2).astype(np.int32), is_random_next, masks, continues)

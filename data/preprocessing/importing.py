"""Converts the samples of shards in any format to shards in another one."""

from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from bert.samples.formats import hdf5
from bert.samples.formats.arrow import arrow_columns
from bert.samples.formats.parquet import parquet_columns
from bert.samples.formats.shard_writer import ShardWriter
from bert.samples.manifest import Manifest, ShardRecord, shard_totals
from bert.samples.sample_table import SampleTable, concatenate
from bert.samples.shards import ShardDirectory
from bert.tokenization.token_strings import TokenStrings
from data.preprocessing.balancing import write_shards
from data.preprocessing.pipeline import RowRange, cut

_ROW_GROUP_BYTES = 256 << 20
_OF_FILES = ("num_shards", "compression", "bin_size")  # settings of the files that are read, not of their samples


def import_shards(
    source: ShardDirectory, outdir: Path, output_format: str, num_shards: int | None, max_predictions: int
) -> Manifest:
    """Write the samples of all shards, in order, into `num_shards` of equal size (default: the same number)."""
    counts = [shard.num_samples for shard in source.shards]
    plans = cut(counts, num_shards or len(counts))
    if sum(counts) < len(plans):
        raise ValueError(f"num_shards={len(plans)} exceeds the {sum(counts)} samples; use at most {sum(counts)} shards")
    if output_format == "hdf5" and not source.masked:
        raise ValueError(f"{source.directory}: has no static masks, which HDF5 shards hold; use --output-format arrow")
    if source.shards[0].bin_id is not None and output_format != "hdf5":
        command = "data.balance_shards" if source.shards[0].kind == "parquet" else "data.preprocess_bert_pretrain again"
        raise ValueError(f"{source.directory}: has bins, which would be lost; use {command}, which keeps them")
    strings = TokenStrings(source.vocabulary)

    def write(table: SampleTable, path: Path) -> int:
        if output_format == "hdf5":
            hdf5.write(path, table, source.max_seq_length, max_predictions)
        else:
            with ShardWriter(path, output_format, None, "snappy", _ROW_GROUP_BYTES) as writer:
                writer.write(arrow_columns(table) if output_format == "arrow" else parquet_columns(table, strings))
        return len(table)

    load = lru_cache(maxsize=1)(source.load)  # two outputs often share a shard

    def samples(pieces: tuple[RowRange, ...]) -> SampleTable:
        return concatenate([load(piece.block).take(np.arange(piece.start, piece.stop)) for piece in pieces])

    tables = enumerate(map(samples, plans))
    named = ((f"shard-{number}.{output_format}", None, partial(write, table)) for number, table in tables)
    # What the samples are decides how a training reads them: packed documents, the share of the masks.
    made_with = {name: value for name, value in source.made_with.items() if name not in _OF_FILES}
    settings = {**made_with, "imported_from": str(source.directory), "output_format": output_format}

    def manifest_of(shards: dict[str, ShardRecord]) -> Manifest:
        counted = {"samples": sum(counts), **shard_totals(shards)}
        return Manifest(shards, source.vocabulary.sha256, settings, counted)

    return write_shards(outdir, len(plans), named, manifest_of)

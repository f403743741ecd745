"""Rewrites folders of shards with equal numbers of samples in all files."""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert.command_errors import command
from bert.files import atomic_path, checksum_of, checksum_of_file, only_writer
from bert.interpreter import shell_command
from bert.reporting.progress import progress
from bert.samples.formats.shard_writer import ShardWriter
from bert.samples.manifest import (
    MANIFEST_NAME,
    NUM_SAMPLES_NAME,
    UNFINISHED_NAME,
    Manifest,
    ShardRecord,
    read_manifest,
    shard_totals,
    write_manifest,
)
from bert.samples.shards import (
    Shard,
    check_agreement,
    check_duplicates,
    check_names,
    described,
    list_shards,
    naming,
    recorded_counts,
)
from data.preprocessing.pipeline import RowRange, cut


def balance(indir: Path, outdir: Path, num_shards: int, compression: str = "snappy") -> Manifest:
    """Write balanced shards and their manifest; num_shards is at least 1. FileNotFoundError without shards in indir."""
    source = read_manifest(indir)
    bins = _list_parts(indir, source, num_shards)
    bins = {bin_id: parts for bin_id, parts in bins.items() if any(part.num_samples for part in parts)}
    numbers = {bin_id: None if bin_id is None else number for number, bin_id in enumerate(bins)}  # without empty ones
    plans = [plan for bin_id, parts in bins.items() for plan in _plan(numbers[bin_id], parts, num_shards)]
    read = lru_cache(maxsize=1)(partial(_read, source))  # two shards often share a file

    def write(bin_id: int | None, paths: list[Path], pieces: tuple[RowRange, ...], path: Path) -> int:
        with ShardWriter(path, "parquet", None, compression, row_group_bytes=sys.maxsize) as writer:
            for piece in pieces:
                writer.write(_in_bin(read(paths[piece.block]).slice(piece.start, piece.stop - piece.start), bin_id))
        return sum(piece.stop - piece.start for piece in pieces)

    shards = ((plan[0], plan[1], partial(write, *plan[1:])) for plan in plans)
    settings = {"num_shards": num_shards, "output_format": "parquet", "compression": compression}
    return write_shards(outdir, len(plans), shards, lambda records: _manifest(source, records, settings))


def _in_bin(table: pa.Table, bin_id: int | None) -> pa.Table:
    if bin_id is None or "bin_id" not in table.column_names:
        return table
    place = table.column_names.index("bin_id")
    return table.set_column(place, table.schema.field(place), [pa.array(np.full(len(table), bin_id, np.int64))])


def rewrite(indir: Path, outdir: Path, make: Callable[[], Manifest]) -> None:
    """Run a command that makes the shards in `outdir` from the shards in `indir`, with locks and printed results."""
    with command(outdir):
        if outdir.exists() and not outdir.is_dir():
            raise ValueError(f"{outdir}: is a file; balanced shards go to a separate, empty directory: name another")
        begun = (outdir / UNFINISHED_NAME).is_file()  # by this command; of a stopped preprocessing it is a folder
        if outdir.resolve() == indir.resolve() or (outdir.is_dir() and any(outdir.iterdir()) and not begun):
            raise ValueError(f"{outdir}: is the input or not empty; balanced shards go to a separate, empty directory")
        with only_writer(outdir):  # which makes the folder
            manifest = make()
    with command():
        print(f"{manifest.counts['samples']} samples in {len(manifest.shards)} shards in {outdir}")


def write_shards(
    outdir: Path,
    number: int,
    shards: Iterable[tuple[str, int | None, Callable[[Path], int]]],
    manifest_of: Callable[[dict[str, ShardRecord]], Manifest],
) -> Manifest:
    """Write the shards, and the manifest of their records; files of a stopped run are removed.

    Args:
        shards: name, bin, and a function that writes a file and returns the number of its samples.
    """
    outdir.mkdir(parents=True, exist_ok=True)
    if (outdir / UNFINISHED_NAME).exists():
        for pattern in (MANIFEST_NAME, NUM_SAMPLES_NAME, ".*.tmp", "shard-*"):
            for path in outdir.glob(pattern):
                path.unlink()
    (outdir / UNFINISHED_NAME).touch()
    records = {}
    for name, bin_id, write in progress("shards", number, "files", shards):
        path = outdir / name
        with atomic_path(path) as temporary:
            num_samples = write(temporary)
        records[name] = ShardRecord(num_samples, path.stat().st_size, checksum_of_file(path), bin_id)
    manifest = manifest_of(records)
    write_manifest(outdir, manifest)
    (outdir / UNFINISHED_NAME).unlink()
    return manifest


def _manifest(source: Manifest | None, shards: dict[str, ShardRecord], settings: dict) -> Manifest:
    """The input's manifest, if there is one, adapted to the balanced shards."""
    counts = {"samples": sum(record.num_samples for record in shards.values()), **shard_totals(shards)}
    if source is None:
        return Manifest(shards, None, settings, counts)
    inherited = {name: value for name, value in source.counts.items() if not name.startswith("bins of fewer")}
    return Manifest(shards, source.vocabulary_sha256, {**source.settings, **settings}, {**inherited, **counts})


def _list_parts(indir: Path, source: Manifest | None, num_shards: int) -> dict[int | None, list[Shard]]:
    """Files of each bin (None without bins), by number.

    They are checked by the loader's rules, as nobody could notice a missing or duplicate file in the output.
    """
    shards = list_shards(indir)
    other = next((shard for shard in shards if shard.kind != "parquet"), None)
    if other is not None:
        again = "data.import_shards" if other.bin_id is None else "data.preprocess_bert_pretrain"  # which keeps bins
        raise ValueError(
            f"{other.path}: is not a parquet file; only part.N.parquet and shard-N.parquet can be balanced: remove it, "
            f"or make as many shards as you want with {shell_command(again, '--num-shards', str(num_shards))} ..."
        )
    check_names(indir, shards, recorded_counts(indir, source))
    checked = tuple(map(described, shards))
    check_agreement(indir, checked)
    check_duplicates(checked)
    parts: dict[int | None, list[Shard]] = defaultdict(list)
    for shard in checked:
        parts[shard.bin_id].append(shard)
    return parts


def _plan(
    bin_id: int | None, parts: list[Shard], num_shards: int
) -> Iterator[tuple[str, int | None, list[Path], tuple[RowRange, ...]]]:
    counts = [part.num_samples for part in parts]
    total = sum(counts)
    if total < num_shards:
        where = "" if bin_id is None else f" of bin {bin_id}"
        raise ValueError(f"num_shards={num_shards} exceeds the {total} samples{where}; use at most {total} shards")
    suffix = "" if bin_id is None else f"_{bin_id}"
    for shard, pieces in enumerate(cut(counts, num_shards)):
        yield f"shard-{shard}.parquet{suffix}", bin_id, [part.path for part in parts], pieces


def _read(source: Manifest | None, path: Path) -> pa.Table:
    data = path.read_bytes()
    if source and checksum_of(data) != source.shards[path.name].xxh128:
        raise ValueError(f"{path}: its checksum differs from the manifest; copy it again or make it again")
    with naming(path), pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
        return file.read(use_threads=False)

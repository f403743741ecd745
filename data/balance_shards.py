"""Cut shards anew into files of equal size: the numbers of samples of a bin's files differ by at most one.

    python -m data.balance_shards --indir PARTS --outdir SHARDS --num-shards 64

For part.N.parquet files, LDDL's or ours (data.preprocess_bert_pretrain --num-shards balances at once). The input is
never changed or deleted.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert.samples.manifest import Manifest, ShardRecord, read_manifest, sha256_of, write_atomically, write_manifest
from bert.samples.shard_formats import check_parquet_schema
from data.pipeline import Piece, cut
from data.progress import progress

_PART_NAME = re.compile(r"(?:part\.|shard-)(\d+)\.parquet(?:_(\d+))?")


def balance(indir: Path, outdir: Path, num_shards: int, compression: str = "snappy") -> Manifest:
    """Write the shards and their manifest.

    Raises:
        FileNotFoundError: no shards in indir.
        ValueError: outdir is indir or holds shards already; num_shards exceeds the samples of a bin; a file is
            damaged or not LDDL's; the manifest of indir and its files disagree.
    """
    if num_shards < 1:
        raise ValueError(f"num_shards={num_shards} must be at least 1")
    if outdir.resolve() == indir.resolve() or (outdir.is_dir() and any(outdir.iterdir())):
        raise ValueError(f"{outdir}: is the input or not empty; balanced shards go to an empty directory of their own")
    source = read_manifest(indir)
    parts = _list_parts(indir, source)
    outdir.mkdir(parents=True, exist_ok=True)
    shards: dict[str, ShardRecord] = {}
    counts_of = {bin_id: _counts(paths) for bin_id, paths in parts.items()}
    kept = [bin_id for bin_id, counts in counts_of.items() if sum(counts)]  # LDDL's loader fails at a bin of none
    if not kept:
        raise ValueError(f"{indir}: its files hold no sample; make them from a corpus that is not empty")
    tasks = [task for number, bin_id in enumerate(kept)
             for task in _plan(None if bin_id is None else number, parts[bin_id], counts_of[bin_id], num_shards)]
    reader = _Reader(source)
    for name, bin_id, paths, pieces in progress(tasks, len(tasks), "shards", "files"):
        table = pa.concat_tables([reader.read(paths[piece.block]).slice(piece.start, piece.stop - piece.start)
                                  for piece in pieces])
        if bin_id is not None and "bin_id" in table.column_names:
            place = table.column_names.index("bin_id")
            table = table.set_column(place, table.schema.field(place),
                                     [pa.array(np.full(len(table), bin_id, np.int64))])
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, row_group_size=max(1, len(table)), compression=compression, use_dictionary=False,
                       write_statistics=["num_tokens"], write_page_checksum=True)
        data = sink.getvalue()
        write_atomically(outdir / name, data)
        shards[name] = ShardRecord(len(table), data.size, sha256_of(data), bin_id)
    counts = {**(source.counts if source else {}), "samples": sum(record.num_samples for record in shards.values())}
    manifest = Manifest(shards, source.vocabulary_sha256 if source else None,
                        {**(source.settings if source else {}), "num_shards": num_shards}, counts)
    write_manifest(outdir, manifest)
    return manifest


def _list_parts(indir: Path, source: Manifest | None) -> dict[int | None, list[Path]]:
    """The files of each bin (None without bins), by number."""
    if not indir.is_dir():
        raise FileNotFoundError(f"{indir}: no such directory; give the folder that holds the part.N.parquet files")
    found: dict[int | None, list[tuple[int, Path]]] = defaultdict(list)
    for path in indir.iterdir():
        if match := _PART_NAME.fullmatch(path.name):
            bin_id = None if match.group(2) is None else int(match.group(2))
            found[bin_id].append((int(match.group(1)), path))
    if not found:
        raise FileNotFoundError(f"{indir}: no part.N.parquet files; make them with data.preprocess_bert_pretrain")
    if len(found) > 1 and None in found:
        raise ValueError(f"{indir}: holds files with and without bins; a directory holds the shards of one run")
    names = {path.name for paths in found.values() for _, path in paths}
    if source and names != set(source.shards):
        odd = sorted(names ^ set(source.shards))
        raise ValueError(f"{indir}: its files and its manifest differ in {len(odd)} names, the first being {odd[0]}; "
                         "restore what is missing and remove what does not belong")
    return {bin_id: [path for _, path in sorted(found[bin_id])] for bin_id in sorted(found, key=lambda b: b or 0)}


def _counts(paths: list[Path]) -> list[int]:
    """Samples of each file."""
    counts = []
    for path in paths:
        try:
            with pq.ParquetFile(path) as file:
                check_parquet_schema(file.schema_arrow)
                counts.append(file.metadata.num_rows)
        except (OSError, pa.ArrowException, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error
    return counts


def _plan(bin_id: int | None, paths: list[Path], counts: list[int],
          num_shards: int) -> Iterator[tuple[str, int | None, list[Path], tuple[Piece, ...]]]:
    total = sum(counts)
    if total < num_shards:
        where = "" if bin_id is None else f" of bin {bin_id}"
        raise ValueError(f"num_shards={num_shards} exceeds the {total} samples{where}; use at most {total} shards")
    edges = [total * shard // num_shards for shard in range(num_shards + 1)]
    suffix = "" if bin_id is None else f"_{bin_id}"
    for shard, pieces in enumerate(cut(counts, edges)):
        yield f"shard-{shard}.parquet{suffix}", bin_id, paths, pieces


class _Reader:
    """Reads whole files, remembering the last one, which two shards often share."""

    def __init__(self, source: Manifest | None) -> None:
        self._source = source
        self._path: Path | None = None
        self._table: pa.Table | None = None

    def read(self, path: Path) -> pa.Table:
        if path != self._path:
            data = path.read_bytes()
            if self._source and sha256_of(data) != self._source.shards[path.name].sha256:
                raise ValueError(f"{path}: not the bytes its manifest vouches for; copy it again or make it again")
            try:
                with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
                    self._table = file.read(use_threads=False)
            except (OSError, pa.ArrowException) as error:
                raise ValueError(f"{path}: {error}") from error
            self._path = path
        assert self._table is not None
        return self._table


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--indir", type=Path, required=True)
    parser.add_argument("--outdir", type=Path, required=True)
    parser.add_argument("--num-shards", type=int, required=True, help="files per bin")
    parser.add_argument("--compression", choices=("none", "snappy", "zstd", "lz4"), default="snappy",
                        help="of parquet shards (default: snappy, as LDDL's; lz4 is quicker to read and write)")
    arguments = parser.parse_args(argv)
    try:
        manifest = balance(arguments.indir, arguments.outdir, arguments.num_shards, arguments.compression)
    except (ValueError, FileNotFoundError) as error:
        sys.exit(f"error: {error}")
    print(f"{manifest.counts['samples']} samples in {len(manifest.shards)} shards in {arguments.outdir}")


if __name__ == "__main__":
    main()

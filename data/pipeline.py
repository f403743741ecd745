"""Blocks of source text -> files of samples -> shards. Pure functions of (job, index), so anyone may run them.

First every block is turned into one file of samples per bin, in an uncompressed Arrow file below the sink; then the
shards are cut from these. Each file is written whole or not at all, and what is there is not made again, so a run that
was killed is simply started again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow as pa

from bert.manifest import ShardRecord, sha256_of, write_atomically
from bert.masking import MaskingRule
from bert.randomness import stream_key, uniform
from bert.samples import SampleTable, concatenate
from bert.shard_formats import TokenStrings, arrow_to_table, table_to_arrow, table_to_parquet
from bert.tokenization import FastTokenizer, Vocabulary
from data.corpus import Block, SourceFile, read_documents
from data.pairs import PairSettings, make_pairs
from data.sentences import tokenize_documents
from data.static_masks import with_static_masks

BLOCKS_FOLDER = ".blocks"
FORMATS = ("parquet", "arrow")


@dataclass(frozen=True)
class SampleSettings:
    """All that decides the samples, given the source and the vocabulary.

    bin_size None makes no bins; masking is "static" or "dynamic"; max_predictions_per_seq None sets no limit.
    """

    pairs: PairSettings
    block_bytes: int
    bin_size: int | None = None
    masking: str = "dynamic"
    whole_word_masking: bool = False
    masked_lm_ratio: float = 0.15
    max_predictions_per_seq: int | None = None
    sample_ratio: float = 1.0
    lowercase: bool = True
    language: str = "en"

    def __post_init__(self) -> None:
        if self.block_bytes < 1:
            raise ValueError(f"block_bytes={self.block_bytes} must be at least 1 (4 MiB by default)")
        if self.bin_size is not None and not 0 < self.bin_size <= self.pairs.target_seq_length:
            raise ValueError(f"bin_size={self.bin_size} must lie between 1 and target_seq_length="
                             f"{self.pairs.target_seq_length}; 64 is usual for 512")
        if self.masking not in ("static", "dynamic"):
            raise ValueError(f"masking={self.masking!r} must be 'static' or 'dynamic'")
        if not 0.0 < self.sample_ratio <= 1.0:
            raise ValueError(f"sample_ratio={self.sample_ratio} must be above 0 and at most 1")

    def num_bins(self) -> int:
        """Number of bins, 1 without bins."""
        return 1 if self.bin_size is None else -(-self.pairs.target_seq_length // self.bin_size)


@dataclass(frozen=True)
class Job:
    """What workers are given: the settings, the vocabulary file and its sha256, the blocks and the sink."""

    settings: SampleSettings
    vocab_file: str
    vocabulary_sha256: str
    sources: tuple[SourceFile, ...]
    blocks: tuple[Block, ...]
    sink: str
    output_format: str
    compression: str

    def key(self) -> str:
        """Names the samples: hash of the settings, the vocabulary and the names, sizes and times of the sources."""
        sources = [(source.path, source.num_bytes, Path(source.path).stat().st_mtime_ns) for source in self.sources]
        content = json.dumps([asdict(self.settings), self.vocabulary_sha256, sources], sort_keys=True)
        return sha256_of(content.encode())[:16]

    def block_folder(self) -> Path:
        return Path(self.sink, BLOCKS_FOLDER, self.key())


@dataclass(frozen=True)
class Piece:
    """Rows start..stop-1 of one block's file of one bin."""

    block: int
    start: int
    stop: int


@dataclass(frozen=True)
class ShardPlan:
    """A shard to write: its file name, its bin (None without bins), and the rows it is made of."""

    name: str
    bin_id: int | None
    pieces: tuple[Piece, ...]


@lru_cache(maxsize=1)
def _tools(vocab_file: str, lowercase: bool) -> tuple[FastTokenizer, TokenStrings]:
    """Made once per process: the tokeniser remembers the words of the blocks before, which changes no result."""
    vocabulary = Vocabulary.from_file(vocab_file)
    return FastTokenizer(vocabulary, lowercase), TokenStrings(vocabulary)


def make_block(job: Job, folder: Path, index: int) -> dict:
    """Make the samples of one block, unless they are there; returns {"counts": ..., "samples": per bin}."""
    record = folder / f"{index}.json"
    if record.exists():
        return json.loads(record.read_bytes())
    settings = job.settings
    counts: Counter = Counter()
    tokenizer, _ = _tools(job.vocab_file, settings.lowercase)
    vocabulary = tokenizer.vocabulary
    texts = _sampled(read_documents(job.blocks[index], counts), settings, index, counts)
    documents = tokenize_documents(texts, tokenizer, settings.language, counts)
    table = make_pairs(documents, vocabulary, settings.pairs, index, counts)
    if settings.masking == "static":
        limit = settings.max_predictions_per_seq or settings.pairs.target_seq_length
        rule = MaskingRule.of(vocabulary, masked_lm_ratio=settings.masked_lm_ratio, max_predictions_per_seq=limit,
                              whole_word=settings.whole_word_masking)
        table = with_static_masks(table, rule, stream_key(settings.pairs.seed, "static masks", index))
        counts["masked tokens"] += len(table.masks.labels) if table.masks else 0
    bins = _bins_of(table, settings.bin_size)
    for bin_id, rows in enumerate(bins):
        part = table if len(bins) == 1 else table.take(rows)
        write_atomically(_block_path(folder, index, bin_id), table_to_arrow(part))
    result = {"counts": dict(sorted(counts.items())), "samples": [len(rows) for rows in bins]}
    write_atomically(record, json.dumps(result).encode())
    return result


def _bins_of(table: SampleTable, bin_size: int | None) -> list[np.ndarray]:
    """Rows of each bin; bin i holds num_tokens in (i * bin_size, (i + 1) * bin_size]. Empty bins at the end go."""
    if bin_size is None:
        return [np.arange(len(table))]
    bin_of = (table.lengths() - 1) // bin_size
    return [np.flatnonzero(bin_of == bin_id) for bin_id in range(int(bin_of.max()) + 1 if len(table) else 0)]


def _sampled(texts: Iterator[str], settings: SampleSettings, block: int, counts: Counter) -> Iterator[str]:
    """The share `sample_ratio` of the documents, drawn by position."""
    key = stream_key(settings.pairs.seed, "documents", block)
    for position, text in enumerate(texts):
        if settings.sample_ratio == 1.0 or uniform(key, np.array([position]))[0] < settings.sample_ratio:
            yield text
        else:
            counts["documents left out by sample_ratio"] += 1


def _block_path(folder: Path, index: int, bin_id: int) -> Path:
    return folder / f"{index}.arrow_{bin_id}"


def make_shard(job: Job, folder: Path, plan: ShardPlan) -> ShardRecord:
    """Write one shard, unless it is there, and return its record."""
    record = folder / f"{plan.name}.json"
    path = Path(job.sink, plan.name)
    if record.exists() and path.exists():
        found = ShardRecord(**json.loads(record.read_bytes()))
        if path.stat().st_size == found.num_bytes and sha256_of(path.read_bytes()) == found.sha256:
            return found
    tables = []
    for piece in plan.pieces:
        with pa.memory_map(str(_block_path(folder, piece.block, plan.bin_id or 0))) as source:
            tables.append(arrow_to_table(source.read_buffer()).rows(piece.start, piece.stop))
    table = concatenate(tables)
    if job.output_format == "arrow":
        data = table_to_arrow(table)
    else:
        _, strings = _tools(job.vocab_file, job.settings.lowercase)
        data = table_to_parquet(table, strings, plan.bin_id, job.compression)
    write_atomically(path, data)
    result = ShardRecord(len(table), data.size, sha256_of(data), plan.bin_id)
    write_atomically(record, json.dumps(asdict(result)).encode())
    return result


def plan_shards(samples: list[list[int]], binned: bool, num_shards: int | None, output_format: str) -> list[ShardPlan]:
    """The shards to write from the numbers of samples per block and bin.

    Without num_shards, one part per block and bin that is not empty; otherwise num_shards per bin (fewer where a bin
    has fewer samples), whose sizes differ by at most one.
    """
    plans = []
    for bin_id in range(max(map(len, samples), default=0)):
        counts = [block[bin_id] if bin_id < len(block) else 0 for block in samples]
        suffix, shown = (f"_{bin_id}", bin_id) if binned else ("", None)
        if num_shards is None:
            plans += [ShardPlan(f"part.{block}.{output_format}{suffix}", shown, (Piece(block, 0, count),))
                      for block, count in enumerate(counts) if count]
            continue
        total = sum(counts)
        number = min(num_shards, total)
        edges = [total * shard // number for shard in range(number + 1)] if number else []
        plans += [ShardPlan(f"shard-{shard}.{output_format}{suffix}", shown, pieces)
                  for shard, pieces in enumerate(cut(counts, edges))]
    return plans


def cut(counts: list[int], edges: list[int]) -> list[tuple[Piece, ...]]:
    """For each range edges[i]..edges[i + 1] of all rows, in order, the pieces of the inputs that make it up."""
    offsets = np.concatenate([[0], np.cumsum(counts)]).tolist()
    result = []
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        first = int(np.searchsorted(offsets, low, side="right")) - 1
        pieces = []
        while first < len(counts) and offsets[first] < high:
            start, stop = max(low, offsets[first]) - offsets[first], min(high, offsets[first + 1]) - offsets[first]
            if start < stop:
                pieces.append(Piece(first, start, stop))
            first += 1
        result.append(tuple(pieces))
    return result


def run_ordered(function, tasks: list, num_workers: int) -> Iterator:
    """function(*task) for every task, in order, in `num_workers` processes (in this one if 1)."""
    if num_workers <= 1 or len(tasks) <= 1:
        for task in tasks:
            yield function(*task)
        return
    with ProcessPoolExecutor(min(num_workers, len(tasks)), mp_context=get_context("fork")) as pool:
        try:
            yield from pool.map(function, *zip(*tasks, strict=True))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise

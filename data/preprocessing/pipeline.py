"""The two steps of preprocessing: blocks of source text -> files of samples -> shards.

Both are pure functions of their arguments, so any process of any machine may run them. The first writes the samples of
a block, by bin, to an uncompressed Arrow file below the sink; the second cuts shards from these files. Every file is
written atomically, and an existing one is not made again, so repeating a killed command resumes it.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from bert.arrays.ragged import offsets_of
from bert.files import atomic_path, checksum_of_file, sha256_of, write_atomically
from bert.randomness import stream_key, uniform
from bert.samples.formats.arrow import arrow_columns
from bert.samples.formats.shard_writer import ShardWriter
from bert.samples.manifest import MANIFEST_NAME, UNFINISHED_NAME, ShardRecord
from bert.samples.masking import MaskingRule
from bert.tokenization.fast_tokenizer import FastTokenizer
from bert.tokenization.token_strings import TokenStrings
from bert.tokenization.vocabulary import Vocabulary
from data.preprocessing.block_files import BlockSamples, read_block, write_block
from data.preprocessing.borrowed_documents import borrowed_texts, joined, needs_others
from data.preprocessing.pairs import draw_pairs, pack_documents, spans_to_table
from data.preprocessing.settings import SampleSettings
from data.preprocessing.static_masks import draw_masks
from data.preprocessing.text_columns import BlockText, text_columns
from data.text.lddl_reader import Block, SourceFile, numbered_documents
from data.text.sentences import tokenize_documents
from data.text.word_boundaries import word_segmenter

FORMATS = ("parquet", "arrow")
_SHARD_NAME = re.compile(r"(?:part\.|shard-)\d+\.(?:parquet|arrow)(?:_\d+)?")
_ROWS_AT_ONCE = 8192
_ROW_GROUP_BYTES = 256 << 20  # of all the shards together that a process writes at a time
_VERSION = 3  # version of the algorithm: a run must not continue with the samples of another version


@dataclass(frozen=True)
class Job:
    """Everything that workers need: the settings, the vocabulary file and its sha256, the blocks and the sink.

    num_other_files: files among the sources that are not named *.txt.
    """

    settings: SampleSettings
    vocab_file: str
    vocabulary_sha256: str
    sources: tuple[SourceFile, ...]
    blocks: tuple[Block, ...]
    sink: str
    output_format: str
    compression: str
    num_other_files: int = 0

    def key(self) -> str:
        """Cache key of the samples: hash of settings, vocabulary, and names, sizes and times of the sources."""
        sources = [(source.path, source.num_bytes, Path(source.path).stat().st_mtime_ns) for source in self.sources]
        content = json.dumps([_VERSION, self.settings.record(), self.vocabulary_sha256, sources], sort_keys=True)
        return sha256_of(content.encode())[:16]

    def without_source(self) -> "Job":
        """The job without its lists of files and blocks, which would be sent to the workers with every task."""
        return replace(self, sources=(), blocks=())

    def block_folder(self) -> Path:
        return Path(self.sink, UNFINISHED_NAME, self.key())


@dataclass(frozen=True)
class Piece:
    """Rows start..stop-1 of one block."""

    block: int
    start: int
    stop: int


@dataclass(frozen=True)
class ShardPlan:
    """A shard to write: its file name, its number among the shards of its bin (None without bins), and its rows.

    Shards of the same number are cut from nearly the same blocks.
    """

    name: str
    number: int
    bin_id: int | None
    pieces: tuple[Piece, ...]

    def key(self, job: Job) -> str:
        """Cache key of the shard's bytes."""
        return sha256_of(json.dumps([asdict(self), job.output_format, job.compression]).encode())


@dataclass(frozen=True)
class _Tools:
    """Objects that a process makes once; the tokenizer's cache of words does not change results."""

    tokenizer: FastTokenizer
    strings: TokenStrings
    rule: MaskingRule


@lru_cache(maxsize=1)
def _tools(vocab_file: str, settings: SampleSettings) -> _Tools:
    vocabulary = Vocabulary.from_file(vocab_file)
    limit = settings.max_predictions_per_seq or settings.pairs.target_seq_length
    rule = MaskingRule.of(
        vocabulary,
        masked_lm_ratio=settings.masked_lm_ratio,
        max_predictions_per_seq=limit,
        whole_word=settings.whole_word_masking,
    )
    return _Tools(FastTokenizer(vocabulary, settings.lowercase), TokenStrings(vocabulary), rule)


def tools_of(job: Job) -> _Tools:
    """The tools of a job; if made before processes are forked, all of them share the memory."""
    return _tools(job.vocab_file, job.settings)


def make_block(job: Job, folder: Path, block: Block) -> dict:
    """Make the samples of one block, unless they exist; returns {"counts": ..., "samples": per bin}."""
    index = block.index
    record = folder / f"{index}.json"
    if record.exists():
        return json.loads(record.read_bytes())
    settings = job.settings
    counts: Counter = Counter()
    tools = tools_of(job)
    tokenizer = tools.tokenizer
    texts = _sampled(numbered_documents(block, counts), settings, index, counts)
    segmenter = word_segmenter(settings.word_segmenter) if settings.word_segmenter else None
    packs = settings.objective == "mlm"
    longest = None if packs else settings.pairs.longest_sentence()
    documents = tokenize_documents(texts, tokenizer, settings.language, counts, segmenter, longest)
    if packs:
        sep_id = tokenizer.vocabulary.id_of("[SEP]")
        documents, spans = pack_documents(documents, settings.pairs, index, sep_id, counts)
    else:
        num_own = len(documents.document_offsets) - 1
        if needs_others(documents) and (borrowed := borrowed_texts(folder, block, settings.pairs.seed)):
            others = tokenize_documents(
                enumerate(borrowed), tokenizer, settings.language, Counter(), segmenter, longest
            )
            documents = joined(documents, others)
            counts["blocks of one long document, whose random next sentences are of other blocks"] += 1
        spans = draw_pairs(documents, settings.pairs, index, counts, num_own)
    bins = _bins_of(spans.lengths(), settings.bin_size)
    ids = np.concatenate([np.zeros(0, np.int64), *bins])
    write_block(_block_path(folder, index), documents.token_ids, spans.take(ids), ids, documents.continues)
    result = {"counts": dict(sorted(counts.items())), "samples": [len(rows) for rows in bins]}
    write_atomically(record, json.dumps(result).encode())
    return result


def _bins_of(lengths: np.ndarray, bin_size: int | None) -> list[np.ndarray]:
    """Rows of each bin; bin i holds num_tokens in (i * bin_size, (i + 1) * bin_size]; no empty bins at the end."""
    if bin_size is None:
        return [np.arange(len(lengths))]
    bin_of = (lengths - 1) // bin_size
    return [np.flatnonzero(bin_of == bin_id) for bin_id in range(int(bin_of.max()) + 1 if len(lengths) else 0)]


def _sampled(
    texts: Iterator[tuple[int, str]], settings: SampleSettings, block: int, counts: Counter
) -> Iterator[tuple[int, str]]:
    """The share `sample_ratio` of the documents, drawn by number."""
    key = stream_key(settings.pairs.seed, "documents", block)
    left_out = -1
    for number, text in texts:
        if settings.sample_ratio == 1.0 or uniform(key, np.array([number]))[0] < settings.sample_ratio:
            yield number, text
        else:
            counts["documents left out by sample_ratio"] += number != left_out
            left_out = number


def _block_path(folder: Path, index: int) -> Path:
    return folder / f"{index}.arrow"


@lru_cache(maxsize=2)
def _block(path: Path) -> BlockSamples:
    return read_block(path)


@lru_cache(maxsize=2)
def _text(path: Path, strings: TokenStrings) -> BlockText:
    return BlockText(*strings.spaced(_block(path).token_ids))


def make_shards(job: Job, folder: Path, plans: tuple[ShardPlan, ...]) -> list[dict]:
    """Write shards that are cut from nearly the same blocks, so that each block is read once; existing ones are kept.

    Returns:
        For each plan {"plan": its key, "shard": fields of its record, "masked tokens": their number}.
    """
    found = {plan.name: record for plan in plans if (record := _record_of(job, folder, plan)) is not None}
    missing = [plan for plan in plans if plan.name not in found]
    if missing:
        found.update(_write_shards(job, folder, missing, _ROW_GROUP_BYTES // len(plans)))
    return [found[plan.name] for plan in plans]


def _record_of(job: Job, folder: Path, plan: ShardPlan) -> dict | None:
    """The record of a shard, or None unless the file exists with the recorded size and checksum."""
    record, path = folder / f"{plan.name}.json", Path(job.sink, plan.name)
    if record.exists() and path.exists():
        found = json.loads(record.read_bytes())
        if (
            found["plan"] == plan.key(job)
            and path.stat().st_size == found["shard"]["num_bytes"]
            and checksum_of_file(path) == found["shard"]["xxh128"]
        ):
            return found
    return None


def _write_shards(job: Job, folder: Path, plans: list[ShardPlan], row_group_bytes: int) -> dict[str, dict]:
    num_samples, num_masked = Counter[int](), Counter[int]()
    pieces = sorted(
        (piece.block, index, piece.start, piece.stop) for index, plan in enumerate(plans) for piece in plan.pieces
    )
    with ExitStack() as files:
        paths = [files.enter_context(atomic_path(Path(job.sink, plan.name))) for plan in plans]
        with ExitStack() as writing:
            writers = [
                writing.enter_context(
                    ShardWriter(path, job.output_format, plan.bin_id, job.compression, row_group_bytes)
                )
                for path, plan in zip(paths, plans, strict=True)
            ]
            for block, index, start, stop in pieces:
                for part, masked in _parts(job, folder, Piece(block, start, stop)):
                    writers[index].write(part)
                    num_samples[index] += len(part)
                    num_masked[index] += masked
        shards = [
            ShardRecord(num_samples[index], path.stat().st_size, checksum_of_file(path), plan.bin_id)
            for index, (path, plan) in enumerate(zip(paths, plans, strict=True))
        ]
    results = {
        plan.name: {"plan": plan.key(job), "shard": asdict(shard), "masked tokens": num_masked[index]}
        for index, (plan, shard) in enumerate(zip(plans, shards, strict=True))
    }
    for name, result in results.items():
        write_atomically(folder / f"{name}.json", json.dumps(result).encode())
    return results


def cut_one(job: Job, folder: Path, plan: ShardPlan) -> None:
    """Cut and discard the first sample of a shard, so that processes forked later have the compiled loops."""
    first = plan.pieces[0]
    next(_parts(job, folder, Piece(first.block, first.start, first.start + 1)))


def _parts(job: Job, folder: Path, piece: Piece) -> Iterator[tuple[pa.Table, int]]:
    """The rows of a piece as tables of some thousand rows, each with its number of masks."""
    tools = tools_of(job)
    path = _block_path(folder, piece.block)
    block = _block(path)
    key = stream_key(job.settings.pairs.seed, "static masks", piece.block)
    for start in range(piece.start, piece.stop, _ROWS_AT_ONCE):
        rows = slice(start, min(start + _ROWS_AT_ONCE, piece.stop))
        spans = block.spans.take(rows)
        masks = None
        if job.settings.masking == "static":
            masks = draw_masks(block.token_ids, spans, block.ids[rows], tools.rule, key, block.continues)
        if job.output_format == "parquet":
            table = text_columns(_text(path, tools.strings), spans, masks, tools.strings, block.continues)
        else:
            samples = spans_to_table(block.token_ids, spans, tools.tokenizer.vocabulary, block.continues)
            table = arrow_columns(masks.applied_to(samples) if masks else samples)
        yield table, len(masks.positions) if masks else 0


def remove_other_shards(job: Job, plans: list[ShardPlan]) -> None:
    """Remove the shards that a killed run with the same samples but another --num-shards or format left in the sink."""
    names = {plan.name for plan in plans}
    others = [path for path in Path(job.sink).iterdir() if _SHARD_NAME.fullmatch(path.name) and path.name not in names]
    if others:
        Path(job.sink, MANIFEST_NAME).unlink(missing_ok=True)  # first, because it lists the shards
    for path in others:
        path.unlink()


def plan_shards(samples: list[list[int]], binned: bool, num_shards: int | None, output_format: str) -> list[ShardPlan]:
    """The shards to write from the numbers of samples per block and bin.

    Without num_shards, one part per block and bin that is not empty; otherwise num_shards per bin (fewer where a bin
    has fewer samples), whose sizes differ by at most one. LDDL's loader wants bins numbered from 0 without gaps and
    without empty ones: if a bin has no samples, the bins above it move down by one.
    """
    plans: list[ShardPlan] = []
    number_of_bin = -1
    for bin_id in range(max(map(len, samples), default=0)):
        counts = [block[bin_id] if bin_id < len(block) else 0 for block in samples]
        if not sum(counts):
            continue
        number_of_bin += 1
        suffix, shown = (f"_{number_of_bin}", number_of_bin) if binned else ("", None)
        if num_shards is None:
            plans += [
                ShardPlan(
                    f"part.{block}.{output_format}{suffix}",
                    block,
                    shown,
                    _shifted((Piece(block, 0, count),), samples, bin_id),
                )
                for block, count in enumerate(counts)
                if count
            ]
            continue
        total = sum(counts)
        number = min(num_shards, total)
        edges = [total * shard // number for shard in range(number + 1)] if number else []
        plans += [
            ShardPlan(f"shard-{shard}.{output_format}{suffix}", shard, shown, _shifted(pieces, samples, bin_id))
            for shard, pieces in enumerate(cut(counts, edges))
        ]
    return plans


def _shifted(pieces: tuple[Piece, ...], samples: list[list[int]], bin_id: int) -> tuple[Piece, ...]:
    """Convert rows of a bin to rows of the block, whose file contains its bins one after the other."""
    shifts = [sum(samples[piece.block][:bin_id]) for piece in pieces]
    return tuple(
        Piece(piece.block, piece.start + shift, piece.stop + shift) for piece, shift in zip(pieces, shifts, strict=True)
    )


def cut(counts: list[int], edges: list[int]) -> list[tuple[Piece, ...]]:
    """Cut the rows of all inputs, in order, at `edges`; returns the pieces of inputs in each range."""
    offsets = offsets_of(counts).tolist()
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

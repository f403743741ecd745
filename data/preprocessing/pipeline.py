"""The two steps of preprocessing: blocks of source text become files of samples, and these become shards.

Both are pure functions of their arguments, so any process of any machine may run them. The first writes the samples of
a block, by bin, to a file below the sink: its tokens, and the ranges of tokens that are pairs, in about half the space
of the source and a little more for each repetition of the documents (--duplicate-factor). The second cuts shards of
any format from these files. Every file is written atomically, and an existing one is not made again, so repeating a
killed command resumes it.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from bert.arrays.ragged import offsets_of
from bert.files import atomic_path, checksum_of_file, sha256_of, write_atomically
from bert.randomness import hash64, stream_key, uniform
from bert.samples.formats.arrow import arrow_columns
from bert.samples.formats.parquet import parquet_columns
from bert.samples.formats.shard_writer import ShardWriter
from bert.samples.manifest import MANIFEST_NAME, UNFINISHED_NAME, ShardRecord
from bert.samples.masking import MaskingRule, choose_positions, corrupt
from bert.samples.sample_table import SampleTable, StaticMasks
from bert.tokenization.library import TextTokenizer, text_tokenizer
from bert.tokenization.token_strings import TokenStrings
from bert.tokenization.vocabulary_files import read_vocabulary
from data.preprocessing.pairs import Spans, draw_pairs, pack_documents, pack_separately, spans_to_table
from data.preprocessing.problems import MOST_UNKNOWN, unknown_words
from data.preprocessing.settings import SampleSettings
from data.text.lddl_reader import Block, SourceFile, numbered_documents
from data.text.sentences import TokenizedDocuments, tokenize_documents
from data.text.word_boundaries import word_segmenter

_SHARD_NAME = re.compile(r"(?:part\.|shard-)\d+\.(?:parquet|arrow)(?:_\d+)?")
_ROWS_AT_ONCE = 8192
_ROW_GROUP_BYTES = 256 << 20  # of all the shards together that a process writes at a time
_SAMPLED, _UNKNOWN_KEPT = 1_000, 100  # documents, and characters of each, in which unknown words are counted
_VERSION = 3  # version of the algorithm: a run must not continue with the samples of another version


@dataclass(frozen=True)
class ShardJob:
    """All that workers need besides the block or shards to make. `key` comes from `samples_key`."""

    settings: SampleSettings
    vocab_file: str
    sink: Path
    output_format: str
    compression: str
    key: str

    @property
    def folder(self) -> Path:
        """Folder of the blocks' files until all shards are written."""
        return self.sink / UNFINISHED_NAME / self.key


def samples_key(settings: SampleSettings, vocabulary_sha256: str, sources: Sequence[SourceFile]) -> str:
    """Cache key of the samples: hash of settings, vocabulary, and names, sizes and times of the sources."""
    files = [(source.path, source.num_bytes, Path(source.path).stat().st_mtime_ns) for source in sources]
    content = json.dumps([_VERSION, settings.record(), vocabulary_sha256, files], sort_keys=True)
    return sha256_of(content.encode())[:16]


@lru_cache(maxsize=1)
def _tools(vocab_file: str, settings: SampleSettings) -> tuple[TextTokenizer, TokenStrings, MaskingRule]:
    """Objects that a process makes once; the tokenizer's cache of words does not change results."""
    vocabulary = read_vocabulary(vocab_file)
    rule = MaskingRule.of(
        vocabulary,
        masked_lm_ratio=settings.masked_lm_ratio,
        max_predictions_per_seq=settings.max_predictions_per_seq or settings.pairs.target_seq_length,
        whole_word=settings.whole_word_masking,
    )
    return text_tokenizer(vocabulary, settings.normalization()), TokenStrings(vocabulary), rule


def make_block(job: ShardJob, block: Block) -> dict:
    """Make the samples of one block, unless they exist; returns {"counts": ..., "samples": number in each bin}.

    If the block has many unknown words, "unknown words" counts them in a part of it.
    """
    record = job.folder / f"{block.index}.json"
    if record.exists() and _block_path(job, block.index).exists():  # earlier versions wrote another kind of file
        return json.loads(record.read_bytes())
    settings, counts = job.settings, Counter[str]()
    tokenizer, *_ = _tools(job.vocab_file, settings)
    segmenter = word_segmenter(settings.word_segmenter) if settings.word_segmenter and not settings.cutter() else None
    packs = settings.objective == "mlm"
    how = segmenter, None if packs else settings.pairs.longest_sentence()
    texts = _sampled(numbered_documents(block, counts), settings, block.index, counts)
    documents = tokenize_documents(texts, tokenizer, settings.language, counts, *how)
    if settings.separate_documents:
        vocabulary = tokenizer.vocabulary
        documents, spans = pack_separately(documents, settings.pairs, block.index, vocabulary, counts)
    elif packs:
        sep_id = tokenizer.vocabulary.id_of("[SEP]")
        documents, spans = pack_documents(documents, settings.pairs, block.index, sep_id, counts)
    else:
        spans = draw_pairs(documents, settings.pairs, block.index, counts)
    bins = _bins_of(spans.lengths(), settings.bin_size)
    _write_block(_block_path(job, block.index), documents, spans, np.concatenate([np.zeros(0, np.int64), *bins]))
    result = {"counts": dict(sorted(counts.items())), "samples": [len(rows) for rows in bins]}
    if counts["unknown tokens"] > MOST_UNKNOWN * counts["tokens"]:
        parts = (text for _, text in islice(numbered_documents(block, Counter()), _SAMPLED))
        sample = [
            text if len(text) <= _SAMPLED else text[:_SAMPLED].rpartition(" ")[0] or text[:_SAMPLED] for text in parts
        ]
        result["unknown words"] = dict(unknown_words(sample, tokenizer).words.most_common(_UNKNOWN_KEPT))
    write_atomically(record, json.dumps(result).encode())
    return result


def _sampled(
    texts: Iterator[tuple[int, str]], settings: SampleSettings, block: int, counts: Counter
) -> Iterator[tuple[int, str]]:
    """A random share `sample_ratio` of the documents, drawn by number."""
    key = stream_key(settings.pairs.seed, "documents", block)
    left_out = -1
    for number, text in texts:
        if settings.sample_ratio == 1.0 or uniform(key, np.array([number]))[0] < settings.sample_ratio:
            yield number, text
        else:
            counts["documents left out by sample_ratio"] += number != left_out
            left_out = number


def _bins_of(lengths: np.ndarray, bin_size: int | None) -> list[np.ndarray]:
    """Rows of each bin: bin i has num_tokens in (i * bin_size, (i + 1) * bin_size]; no empty bins at the end."""
    if bin_size is None:
        return [np.arange(len(lengths))]
    bin_of = (lengths - 1) // bin_size
    return [np.flatnonzero(bin_of == bin_id) for bin_id in range(int(bin_of.max()) + 1 if len(lengths) else 0)]


def _block_path(job: ShardJob, index: int) -> Path:
    return job.folder / f"{index}.npz"


def _write_block(path: Path, documents: TokenizedDocuments, spans: Spans, ids: np.ndarray) -> None:
    columns = {"token_ids": documents.token_ids, "ids": ids, **vars(spans.take(ids))}
    if documents.continues is not None:
        columns["continues"] = documents.continues
    stream = io.BytesIO()
    np.savez(stream, **columns)
    write_atomically(path, stream.getbuffer())


@lru_cache(maxsize=2)
def _read_block(path: Path) -> tuple[np.ndarray, np.ndarray | None, Spans, np.ndarray]:
    """Read a block: tokens, continuation marks, pairs by bin, and the number that seeds a pair's masks."""
    with np.load(path) as file:
        spans = Spans(*(file[field.name] for field in fields(Spans)))
        return file["token_ids"], file.get("continues"), spans, file["ids"]


@dataclass(frozen=True)
class RowRange:
    """Rows start..stop-1 of one block."""

    block: int
    start: int
    stop: int


@dataclass(frozen=True)
class ShardPlan:
    """A shard to write: its file name, number, bin (None without bins) and rows.

    Shards of the same number are cut from nearly the same blocks.
    """

    name: str
    number: int
    bin_id: int | None
    pieces: tuple[RowRange, ...]

    def key(self, job: ShardJob) -> str:
        """Cache key of the shard's bytes."""
        return sha256_of(json.dumps([asdict(self), job.output_format, job.compression]).encode())


def plan_shards(samples: list[list[int]], binned: bool, num_shards: int | None, output_format: str) -> list[ShardPlan]:
    """Plan the shards, from the number of samples in each block and bin.

    Without num_shards, one part per block and bin that is not empty; otherwise num_shards per bin (fewer where a bin
    has fewer samples), whose sizes differ by at most one. LDDL's loader wants bins numbered from 0 without gaps and
    without empty ones: if a bin has no samples, the bins above it move down by one.
    """
    counts = np.zeros((len(samples), max(map(len, samples), default=0)), np.int64)
    for block, of_bins in enumerate(samples):
        counts[block, : len(of_bins)] = of_bins
    first_rows = np.cumsum(counts, axis=1) - counts  # the file of a block contains its bins one after the other
    plans = []
    for number, bin_id in enumerate(np.flatnonzero(counts.sum(axis=0)).tolist()):
        of_blocks, shifts = counts[:, bin_id].tolist(), first_rows[:, bin_id].tolist()
        if num_shards is None:
            names = {f"part.{block}": block for block, count in enumerate(of_blocks) if count}
            cuts: list[tuple[RowRange, ...]] = [(RowRange(block, 0, of_blocks[block]),) for block in names.values()]
        else:
            cuts = cut(of_blocks, min(num_shards, sum(of_blocks)))
            names = {f"shard-{shard}": shard for shard in range(len(cuts))}
        for (name, place), pieces in zip(names.items(), cuts, strict=True):
            rows = tuple(RowRange(p.block, p.start + shifts[p.block], p.stop + shifts[p.block]) for p in pieces)
            suffix, bin_number = (f"_{number}", number) if binned else ("", None)
            plans.append(ShardPlan(f"{name}.{output_format}{suffix}", place, bin_number, rows))
    return plans


def cut(counts: list[int], num_parts: int) -> list[tuple[RowRange, ...]]:
    """Divide the rows of all inputs, in order, into parts whose sizes differ by at most one."""
    offsets = offsets_of(counts).tolist()
    edges = [offsets[-1] * part // num_parts for part in range(num_parts + 1)]
    parts = []
    for low, high in zip(edges[:-1], edges[1:], strict=True):
        block = int(np.searchsorted(offsets, low, side="right")) - 1
        pieces = []
        while block < len(counts) and offsets[block] < high:
            start, stop = max(low, offsets[block]) - offsets[block], min(high, offsets[block + 1]) - offsets[block]
            if start < stop:
                pieces.append(RowRange(block, start, stop))
            block += 1
        parts.append(tuple(pieces))
    return parts


def remove_other_shards(job: ShardJob, plans: list[ShardPlan]) -> None:
    """Remove shards in the sink that a killed run made from the same samples with another number or format."""
    names = {plan.name for plan in plans}
    others = [path for path in job.sink.iterdir() if _SHARD_NAME.fullmatch(path.name) and path.name not in names]
    if others:
        (job.sink / MANIFEST_NAME).unlink(missing_ok=True)  # first, because it lists the shards
    for path in others:
        path.unlink()


def make_shards(job: ShardJob, plans: tuple[ShardPlan, ...]) -> list[dict]:
    """Write shards from nearly the same blocks, so that each block is read once; existing shards are kept.

    Returns:
        For each plan {"plan": its key, "shard": fields of its record, "masked tokens": their number}.
    """
    records = {plan.name: record for plan in plans if (record := _record_of(job, plan)) is not None}
    missing = [plan for plan in plans if plan.name not in records]
    if missing:
        records |= _write_shards(job, missing, _ROW_GROUP_BYTES // len(plans))
    return [records[plan.name] for plan in plans]


def _record_of(job: ShardJob, plan: ShardPlan) -> dict | None:
    """Record of a shard; None unless the file has the recorded size and checksum."""
    record, path = job.folder / f"{plan.name}.json", job.sink / plan.name
    if record.exists() and path.exists():
        content = json.loads(record.read_bytes())
        shard = content["shard"]
        if content["plan"] == plan.key(job) and path.stat().st_size == shard["num_bytes"]:
            return content if checksum_of_file(path) == shard["xxh128"] else None
    return None


def _write_shards(job: ShardJob, plans: list[ShardPlan], row_group_bytes: int) -> dict[str, dict]:
    num_samples, num_masked = Counter[int](), Counter[int]()
    pieces = sorted(
        (piece.block, index, piece.start, piece.stop) for index, plan in enumerate(plans) for piece in plan.pieces
    )
    with ExitStack() as files:
        writers = []
        for plan in plans:
            path = files.enter_context(atomic_path(job.sink / plan.name))
            writer = ShardWriter(path, job.output_format, plan.bin_id, job.compression, row_group_bytes)
            writers.append(files.enter_context(writer))
        for block, index, start, stop in pieces:
            for part, masked in _parts(job, RowRange(block, start, stop)):
                writers[index].write(part)
                num_samples[index] += len(part)
                num_masked[index] += masked
    results = {}
    for index, plan in enumerate(plans):
        path = job.sink / plan.name
        shard = ShardRecord(num_samples[index], path.stat().st_size, checksum_of_file(path), plan.bin_id)
        result = {"plan": plan.key(job), "shard": asdict(shard), "masked tokens": num_masked[index]}
        write_atomically(job.folder / f"{plan.name}.json", json.dumps(result).encode())
        results[plan.name] = result
    return results


def cut_one(job: ShardJob, plan: ShardPlan) -> None:
    """Cut the first sample of a shard and discard it, so that processes forked later share the compiled loops."""
    first = plan.pieces[0]
    next(_parts(job, RowRange(first.block, first.start, first.start + 1)))


def _parts(job: ShardJob, piece: RowRange) -> Iterator[tuple[pa.Table, int]]:
    """Rows of a piece as tables of some thousand rows, each with its number of masks."""
    _, strings, rule = _tools(job.vocab_file, job.settings)
    token_ids, continues, spans, ids = _read_block(_block_path(job, piece.block))
    key = stream_key(job.settings.pairs.seed, "static masks", piece.block)
    for start in range(piece.start, piece.stop, _ROWS_AT_ONCE):
        rows = slice(start, min(start + _ROWS_AT_ONCE, piece.stop))
        samples = spans_to_table(token_ids, spans.take(rows), strings.vocabulary, continues)
        if job.settings.masking == "static":
            samples = _masked(samples, hash64(key, ids[rows]), rule, job.settings.separate_documents)
        table = parquet_columns(samples, strings) if job.output_format == "parquet" else arrow_columns(samples)
        yield table, len(samples.masks.positions) if samples.masks else 0


def _masked(samples: SampleTable, keys: np.ndarray, rule: MaskingRule, is_separate: bool) -> SampleTable:
    """Add static masks, drawn by the rule of dynamic ones from each sample's key."""
    starts, continues = samples.offsets[:-1], samples.continues
    barred = rule.separators[samples.token_ids] & is_separate
    barred[starts] = barred[starts + samples.first_lengths - 1] = barred[samples.offsets[1:] - 1] = True
    if rule.continuations is not None and continues is None:
        continues = rule.continuations[samples.token_ids]
    positions, offsets = choose_positions(rule, keys, barred, starts, samples.lengths(), continues)
    rows = np.repeat(np.arange(len(samples)), np.diff(offsets))
    is_maskable = ~rule.separators[
        samples.token_ids[starts[rows] + positions]
    ]  # not the [SEP] between two packed documents
    rows, positions = rows[is_maskable], positions[is_maskable]
    flat, ids = starts[rows] + positions, samples.token_ids.copy()
    labels = ids[flat]
    ids[flat] = corrupt(rule, keys[rows], positions, labels)
    masks = StaticMasks(offsets_of(np.bincount(rows, minlength=len(samples))), positions.astype(np.uint16), labels)
    return replace(samples, token_ids=ids, masks=masks)

"""Blocks and shards compared with their source text: bins, equal sizes, masks, omitted documents."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.randomness import hash64, stream_key, uniform
from bert.samples.manifest import UNFINISHED_NAME, Manifest, ShardRecord, write_manifest
from bert.samples.masking import MaskingRule, choose_positions, corrupt
from bert.samples.sample_table import concatenate
from bert.samples.shards import ShardDirectory
from bert.tokenization.wordpiece import WordPieceTokenizer
from data.preprocessing.pairs import draw_pairs, pack_documents, pack_separately, spans_to_table
from data.preprocessing.pipeline import (
    RowRange,
    ShardJob,
    cut,
    make_block,
    make_shards,
    plan_shards,
    remove_other_shards,
    samples_key,
)
from data.preprocessing.settings import PairSettings, SampleSettings
from data.text.lddl_reader import SourceFile, list_sources, numbered_documents, plan_blocks
from data.text.sentences import tokenize_documents
from tests.support.corpora import vocabulary, write_source, write_vocabulary

WORDS = vocabulary()
CLS, SEP = WORDS.id_of("[CLS]"), WORDS.id_of("[SEP]")
_COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=7)


def rows_of(pieces) -> list[tuple[int, int]]:
    return [(piece.block, row) for piece in pieces for row in range(piece.start, piece.stop)]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(_COUNTS, st.integers(1, 12))
def test_rows_are_cut_in_order_into_parts_of_nearly_equal_size(counts, num_parts):
    parts = cut(counts, num_parts)
    rows = [(block, row) for block, count in enumerate(counts) for row in range(count)]
    assert [row for part in parts for row in rows_of(part)] == rows
    sizes = [len(rows_of(part)) for part in parts]
    assert len(sizes) == num_parts and max(sizes) - min(sizes) <= 1
    assert all(piece.start < piece.stop for part in parts for piece in part)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(st.lists(st.integers(0, 5), max_size=4), min_size=1, max_size=5), st.sampled_from([None, 1, 3]))
def test_every_sample_is_in_one_shard_of_its_bin_and_bins_have_no_gaps(samples, num_shards):
    plans = plan_shards(samples, True, num_shards, "arrow")
    width = max(map(len, samples))
    full = [bin_id for bin_id in range(width) if sum(row[bin_id] for row in samples if bin_id < len(row))]
    expected: dict[int, list[tuple[int, int]]] = {number: [] for number in range(len(full))}
    for block, counts in enumerate(samples):
        first = 0
        for bin_id, count in enumerate(counts):
            expected.get(full.index(bin_id) if bin_id in full else -1, []).extend(
                (block, row) for row in range(first, first + count)
            )
            first += count
    found: dict[int, list[tuple[int, int]]] = {number: [] for number in range(len(full))}
    for plan in plans:
        found[plan.bin_id] += rows_of(plan.pieces)
        base = f"part.{plan.pieces[0].block}" if num_shards is None else f"shard-{plan.number}"
        assert plan.name == f"{base}.arrow_{plan.bin_id}" and rows_of(plan.pieces)
    assert found == expected
    for number in range(len(full)):
        own = [plan for plan in plans if plan.bin_id == number]
        blocks = [block for block, _ in dict.fromkeys(expected[number])]
        assert len(own) == (len({*blocks}) if num_shards is None else min(num_shards, len(expected[number])))
    unbinned = plan_shards([[3], [2]], False, 2, "parquet")
    assert [(plan.name, plan.bin_id) for plan in unbinned] == [("shard-0.parquet", None), ("shard-1.parquet", None)]
    assert [rows_of(plan.pieces) for plan in unbinned] == [[(0, 0), (0, 1)], [(0, 2), (1, 0), (1, 1)]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    root = tmp_path_factory.mktemp("corpus")
    write_vocabulary(root / "vocab.txt")
    write_source(root / "text", num_documents=30)
    return root


def job_of(corpus: Path, sink: Path, settings: SampleSettings, output_format: str = "arrow") -> ShardJob:
    (sink / UNFINISHED_NAME / "key").mkdir(parents=True)
    return ShardJob(settings, str(corpus / "vocab.txt"), sink, output_format, "none", "key")


def blocks_of(corpus: Path, settings: SampleSettings):
    return plan_blocks(list_sources([corpus / "text"]), settings.block_bytes)


PAIRS = PairSettings(40, duplicate_factor=2)
KINDS = {
    "pairs": SampleSettings(PAIRS, 4000, bin_size=12),
    "static masks": SampleSettings(PAIRS, 4000, bin_size=12, masking="static", max_predictions_per_seq=5),
    "whole words": SampleSettings(PAIRS, 4000, masking="static", whole_word_masking=True, masked_lm_ratio=0.3),
    "packed": SampleSettings(PairSettings(40, 0.0), 4000, masking="static", objective="mlm"),
    "separate": SampleSettings(
        PairSettings(40, 0.0), 4000, masking="static", objective="mlm", separate_documents=True, masked_lm_ratio=0.5
    ),
    "a part": SampleSettings(PAIRS, 4000, sample_ratio=0.5),
}


def samples_of(corpus: Path, settings: SampleSettings, number: int, counts: Counter):
    """Return the sample table of a block before its division into bins, in the order in which pairs are drawn."""
    block = blocks_of(corpus, settings)[number]
    texts, key = list(numbered_documents(block, Counter())), stream_key(settings.pairs.seed, "documents", number)
    taken = [pair for pair in texts if uniform(key, np.array([pair[0]]))[0] < settings.sample_ratio]
    longest = None if settings.objective == "mlm" else (settings.pairs.target_seq_length - 3) // 2
    tokenizer = WordPieceTokenizer(WORDS)
    documents = tokenize_documents(taken, tokenizer, "en", counts, max_sentence_tokens=longest)
    if settings.separate_documents:
        documents, spans = pack_separately(documents, settings.pairs, number, WORDS, counts)
    elif settings.objective == "mlm":
        documents, spans = pack_documents(documents, settings.pairs, number, SEP, counts)
    else:
        spans = draw_pairs(documents, settings.pairs, number, counts)
    return spans_to_table(documents.token_ids, spans, WORDS)


def masked_row(ids: np.ndarray, first_length: int, settings: SampleSettings, key: np.uint64):
    """Return (tokens with masks, positions, labels): every token but [CLS] and [SEP], up to the limit."""
    rule = MaskingRule.of(
        WORDS,
        masked_lm_ratio=settings.masked_lm_ratio,
        max_predictions_per_seq=settings.max_predictions_per_seq or settings.pairs.target_seq_length,
        whole_word=settings.whole_word_masking,
    )
    barred = np.zeros(len(ids), bool)
    barred[[0, first_length - 1, -1]] = True
    if settings.separate_documents:
        barred |= np.isin(ids, [CLS, SEP])
    keys, whole = np.array([key], np.uint64), (np.array([0]), np.array([len(ids)]))
    positions, _ = choose_positions(rule, keys, barred, *whole, WORDS.continuations()[ids])
    positions = positions[~np.isin(ids[positions], [CLS, SEP])]
    shown = ids.copy()
    shown[positions] = corrupt(rule, np.repeat(keys, len(positions)), positions, ids[positions])
    return shown.tolist(), positions.tolist(), ids[positions].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_shards_hold_the_samples_of_their_blocks_by_bin_with_masks(corpus, tmp_path, kind):
    settings, sink = KINDS[kind], tmp_path / "sink"
    job, blocks = job_of(corpus, sink, settings), blocks_of(corpus, settings)
    made = [make_block(job, block) for block in blocks]
    plans = plan_shards([record["samples"] for record in made], settings.bin_size is not None, None, "arrow")
    records = make_shards(job, tuple(plans))
    of_shards = {plan.name: ShardRecord(**record["shard"]) for plan, record in zip(plans, records, strict=True)}
    write_manifest(sink, Manifest(of_shards, WORDS.sha256))
    shards = ShardDirectory(sink, WORDS, 40)  # compares numbers, sizes and checksums
    for number, record in enumerate(made):
        counts = Counter()
        expected = samples_of(corpus, settings, number, counts)
        bins = [(length - 1) // settings.bin_size if settings.bin_size else 0 for length in expected.lengths().tolist()]
        assert record["samples"] == [bins.count(bin_id) for bin_id in range(max(bins) + 1)]
        assert {name: record["counts"][name] for name in counts} == {**counts}
        order = sorted(range(len(expected)), key=lambda row: bins[row])  # stable: as drawn inside of a bin
        own = [index for index, shard in enumerate(shards.shards) if shard.number == number]
        found, place = concatenate([shards.load(index) for index in own]), 0
        key = stream_key(settings.pairs.seed, "static masks", number)
        for row in order:
            ids = expected.token_ids[expected.offsets[row] : expected.offsets[row + 1]]
            tokens = found.token_ids[found.offsets[place] : found.offsets[place + 1]].tolist()
            first = int(expected.first_lengths[row])
            if settings.masking == "static":
                shown, positions, labels = masked_row(ids, first, settings, hash64(key, np.array([row]))[0])
                masks = slice(*found.masks.offsets[place : place + 2])
                assert (found.masks.positions[masks].tolist(), found.masks.labels[masks].tolist()) == (
                    positions,
                    labels,
                )
                assert tokens == shown
            else:
                assert tokens == ids.tolist() and found.masks is None
            assert found.first_lengths[place] == first and found.is_random_next[place] == expected.is_random_next[row]
            place += 1
        assert place == len(found)
    masked = [shards.load(index).masks for index in range(len(plans))]
    assert sum(record["masked tokens"] for record in records) == sum(len(m.positions) for m in masked if m)


def test_documents_that_are_left_out_are_counted_once(corpus, tmp_path):
    settings = KINDS["a part"]
    for number, block in enumerate(blocks_of(corpus, settings)):
        counts = make_block(job_of(corpus, tmp_path / str(number), settings), block)["counts"]
        read = len({place for place, _ in numbered_documents(block, Counter())})
        assert counts["documents left out by sample_ratio"] + counts["documents used"] == read
        assert 0 < counts["documents used"] < read


def test_a_block_that_is_there_is_not_made_again_unless_its_file_is_missing(corpus, tmp_path):
    job, block = job_of(corpus, tmp_path, KINDS["pairs"]), blocks_of(corpus, KINDS["pairs"])[0]
    made = make_block(job, block)
    record, file = job.folder / "0.json", job.folder / "0.npz"
    content = file.read_bytes()
    record.write_text('{"samples": [1], "counts": {}}')
    assert make_block(job, block) == {"samples": [1], "counts": {}} and file.read_bytes() == content
    file.unlink()
    assert make_block(job, block) == made and file.read_bytes() == content


def test_the_key_of_samples_changes_with_all_that_decides_them(corpus, tmp_path):
    path = tmp_path / "0.txt"
    path.write_text("id The sea.\n")
    os.utime(path, ns=(10**18, 10**18))
    source, settings = SourceFile(str(path), 12), KINDS["pairs"]
    keys = [samples_key(settings, "sha", [source]), samples_key(settings, "other", [source])]
    keys.append(samples_key(replace(settings, pairs=replace(PAIRS, seed=1)), "sha", [source]))
    keys.append(samples_key(settings, "sha", [SourceFile(str(path), 13)]))
    keys.append(samples_key(settings, "sha", [source, source]))
    os.utime(path, ns=(10**18, 10**18 + 1))
    keys.append(samples_key(settings, "sha", [source]))
    assert len({*keys}) == 6 and all(len(key) == 16 for key in keys)
    os.utime(path, ns=(10**18, 10**18))
    assert samples_key(settings, "sha", [source]) == keys[0]


def test_unknown_words_of_a_block_are_recorded_when_they_are_many(corpus, tmp_path):
    (tmp_path / "text/source").mkdir(parents=True)
    (tmp_path / "text/source/0.txt").write_text("id-1 The sea. \u00df runs. \u00df \u00df \u0416 runs.\n" * 3)
    settings = SampleSettings(PairSettings(16), 1 << 20)
    made = make_block(job_of(corpus, tmp_path / "out", settings), *blocks_of(tmp_path, settings))
    assert made["unknown words"] == {"\u00df": 9, "\u0416": 3}
    assert made["counts"]["unknown tokens"] == 12
    (tmp_path / "text/source/0.txt").write_text("id-1 " + "The sea runs. " * 100 + "\u00df\n")
    made = make_block(job_of(corpus, tmp_path / "few", settings), *blocks_of(tmp_path, settings))
    assert "unknown words" not in made and made["counts"]["unknown tokens"] == 1


def test_a_shard_that_was_damaged_is_made_again_and_an_intact_one_is_kept(corpus, tmp_path):
    settings, sink = KINDS["pairs"], tmp_path / "sink"
    job, blocks = job_of(corpus, sink, settings), blocks_of(corpus, settings)
    plans = tuple(plan_shards([make_block(job, block)["samples"] for block in blocks], True, 2, "arrow"))
    records = make_shards(job, plans)
    paths = [sink / plan.name for plan in plans]
    bytes_of, times = [path.read_bytes() for path in paths], [path.stat().st_mtime_ns for path in paths]
    paths[1].write_bytes(bytes_of[1][:-1] + b"?")
    paths[2].unlink()
    assert make_shards(job, plans) == records
    assert [path.read_bytes() for path in paths] == bytes_of
    is_kept = [path.stat().st_mtime_ns == before for path, before in zip(paths, times, strict=True)]
    assert is_kept[0] and not is_kept[1] and not is_kept[2] and all(is_kept[3:])
    other = replace(plans[0], pieces=(RowRange(0, 0, 1),))
    assert make_shards(job, (other,))[0]["shard"]["num_samples"] == 1, "another plan of the same name"


def test_shards_of_another_number_or_format_are_removed_with_the_manifest_and_other_files_are_not(corpus, tmp_path):
    job = job_of(corpus, tmp_path, KINDS["pairs"])
    plans = plan_shards([[3, 2]], True, 1, "arrow")
    for name in (
        "shard-0.arrow_0",
        "shard-0.arrow_1",
        "shard-1.arrow_0",
        "part.0.parquet",
        "manifest.json",
        "my.arrow",
    ):
        (tmp_path / name).touch()
    remove_other_shards(job, plans)
    left = {"shard-0.arrow_0", "shard-0.arrow_1", "my.arrow", UNFINISHED_NAME}
    assert {path.name for path in tmp_path.iterdir()} == left
    (tmp_path / "manifest.json").touch()
    remove_other_shards(job, plans)
    assert (tmp_path / "manifest.json").exists()

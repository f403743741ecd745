"""Batches from rows of a table, and tables from rows, compared with plain lists."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.randomness import hash64, stream_key
from bert.samples.collation import CollationRule, padded_predictions, padded_width
from bert.samples.masking import MaskingRule, choose_positions, corrupt
from bert.samples.mixture import read_mixture, shares, write_mixture
from bert.samples.packing import Packing
from bert.samples.sample_table import (
    LocatedSamples,
    SampleTable,
    Slices,
    StaticMasks,
    concatenate,
    join_pairs,
    word_positions,
)
from tests.support.corpora import random_table, vocabulary

WORDS = vocabulary()
CLS, SEP, MASK = (WORDS.id_of(token) for token in ("[CLS]", "[SEP]", "[MASK]"))
KEY = stream_key(5, "test")


def rule(multiple=8, longest=30, dynamic=True, limit=4, whole_word=False, **settings) -> CollationRule:
    masking = MaskingRule.of(WORDS, masked_lm_ratio=0.15, max_predictions_per_seq=limit, whole_word=whole_word)
    return CollationRule(longest, multiple, WORDS.id_of("[PAD]"), masking, dynamic, **settings)


def lists(table: SampleTable) -> list[tuple]:
    """Return (tokens, first text's length with special tokens, is random next, masks, words) of each row."""
    rows = []
    for row in range(len(table)):
        own = slice(*table.offsets[row : row + 2])
        masks = table.masks and slice(*table.masks.offsets[row : row + 2])
        rows.append(
            (
                table.token_ids[own].tolist(),
                int(table.first_lengths[row]),
                bool(table.is_random_next[row]),
                masks
                and [*zip(table.masks.positions[masks].tolist(), table.masks.labels[masks].tolist(), strict=True)],
                None if table.continues is None else table.continues[own].tolist(),
            )
        )
    return rows


def with_words(table: SampleTable, seed: int) -> SampleTable:
    return replace(table, continues=np.random.default_rng(seed).random(len(table.token_ids)) < 0.4)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 8), min_size=1, max_size=9), st.booleans(), st.booleans(), st.integers(0, 99))
def test_rows_are_taken_and_joined_as_lists_are(rows, masked, has_words, seed):
    tables = [random_table(9, seed + number, masked) for number in range(2)]
    tables = [with_words(table, seed) for table in tables] if has_words else tables
    both, taken = concatenate(tables), tables[0].take(np.array(rows))
    assert lists(both) == lists(tables[0]) + lists(tables[1])
    assert lists(taken) == [lists(tables[0])[row] for row in rows]
    assert both.lengths().tolist() == [len(row[0]) for row in lists(both)]
    assert both.is_single().tolist() == [row[1] == len(row[0]) for row in lists(both)]
    original = [tokens[:] for tokens, *_ in lists(both)]
    for tokens, (*_, masks, _) in zip(original, lists(both), strict=True):
        for position, label in masks or []:
            tokens[position] = label
    assert [row[0] for row in lists(both.unmasked())] == original and both.unmasked().masks is None
    if has_words:
        positions, offsets = word_positions(both.continues, both.offsets)
        marked = [[place for place, inside in enumerate(row[4]) if inside] for row in lists(both)]
        found = [positions[low:high].tolist() for low, high in zip(offsets[:-1], offsets[1:], strict=True)]
        assert found == marked


@pytest.mark.parametrize("separators", [1, 2])
@pytest.mark.parametrize("single", [False, True])
def test_pairs_are_joined_with_their_special_tokens(separators, single):
    first, second = [[7, 8], [9], []], [[10], [], [11, 12]]
    slices = [
        Slices.of_rows(np.array(sum(rows, []), np.uint16), np.array([*map(len, rows)])) for rows in (first, second)
    ]
    if single and separators == 2:
        return
    ids, offsets = join_pairs(*slices, 1, 2, single, separators)
    expected = [
        [1, *a, 2] if single and not b else [1, *a, *[2] * separators, *b, 2]
        for a, b in zip(first, second, strict=True)
    ]
    assert [ids[low:high].tolist() for low, high in zip(offsets[:-1], offsets[1:], strict=True)] == expected


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 6)), min_size=1, max_size=12))
def test_samples_of_several_tables_are_gathered_in_their_order(places):
    tables = [random_table(7, number) for number in range(3)]
    table_of, rows = (np.array(column) for column in zip(*places, strict=True))
    samples = LocatedSamples(np.arange(len(places)), tables, table_of, rows)
    table, own = samples.gathered()
    assert lists(table.take(own)) == [lists(tables[number])[row] for number, row in places]
    assert samples.lengths().tolist() == [len(lists(tables[number])[row][0]) for number, row in places]
    part = samples.take(slice(1, 4))
    assert part.ids.tolist() == [*range(len(places))][1:4] and part.rows.tolist() == rows[1:4].tolist()


@pytest.mark.parametrize(("multiple", "width"), [(1, 13), (8, 16), (5, 15), (64, 30)])
def test_a_batch_is_as_wide_as_its_longest_row_rounded_up(multiple, width):
    assert padded_width(np.array([7, 13, 5]), multiple, 30) == width
    assert padded_width(np.array([8, 16]), 8, 30) == 16


@pytest.mark.parametrize(("number", "size"), [(0, 8), (1, 8), (8, 8), (9, 16)])
def test_predictions_are_padded_to_a_multiple_of_8(number, size):
    feed = padded_predictions(np.arange(1, number + 1), np.arange(20, 20 + number))
    assert feed["masked_lm_positions"].tolist() == [*range(1, number + 1)] + [0] * (size - number)
    assert feed["masked_lm_labels"].tolist() == [*range(20, 20 + number)] + [0] * (size - number)
    assert feed["masked_lm_weights"].tolist() == [1.0] * number + [0.0] * (size - number)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(0, 8), min_size=1, max_size=6),
    st.sampled_from(["static", "dynamic", "whole words", "words of the shards"]),
    st.integers(1, 9),
    st.integers(1, 3),
    st.booleans(),
)
def test_a_batch_is_the_rows_with_their_masks(rows, masking, multiple, limit, next_sentence):
    collation = rule(
        multiple, 40, masking != "static", limit, "word" in masking, next_sentence=next_sentence, cls_id=CLS
    )
    table = random_table(9, 3, masking == "static", shortest=8, num_masked=3, least_first=3)
    table = with_words(table, 1) if masking == "words of the shards" else table
    rows, sample_ids = np.array(rows), 1000 + np.arange(len(rows))
    batch = collation.collate(table, rows, KEY, sample_ids)
    width, counts, positions, labels = batch.feed["input_ids"].shape[1], [], [], []
    for number, row in enumerate(rows):
        tokens, first, is_random, masks, words = lists(table)[row]
        if masks is None:
            key = hash64(KEY, sample_ids[number : number + 1])
            ids = np.array(tokens)
            continues = WORDS.continuations()[ids] if words is None else np.array(words)
            arguments = collation.masking.separators[ids], np.array([0]), np.array([len(ids)]), continues
            own = choose_positions(collation.masking, key, *arguments)[0]
            masks = [*zip(own.tolist(), ids[own].tolist(), strict=True)]
            ids[own] = corrupt(collation.masking, np.repeat(key, len(own)), own, ids[own])
            tokens = ids.tolist()
        padding = [0] * (width - len(tokens))
        assert batch.feed["input_ids"][number].tolist() == tokens + padding
        assert batch.feed["attention_mask"][number].tolist() == [1] * len(tokens) + padding
        assert batch.feed["token_type_ids"][number].tolist() == [0] * first + [1] * (len(tokens) - first) + padding
        assert batch.feed["position_ids"][number].tolist() == [*range(width)]
        if next_sentence:
            assert batch.feed["next_sentence_labels"][number] == is_random
        positions += [number * width + position for position, _ in masks[:limit]]
        labels += [label for _, label in masks[:limit]]
        counts.append(len(masks[:limit]))
    assert ("next_sentence_labels" in batch.feed) == next_sentence
    assert batch.feed["masked_lm_positions"][: len(positions)].tolist() == positions
    assert batch.feed["masked_lm_labels"][: len(labels)].tolist() == labels
    assert collation.mask_counts(table, rows, KEY, sample_ids).tolist() == counts
    longest = max(len(lists(table)[row][0]) for row in rows)
    assert width == min(40, -(-longest // multiple) * multiple)
    real = sum(len(lists(table)[row][0]) for row in rows)
    facts = batch.num_sequences, batch.num_tokens, batch.num_padded_tokens, batch.num_masked, batch.num_documents
    assert facts == (len(rows), real, width * len(rows), len(labels), len(rows))
    assert batch.feed["masked_lm_normalizer"].tolist() == [len(labels)]
    assert collation.collate(table, rows, KEY, sample_ids, 2.5).feed["masked_lm_normalizer"].tolist() == [2.5]


def test_a_batch_without_masks_is_divided_by_one():
    table = random_table(3, masked=True)
    table = replace(table, masks=StaticMasks(np.zeros(4, np.int64), np.zeros(0, np.uint16), np.zeros(0, np.uint16)))
    batch = rule(dynamic=False).collate(table, np.arange(3), KEY, np.arange(3))
    assert batch.feed["masked_lm_normalizer"].tolist() == [1.0] and batch.num_masked == 0
    assert "position_ids" not in batch.feed and batch.num_documents == 0


def test_a_packed_batch_has_as_many_places_as_its_program_reads():
    batch = rule(dynamic=False).collate(random_table(3, masked=True), np.arange(3), KEY, np.arange(3))
    packed = batch.packed(Packing(2, 0, per_token=False))
    assert packed.num_padded_tokens == len(packed.feed["input_ids"]) == (batch.num_tokens // 8 + 1) * 8
    assert batch.num_padded_tokens == batch.feed["input_ids"].size > packed.num_padded_tokens
    assert (packed.num_tokens, packed.num_masked) == (batch.num_tokens, batch.num_masked)
    assert batch.packed(None).feed is batch.feed


def test_each_cls_of_a_row_begins_a_document_with_position_0():
    row = [CLS, 20, SEP, CLS, 21, 22, SEP]
    table = SampleTable(np.array(row, np.uint16), np.array([0, 7]), np.array([7], np.int32), np.array([False]))
    batch = rule(next_sentence=False, cls_id=CLS).collate(table, np.array([0]), KEY, np.array([0]))
    assert batch.feed["position_ids"].tolist() == [[0, 1, 2, 0, 1, 2, 3, 4]] and batch.num_documents == 2


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=5), st.integers(0, 99))
def test_shares_are_whole_numbers_by_largest_remainders(counts, total):
    if not sum(counts):
        return
    exact = [count * total / sum(counts) for count in counts]
    found = [*shares(dict(enumerate(counts)), total).values()]
    assert sum(found) == total and all(abs(share - part) < 1 for share, part in zip(exact, found, strict=True))
    up = [share % 1 for share, part in zip(exact, found, strict=True) if part > share]
    down = [share % 1 for share, part in zip(exact, found, strict=True) if part < share]
    assert min(up, default=1) >= max(down, default=0) - 1e-9


def test_a_mixture_is_read_as_it_was_written(tmp_path):
    assert read_mixture(tmp_path) is None
    write_mixture(tmp_path / "new", {".": 9000, "replay": 0})
    assert read_mixture(tmp_path / "new") == {".": 9000, "replay": 0}
    write_mixture(tmp_path, {".": 0})
    with pytest.raises(ValueError, match=r"mixture.json: .*no samples.; restore it, or start again"):
        read_mixture(tmp_path)

"""Statistics of shards, and which of them are reported as problems."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from bert.samples.sample_table import SampleTable, Slices, StaticMasks, join_pairs
from bert.samples.shards import ShardDirectory
from bert.tokenization.wordpiece import WordPieceTokenizer
from data.preprocessing.problems import (
    most_frequent,
    problems_of_counts,
    problems_of_pairs,
    problems_of_tokens,
    unknown_words,
)
from data.preprocessing.statistics import statistics_of
from tests.support.corpora import random_table, vocabulary, write_shards

WORDS = vocabulary()
CLS, SEP, MASK = (WORDS.id_of(token) for token in ("[CLS]", "[SEP]", "[MASK]"))


def table_of(rows: list[tuple[list[int], list[int], bool]]) -> SampleTable:
    """Return a table of pairs of token ids, with their labels."""
    first, second, is_random = zip(*rows, strict=True)
    slices = [
        Slices.of_rows(np.array([token for ids in texts for token in ids], np.uint16), np.array([*map(len, texts)]))
        for texts in (first, second)
    ]
    ids, offsets = join_pairs(*slices, CLS, SEP)
    return SampleTable(ids, offsets, np.array([len(ids) + 2 for ids in first], np.int32), np.array(is_random))


def masked(table: SampleTable, positions: list[list[int]], shown: list[list[int]]) -> SampleTable:
    """Return the table with masks at some positions of each row, which show other tokens."""
    ids, labels = table.token_ids.copy(), []
    for row, (places, tokens) in enumerate(zip(positions, shown, strict=True)):
        for place, token in zip(places, tokens, strict=True):
            labels.append(ids[table.offsets[row] + place])
            ids[table.offsets[row] + place] = token
    offsets = np.append(0, np.cumsum([*map(len, positions)])).astype(np.int64)
    flat = np.array([place for places in positions for place in places], np.uint16)
    return replace(table, token_ids=ids, masks=StaticMasks(offsets, flat, np.array(labels, np.uint16)))


def test_samples_masks_and_lengths_are_counted(tmp_path):
    table = table_of([([20, 21, 22], [23], True), ([24] * 6, [25, 26], False), ([20, 21, 22], [23], False)])
    first = masked(table, [[1, 2], [1, 2, 5], []], [[MASK, 21], [MASK, 30, 31], []])
    second = masked(table_of([([40, 41], [42] * 9, True)]), [[1]], [[MASK]])
    result = statistics_of(ShardDirectory(write_shards(tmp_path, [first, second]), WORDS, 30))
    assert result.counts == {
        "samples": 4,
        "random next": 2,
        "single sequences": 0,
        "empty A or B": 0,
        "special tokens inside A or B": 0,
        "masks": 6,
        "masks shown as [MASK]": 3,
        "masks left unchanged": 1,
        "masks shown as a special or [unused] token": 0,
        "duplicates": 1,
    }
    tokens = Counter([CLS] * 4 + [SEP] * 8 + [20, 21, 22, 23] * 2 + [24] * 6 + [25, 26, 40, 41] + [42] * 9)
    assert result.tokens.tolist() == [tokens[token] for token in range(len(WORDS))], "masks are undone"
    assert result.lengths_of_bins == {None: {7: 2, 11: 1, 14: 1}} and result.shard_sizes == {None: [3, 1]}
    assert result.num_tokens() == 39 and result.share("random next") == 0.5 and result.share("masks", "none") == 0
    padding = result.padding()
    assert padding == pytest.approx({"to the longest sample": 1 - 39 / 64, "to the longest of the bin": 1 - 39 / 64})


def test_padding_of_bins(tmp_path):
    tables = [table_of([([20] * 4, [21], True)] * 2), table_of([([20] * 9, [22] * 5, False)])]
    result = statistics_of(ShardDirectory(write_shards(tmp_path, tables, bins=[0, 1]), WORDS, 30))
    shares = {"to the longest sample": 1 - 33 / 72, "to the longest of the bin": 1 - 33 / 40}
    assert result.padding() == pytest.approx(shares) and result.lengths == {8: 2, 17: 1}


def test_special_tokens_and_empty_texts_are_problems(tmp_path):
    rows = [([20, SEP, 21], [22], True), ([20], [0, CLS], False), ([20, 21], [22, 23], False)]
    result = statistics_of(ShardDirectory(write_shards(tmp_path, [table_of(rows)], kind="arrow"), WORDS, 30))
    assert result.counts["special tokens inside A or B"] == 3
    assert "special tokens inside A or B: 3; there should be none" in result.problems
    empty = [([], [20], True), ([20], [], False), ([20], [21], False)]
    result = statistics_of(ShardDirectory(write_shards(tmp_path / "empty", [table_of(empty)], kind="arrow"), WORDS, 30))
    assert result.counts["empty A or B"] == 2 and "empty A or B: 2; there should be none" in result.problems


@pytest.mark.parametrize(
    ("shown", "is_wrong"), [(SEP, True), (WORDS.id_of("[unused0]"), True), (21, False), (MASK, False)]
)
def test_a_mask_may_show_any_word(tmp_path, shown, is_wrong):
    table = masked(table_of([([20, 21, 22], [23, 24, 25], True)]), [[1]], [[shown]])
    result = statistics_of(ShardDirectory(write_shards(tmp_path, [table], kind="arrow"), WORDS, 30))
    assert result.counts["masks shown as a special or [unused] token"] == is_wrong


@pytest.mark.parametrize(("masks", "is_usual"), [(11, False), (12, True), (18, True), (19, False)])
def test_another_share_of_masks_than_15_percent_is_a_problem(tmp_path, masks, is_usual):
    table = masked(table_of([([20] * 90, [21] * 7, True)]), [[*range(1, masks + 1)]], [[MASK] * masks])
    problems = statistics_of(ShardDirectory(write_shards(tmp_path, [table]), WORDS, 100)).problems
    assert any("of the tokens are masked; 15% is usual" in problem for problem in problems) != is_usual


def problems_of(folder, tables, bins=None) -> str:
    return "\n".join(statistics_of(ShardDirectory(write_shards(folder, tables, bins), WORDS, 30)).problems)


def test_duplicates_of_over_one_percent_are_a_problem(tmp_path):
    table = random_table(100, 1)
    assert "more than once" not in problems_of(tmp_path / "1", [table.take(np.append(np.arange(99), 0))])
    assert "2.0% of the samples occur more than once" in problems_of(
        tmp_path / "2", [table.take(np.append(np.arange(98), [0, 1]))]
    )


def test_shards_of_unequal_size_and_bins_that_overlap_are_problems(tmp_path):
    def of(count, length, seed):
        return random_table(count, seed, longest=length, shortest=length)

    assert problems_of(tmp_path / "a", [of(30, 9, 1), of(31, 9, 2)]) == ""
    assert "the shards hold 30 to 32 samples; LDDL's loader wants" in problems_of(
        tmp_path / "b", [of(30, 9, 1), of(32, 9, 2)]
    )
    bins = [of(30, 9, 1), of(30, 9, 2), of(30, 12, 3)]
    assert "bins differ in their number of files" in problems_of(tmp_path / "c", bins, [0, 0, 1])
    assert "the shards of bin 1 hold 20 to 30 samples" in problems_of(
        tmp_path / "d", [bins[0], bins[2], of(20, 12, 4)], [0, 1, 1]
    )
    assert "bin 0 has samples of 9 tokens, bin 1 of 9; bins must not overlap" in problems_of(
        tmp_path / "e", [bins[0], bins[1]], [0, 1]
    )
    assert problems_of(tmp_path / "f", [bins[0], bins[2]], [0, 1]) == ""


@pytest.mark.parametrize(
    ("pairs", "share", "more", "is_usual"),
    [
        (10_000, 0.549, 0.0, True),
        (10_000, 0.551, 0.0, False),
        (10_000, 0.449, 0.15, False),
        (10_000, 0.699, 0.15, True),
        (10_000, 0.701, 0.15, False),
        (100, 0.69, 0.0, True),
        (100, 0.71, 0.0, False),
        (0, 0.9, 0.0, True),
    ],
)
def test_pairs_are_half_and_half_up_to_5_percent_or_4_standard_deviations(pairs, share, more, is_usual):
    assert (problems_of_pairs(pairs, share, more) == []) == is_usual


def test_unknown_words_of_over_one_percent_are_a_problem_and_named():
    texts = ["The sea \u00df runs", "\u00df " + "\u0416" * 25 + " sea"]
    unknown = unknown_words(texts, WordPieceTokenizer(WORDS))
    assert unknown == (3 / 7, 7, {"\u00df": 2, "\u0416" * 25: 1})
    shown = "\u0416" * 20 + "..."
    assert problems_of_tokens(unknown) == [
        f"42.9% of the tokens are [UNK], most often of \u00df {shown}; does the vocabulary belong to this text, and in "
        "its case?"
    ]
    assert problems_of_tokens(unknown._replace(share=0.01)) == []
    assert most_frequent(Counter({f"w{number:02}": 20 - number for number in range(12)})).endswith(" w08 w09")
    assert most_frequent(Counter()) == ""
    assert problems_of_counts({"tokens": 100, "unknown tokens": 1, "samples": 1000}, Counter()) == []
    counts = {"tokens": 100, "unknown tokens": 2, "samples": 1000, "samples with a random next": 400}
    assert [problem.split(" of ")[0] for problem in problems_of_counts(counts, Counter())] == ["2.0%", "40.0%"]

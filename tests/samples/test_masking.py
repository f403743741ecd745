import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.randomness import hash64, stream_key
from bert.samples.masking import MaskingRule, choose_in_rows, choose_positions, corrupt
from tests.support.corpora import random_table, vocabulary

WORDS = vocabulary()
KEY = stream_key(17, "test")


def padded(table):
    lengths = table.lengths()
    ids = np.zeros((len(table), lengths.max()), np.int64)
    for row in range(len(table)):
        ids[row, : lengths[row]] = table.token_ids[table.offsets[row] : table.offsets[row + 1]]
    return ids, lengths


def rule(limit=20, **settings):
    return MaskingRule.of(WORDS, masked_lm_ratio=0.15, max_predictions_per_seq=limit, **settings)


@pytest.mark.parametrize("whole_word", [False, True])
def test_fifteen_percent_are_chosen_and_never_special_tokens(whole_word):
    ids, lengths = padded(random_table(2000, longest=60, shortest=40))
    rows, columns = choose_positions(rule(whole_word=whole_word), KEY, np.arange(2000), ids, lengths)
    counts = np.bincount(rows, minlength=2000)
    assert counts.sum() / lengths.sum() == pytest.approx(0.15, abs=0.004)
    assert counts.min() >= 1
    special = [WORDS.id_of(token) for token in ("[CLS]", "[SEP]", "[PAD]")]
    assert not np.isin(ids[rows, columns], special).any()
    assert (columns < lengths[rows]).all()
    assert len(np.unique(rows * 1000 + columns)) == len(rows)


def test_every_position_is_equally_likely():
    ids = np.full((4000, 23), WORDS.id_of("sea"))
    ids[:, 0], ids[:, -1] = WORDS.id_of("[CLS]"), WORDS.id_of("[SEP]")
    _, columns = choose_positions(rule(), KEY, np.arange(4000), ids, np.full(4000, 23))
    share = np.bincount(columns, minlength=23)[1:-1] / 4000
    assert share == pytest.approx(np.full(21, 3 / 21), abs=0.03)


def test_eighty_ten_ten_and_random_words_are_words():
    labels = np.full(60_000, WORDS.id_of("sea"))
    shown = corrupt(rule(), KEY, np.arange(60_000) // 20, np.arange(60_000) % 20, labels)
    assert (shown == WORDS.id_of("[MASK]")).mean() == pytest.approx(0.8, abs=0.01)
    assert (shown == labels).mean() == pytest.approx(0.1, abs=0.01)
    drawn = {WORDS.tokens[index] for index in np.unique(shown)} - {"[MASK]"}
    assert drawn == {WORDS.tokens[index] for index in WORDS.replacement_ids()}


@pytest.mark.parametrize("whole_word", [False, True])
def test_no_sample_has_more_than_the_limit(whole_word):
    ids, lengths = padded(random_table(300, longest=90, shortest=60))
    rows, _ = choose_positions(rule(5, whole_word=whole_word), KEY, np.arange(300), ids, lengths)
    assert np.bincount(rows).max() == 5


def test_number_of_predictions_is_known_from_the_length():
    ids, lengths = padded(random_table(500, longest=90))
    rows, _ = choose_positions(rule(9), KEY, np.arange(500), ids, lengths)
    assert np.bincount(rows, minlength=500).tolist() == rule(9).num_predictions(lengths).tolist()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**62), st.integers(0, 30), st.booleans())
def test_masks_depend_on_the_sample_and_not_on_its_batch(sample, extra_padding, whole_word):
    ids, lengths = padded(random_table(3, seed=sample % 1000, longest=20))
    samples = np.array([sample, sample + 1, 5])
    masking = rule(whole_word=whole_word)
    rows, columns = choose_positions(masking, KEY, samples, ids, lengths)
    wider = np.pad(ids[1:2], ((0, 0), (0, extra_padding)))
    _, alone = choose_positions(masking, KEY, samples[1:2], wider, lengths[1:2])
    assert alone.tolist() == columns[rows == 1].tolist()


def test_whole_words_are_chosen_as_a_whole():
    tokens = "[CLS] un ##der the fish ##ing ##s boats [SEP] water ##s and old ##s sea stones [SEP]".split()
    ids = np.tile([WORDS.id_of(token) for token in tokens], (500, 1))
    masking = MaskingRule.of(WORDS, masked_lm_ratio=0.3, max_predictions_per_seq=20, whole_word=True)
    rows, columns = choose_positions(masking, KEY, np.arange(500), ids, np.full(500, len(tokens)))
    chosen = np.zeros(ids.shape, bool)
    chosen[rows, columns] = True
    for word in ((1, 2), (4, 5, 6), (9, 10), (12, 13)):
        assert (chosen[:, word].all(axis=1) == chosen[:, word].any(axis=1)).all()
    assert chosen[:, 4].any() and chosen.sum(axis=1).max() <= 5


def test_a_sample_of_one_long_word_still_gets_a_mask_within_the_limit():
    tokens = ["[CLS]", "un", *["##s"] * 12, "[SEP]", "un", *["##s"] * 12, "[SEP]"]
    ids = np.array([[WORDS.id_of(token) for token in tokens]])
    rows, _ = choose_positions(rule(3, whole_word=True), KEY, np.array([1]), ids, np.array([len(tokens)]))
    assert 1 <= len(rows) <= 3


@pytest.mark.parametrize(("ratio", "limit"), [(0.0, 20), (1.0, 20), (0.15, 0)])
def test_impossible_settings_are_refused(ratio, limit):
    with pytest.raises(ValueError, match="must"):
        MaskingRule.of(WORDS, masked_lm_ratio=ratio, max_predictions_per_seq=limit)


def drawn(key: np.uint64, allowed: list[bool], count: int) -> list[int]:
    """The definition: places are drawn until enough different ones are allowed, or those to leave out if they are
    fewer."""
    places = [place for place, free in enumerate(allowed) if free]
    count = min(count, len(places))
    leave_out = 2 * count > len(places)
    found: set[int] = set()
    for draw in itertools.count():
        if len(found) == (len(places) - count if leave_out else count):
            return sorted(set(places) - found) if leave_out else sorted(found)
        place = (int(hash64(key, np.array([draw]))[0]) >> 32) * len(allowed) >> 32
        if allowed[place]:
            found.add(place)


@pytest.mark.parametrize("width", [1, 9, 128, 300, 5000])
def test_compiled_loops_choose_as_defined_whatever_the_padding(width):
    rng = np.random.default_rng(3)
    number = min(100, 30_000 // width)
    keys, counts = hash64(KEY, np.arange(number)), rng.integers(0, width + 1, number)
    lengths = rng.integers(0, width + 1, number)
    separators = np.array([False, True, False])
    ids = np.where(rng.random((number, width)) < 0.3, 1, 2)
    expected = [
        (row, column)
        for row in range(number)
        for column in drawn(keys[row], (~separators[ids[row, : lengths[row]]]).tolist(), counts[row])
    ]
    for padding in (0, 7):
        rows, columns = np.empty((2, counts.sum() + 1), np.int64)
        found = choose_in_rows(keys, separators, np.pad(ids, ((0, 0), (0, padding))), lengths, counts, rows, columns)
        assert list(zip(rows[:found].tolist(), columns[:found].tolist(), strict=True)) == expected

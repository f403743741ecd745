import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.randomness import hash64, stream_key
from bert.samples.masking import MaskingRule, choose_positions, corrupt
from tests.support.corpora import random_table, vocabulary

WORDS = vocabulary()
KEY = stream_key(17, "test")


def rule(limit=20, ratio=0.15, **settings):
    return MaskingRule.of(WORDS, masked_lm_ratio=ratio, max_predictions_per_seq=limit, **settings)


def choose(masking, ids, starts, lengths, samples=None):
    """(row, position) of the masks in flat rows of tokens."""
    continues = None if masking.continuations is None else masking.continuations[ids]
    keys = hash64(KEY, np.arange(len(starts)) if samples is None else samples)
    positions, offsets = choose_positions(masking, keys, masking.separators[ids], starts, lengths, continues)
    return np.repeat(np.arange(len(starts)), np.diff(offsets)), positions


def of_table(masking, table):
    return choose(masking, table.token_ids, table.offsets[:-1], table.lengths())


def repeated(tokens, number):
    """Arguments of `choose` for so many rows of the same tokens."""
    ids = np.tile([WORDS.id_of(token) for token in tokens], number)
    return ids, np.arange(number) * len(tokens), np.full(number, len(tokens))


@pytest.mark.parametrize("whole_word", [False, True])
def test_fifteen_percent_are_chosen_and_never_special_tokens(whole_word):
    table = random_table(2000, longest=60, shortest=40)
    rows, columns = of_table(rule(whole_word=whole_word), table)
    counts, lengths = np.bincount(rows, minlength=2000), table.lengths()
    assert counts.sum() / lengths.sum() == pytest.approx(0.15, abs=0.004)
    assert counts.min() >= 1 and (columns < lengths[rows]).all()
    special = [WORDS.id_of(token) for token in ("[CLS]", "[SEP]", "[PAD]")]
    assert not np.isin(table.token_ids[table.offsets[rows] + columns], special).any()
    assert len(np.unique(rows * 1000 + columns)) == len(rows)


def test_every_position_is_equally_likely():
    _, columns = choose(rule(), *repeated(["[CLS]", *["sea"] * 21, "[SEP]"], 4000))
    share = np.bincount(columns, minlength=23)[1:-1] / 4000
    assert share == pytest.approx(np.full(21, 3 / 21), abs=0.03)


def test_eighty_ten_ten_and_random_words_are_words():
    labels = np.full(60_000, WORDS.id_of("sea"))
    shown = corrupt(rule(), hash64(KEY, np.arange(60_000) // 20), np.arange(60_000) % 20, labels)
    assert (shown == WORDS.id_of("[MASK]")).mean() == pytest.approx(0.8, abs=0.01)
    assert (shown == labels).mean() == pytest.approx(0.1, abs=0.01)
    drawn = {WORDS.tokens[index] for index in np.unique(shown)} - {"[MASK]"}
    assert drawn == {WORDS.tokens[index] for index in WORDS.replacement_ids()}


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**62), st.integers(0, 30), st.booleans())
def test_masks_depend_on_the_sample_and_not_on_its_batch(sample, shift, whole_word):
    table, masking = random_table(3, seed=sample % 1000, longest=20), rule(whole_word=whole_word)
    samples = np.array([sample, sample + 1, 5])
    rows, columns = choose(masking, table.token_ids, table.offsets[:-1], table.lengths(), samples)
    ids = np.pad(table.token_ids[table.offsets[1] : table.offsets[2]], (shift, 3))
    _, alone = choose(masking, ids, np.array([shift]), table.lengths()[1:2], samples[1:2])
    assert alone.tolist() == columns[rows == 1].tolist()


@pytest.mark.parametrize(("ratio", "limit"), [(0.0, 20), (1.0, 20), (0.15, 0)])
def test_impossible_settings_are_refused(ratio, limit):
    with pytest.raises(ValueError, match="must"):
        rule(limit, ratio)


def draw(key: np.uint64, allowed: list[bool], count: int) -> list[int]:
    """The definition: places are drawn until enough different ones are allowed, or those to leave out if they are
    fewer."""
    places = [place for place, free in enumerate(allowed) if free]
    count = min(count, len(places))
    leave_out = 2 * count > len(places)
    drawn: set[int] = set()
    for number in itertools.count():
        if len(drawn) == (len(places) - count if leave_out else count):
            return sorted(set(places) - drawn) if leave_out else sorted(drawn)
        place = (int(hash64(key, np.array([number]))[0]) >> 32) * len(allowed) >> 32
        if allowed[place]:
            drawn.add(place)


def draw_words(key: np.uint64, allowed: list[bool], continues: list[bool], count: int) -> list[int]:
    """The definition: words in random order, each taken if it fits; if none does, `count` tokens of the shortest."""
    words: list[list[int]] = []
    for place, free in enumerate(allowed):
        if free and (place == 0 or not allowed[place - 1] or not continues[place]):
            words.append([])
        if free:
            words[-1].append(place)
    words.sort(key=lambda word: (int(hash64(key, np.array(word[:1]))[0]) >> 33, word[0]))
    drawn: list[int] = []
    for word in words:
        drawn += word if len(drawn) + len(word) <= count else []
    return sorted(drawn or (min(words, key=len)[:count] if words else []))


@pytest.mark.parametrize("whole_word", [False, True])
@pytest.mark.parametrize("width", [1, 9, 128, 300, 5000])
def test_compiled_loops_choose_as_defined(width, whole_word):
    rng = np.random.default_rng(3)
    number = min(100, 30_000 // width)
    masking = rule(width, 0.7, whole_word=whole_word)
    keys, lengths = hash64(KEY, np.arange(number)), rng.integers(0, width + 1, number)
    starts = np.arange(number) * (width + 3)
    barred, continues = rng.random((2, number * (width + 3))) < ((0.3,), (0.6,))
    positions, offsets = choose_positions(masking, keys, barred, starts, lengths, continues)
    for row, count in enumerate(masking.num_predictions(lengths).tolist()):
        own = slice(starts[row], starts[row] + lengths[row])
        free = (~barred[own]).tolist()
        expected = (
            draw_words(keys[row], free, continues[own].tolist(), count) if whole_word else draw(keys[row], free, count)
        )
        assert positions[offsets[row] : offsets[row + 1]].tolist() == expected

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.randomness import hash64, stream_key, uniform
from bert.samples.masking import MaskingRule, choose_positions, corrupt
from bert.samples.settings import check_predictions, predictions_of
from tests.support.corpora import random_table, vocabulary

WORDS = vocabulary()
KEY = stream_key(17, "test")


def rule(limit=20, ratio=0.15, **settings):
    return MaskingRule.of(WORDS, masked_lm_ratio=ratio, max_predictions_per_seq=limit, **settings)


def choose(masking, ids, starts, lengths, samples=None):
    """Return (row, position) of the masks in flat rows of tokens."""
    continues = None if masking.continuations is None else masking.continuations[ids]
    keys = hash64(KEY, np.arange(len(starts)) if samples is None else samples)
    positions, offsets = choose_positions(masking, keys, masking.separators[ids], starts, lengths, continues)
    return np.repeat(np.arange(len(starts)), np.diff(offsets)), positions


def of_table(masking, table):
    return choose(masking, table.token_ids, table.offsets[:-1], table.lengths())


def repeated(tokens, number):
    """Return arguments of `choose` for this many rows of the same tokens."""
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


def test_masked_tokens_are_shown_as_defined():
    """80% are shown as [MASK], 10% as a word of the vocabulary, 10% unchanged, by the position in the sample."""
    masking, keys = rule(), hash64(KEY, np.arange(3000) // 5)
    positions, labels = np.arange(3000) % 5 * 7, np.arange(3000) % len(WORDS)
    shown = corrupt(masking, keys, positions, labels)
    words, drawn = WORDS.replacement_ids().tolist(), []
    for place, (key, position) in enumerate(zip(keys, positions.tolist(), strict=True)):
        action = float(uniform(key, np.array([2**32 + position]))[0])
        word = words[int(hash64(key, np.array([2**33 + position]))[0]) % len(words)]
        drawn.append(WORDS.id_of("[MASK]") if action < 0.8 else word if action < 0.9 else labels[place])
    assert shown.tolist() == drawn


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9),
    st.sampled_from([0.01, 0.15, 0.5, 0.9, 0.99]),
    st.integers(1, 12),
)
def test_as_many_tokens_are_masked_as_the_loss_is_divided_by(sizes, share, limit):
    """All tokens of a pair except its three special tokens may be masked: at least one and at most the limit."""
    masking, sea = rule(limit, share), [WORDS.id_of("sea")]
    cls, sep = [WORDS.id_of("[CLS]")], [WORDS.id_of("[SEP]")]
    rows = [cls + first * sea + sep + second * sea + sep for first, second in sizes]
    lengths = np.array([*map(len, rows)])
    masked, _ = choose(masking, np.array(sum(rows, [])), np.cumsum(lengths) - lengths, lengths)
    found = np.bincount(masked, minlength=len(rows)).tolist()
    words = [first + second for first, second in sizes]
    counts = [max(1, round((number + 3) * share)) for number in words]
    expected = [min(count, limit, number) for count, number in zip(counts, words, strict=True)]
    assert masking.num_predictions(lengths).tolist() == found == expected


@pytest.mark.parametrize(
    ("length", "share", "number"),
    [(128, 0.15, 20), (512, 0.15, 80), (64, 0.15, 10), (128, 0.3, 40), (2, 0.15, 1), (8, 0.99, 8), (512, 0.4, 213)],
)
def test_the_usual_limits_are_those_of_the_published_recipes(length, share, number):
    assert predictions_of(length, share) == number


def test_a_limit_that_cuts_another_share_than_the_usual_is_refused():
    check_predictions(128, 0.15, 1)
    check_predictions(128, 0.3, 38)
    with pytest.raises(ValueError, match="=37 must be at least 38 for masked_lm_ratio=0.3 of 128 tokens; .* 40, or"):
        check_predictions(128, 0.3, 37)


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
    """Follow the definition: draw places until enough are allowed, or the places to leave out if they are fewer."""
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


def draw_words(
    key: np.uint64, allowed: list[bool], continues: list[bool], count: int, divides_words: bool = False
) -> list[int]:
    """Follow the definition: words in random order, each taken if it fits; if none does, `count` tokens of the
    shortest.

    They are the first tokens of the word, or from any place in it on if the rule divides words.
    """
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
    if drawn or not words:
        return sorted(drawn)
    shortest, first = min(words, key=len), 0
    if divides_words:
        first = (int(hash64(key, np.array([len(allowed)]))[0]) >> 32) * (len(shortest) - count + 1) >> 32
    return shortest[first : first + count]


@pytest.mark.parametrize(("whole_word", "divides_words"), [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize(("width", "share"), [(1, 0.7), (9, 0.7), (9, 0.15), (128, 0.7), (300, 0.7), (5000, 0.7)])
def test_compiled_loops_choose_as_defined(width, share, whole_word, divides_words):
    rng = np.random.default_rng(3)
    number = min(100, 30_000 // width)
    masking = replace(rule(width, share, whole_word=whole_word), divides_words=divides_words)
    keys, lengths = hash64(KEY, np.arange(number)), rng.integers(0, width + 1, number)
    starts = np.arange(number) * (width + 3)
    barred, continues = rng.random((2, number * (width + 3))) < ((0.3,), (0.6,))
    positions, offsets = choose_positions(masking, keys, barred, starts, lengths, continues)
    for row, count in enumerate(masking.num_predictions(lengths).tolist()):
        own = slice(starts[row], starts[row] + lengths[row])
        free = (~barred[own]).tolist()
        if whole_word:
            expected = draw_words(keys[row], free, continues[own].tolist(), count, divides_words)
        else:
            expected = draw(keys[row], free, count)
        assert positions[offsets[row] : offsets[row + 1]].tolist() == expected

"""Sentence pairs against the published walk (`create_pretraining_data.py` of google-research/bert), in plain Python."""

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.randomness import stream_key, uniform
from data.preprocessing.pairs import _with_parts, draw_pairs
from data.preprocessing.settings import PairSettings
from data.text.sentences import TokenizedDocuments

Sentence = list[int]
Draw = Callable[[int, int], float]  # (sentence, number): a random number of the chunk that begins with the sentence

_DOCUMENTS = st.lists(
    st.lists(st.integers(1, 9), min_size=1, max_size=7), min_size=1, max_size=6
)  # tokens of sentences


def tokenized(documents: list[list[int]]) -> TokenizedDocuments:
    """Return documents of sentences of these lengths; the tokens count up, so that a token tells its place."""
    lengths = [length for document in documents for length in document]
    ends = np.append(0, np.cumsum(lengths)).astype(np.int64)
    bounds = np.append(0, np.cumsum([len(document) for document in documents])).astype(np.int64)
    return TokenizedDocuments(np.arange(ends[-1], dtype=np.int32), ends, bounds)


def sentences_of(documents: TokenizedDocuments) -> list[list[Sentence]]:
    sentences = [part.tolist() for part in np.split(documents.token_ids, documents.sentence_offsets[1:-1])]
    return [sentences[start:stop] for start, stop in zip(*two(documents.document_offsets), strict=True)]


def two(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return offsets[:-1], offsets[1:]


def pairs_of(documents: TokenizedDocuments, pairs: PairSettings, block: int = 0, counts: Counter | None = None):
    """Return (A, B, is random next) of each pair, in the order of the block."""
    spans, tokens = draw_pairs(documents, pairs, block, Counter() if counts is None else counts), documents.token_ids
    rows = zip(*vars(spans).values(), strict=True)
    return [(tokens[a:b].tolist(), tokens[c:d].tolist(), bool(is_random)) for a, b, c, d, is_random in rows]


def walk(documents: list[list[Sentence]], most: int, short_seq_prob: float, share: float, draw: Draw):
    """Yield (first sentence, document, A, the rest of the chunk, target, is random next) of each chunk."""
    begin = 0
    for number, document in enumerate(documents):
        place = 0
        while place < len(document):
            first, target = begin + place, most
            if draw(first, 0) < short_seq_prob:
                target = 2 + int(draw(first, 1) * (most - 1))
            chunk = document[place : place + 1]
            while sum(map(len, chunk)) < target and place + len(chunk) < len(document):
                chunk.append(document[place + len(chunk)])
            num_first = 1 + int(draw(first, 2) * (len(chunk) - 1)) if len(chunk) > 1 else 1
            is_random = len(chunk) == 1 or draw(first, 3) < share
            yield first, number, chunk[:num_first], chunk[num_first:], target, is_random
            place += num_first if is_random else len(chunk)
        begin += len(document)


def published_pairs(documents: list[list[Sentence]], most: int, short_seq_prob: float, share: float, draw: Draw):
    """Return (A, B, is random next) of each chunk; a chunk of one sentence gives none if there is no other document."""
    for first, number, chunk, rest, target, is_random in walk(documents, most, short_seq_prob, share, draw):
        others = documents[:number] + documents[number + 1 :]
        if is_random and not others:
            continue
        a, b = sum(chunk, []), sum(rest, [])
        if is_random:
            other = others[int(draw(first, 4) * len(others))]
            b = []
            for sentence in other[int(draw(first, 5) * len(other)) :]:
                b += sentence
                if len(a) + len(b) >= target:
                    break
        cut_a = cut_b = 0
        while len(a) - cut_a + len(b) - cut_b > most:
            if len(a) - cut_a > len(b) - cut_b:
                cut_a += 1
            else:
                cut_b += 1
        front_a, front_b = int(draw(first, 6) * (cut_a + 1)), int(draw(first, 7) * (cut_b + 1))
        yield a[front_a : len(a) - cut_a + front_a], b[front_b : len(b) - cut_b + front_b], is_random


def draws_of(pairs: PairSettings, block: int) -> list[Draw]:
    """Return the random numbers of each repetition."""
    keys = [stream_key(pairs.seed, "pairs", block, number) for number in range(pairs.duplicate_factor)]
    return [lambda first, number, key=key: float(uniform(key, np.array([8 * first + number]))[0]) for key in keys]


def balanced_share(documents: list[list[Sentence]], most: int, short_seq_prob: float, draw: Draw) -> float:
    """Return the share of chunks of several sentences that makes half of all pairs random; single ones always are."""
    share = 0.5
    for _ in range(4):
        chunks = [[*first, *rest] for _, _, first, rest, *_ in walk(documents, most, short_seq_prob, share, draw)]
        singles = sum(len(chunk) == 1 for chunk in chunks) / len(chunks)
        share = max(0.0, (0.5 - singles) / (1 - singles)) if singles < 1 else 0.0
    return share if len(documents) > 1 else 0.0


@settings(max_examples=150, deadline=None, derandomize=True)
@given(_DOCUMENTS, st.integers(8, 24), st.sampled_from([0.0, 0.1, 0.6, 1.0]), st.integers(1, 2), st.integers(0, 99))
def test_pairs_are_those_of_the_published_walk(documents, length, short_seq_prob, repetitions, seed):
    pairs, block, counts = PairSettings(length, short_seq_prob, repetitions, seed), seed % 3, Counter()
    given, most = tokenized(documents), length - 3
    texts, draws = sentences_of(given), draws_of(pairs, block)
    share = balanced_share(texts, most, short_seq_prob, draws[0])
    expected = [pair for draw in draws for pair in published_pairs(texts, most, short_seq_prob, share, draw)]
    found = pairs_of(given, pairs, block, counts)
    assert sorted(found) == sorted(expected)
    assert counts["samples"] == len(expected)
    assert counts["samples with a random next"] == sum(is_random for *_, is_random in expected)
    assert counts["sample tokens"] == sum(len(a) + len(b) + 3 for a, b, _ in expected)
    chunks = [chunk for draw in draws for chunk in walk(texts, most, short_seq_prob, share, draw)]
    dropped = len(chunks) - len(expected)
    assert counts["lone sentences dropped for want of a second document"] == dropped


@pytest.mark.parametrize("length", [8, 13, 40])
def test_every_sentence_of_a_document_is_used(length):
    """One-token sentences are never cut: each is in the A or the own B of a pair, even the rest after a random next."""
    given = tokenized([[1] * size for size in np.random.default_rng(length).integers(2, 30, 40)])
    used = {token for a, b, is_random in pairs_of(given, PairSettings(length)) for token in (a if is_random else a + b)}
    assert used == {*given.token_ids.tolist()}


def test_the_longer_text_is_cut_to_the_length_of_the_other_at_both_of_its_ends():
    given = tokenized([[5] + [30] * 9, [30] * 9 + [5]] * 40)
    pairs = pairs_of(given, PairSettings(21, 0.0))
    sizes = Counter((len(a), len(b)) for a, b, _ in pairs)
    assert {*sizes} <= {(5, 13), (13, 5), (9, 9), (5, 5)}, "18 tokens; what is short stays whole"
    assert sizes[9, 9] > 100 and sizes[5, 13] > 5 and sizes[13, 5] > 5
    starts = np.isin([a[0] for a, _, _ in pairs], given.sentence_offsets)
    ends = np.isin([a[-1] + 1 for a, _, _ in pairs], given.sentence_offsets)
    cut = np.array([len(a) == 9 for a, _, _ in pairs])
    assert 0 < starts[cut].mean() < 0.2 and 0 < ends[cut].mean() < 0.2, "21 tokens are cut, none to all at the front"


def test_the_pairs_of_a_block_are_in_random_order_and_each_repetition_differs():
    alone = tokenized([[4]] * 60)  # one pair of each document, in every block
    firsts = [[a[0] for a, *_ in pairs_of(alone, PairSettings(24), block)] for block in (0, 1)]
    assert firsts[0] != firsts[1] and sorted(firsts[0]) == sorted(firsts[1]) == [*range(0, 240, 4)]
    for order in firsts:
        assert abs(np.corrcoef(order, np.arange(60))[0, 1]) < 0.4
    given = tokenized([[4] * 8] * 30)
    once, twice = ({str(pair) for pair in pairs_of(given, PairSettings(24, 0.1, number))} for number in (1, 2))
    assert once < twice and len(twice) > 1.5 * len(once)


@pytest.mark.parametrize(
    ("sizes", "parts"), [([], []), ([15], [1]), ([16], [2]), ([90, 10], [1, 1]), ([91, 9], [11, 1]), ([1000], [64])]
)
def test_a_document_of_over_nine_tenths_of_a_block_is_cut_in_at_most_64_parts_of_8_sentences(sizes, parts):
    counts = Counter()
    given = tokenized([[2] * size for size in sizes])
    edges, begin = [0], 0
    for size, number in zip(sizes, parts, strict=True):
        edges += [begin + size * part // number for part in range(1, number + 1)]
        begin += size
    assert _with_parts(given, counts).document_offsets.tolist() == edges
    assert sum(counts.values()) == (max(parts, default=1) > 1)


def test_what_has_no_random_next_is_counted():
    alone = "blocks of one document, thus without a random next"
    for documents, expected in ([], 0), ([[3] * 5], 1), ([[3] * 5] * 2, 0):
        counts = Counter()
        found = pairs_of(tokenized(documents), PairSettings(9, 0.0), 0, counts)
        assert counts[alone] == expected and bool(found) == bool(documents)
        assert not expected or not any(is_random for *_, is_random in found)
    over_half = "blocks where over half of the chunks are one sentence, thus over half have a random next"
    for sentences, expected in (1, 1), (6, 0):
        counts = Counter()
        pairs_of(tokenized([[6] * sentences] * 9 + [[2, 2]] * 4), PairSettings(10, 0.0), 0, counts)
        assert counts[over_half] == expected


@pytest.mark.parametrize("target", [24, 64, 128])
def test_half_of_all_pairs_have_a_random_next_though_chunks_of_one_sentence_always_do(target):
    counts, rng = Counter(), np.random.default_rng(0)
    given = tokenized([rng.integers(1, 25, size).tolist() for size in rng.integers(1, 10, 20_000)])
    spans = draw_pairs(given, PairSettings(target, 0.1, 2), 0, counts)
    assert spans.is_random_next.mean() == pytest.approx(0.5, abs=0.01)
    assert not [name for name in counts if name.startswith("blocks where over half")]

"""Packed sequences against their definition in plain Python: pieces of a text, and best-fit decreasing."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.randomness import stream_key, uniform
from data.preprocessing.pairs import pack_documents, pack_separately, spans_to_table
from data.preprocessing.settings import PairSettings
from data.text.sentences import TokenizedDocuments
from tests.support.corpora import vocabulary

WORDS = vocabulary()
SEP, CLS = WORDS.id_of("[SEP]"), WORDS.id_of("[CLS]")
_FEWEST_TOKENS = 8


def documents(lengths: list[int], is_continued: bool = False) -> TokenizedDocuments:
    """Return documents of one sentence each, whose tokens tell their places; every third token may continue a word."""
    ends = np.append(0, np.cumsum(lengths)).astype(np.int64)
    tokens = 1000 + np.arange(ends[-1], dtype=np.int32)
    continues = np.arange(len(tokens)) % 3 == 1 if is_continued else None
    return TokenizedDocuments(tokens, ends, np.arange(len(lengths) + 1), continues)


def draw(purpose: str, pairs: PairSettings, block: int, number: int, place: int) -> float:
    return float(uniform(stream_key(pairs.seed, purpose, block, number), np.array([place]))[0])


def pieces_of(text: list[int], pairs: PairSettings, block: int) -> tuple[list[list[int]], int]:
    """Return the sequences of a text in which a [SEP] follows each document, and the number of dropped tokens."""
    size, kept, dropped = pairs.target_seq_length - 2, [], 0
    least = min(_FEWEST_TOKENS + 2, size)
    for number in range(pairs.duplicate_factor):
        start = int(draw("first cut", pairs, block, number, 0) * size) if number else 0
        pieces, place = [text[:start]], 0
        while start < len(text):
            length = size
            if pairs.short_seq_prob and draw("lengths", pairs, block, number, 2 * place + 1) < pairs.short_seq_prob:
                length = least + int(draw("lengths", pairs, block, number, 2 * place) * (size - least + 1))
            pieces.append(text[start : start + length])
            start, place = start + length, place + 1
        for piece in pieces:
            piece = piece[piece[:1] == [SEP] :]
            piece = piece[:-1] if piece[-1:] == [SEP] else piece
            kept += [piece] if len(piece) >= _FEWEST_TOKENS else []
            dropped += 0 if len(piece) >= _FEWEST_TOKENS else len(piece)
    return kept, dropped


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 25), max_size=12),
    st.integers(8, 30),
    st.sampled_from([0.0, 0.5, 1.0]),
    st.integers(1, 3),
    st.integers(0, 99),
    st.booleans(),
)
def test_packed_sequences_are_as_defined(lengths, length, short_seq_prob, repetitions, seed, is_continued):
    pairs, block, counts = PairSettings(length, short_seq_prob, repetitions, seed), seed % 3, Counter()
    given = documents(lengths, is_continued)
    text = [token for part in np.split(given.token_ids, given.sentence_offsets[1:-1]) for token in [*part, SEP]]
    expected, dropped = pieces_of(text if lengths else [], pairs, block)
    packed, spans = pack_documents(given, pairs, block, SEP, counts)
    slices = [slice(*edges) for edges in zip(spans.first_start, spans.first_stop, strict=True)]
    assert sorted(packed.token_ids[own].tolist() for own in slices) == sorted(expected)
    assert (spans.second_start == spans.second_stop).all()
    assert counts["tokens dropped at the ends of blocks"] == dropped and counts["samples"] == len(expected)
    assert counts["sample tokens"] == sum(len(piece) + 2 for piece in expected)
    if is_continued:
        assert packed.continues.tolist() == [token != SEP and (token - 1000) % 3 == 1 for token in packed.token_ids]
        table = spans_to_table(packed.token_ids, spans, WORDS, packed.continues)
        assert (table.continues == (table.token_ids >= 1000) & (table.token_ids % 3 == 2)).all()


def test_sequences_are_in_random_order_and_each_repetition_is_cut_elsewhere():
    given = documents([50] * 60)
    for block in (0, 1):
        _, spans = pack_documents(given, PairSettings(18, 0.0, 3), block, SEP, Counter())
        starts = spans.first_start
        assert abs(np.corrcoef(starts, np.arange(len(starts)))[0, 1]) < 0.3
        assert len({*(starts % 16)}) >= 3, "the first piece of a repetition has a random length"
    alone = [pack_documents(given, PairSettings(18, 0.0), block, SEP, Counter())[1].first_start for block in (0, 1)]
    assert alone[0].tolist() != alone[1].tolist() and sorted(alone[0]) == sorted(alone[1])


def parts_of(lengths: list[int], pairs: PairSettings, block: int) -> list[list[int]]:
    """Return the tokens of whole documents, and of the parts of each document that is too long for a sequence."""
    room, parts, begin = pairs.target_seq_length - 2, [], 0
    for place, length in enumerate(lengths):
        tokens = [*range(1000 + begin, 1000 + begin + length)]
        begin += length
        for number in range(pairs.duplicate_factor):
            first = int(draw("first cut", pairs, block, number, place) * room) if number and length > room else 0
            parts += [tokens[:first], *(tokens[start : start + room] for start in range(first, length, room))]
    return [part for part in parts if part]


def best_fit(sizes: list[int], capacity: int) -> list[int]:
    """Return the room left in each sequence if parts are placed longest first, each where it fits best."""
    rooms: list[int] = []
    for size in sorted(sizes, reverse=True):
        fitting = [room for room in rooms if room >= size]
        if fitting:
            rooms[rooms.index(min(fitting))] -= size
        else:
            rooms.append(capacity - size)
    return sorted(rooms)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(
    st.lists(st.one_of(st.integers(1, 9), st.integers(1, 40)), max_size=30),
    st.integers(8, 24),
    st.integers(1, 3),
    st.integers(0, 99),
)
def test_separate_documents_are_packed_best_fit_decreasing(lengths, length, repetitions, seed):
    pairs, block, counts = PairSettings(length, 0.0, repetitions, seed), seed % 3, Counter()
    given = documents(lengths, is_continued=seed % 2 == 0)
    packed, spans = pack_separately(given, pairs, block, WORDS, counts)
    table = spans_to_table(packed.token_ids, spans, WORDS, packed.continues)
    rows = [part.tolist() for part in np.split(table.token_ids, table.offsets[1:-1])] if len(table) else []
    parts = parts_of(lengths, pairs, block)
    found = []
    for row in rows:
        starts = [place for place, token in enumerate(row) if token == CLS]
        own = [row[start:stop] for start, stop in zip(starts, [*starts[1:], len(row)], strict=True)]
        assert all(part[-1] == SEP and SEP not in part[:-1] for part in own)
        found += [part[1:-1] for part in own]
    assert sorted(found) == sorted(parts)
    assert sorted(length - len(row) for row in rows) == best_fit([len(part) + 2 for part in parts], length)
    assert counts["documents or parts of them in sequences"] == len(parts) and counts["samples"] == len(rows)
    assert counts["sample tokens"] == sum(map(len, rows))
    if given.continues is not None:
        assert (table.continues == (table.token_ids >= 1000) & (table.token_ids % 3 == 2)).all()


@pytest.mark.parametrize("block", [0, 1])
def test_full_sequences_come_anywhere_and_documents_of_like_length_are_mixed(block):
    lengths = [14] * 40 + [4] * 80
    packed, spans = pack_separately(documents(lengths), PairSettings(18), block, WORDS, Counter())
    rows = [packed.token_ids[a:b] for a, b in zip(spans.first_start, spans.first_stop, strict=True)]
    sizes = [int((row >= 1000).sum()) for row in rows]
    assert sizes.count(14) == 40 and sizes != sorted(sizes) and sizes != sorted(sizes, reverse=True)
    of_long = [int(row[0]) for row in rows if len(row) == 14]
    of_short = [int(row[0]) for row in rows if len(row) != 14]
    for order in (of_long, of_short):
        assert abs(np.corrcoef(order, np.arange(len(order)))[0, 1]) < 0.5

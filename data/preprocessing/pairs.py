"""Next-sentence pairs (Devlin et al., 2019), for all documents of a block at once.

The published procedure walks through a document: it collects sentences up to a target length and ends A after a random
number of them. B is the rest of these sentences or, in half of the cases, text of another document; the rest then
belongs to the next pair.
"""

from collections import Counter
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from bert.arrays.compiled import compiled
from bert.arrays.ragged import ragged_indices
from bert.randomness import integers_below, permutation, stream_key, uniform
from bert.samples.masking import below_at, uniform_at
from bert.samples.sample_table import SampleTable, join_pairs, lengths_with_end
from bert.tokenization.vocabulary import Vocabulary
from data.text.sentences import TokenizedDocuments


@dataclass(frozen=True)
class PairSettings:
    """Settings of pairs.

    Attributes:
        target_seq_length: tokens of the longest pair, special ones included.
    """

    target_seq_length: int
    short_seq_prob: float = 0.1
    duplicate_factor: int = 1
    seed: int = 12345

    def __post_init__(self) -> None:
        if self.target_seq_length < 8:
            raise ValueError(
                f"target_seq_length={self.target_seq_length} must be at least 8: three tokens of a pair "
                "are special (128 and 512 in the paper)"
            )
        if self.target_seq_length > np.iinfo(np.uint16).max:
            raise ValueError(
                f"target_seq_length={self.target_seq_length} must be at most {np.iinfo(np.uint16).max}: "
                "shards keep lengths and positions in 16 bits (128 and 512 in the paper)"
            )
        if not 0.0 <= self.short_seq_prob <= 1.0:
            raise ValueError(f"short_seq_prob={self.short_seq_prob} must lie between 0 and 1 (0.1 in the paper)")
        if self.duplicate_factor < 1:
            raise ValueError(f"duplicate_factor={self.duplicate_factor} must be at least 1")

    def longest_sentence(self) -> int:
        """Tokens of the longest sentence of which two fit into a sample; truncation would lose most of longer ones."""
        return (self.target_seq_length - 3) // 2


@dataclass(frozen=True)
class Spans:
    """n pairs as ranges [start, stop) of a block's tokens: A is the first, B the second.

    A sample whose B is empty is the single sequence [CLS] A [SEP].
    """

    first_start: np.ndarray
    first_stop: np.ndarray
    second_start: np.ndarray
    second_stop: np.ndarray
    is_random_next: np.ndarray

    def __len__(self) -> int:
        return len(self.is_random_next)

    def take(self, rows: np.ndarray | slice) -> "Spans":
        """The given pairs, in their order."""
        return Spans(*(getattr(self, field.name)[rows] for field in fields(self)))

    def first_lengths(self) -> np.ndarray:
        """int64 [n]: tokens of type 0, i.e. len(A) + 2."""
        return self.first_stop - self.first_start + 2

    def lengths(self) -> np.ndarray:
        """int64 [n]: num_tokens of each pair, special ones counted."""
        return self.first_lengths() + lengths_with_end(self.second_stop - self.second_start)

    def tokens_at(self, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """int64: indices in the block's tokens of the `positions` of `rows`, none of which is [CLS] or [SEP]."""
        first = self.first_lengths()[rows]
        return np.where(positions < first, self.first_start[rows] - 1, self.second_start[rows] - first) + positions


SPECIAL_TOKENS = 2  # [CLS] and [SEP] of a sequence
_FEWEST_TOKENS = 8  # of a sequence: the ends of a block's text may be shorter, and are dropped


def pack_documents(
    documents: TokenizedDocuments, settings: PairSettings, block: int, sep_id: int, counts: Counter
) -> tuple[TokenizedDocuments, Spans]:
    """The block's tokens with a [SEP] after each document, and its sequences in random order; B of a span is empty."""
    separated = _separated(documents, sep_id)
    tokens = separated.token_ids
    pieces = [_cut(len(tokens), settings, block, number) for number in range(settings.duplicate_factor)]
    starts, stops = np.concatenate([piece[0] for piece in pieces]), np.concatenate([piece[1] for piece in pieces])
    if len(starts):  # no sequence begins or ends with the [SEP] between two documents
        starts = starts + (tokens[starts] == sep_id)
        stops = stops - (tokens[stops - 1] == sep_id)
    long_enough = stops - starts >= _FEWEST_TOKENS
    counts["tokens dropped at the ends of blocks"] += int(np.maximum(stops - starts, 0)[~long_enough].sum())
    starts, stops = starts[long_enough], stops[long_enough]
    order = permutation(stream_key(settings.seed, "sequence order", block), len(starts))
    starts, stops = starts[order], stops[order]
    spans = Spans(starts, stops, stops, stops, np.zeros(len(starts), bool))
    counts["samples"] += len(spans)
    counts["sample tokens"] += int(spans.lengths().sum())
    return separated, spans


def _separated(documents: TokenizedDocuments, sep_id: int) -> TokenizedDocuments:
    """The documents with a [SEP] at the end of each."""
    ends = documents.sentence_offsets[documents.document_offsets[1:]]
    continues = documents.continues
    return TokenizedDocuments(
        np.insert(documents.token_ids, ends, sep_id),
        documents.sentence_offsets,  # not used any more: sequences are cut from tokens
        documents.document_offsets,
        None if continues is None else np.insert(continues, ends, False),
    )


def _cut(num_tokens: int, settings: PairSettings, block: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """(starts, stops) of one repetition: the first piece has a random length, except in the first repetition."""
    size = settings.target_seq_length - SPECIAL_TOKENS
    first = 0
    if number:
        key = stream_key(settings.seed, "first cut", block, number)
        first = int(integers_below(key, np.zeros(1, np.int64), np.array([size]))[0])
    edges = np.unique(np.concatenate([[0], np.arange(first, num_tokens, size), [num_tokens]]))
    return edges[:-1], edges[1:]


_RANDOM_NEXT_SHARE = 0.5
_BALANCING_WALKS = 4
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)


class _Chunks(NamedTuple):
    """The n chunks of one walk through all documents.

    Attributes:
        start, split, stop: int64 [n], sentences: A is start..split - 1, the rest is split..stop - 1.
        owner: int64 [n], the document.
        target: int64 [n], tokens wanted.
        is_random_next: bool [n]; always true for a chunk of one sentence.
    """

    start: np.ndarray
    split: np.ndarray
    stop: np.ndarray
    owner: np.ndarray
    target: np.ndarray
    is_random_next: np.ndarray

    def is_single(self) -> np.ndarray:
        """bool [n]: whether the chunk has one sentence, so that B must come from another document."""
        return self.stop - self.start == 1


def draw_pairs(
    documents: TokenizedDocuments, settings: PairSettings, block: int, counts: Counter, num_own: int | None = None
) -> Spans:
    """The pairs of a block, in random order.

    Args:
        num_own: pairs are made of the first so many documents; the others only give random next sentences. Default:
            all documents.
    """
    own = documents.document_offsets[: None if num_own is None else num_own + 1]
    keys = [stream_key(settings.seed, "pairs", block, number) for number in range(settings.duplicate_factor)]
    share = _share_of_random_next(documents, own, settings, keys[0], counts)
    rounds = [_round(documents, own, settings, key, share, counts) for key in keys]
    columns = [np.concatenate([getattr(spans, field.name) for spans in rounds]) for field in fields(Spans)]
    order = permutation(stream_key(settings.seed, "pair order", block), len(columns[0]))
    spans = Spans(*(values[order] for values in columns))
    counts["samples"] += len(spans)
    counts["samples with a random next"] += int(spans.is_random_next.sum())
    counts["sample tokens"] += int(spans.lengths().sum())
    return spans


def spans_to_table(
    token_ids: np.ndarray, spans: Spans, vocabulary: Vocabulary, continues: np.ndarray | None = None
) -> SampleTable:
    """The sample table of pairs from the tokens of their block; `continues` as of TokenizedDocuments."""
    ids, offsets = _joined(token_ids, spans, vocabulary.id_of("[CLS]"), vocabulary.id_of("[SEP]"))
    words = None if continues is None else pair_continues(continues, spans)[0]
    return SampleTable(ids, offsets, spans.first_lengths().astype(np.int32), spans.is_random_next, continues=words)


def pair_continues(continues: np.ndarray, spans: Spans) -> tuple[np.ndarray, np.ndarray]:
    """(bool [T], offsets int64 [n + 1]): the tokens of pairs that continue a word, from those of their block."""
    words, offsets = _joined(continues.view(np.uint8), spans, 0, 0)
    return words.view(bool), offsets


def _joined(values: np.ndarray, spans: Spans, cls_value: int, sep_value: int) -> tuple[np.ndarray, np.ndarray]:
    """(values of all tokens [T], offsets int64 [n + 1]): those of the block, with given ones for [CLS] and [SEP]."""
    first, second = spans.first_stop - spans.first_start, spans.second_stop - spans.second_start
    return join_pairs(
        values[ragged_indices(spans.first_start, first)],
        first,
        values[ragged_indices(spans.second_start, second)],
        second,
        cls_value,
        sep_value,
        single=True,
    )


def _share_of_random_next(
    documents: TokenizedDocuments, own: np.ndarray, settings: PairSettings, key: np.uint64, counts: Counter
) -> float:
    """The share of the chunks of several sentences that get a random next sentence, so that half of all samples do.

    Chunks of one sentence always get one. Their number depends slightly on the share, so the first walk is repeated a
    few times with the share corrected. If they are more than half of all, no other chunk gets a random next sentence.
    """
    if len(documents.document_offsets) <= 2:
        counts["blocks of one document, thus without a random next"] += len(documents.document_offsets) == 2
        return 0.0
    share = _RANDOM_NEXT_SHARE
    for _ in range(_BALANCING_WALKS):
        singles = _chunks(documents, own, settings, key, share).is_single().mean()
        share = max(0.0, (_RANDOM_NEXT_SHARE - singles) / (1 - singles)) if singles < 1 else 0.0
    if share == 0.0:
        counts["blocks where over half of the chunks are one sentence, thus over half have a random next"] += 1
    return share


def _chunks(
    documents: TokenizedDocuments, own: np.ndarray, settings: PairSettings, key: np.uint64, share: float
) -> _Chunks:
    """The chunks of one walk through the documents with the offsets `own`.

    `share` of the chunks with several sentences get a random next sentence.
    """
    room = len(documents.sentence_offsets) - 1
    chunks = _Chunks(*(np.empty(room, np.bool_ if name == "is_random_next" else np.int64) for name in _Chunks._fields))
    number = _walk(
        documents.sentence_offsets, own, key, share, settings.target_seq_length - 3, settings.short_seq_prob, chunks
    )
    return _Chunks(*(column[:number] for column in chunks))


@compiled
def _walk(
    tokens: np.ndarray,
    documents: np.ndarray,
    key: np.uint64,
    share: float,
    max_tokens: int,
    short_seq_prob: float,
    chunks: _Chunks,
) -> int:
    """Fill in the chunks; returns their number. The first sentence's position decides a chunk's random numbers."""
    end = 0
    for document in range(len(documents) - 1):
        place, last = documents[document], documents[document + 1]
        while place < last:
            wanted, position = max_tokens, np.uint64(8 * place)
            if uniform_at(key, position) < short_seq_prob:
                wanted = 2 + below_at(key, position + _ONE, max_tokens - 1)
            after = place + 1
            while after < last and tokens[after] < tokens[place] + wanted:
                after += 1
            size = after - place
            num_first = 1 + below_at(key, position + _TWO, size - 1) if size > 1 else 1
            is_random = size == 1 or uniform_at(key, position + _THREE) < share
            chunks.start[end], chunks.split[end], chunks.stop[end] = place, place + num_first, after
            chunks.owner[end], chunks.target[end], chunks.is_random_next[end] = document, wanted, is_random
            # After a random next sentence the rest of the chunk is used again.
            place = place + num_first if is_random else after
            end += 1
    return end


def _round(
    documents: TokenizedDocuments,
    own: np.ndarray,
    settings: PairSettings,
    key: np.uint64,
    share: float,
    counts: Counter,
) -> Spans:
    """The pairs of one walk through the documents with the offsets `own`."""
    tokens, num_documents = documents.sentence_offsets, len(documents.document_offsets) - 1
    chunks = _chunks(documents, own, settings, key, share)
    usable = np.flatnonzero((num_documents > 1) | ~chunks.is_single())
    counts["lone sentences dropped for want of a second document"] += len(chunks.start) - len(usable)
    chunk, split, stop, owner, target, is_random = (column[usable] for column in chunks)
    other = _other_document(owner, num_documents, uniform(key, chunk * 8 + 4))
    first_of_other = documents.document_offsets[other]
    other_start = first_of_other + integers_below(
        key, chunk * 8 + 5, documents.document_offsets[other + 1] - first_of_other
    )
    wanted = np.maximum(target - (tokens[split] - tokens[chunk]), 1)
    other_stop = _sentences_until(tokens, other_start, wanted, documents.document_offsets[other + 1])
    spans = Spans(
        tokens[chunk],
        tokens[split],
        tokens[np.where(is_random, other_start, split)],
        tokens[np.where(is_random, other_stop, stop)],
        is_random,
    )
    return _truncated(
        spans, settings.target_seq_length - 3, uniform(key, chunk * 8 + 6), uniform(key, chunk * 8 + 7), counts
    )


def _sentences_until(tokens: np.ndarray, starts: np.ndarray, wanted: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """The first sentence boundary at least `wanted` tokens after each start, or the limit if that comes first."""
    return np.minimum(np.searchsorted(tokens, tokens[starts] + wanted), limits)


def _other_document(own: np.ndarray, num_documents: int, random: np.ndarray) -> np.ndarray:
    """A document drawn uniformly from all others (the same one if there is no other)."""
    if num_documents < 2:
        return own
    drawn = np.minimum((random * (num_documents - 1)).astype(np.int64), num_documents - 2)
    return drawn + (drawn >= own)


def _truncated(
    spans: Spans, max_tokens: int, random_first: np.ndarray, random_second: np.ndarray, counts: Counter
) -> Spans:
    """Shorten the longer of A and B until both fit; tokens are removed from its two ends in random shares."""
    first, second = spans.first_stop - spans.first_start, spans.second_stop - spans.second_start
    half, other_half = (max_tokens + 1) // 2, max_tokens // 2
    fits = first + second <= max_tokens
    new_first = np.where(second <= other_half, max_tokens - second, np.minimum(first, half))
    new_first = np.where(fits, first, new_first)
    new_second = np.where(fits, second, np.minimum(second, max_tokens - new_first))
    cut_first, cut_second = first - new_first, second - new_second
    counts["tokens cut from long pairs"] += int(cut_first.sum() + cut_second.sum())
    first_start = spans.first_start + (random_first * (cut_first + 1)).astype(np.int64)
    second_start = spans.second_start + (random_second * (cut_second + 1)).astype(np.int64)
    return Spans(first_start, first_start + new_first, second_start, second_start + new_second, spans.is_random_next)

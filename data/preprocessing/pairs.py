"""Makes next-sentence pairs (Devlin et al., 2019), for all documents of a block at once.

The published procedure walks through a document: it collects sentences up to a target length and ends A after a random
number of them. B is the rest of these sentences or, in half of the cases, text of another document; the rest then
belongs to the next pair.
"""

from collections import Counter
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from bert.arrays.compiled import below_at, compiled, uniform_at
from bert.arrays.ragged import ragged_indices
from bert.randomness import integers_below, permutation, stream_key, uniform
from bert.samples.sample_table import SampleTable, Slices, join_pairs, lengths_with_end
from bert.tokenization.vocabulary import Vocabulary
from data.preprocessing.settings import PairSettings
from data.text.sentences import TokenizedDocuments


@dataclass(frozen=True)
class Spans:
    """Pairs A and B as ranges [start, stop) of a block's tokens.

    A sample whose B is empty is the single sequence [CLS] A [SEP].
    """

    first_start: np.ndarray
    first_stop: np.ndarray
    second_start: np.ndarray
    second_stop: np.ndarray
    is_random_next: np.ndarray

    def take(self, rows: np.ndarray | slice) -> "Spans":
        return Spans(*(values[rows] for values in vars(self).values()))

    def lengths(self) -> np.ndarray:
        """Number of tokens of each pair with special tokens, int64 [n]."""
        return self.first_stop - self.first_start + 2 + lengths_with_end(self.second_stop - self.second_start)


def spans_to_table(
    token_ids: np.ndarray, spans: Spans, vocabulary: Vocabulary, continues: np.ndarray | None = None
) -> SampleTable:
    """Sample table of pairs, from the tokens of their block; `continues` as in TokenizedDocuments."""
    first, second = spans.first_stop - spans.first_start, spans.second_stop - spans.second_start

    def joined(values: np.ndarray, cls_value: int, sep_value: int) -> tuple[np.ndarray, np.ndarray]:
        slices = Slices(values, spans.first_start, first), Slices(values, spans.second_start, second)
        return join_pairs(*slices, cls_value, sep_value, single=True)

    ids, offsets = joined(token_ids, vocabulary.id_of("[CLS]"), vocabulary.id_of("[SEP]"))
    words = None if continues is None else joined(continues.view(np.uint8), 0, 0)[0].view(bool)
    return SampleTable(ids, offsets, (first + 2).astype(np.int32), spans.is_random_next, continues=words)


SPECIAL_TOKENS = 2  # [CLS] and [SEP] of a sequence
_FEWEST_TOKENS = 8  # of a sequence: the ends of a block's text may be shorter, and are dropped


def pack_documents(
    documents: TokenizedDocuments, settings: PairSettings, block: int, sep_id: int, counts: Counter
) -> tuple[TokenizedDocuments, Spans]:
    """Sequences in random order from the block's tokens, with a [SEP] after each document; B is empty."""
    ends, continues = documents.sentence_offsets[documents.document_offsets[1:]], documents.continues
    tokens = np.insert(documents.token_ids, ends, sep_id)
    continues = None if continues is None else np.insert(continues, ends, False)
    pieces = [_piece_edges(len(tokens), settings, block, number) for number in range(settings.duplicate_factor)]
    starts, stops = np.concatenate([piece[:-1] for piece in pieces]), np.concatenate([piece[1:] for piece in pieces])
    if len(starts):  # no sequence begins or ends with the [SEP] between two documents
        starts = starts + (tokens[starts] == sep_id)
        stops = stops - (tokens[stops - 1] == sep_id)
    long_enough = stops - starts >= _FEWEST_TOKENS
    counts["tokens dropped at the ends of blocks"] += int(np.maximum(stops - starts, 0)[~long_enough].sum())
    starts, stops = starts[long_enough], stops[long_enough]
    order = permutation(stream_key(settings.seed, "sequence order", block), len(starts))
    spans = Spans(starts, stops, stops, stops, np.zeros(len(starts), bool)).take(order)
    counts["samples"] += len(order)
    counts["sample tokens"] += int(spans.lengths().sum())
    return replace(documents, token_ids=tokens, continues=continues), spans


def _piece_edges(num_tokens: int, settings: PairSettings, block: int, number: int) -> np.ndarray:
    """Edges of the pieces in one repetition: the first piece has a random length, except in the first repetition.

    `short_seq_prob` of the others have a random length too.
    """
    size = settings.target_seq_length - SPECIAL_TOKENS
    first = 0
    if number:
        key = stream_key(settings.seed, "first cut", block, number)
        first = int(integers_below(key, np.zeros(1, np.int64), np.array([size]))[0])
    edges = np.arange(first, num_tokens, size)
    if settings.short_seq_prob:
        key = stream_key(settings.seed, "lengths", block, number)
        least = min(_FEWEST_TOKENS + 2, size)  # of which the [SEP] at either end may be cut
        places = np.arange(num_tokens // least + 1)
        short = least + integers_below(key, 2 * places, np.full(len(places), size - least + 1))
        lengths = np.where(uniform(key, 2 * places + 1) < settings.short_seq_prob, short, size)
        edges = first + np.concatenate([[0], np.cumsum(lengths)])
    return np.unique(np.concatenate([[0], edges[edges < num_tokens], [num_tokens]]))


def pack_separately(
    documents: TokenizedDocuments, settings: PairSettings, block: int, vocabulary: Vocabulary, counts: Counter
) -> tuple[TokenizedDocuments, Spans]:
    """Sequences of whole documents, each with its own [CLS] and [SEP]; long documents are divided.

    The longest come first, each into the fullest sequence that has room for it (best-fit decreasing).
    """
    starts, stops = _document_parts(documents, settings, block)
    shuffled = permutation(stream_key(settings.seed, "parts of documents", block), len(starts))
    shuffled = shuffled[np.argsort(starts[shuffled] - stops[shuffled], kind="stable")]
    sequence_of = np.empty(len(starts), np.int64)
    sizes = (stops - starts)[shuffled] + SPECIAL_TOKENS
    number = _best_fit(sizes, settings.target_seq_length, sequence_of)
    rank = permutation(stream_key(settings.seed, "sequence order", block), number)
    order = shuffled[np.argsort(rank[sequence_of], kind="stable")]
    parts = Spans(starts, stops, stops, stops, np.zeros(len(starts), bool)).take(order)
    table = spans_to_table(documents.token_ids, parts, vocabulary, documents.continues)
    edges = table.offsets[np.append(0, np.cumsum(np.bincount(rank[sequence_of], minlength=number)))]
    first, last = edges[:-1] + 1, edges[1:] - 1  # `spans_to_table` adds the outer [CLS] and [SEP]
    counts["documents or parts of them in sequences"] += len(order)
    counts["samples"] += number
    counts["sample tokens"] += len(table.token_ids)
    documents = replace(documents, token_ids=table.token_ids, continues=table.continues)
    return documents, Spans(first, last, last, last, np.zeros(number, bool))


def _document_parts(documents: TokenizedDocuments, settings: PairSettings, block: int) -> tuple[np.ndarray, np.ndarray]:
    """Start and end of documents, divided to fit a sequence, at other places in each repetition."""
    room = settings.target_seq_length - SPECIAL_TOKENS
    edges = documents.sentence_offsets[documents.document_offsets]
    begin, end = edges[:-1], edges[1:]
    starts, stops = [], []
    for number in range(settings.duplicate_factor):
        key = stream_key(settings.seed, "first cut", block, number)
        most = np.where((end - begin > room) & (number > 0), room, 1)
        first = begin + integers_below(key, np.arange(len(begin)), most)
        counts = -(-(end - first) // room)
        second_starts = np.repeat(first, counts) + ragged_indices(np.zeros_like(counts), counts) * room
        is_cut = first > begin
        starts += [begin[is_cut], second_starts]
        stops += [first[is_cut], np.minimum(second_starts + room, np.repeat(end, counts))]
    return np.concatenate(starts), np.concatenate(stops)


@compiled
def _best_fit(sizes: np.ndarray, capacity: int, sequence_of: np.ndarray) -> int:
    """Assign each part to a sequence by best fit; returns the number of sequences."""
    newest, before = np.full(capacity + 1, -1), np.full(len(sizes), -1)
    number = 0
    for place in range(len(sizes)):
        size = sizes[place]
        room = size
        while room <= capacity and newest[room] < 0:
            room += 1
        if room > capacity:
            room, sequence = capacity, number
            number += 1
        else:
            sequence = newest[room]
            newest[room] = before[sequence]
        sequence_of[place] = sequence
        before[sequence], newest[room - size] = newest[room - size], sequence
    return number


_RANDOM_NEXT_SHARE = 0.5
_BALANCING_WALKS = 4
_LARGEST_SHARE = 0.9  # of a block's sentences; with more in one document the others are too little to draw from
_MOST_PARTS, _LEAST_SENTENCES = 64, 8  # parts of such a document, and sentences of one
_ONE, _TWO, _THREE = np.uint64(1), np.uint64(2), np.uint64(3)


class _Chunks(NamedTuple):
    """The n chunks of one walk through all documents.

    Attributes:
        start, split, stop: int64 [n], sentences: A is start..split - 1, the rest is split..stop - 1.
        owner: int64 [n], the document.
        target: int64 [n], the tokens that the pair should have.
        is_random_next: bool [n]; always true for a chunk of one sentence.
    """

    start: np.ndarray
    split: np.ndarray
    stop: np.ndarray
    owner: np.ndarray
    target: np.ndarray
    is_random_next: np.ndarray

    def is_single(self) -> np.ndarray:
        """Whether a chunk has one sentence, so that B must come from another document: bool [n]."""
        return self.stop - self.start == 1


def draw_pairs(documents: TokenizedDocuments, settings: PairSettings, block: int, counts: Counter) -> Spans:
    """The sentence pairs of a block, in random order."""
    documents = _with_parts(documents, counts)
    keys = [stream_key(settings.seed, "pairs", block, number) for number in range(settings.duplicate_factor)]
    share = _share_of_random_next(documents, settings, keys[0], counts)
    rounds = [_round(documents, settings, key, share, counts) for key in keys]
    spans = Spans(*(np.concatenate([getattr(part, field.name) for part in rounds]) for field in fields(Spans)))
    order = permutation(stream_key(settings.seed, "pair order", block), len(spans.is_random_next))
    counts["samples"] += len(order)
    counts["samples with a random next"] += int(spans.is_random_next.sum())
    counts["sample tokens"] += int(spans.lengths().sum())
    return spans.take(order)


def _with_parts(documents: TokenizedDocuments, counts: Counter) -> TokenizedDocuments:
    """Divide a document that nearly fills the block, so that its parts can be each other's random next sentences."""
    bounds = documents.document_offsets
    sizes = np.diff(bounds)
    longest = int(sizes.max(initial=0))
    num_parts = min(_MOST_PARTS, longest // _LEAST_SENTENCES)
    if num_parts < 2 or longest <= _LARGEST_SHARE * sizes.sum():
        return documents
    place = int(sizes.argmax())
    edges = np.linspace(bounds[place], bounds[place + 1], num_parts + 1).astype(np.int64)
    counts["blocks of one long document, whose random next sentences are of its other parts"] += 1
    return replace(documents, document_offsets=np.union1d(bounds, edges))


def _share_of_random_next(
    documents: TokenizedDocuments, settings: PairSettings, key: np.uint64, counts: Counter
) -> float:
    """Probability of a random next sentence for longer chunks, so that half of all samples have one.

    Chunks of one sentence always get one. Their number depends slightly on the share, so the first walk is repeated a
    few times with the share corrected. If they are more than half of all, no other chunk gets a random next sentence.
    """
    if len(documents.document_offsets) <= 2:
        counts["blocks of one document, thus without a random next"] += len(documents.document_offsets) == 2
        return 0.0
    share = _RANDOM_NEXT_SHARE
    for _ in range(_BALANCING_WALKS):
        singles = _chunks(documents, settings, key, share).is_single().mean()
        share = max(0.0, (_RANDOM_NEXT_SHARE - singles) / (1 - singles)) if singles < 1 else 0.0
    if share == 0.0:
        counts["blocks where over half of the chunks are one sentence, thus over half have a random next"] += 1
    return share


def _chunks(documents: TokenizedDocuments, settings: PairSettings, key: np.uint64, share: float) -> _Chunks:
    """The chunks of one walk through the documents; arguments as in `_walk`."""
    tokens = documents.sentence_offsets
    room = len(tokens) - 1
    chunks = _Chunks(*(np.empty(room, np.bool_ if name == "is_random_next" else np.int64) for name in _Chunks._fields))
    max_tokens = settings.target_seq_length - 3
    number = _walk(tokens, documents.document_offsets, key, share, max_tokens, settings.short_seq_prob, chunks)
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
    """Fill in the chunks; returns their number. Random numbers depend on the chunk's first sentence.

    `share` of the chunks with several sentences get a random next sentence.
    """
    end = 0
    for document in range(len(documents) - 1):
        place, last = documents[document], documents[document + 1]
        while place < last:
            target, position = max_tokens, np.uint64(8 * place)
            if uniform_at(key, position) < short_seq_prob:
                target = 2 + below_at(key, position + _ONE, max_tokens - 1)
            after = place + 1
            while after < last and tokens[after] < tokens[place] + target:
                after += 1
            size = after - place
            num_first = 1 + below_at(key, position + _TWO, size - 1) if size > 1 else 1
            is_random = size == 1 or uniform_at(key, position + _THREE) < share
            chunks.start[end], chunks.split[end], chunks.stop[end] = place, place + num_first, after
            chunks.owner[end], chunks.target[end], chunks.is_random_next[end] = document, target, is_random
            # After a random next sentence the rest of the chunk is used again.
            place = place + num_first if is_random else after
            end += 1
    return end


def _round(
    documents: TokenizedDocuments, settings: PairSettings, key: np.uint64, share: float, counts: Counter
) -> Spans:
    tokens, bounds = documents.sentence_offsets, documents.document_offsets
    num_others = len(bounds) - 2
    chunks = _chunks(documents, settings, key, share)
    usable = np.flatnonzero((num_others > 0) | ~chunks.is_single())
    counts["lone sentences dropped for want of a second document"] += len(chunks.start) - len(usable)
    start, split, stop, owner, target, is_random = (column[usable] for column in chunks)
    other = owner
    if num_others > 0:  # drawn uniformly from all other documents
        other = integers_below(key, start * 8 + 4, num_others)
        other += other >= owner
    other_start = bounds[other] + integers_below(key, start * 8 + 5, bounds[other + 1] - bounds[other])
    missing = np.maximum(target - (tokens[split] - tokens[start]), 1)
    other_stop = np.minimum(np.searchsorted(tokens, tokens[other_start] + missing), bounds[other + 1])
    spans = Spans(
        tokens[start],
        tokens[split],
        tokens[np.where(is_random, other_start, split)],
        tokens[np.where(is_random, other_stop, stop)],
        is_random,
    )
    random = uniform(key, start * 8 + 6), uniform(key, start * 8 + 7)
    return _truncated(spans, settings.target_seq_length - 3, *random, counts)


def _truncated(
    spans: Spans, max_tokens: int, random_first: np.ndarray, random_second: np.ndarray, counts: Counter
) -> Spans:
    """Shorten the longer of A and B until both fit, by tokens from its two ends in random shares."""
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

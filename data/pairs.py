"""Next-sentence pairs (Devlin et al., 2019), for all documents of a block at once.

The published procedure walks through a document: it collects sentences up to a target length, ends A after a random
number of them, and lets B be the rest or, in half of the cases, text of another document, in which case the rest is
used again. Where a chunk that starts at sentence i ends, and where the next one starts, depends on i and its random
numbers alone. So these are computed for every sentence as if a chunk started there; following the links from the
first sentence then gives the chunks that exist.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from bert.randomness import integers_below, permutation, stream_key, uniform
from bert.samples import SampleTable, join_pairs, ragged_indices
from bert.tokenization import Vocabulary
from data.sentences import TokenizedDocuments

_RANDOM_NEXT_SHARE = 0.5


@dataclass(frozen=True)
class PairSettings:
    """target_seq_length: tokens of the longest pair, special ones counted; short_seq_prob: share of chunks with a
    random shorter target; duplicate_factor: how often each document is walked through; seed."""

    target_seq_length: int
    short_seq_prob: float = 0.1
    duplicate_factor: int = 1
    seed: int = 12345

    def __post_init__(self) -> None:
        if self.target_seq_length < 8:
            raise ValueError(f"target_seq_length={self.target_seq_length} must be at least 8: three tokens of a pair "
                             "are special (128 and 512 in the paper)")
        if not 0.0 <= self.short_seq_prob <= 1.0:
            raise ValueError(f"short_seq_prob={self.short_seq_prob} must lie between 0 and 1 (0.1 in the paper)")
        if self.duplicate_factor < 1:
            raise ValueError(f"duplicate_factor={self.duplicate_factor} must be at least 1")


@dataclass(frozen=True)
class _Spans:
    """Token ranges [start, stop) of A and B of n pairs."""

    first_start: np.ndarray
    first_stop: np.ndarray
    second_start: np.ndarray
    second_stop: np.ndarray
    is_random_next: np.ndarray


def make_pairs(documents: TokenizedDocuments, vocabulary: Vocabulary, settings: PairSettings, block: int,
               counts: Counter) -> SampleTable:
    """The samples of a block, in random order."""
    rounds = [_round(documents, settings, stream_key(settings.seed, "pairs", block, number), counts)
              for number in range(settings.duplicate_factor)]
    spans = [np.concatenate([getattr(spans, name) for spans in rounds])
             for name in ("first_start", "first_stop", "second_start", "second_stop", "is_random_next")]
    order = permutation(stream_key(settings.seed, "pair order", block), len(spans[0]))
    first_start, first_stop, second_start, second_stop, is_random_next = (values[order] for values in spans)
    first, second = first_stop - first_start, second_stop - second_start
    ids, offsets = join_pairs(documents.token_ids[ragged_indices(first_start, first)], first,
                              documents.token_ids[ragged_indices(second_start, second)], second,
                              vocabulary.id_of("[CLS]"), vocabulary.id_of("[SEP]"))
    counts["samples"] += len(order)
    counts["samples with a random next"] += int(is_random_next.sum())
    counts["sample tokens"] += len(ids)
    return SampleTable(ids, offsets, (first + 2).astype(np.int32), is_random_next)


def _round(documents: TokenizedDocuments, settings: PairSettings, key: np.uint64, counts: Counter) -> _Spans:
    """One walk through all documents."""
    tokens = documents.sentence_offsets
    num_documents, num_sentences = len(documents.document_offsets) - 1, len(tokens) - 1
    starts = np.arange(num_sentences)
    owner = np.repeat(np.arange(num_documents), np.diff(documents.document_offsets))
    document_stop = documents.document_offsets[1:][owner]
    max_tokens = settings.target_seq_length - 3

    def draw(purpose: int, positions: np.ndarray) -> np.ndarray:
        return uniform(key, positions * 8 + purpose)

    is_short = draw(0, starts) < settings.short_seq_prob
    target = np.where(is_short, integers_below(key, starts * 8 + 1, max_tokens - 1) + 2, max_tokens)
    stop = _sentences_until(tokens, starts, target, document_stop)
    size = stop - starts
    num_first = np.where(size > 1, 1 + integers_below(key, starts * 8 + 2, np.maximum(size - 1, 1)), 1)
    random = ((draw(3, starts) < _RANDOM_NEXT_SHARE) | (size == 1)) & (num_documents > 1)
    following = np.where(random, starts + num_first, stop)
    chunk = _follow(following)
    usable = random[chunk] | (size[chunk] > 1)
    counts["lone sentences dropped for want of a second document"] += int((~usable).sum())
    chunk = chunk[usable]
    split, is_random = chunk + num_first[chunk], random[chunk]
    other = _other_document(owner[chunk], num_documents, draw(4, chunk))
    first_of_other = documents.document_offsets[other]
    other_start = first_of_other + integers_below(key, chunk * 8 + 5, documents.document_offsets[other + 1]
                                                  - first_of_other)
    wanted = np.maximum(target[chunk] - (tokens[split] - tokens[chunk]), 1)
    other_stop = _sentences_until(tokens, other_start, wanted, documents.document_offsets[other + 1])
    spans = _Spans(tokens[chunk], tokens[split], tokens[np.where(is_random, other_start, split)],
                   tokens[np.where(is_random, other_stop, stop[chunk])], is_random)
    return _truncated(spans, max_tokens, draw(6, chunk), draw(7, chunk), counts)


def _sentences_until(tokens: np.ndarray, starts: np.ndarray, wanted: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """The first sentence boundary at least `wanted` tokens after each start, or the limit if that comes first."""
    return np.minimum(np.searchsorted(tokens, tokens[starts] + wanted), limits)


def _follow(following: np.ndarray) -> np.ndarray:
    """0, following[0], following[following[0]], ... up to the end."""
    links, visited, place = following.tolist(), [], 0
    while place < len(links):
        visited.append(place)
        place = links[place]
    return np.array(visited, np.int64)


def _other_document(own: np.ndarray, num_documents: int, random: np.ndarray) -> np.ndarray:
    """A document drawn evenly from all but one's own (one's own if there is no other)."""
    if num_documents < 2:
        return own
    drawn = np.minimum((random * (num_documents - 1)).astype(np.int64), num_documents - 2)
    return drawn + (drawn >= own)


def _truncated(spans: _Spans, max_tokens: int, random_first: np.ndarray, random_second: np.ndarray,
               counts: Counter) -> _Spans:
    """Shorten the longer of A and B until both fit; what goes is taken from its two ends in random shares."""
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
    return _Spans(first_start, first_start + new_first, second_start, second_start + new_second, spans.is_random_next)

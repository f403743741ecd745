"""Ranks the passages of an index for a query, by words, vectors or both, and finds the best sentence of each hit."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bert.search import Ranking
from bert.search.fusion import hybrid
from bert.search.ranking import best_rows
from bert.search.segments import Passage
from bert.search.snapshot import Filters, Snapshot
from bert.search.words import words_of
from data.text.sentences import split_sentences

_ITEM = re.compile(r"(?<=\n)(?=[ \t]*(?:[|*+-]|\d+[.)])[ \t])")  # the place before a list item or table row
_MOST_SCORES = 1 << 24  # scores that are held in memory at a time, 64 MB


@dataclass(frozen=True)
class Query:
    """A search query with its filters and its ranking.

    Attributes:
        top_k: number of passages to find.
        filters: column -> value; only passages that have these values are found.
    """

    text: str
    top_k: int = 10
    filters: Filters = field(default_factory=dict)
    ranking: Ranking = "hybrid"
    rerank: bool | int | None = None  # an int: only so many hits; None: if there is a reranker


class Rank(NamedTuple):
    row: int  # number of the passage in the snapshot
    score: float


@dataclass(frozen=True)
class Hit:
    """A search result: a passage with its score and its best sentence.

    Attributes:
        score: a sum of standardised scores, a cosine or a BM25 score, by the ranking of the query.
        sentence: (start, end) of the sentence that fits best, in characters of the passage.
    """

    passage: Passage
    score: float
    sentence: tuple[int, int]

    def to_result(self) -> dict[str, Any]:
        """The hit as a dictionary for JSON."""
        passage, (start, end) = self.passage, self.sentence
        place = {"id": passage.id, "part": passage.part, "source": passage.source, "line": passage.line}
        sentence = {"text": passage.text[start:end], "start": start, "end": end}
        return {
            **place,
            "score": round(self.score, 4),
            "text": passage.text,
            "sentence": sentence,
            "columns": dict(passage.columns),
        }


def ranks(snapshot: Snapshot, queries: Sequence[Query], vectors: np.ndarray | None, weight: float) -> list[list[Rank]]:
    """Rank the passages for each query, best first. A ranking by words finds only passages that share a word.

    Args:
        vectors: float32 [queries, width], of length 1; None if all are ranked by words.
        weight: the share of the vectors in the hybrid ranking.
    Raises:
        ValueError: a filter is wrong.
    """
    found, size = list[list[Rank]](), max(1, _MOST_SCORES // max(1, len(snapshot)))
    for first in range(0, len(queries), size):
        some = queries[first : first + size]
        cosines = None
        if vectors is not None and any(query.ranking != "words" for query in some):
            cosines = snapshot.cosines(vectors[first : first + size])
        for place, query in enumerate(some):
            row = None if cosines is None else cosines[place]
            found.append(_best(_scores(snapshot, query, row, weight), query.top_k))
    return found


def _scores(snapshot: Snapshot, query: Query, cosines: np.ndarray | None, weight: float) -> np.ndarray:
    """The score of each passage, float32 [passages]; -inf for a passage that the query does not find."""
    allowed = snapshot.matching(query.filters)
    if query.ranking == "vectors":
        assert cosines is not None
        return np.where(allowed, cosines, -np.inf)
    words = snapshot.words.scores(query.text)
    if query.ranking == "words":
        return np.where(allowed & (words > 0), words, -np.inf)
    assert cosines is not None
    return np.where(allowed, hybrid(words, cosines, weight, ~allowed), -np.inf)


def _best(scores: np.ndarray, number: int) -> list[Rank]:
    """The passages with the highest scores, best first; of equal scores the earlier passage comes first."""
    rows = best_rows(scores, number)
    return [Rank(row, score) for row, score in zip(rows, scores[rows].tolist(), strict=True)]


def hits(snapshot: Snapshot, query: str, found: Sequence[Rank], language: str) -> list[Hit]:
    """Turn ranks into hits: each passage with the sentence that shares the most, and rarest, words with the query."""
    weights = snapshot.words.weights(query)
    passages = snapshot.passages([rank.row for rank in found])
    return [
        Hit(passage, rank.score, _best_sentence(passage.text, weights, language))
        for passage, rank in zip(passages, found, strict=True)
    ]


def _sentences(text: str, language: str) -> Iterator[str]:
    """Split a text into sentences, list items and table rows; joined, they give the text."""
    for sentence in split_sentences(text, language, Counter()):
        yield from _ITEM.split(sentence)


def _best_sentence(text: str, weights: Mapping[str, float], language: str) -> tuple[int, int]:
    """(start, end) of the sentence whose words have the largest sum of weights; of equal sentences the first."""
    best, most, start = (0, len(text)), -1.0, 0
    for sentence in _sentences(text, language):
        score = sum(weights.get(word, 0.0) for word in {*words_of(sentence)})
        if score > most and sentence.strip():
            begin = start + len(sentence) - len(sentence.lstrip())
            best, most = (begin, start + len(sentence.rstrip())), score
        start += len(sentence)
    return best

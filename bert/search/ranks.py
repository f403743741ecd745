"""The passages that answer a query: ranked by words, by vectors or by both, with the sentence that fits best."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bert.search import Ranking
from bert.search.fusion import USUAL_WEIGHT, hybrid
from bert.search.ranking import best_rows
from bert.search.segments import Passage
from bert.search.snapshot import Filters, Snapshot
from bert.search.words import words_of
from data.text.sentences import split_sentences

_ITEM = re.compile(r"(?<=\n)(?=[ \t]*(?:[|*+-]|\d+[.)])[ \t])")  # before it begins
_MOST_SCORES = 1 << 24  # scores that are held at a time, 64 MB


@dataclass(frozen=True)
class Query:
    """A question to an index.

    Attributes:
        top_k: passages to find.
        filters: only passages that have these values.
    """

    text: str
    top_k: int = 10
    filters: Filters = field(default_factory=dict)
    ranking: Ranking = "hybrid"
    rerank: bool | int | None = None  # by a reranker, or so many hits alone; None: if there is one


class Rank(NamedTuple):
    row: int  # of the passage in the snapshot
    score: float


@dataclass(frozen=True)
class Hit:
    """A passage that was found.

    Attributes:
        score: by the ranking: the sum of standardised scores, a cosine, or BM25.
        sentence: the first character of the sentence that fits best, and the one after its last.
    """

    passage: Passage
    score: float
    sentence: tuple[int, int]

    def to_result(self) -> dict[str, Any]:
        """For JSON."""
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


def ranks(
    snapshot: Snapshot, queries: Sequence[Query], vectors: np.ndarray | None, weight: float | None
) -> list[list[Rank]]:
    """The best passages of each query, best first. Only passages that have a word of it are found by words.

    Args:
        vectors: float32 [queries, width], of length 1; None if all are ranked by words.
        weight: the share of the vectors in the hybrid ranking; None: the usual share.
    Raises:
        ValueError: a filter is wrong.
    """
    found, size = list[list[Rank]](), max(1, _MOST_SCORES // max(1, len(snapshot)))
    share = USUAL_WEIGHT if weight is None else weight
    for first in range(0, len(queries), size):
        some = queries[first : first + size]
        cosines = None
        if vectors is not None and any(query.ranking != "words" for query in some):
            cosines = snapshot.cosines(vectors[first : first + size])
        for place, query in enumerate(some):
            row = None if cosines is None else cosines[place]
            found.append(_best(_scores(snapshot, query, row, share), query.top_k))
    return found


def _scores(snapshot: Snapshot, query: Query, cosines: np.ndarray | None, weight: float) -> np.ndarray:
    """The score of each passage, float32 [passages]; -inf of those that are not found."""
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
    """The highest scores, best first; of equal ones the earlier passage."""
    rows = best_rows(scores, number)
    return [Rank(row, score) for row, score in zip(rows, scores[rows].tolist(), strict=True)]


def hits(snapshot: Snapshot, query: str, found: Sequence[Rank], language: str) -> list[Hit]:
    """The passages of ranks, each with its sentence that has most of the query's words, by how rare they are."""
    weights = snapshot.words.weights(query)
    passages = snapshot.passages([rank.row for rank in found])
    return [
        Hit(passage, rank.score, _best_sentence(passage.text, weights, language))
        for passage, rank in zip(passages, found, strict=True)
    ]


def _sentences(text: str, language: str) -> Iterator[str]:
    """The sentences of a text, and each item of a list or row of a table; joining them gives the text."""
    for sentence in split_sentences(text, language, Counter()):
        yield from _ITEM.split(sentence)


def _best_sentence(text: str, weights: Mapping[str, float], language: str) -> tuple[int, int]:
    """Where the sentence begins and ends that has the most of some words; of equal ones the first."""
    best, most, start = (0, len(text)), -1.0, 0
    for sentence in _sentences(text, language):
        score = sum(weights.get(word, 0.0) for word in {*words_of(sentence)})
        if score > most and sentence.strip():
            begin = start + len(sentence) - len(sentence.lstrip())
            best, most = (begin, start + len(sentence.rstrip())), score
        start += len(sentence)
    return best

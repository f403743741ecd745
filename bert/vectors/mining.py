"""Mines hard negatives: passages that the model or BM25 ranks high for a query, although they do not answer it.

A passage that is as near to the query as its answer may be an answer that nobody marked. So a candidate is refused if
its cosine with the query exceeds a share of the cosine of the answer, the positive (positive-aware mining: de Souza
Moreira et al., 2024, "NV-Retriever").
"""

from collections.abc import Iterator, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bert.arrays.vectors import unit
from bert.randomness import permutation, stream_key
from bert.reporting.progress import progress
from bert.search.words import WordIndex
from bert.vectors.mining_rule import MiningRule
from bert.vectors.pairs import are_relevant, relevant_keys

if TYPE_CHECKING:
    import pandas as pd

_QUERIES = 128  # queries whose scores are computed at a time: 50 MB for 100,000 passages


class MinedNegatives(NamedTuple):
    """The mined negatives of each pair, and counts over all pairs.

    Attributes:
        negatives: negative passages of each pair, the hardest first.
        candidates: number of candidates before the margin was applied.
        refused: number of candidates that the margin refused.
    """

    negatives: list[list[str]]
    candidates: int
    refused: int


class _Passages(NamedTuple):
    """The p passages from which negatives are mined."""

    texts: Sequence[str]
    alike: np.ndarray  # int64 [p], all different; a nearly equal passage of another pair has the same number
    units: np.ndarray  # float32 [p, width], vectors of length 1


class _Queries(NamedTuple):
    """The q different queries of the pairs."""

    texts: np.ndarray
    alike: np.ndarray  # int64 [q], number of the passage that equals the query; -1: none
    units: np.ndarray
    relevant: np.ndarray  # the `relevant_keys` of all pairs
    num_passages: int  # larger than each number in `alike`


def different_queries(pairs: "pd.DataFrame") -> list[str]:
    """The distinct queries of pairs in order of first occurrence; `mine` takes their vectors."""
    return pairs["query"][~pairs.duplicated("plain_query")].tolist()


def drawn(number: int, most: int, seed: int) -> np.ndarray:
    """Draw at most `most` of `number` pairs by the seed; returns their places, int64, ascending."""
    return np.sort(permutation(stream_key(seed, "mined pairs"), number)[:most])


def mine(
    pairs: "pd.DataFrame",
    answers: "pd.DataFrame",
    passages: "pd.DataFrame",
    vectors: np.ndarray,
    words: WordIndex,
    rule: MiningRule,
) -> MinedNegatives:
    """Mine the negatives of training pairs among their passages. The result depends on the arguments alone.

    Args:
        pairs: the pairs that get negatives.
        answers: all training pairs, with or without negatives: no passage of a query becomes its negative.
        passages: the `searched` rows of `pairs`, which have no two nearly equal passages.
        vectors: float32 [q + p, width]: vectors of the `different_queries`, then of the passages.
        words: BM25 index of the passages.
    """
    import pandas as pd

    codes, plain_queries = pd.factorize(pairs.plain_query)
    number, units = int(codes.max()) + 1, unit(vectors).astype(np.float32, copy=False)
    found = _Passages(passages.passage.tolist(), passages.alike.to_numpy(), units[number:])
    as_passage = dict(zip(answers.plain_passage, answers.alike, strict=True))
    own = np.array([as_passage.get(text, -1) for text in plain_queries], np.int64)
    of_answers = pd.Index(plain_queries).get_indexer(answers.plain_query)  # -1: of no query here
    size, known = int(answers.alike.max()) + 1, of_answers >= 0
    keys = relevant_keys(of_answers[known], answers.alike.to_numpy()[known], size)
    texts = np.array(different_queries(pairs), object)
    queries = _Queries(texts, own, units[:number], keys, size)
    positives = pd.Index(found.alike).get_indexer(pairs.alike)  # the place of each pair's passage
    pairs_of = pd.Series(np.arange(len(pairs))).groupby(codes).indices
    negatives, candidates, refused = [list[str]() for _ in codes], 0, 0
    with progress("mining negatives", number, "queries") as bar:
        for first in range(0, number, _QUERIES):
            block = np.arange(first, min(first + _QUERIES, number))
            for query, places, cosines in _candidates(queries, found, words, block, rule):
                for pair in pairs_of[query]:
                    most = _highest(cosines[positives[pair]], rule.share)
                    hard = [place for place in places if cosines[place] <= most]
                    negatives[pair] = [found.texts[place] for place in hard[: rule.number]]
                    candidates, refused = candidates + len(places), refused + len(places) - len(hard)
            bar.update(len(block))
    return MinedNegatives(negatives, candidates, refused)


def _highest(cosine: float, share: float) -> float:
    """The highest cosine that a negative may have; it is at most the positive's cosine, whatever its sign."""
    return cosine - (1 - share) * abs(cosine)


def _candidates(
    queries: _Queries, passages: _Passages, words: WordIndex, block: np.ndarray, rule: MiningRule
) -> Iterator[tuple[int, list[int], np.ndarray]]:
    """Yield (query, places of its candidates, its cosines with all passages) for each query of a block.

    Candidates of the sources alternate, the hardest first. No candidate answers the query or equals it.
    """
    cosines = queries.units[block] @ passages.units.T
    is_wrong = ~are_relevant(queries.relevant, block, passages.alike, queries.num_passages)
    is_wrong &= queries.alike[block][:, None] != passages.alike
    best = list[list[list[int]]]()
    for source in rule.sources:
        if source == "model":
            best.append(_best(np.where(is_wrong, cosines, -np.inf), rule.depth))
        else:
            scores = words.score_matrix(list(queries.texts[block]))
            best.append(_best(np.where(is_wrong & (scores > 0), scores, -np.inf), rule.depth))
    for query, row, *turns in zip(block, cosines, *best, strict=True):
        in_turn = chain.from_iterable(zip_longest(*turns))
        yield int(query), list(dict.fromkeys(place for place in in_turn if place is not None)), row


def _best(scores: np.ndarray, depth: int) -> list[list[int]]:
    """Places of the `depth` highest finite scores of each row, best first; of equal scores the earlier place first."""
    depth = min(depth, scores.shape[1])
    # Of scores equal to the last, argpartition takes any: ties are broken here by place.
    least = np.partition(scores, scores.shape[1] - depth, axis=1)[:, -depth]
    rows = list[list[int]]()
    for row, bound in zip(scores, least, strict=True):
        places = np.flatnonzero((row >= bound) & np.isfinite(row))
        rows.append(places[np.argsort(-row[places], kind="stable")][:depth].tolist())
    return rows

"""Mined negatives by the definition, in plain Python: all passages of one pair after the other, no blocks."""

import math
from collections.abc import Mapping, Sequence


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    product = sum(first * second for first, second in zip(one, other, strict=True))
    return product / (math.hypot(*one) * math.hypot(*other))


def mined(
    pairs: Sequence[tuple[str, str]],
    alike: Mapping[str, int],
    vectors: Mapping[str, Sequence[float]],
    words: Mapping[str, Sequence[float]],
    *,
    number: int,
    share: float,
    depth: int,
    sources: Sequence[str],
) -> list[tuple[list[str], int]]:
    """Return the negatives of each pair, and how many candidates the margin refused.

    Args:
        alike: by text, equal for nearly equal texts; also of queries that are passages.
        words: by query, the BM25 score of each different passage, in their order.
    """
    passages = list[str]()
    for _, passage in pairs:
        if alike[passage] not in [alike[text] for text in passages]:
            passages.append(passage)
    results = []
    for query, positive in pairs:
        answers = {alike[passage] for other, passage in pairs if other == query} | {alike.get(query, -1)}
        others = [text for text in passages if alike[text] not in answers and text != query]
        near = {text: cosine(vectors[query], vectors[text]) for text in passages}
        scores = dict(zip(passages, words[query], strict=True))
        by_source = {
            "model": sorted(others, key=lambda text: -near[text])[:depth],
            "words": sorted((text for text in others if scores[text] > 0), key=lambda text: -scores[text])[:depth],
        }
        candidates = list[str]()
        for place in range(depth):
            for source in sources:
                candidates += by_source[source][place : place + 1]
        candidates = list(dict.fromkeys(candidates))
        kept = next(text for text in passages if alike[text] == alike[positive])
        most = near[kept] - (1 - share) * abs(near[kept])
        hard = [text for text in candidates if near[text] <= most]
        results.append((hard[:number], len(candidates) - len(hard)))
    return results

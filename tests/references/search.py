"""Search in plain Python, written from the definitions: words, BM25, figures of a ranking, hybrid scores."""

import math
from collections import Counter


def words_of(text: str) -> list[str]:
    """Return lower-case words of letters and digits, Chinese and Japanese characters; a joined_name, then its parts."""
    words = list[str]()
    for word in text.lower().split():
        parts = [part for piece in word.split("_") for part in _words_without_joins(piece)]
        if "_" in word and len(parts) > 1:
            words.append(word)
        words += parts
    return words


def _words_without_joins(text: str) -> list[str]:
    words, word = list[str](), ""
    for letter in f"{text} ":
        is_cjk = any(first <= letter <= last for first, last in ("\u3040\u30ff", "\u3400\u9fff", "\uf900\ufaff"))
        if word and (is_cjk or not letter.isalnum()):
            words.append(word)
            word = ""
        if is_cjk:
            words.append(letter)
        elif letter.isalnum():
            word += letter
    return words


def lucene_scores(queries: list[list[str]], passages: list[list[str]]) -> list[list[float]]:
    """Compute BM25 as Lucene does, k1 = 0.9 and b = 0.4; a passage without a word counts as one word long."""
    lengths = [max(1, len(words)) for words in passages]
    mean = sum(lengths) / len(lengths)
    having = Counter(word for words in passages for word in set(words))
    scores = []
    for query in queries:
        row = []
        for words, length in zip(passages, lengths, strict=True):
            counts, score = Counter(words), 0.0
            for word in query:
                rarity = math.log(1 + (len(passages) - having[word] + 0.5) / (having[word] + 0.5))
                score += rarity * counts[word] / (counts[word] + 0.9 * (1 - 0.4 + 0.4 * length / mean))
            row.append(score)
        scores.append(row)
    return scores


def search_figures(
    scores: list[list[float]], answers: list[list[bool]], itself: list[list[bool]], depth: int
) -> dict[str, list[float]]:
    """Return the figures of each query, passage by passage; at equal scores the first passage is nearer."""
    figures: dict[str, list[float]] = {name: [] for name in ("recall_at_1", "recall_at_10", "mrr_at_10", "ndcg_at_10")}
    for row, answer, own in zip(scores, answers, itself, strict=True):
        others = [place for place in range(len(row)) if not own[place]]
        relevant = [place for place in others if answer[place]]
        ranking = [place for place in sorted(others, key=lambda place: -row[place]) if row[place] > -math.inf][:depth]
        hits = [rank for rank, place in enumerate(ranking, 1) if place in relevant]
        possible = max(1, min(len(relevant), depth))
        best = sum(1 / math.log2(rank + 1) for rank in range(1, possible + 1))
        figures["recall_at_1"].append(float(1 in hits))
        figures["recall_at_10"].append(len(hits) / possible)
        figures["mrr_at_10"].append(1 / hits[0] if hits else 0.0)
        figures["ndcg_at_10"].append(sum(1 / math.log2(rank + 1) for rank in hits) / best)
    return figures


def standardised(row: list[float], own: list[bool]) -> list[float]:
    """Return (x - mean) / standard deviation over all passages except the query itself; equal numbers give 0."""
    counted = [value for value, is_own in zip(row, own, strict=True) if not is_own]
    if len(set(counted)) < 2:
        return [0.0] * len(row)
    mean = sum(counted) / len(counted)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in counted) / len(counted))
    return [(value - mean) / deviation for value in row]


def hybrid_scores(
    words: list[list[float]], cosines: list[list[float]], weights: list[float], itself: list[list[bool]]
) -> list[list[float]]:
    """Return weight x standardised cosine + (1 - weight) x standardised score of words; each query has a weight."""
    scores = []
    for word_row, cosine_row, weight, own in zip(words, cosines, weights, itself, strict=True):
        pairs = zip(standardised(cosine_row, own), standardised(word_row, own), strict=True)
        scores.append([weight * cosine + (1 - weight) * word for cosine, word in pairs])
    return scores


def mean_reciprocal_ranks(
    words: list[list[float]], cosines: list[list[float]], answers: list[list[bool]], itself: list[list[bool]]
) -> dict[float, float]:
    """Map each weight 0, 0.05 ... 1 to MRR@10 of the hybrid scores."""
    means = {}
    for step in range(21):
        weight = step / 20
        scores = hybrid_scores(words, cosines, [weight] * len(words), itself)
        ranks = search_figures(scores, answers, itself, 10)["mrr_at_10"]
        means[weight] = sum(ranks) / len(ranks)
    return means

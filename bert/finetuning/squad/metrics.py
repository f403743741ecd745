"""The official scores of SQuAD 1.1 and 2.0 (Rajpurkar et al., 2016; 2018), in percent.

Answers are compared as lists of words, after lower-casing and without ASCII punctuation and articles. The best match
among several right answers counts.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from bert.finetuning.squad.examples import SquadExamples

_WITHOUT_PUNCTUATION = {ord(character): None for character in string.punctuation}
_ARTICLES = re.compile(r"\b(a|an|the)\b")


@lru_cache(maxsize=1 << 16)
def normalized_words(text: str) -> tuple[str, ...]:
    """The words of a text that are compared."""
    return tuple(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_match(prediction: str, answer: str) -> float:
    """1.0 if both have the same words in the same order, else 0.0."""
    return float(normalized_words(prediction) == normalized_words(answer))


def f1(prediction: str, answer: str, empty_matches_empty: bool) -> float:
    """F1 of the multisets of words.

    Args:
        prediction, answer: texts.
        empty_matches_empty: whether two texts without words score 1 (SQuAD 2.0) or 0 (1.1).
    """
    predicted, right = normalized_words(prediction), normalized_words(answer)
    if not predicted or not right:
        return float(empty_matches_empty and predicted == right)
    common = sum((Counter(predicted) & Counter(right)).values())
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(right)
    return 2 * precision * recall / (precision + recall)


def answers_of(examples: SquadExamples) -> dict[str, tuple[str, ...]]:
    """Question id -> the texts of its right answers; none for an unanswerable question."""
    return {question.id: tuple(answer.text for answer in question.answers) for question in examples.questions}


def score_squad_1(answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, float]:
    """exact_match and f1 of SQuAD 1.1; a question without prediction scores 0."""
    _require_questions(answers)
    totals = {"exact_match": 0.0, "f1": 0.0}
    for identity, right in answers.items():
        if not right:
            raise ValueError(
                f"question {identity!r} has no right answer and cannot be scored as SQuAD 1.1; "
                "pass --version-2-with-negative"
            )
        prediction = predictions.get(identity)
        if prediction is not None:
            totals["exact_match"] += max(exact_match(prediction, text) for text in right)
            totals["f1"] += max(f1(prediction, text, empty_matches_empty=False) for text in right)
    return {name: 100.0 * total / len(answers) for name, total in totals.items()}


def score_squad_2(answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, float]:
    """The scores of SQuAD 2.0.

    Args:
        answers: right answers by question; none for an unanswerable question.
        predictions: by question, "" for no answer. Questions without one do not count, as in the official evaluation.
    Returns:
        exact, f1 and total of all questions, of the answerable (HasAns_...) and the unanswerable ones (NoAns_...), if
        there are any.
    """
    _require_questions(answers)
    scored = [identity for identity in answers if identity in predictions]
    if not scored:
        raise ValueError(f"none of the {len(answers)} questions has a prediction; are the predictions of another file?")
    groups = {
        "": scored,
        "HasAns_": [identity for identity in scored if answers[identity]],
        "NoAns_": [identity for identity in scored if not answers[identity]],
    }
    result: dict[str, float] = {}
    for name, scores in _raw_scores(answers, predictions).items():
        for prefix, members in groups.items():
            if members:
                result[prefix + name] = 100.0 * sum(scores[identity] for identity in members) / len(members)
                result[prefix + "total"] = len(members)
    return result


def best_thresholds(
    answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> dict[str, float]:
    """best_exact, best_f1 and their thresholds, best_exact_thresh and best_f1_thresh, of SQuAD 2.0.

    Args:
        predictions: the best answers before any threshold; a prediction emptied by one hides higher thresholds.
        null_odds: by question, the score of no answer relative to the best answer.
    """
    if lacking := [identity for identity in predictions if identity not in null_odds]:
        raise ValueError(
            f"null_odds lacks {len(lacking)} of {len(predictions)} questions, e.g. {lacking[0]!r}; it must have a "
            "number for each"
        )
    answerable = {identity: bool(right) for identity, right in answers.items()}
    result: dict[str, float] = {}
    for name, scores in _raw_scores(answers, predictions).items():
        result[f"best_{name}"], result[f"best_{name}_thresh"] = best_threshold(
            scores, predictions, null_odds, answerable
        )
    return result


def best_threshold(
    scores: Mapping[str, float],
    predictions: Mapping[str, str],
    null_odds: Mapping[str, float],
    answerable: Mapping[str, bool],
) -> tuple[float, float]:
    """The best score over all thresholds, and the first threshold that reaches it.

    At first no question is answered. Then questions are answered one by one in the order of their null odds: an
    answerable one gains its score, an unanswerable one loses its point if its prediction is not empty.
    """
    current = best = float(sum(not can for can in answerable.values()))
    threshold = 0.0
    for identity in sorted(null_odds, key=lambda identity: null_odds[identity]):
        if identity not in scores:
            continue
        if answerable[identity]:
            current += scores[identity]
        elif predictions[identity]:
            current -= 1
        if current > best:
            best, threshold = current, null_odds[identity]
    return 100.0 * best / len(scores), threshold


def _raw_scores(answers: Mapping[str, Sequence[str]], predictions: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """exact and f1, from 0 to 1, of every question with a prediction, as in SQuAD 2.0."""
    scored = [identity for identity in answers if identity in predictions]
    return {
        "exact": {identity: _best(exact_match, predictions[identity], answers[identity]) for identity in scored},
        "f1": {identity: _best(_f1_of_squad_2, predictions[identity], answers[identity]) for identity in scored},
    }


def _best(score: Callable[[str, str], float], prediction: str, right: Iterable[str]) -> float:
    """The best score against the right answers that have words; if none has, against the empty answer."""
    return max(score(prediction, text) for text in [text for text in right if normalized_words(text)] or [""])


def _f1_of_squad_2(prediction: str, answer: str) -> float:
    return f1(prediction, answer, empty_matches_empty=True)


def _require_questions(answers: Mapping[str, Sequence[str]]) -> None:
    if not answers:
        raise ValueError("no question to score; pass a file with at least one")

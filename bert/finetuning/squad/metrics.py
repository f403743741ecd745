"""The official scores of SQuAD 1.1 and 2.0 (Rajpurkar et al., 2016; 2018), in percent.

Answers are compared as lists of words, after lower-casing and without ASCII punctuation and articles. The best match
among several right answers counts.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from bert.finetuning.squad.examples import SquadExamples

_WITHOUT_PUNCTUATION = {ord(character): None for character in string.punctuation}
_ARTICLES = re.compile(r"\b(a|an|the)\b")
Answers = Mapping[str, Sequence[str]]  # the texts of the right answers by question; none: it is unanswerable


@lru_cache(maxsize=1 << 16)
def normalized_words(text: str) -> tuple[str, ...]:
    """The normalised words of a text, as the official script compares them."""
    return tuple(_ARTICLES.sub(" ", text.lower().translate(_WITHOUT_PUNCTUATION)).split())


def exact_match(prediction: str, answer: str) -> float:
    """1.0 if both texts have the same normalised words in the same order, else 0.0."""
    return float(normalized_words(prediction) == normalized_words(answer))


def f1(prediction: str, answer: str, version_2: bool = True) -> float:
    """F1 of the two texts' multisets of words; two texts without words score 1 in SQuAD 2.0 and 0 in 1.1."""
    predicted, right = normalized_words(prediction), normalized_words(answer)
    if not predicted or not right:
        return float(version_2 and predicted == right)
    common = (Counter(predicted) & Counter(right)).total()
    if not common:
        return 0.0
    precision, recall = common / len(predicted), common / len(right)
    return 2 * precision * recall / (precision + recall)


def answers_of(examples: SquadExamples) -> Answers:
    return {question.id: tuple(answer.text for answer in question.answers) for question in examples.questions}


def score_squad_1(answers: Answers, predictions: Mapping[str, str]) -> dict[str, float]:
    """Scores exact_match and f1 of SQuAD 1.1; a question without a prediction scores 0."""
    if unanswerable := [identity for identity, right in answers.items() if not right]:
        raise ValueError(
            f"question {unanswerable[0]!r} has no right answer and cannot be scored as SQuAD 1.1; "
            "pass --version-2-with-negative"
        )
    scored = [(predictions[identity], right) for identity, right in answers.items() if identity in predictions]
    exact = sum(max(exact_match(text, answer) for answer in right) for text, right in scored)
    overlap = sum(max(f1(text, answer, version_2=False) for answer in right) for text, right in scored)
    return {"exact_match": 100.0 * exact / len(answers), "f1": 100.0 * overlap / len(answers)}


def score_squad_2(answers: Answers, predictions: Mapping[str, str]) -> dict[str, float]:
    """Scores exact, f1 and total of SQuAD 2.0: over all, answerable (HasAns_) and unanswerable (NoAns_) questions.

    Questions without a prediction do not count, as in the official evaluation.
    """
    scored = [identity for identity in answers if identity in predictions]
    if not scored:
        raise ValueError(f"none of the {len(answers)} questions has a prediction; are the predictions of another file?")
    groups = {
        "": scored,
        "HasAns_": [identity for identity in scored if answers[identity]],
        "NoAns_": [identity for identity in scored if not answers[identity]],
    }
    result: dict[str, float] = {}
    for name, scores in _scores_of_squad_2(answers, predictions).items():
        for prefix, members in groups.items():
            if members:
                result[prefix + name] = 100.0 * sum(scores[identity] for identity in members) / len(members)
                result[prefix + "total"] = len(members)
    return result


def best_thresholds(
    answers: Answers, predictions: Mapping[str, str], null_odds: Mapping[str, float]
) -> dict[str, float]:
    """SQuAD 2.0: best_exact and best_f1, and the first thresholds that reach them (best_exact_thresh, best_f1_thresh).

    At first no question is answered. Then questions are answered one by one in the order of their null odds: an
    answerable one gains its score, an unanswerable one loses its point if its prediction is not empty.

    Args:
        predictions: the best answers before any threshold; a prediction emptied by one hides higher thresholds.
        null_odds: by question, the score of no answer relative to the best answer.
    """
    if lacking := [identity for identity in predictions if identity not in null_odds]:
        raise ValueError(
            f"null_odds lacks {len(lacking)} of {len(predictions)} questions, e.g. {lacking[0]!r}; it must have a "
            "number for each"
        )
    order = sorted(null_odds, key=lambda identity: null_odds[identity])
    result: dict[str, float] = {}
    for name, scores in _scores_of_squad_2(answers, predictions).items():
        current = best = float(sum(not right for right in answers.values()))
        threshold = 0.0
        for identity in order:
            if identity not in scores:
                continue
            if answers[identity]:
                current += scores[identity]
            elif predictions[identity]:
                current -= 1
            if current > best:
                best, threshold = current, null_odds[identity]
        result[f"best_{name}"], result[f"best_{name}_thresh"] = 100.0 * best / len(scores), threshold
    return result


def _scores_of_squad_2(answers: Answers, predictions: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """exact and f1, from 0 to 1, of every question with a prediction: the best against the right answers that have
    words; if none has, against the empty answer."""
    result: dict[str, dict[str, float]] = {"exact": {}, "f1": {}}
    for identity, right in answers.items():
        if identity in predictions:
            texts = [text for text in right if normalized_words(text)] or [""]
            result["exact"][identity] = max(exact_match(predictions[identity], text) for text in texts)
            result["f1"][identity] = max(f1(predictions[identity], text) for text in texts)
    return result

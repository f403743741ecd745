"""A baseline without a language model: answers with the span whose context shares most words with the question.

A sliding-window baseline in the manner of Rajpurkar et al. (2016): rare words weigh more, the span itself holds no word
of the question, and no answer is given where the overlap is below a threshold, chosen on the training questions.
"""

import math
import re
from collections import Counter

from bert.finetuning.squad.metrics import answers_of, score_squad_2

_WORD = re.compile(r"\w+(?:[-',.]\w+)*")
_LONGEST, _AROUND = 4, 6  # words


def best_span(question: str, context: str, weight_of) -> tuple[str, float]:
    """Return the text and the overlap of the best span."""
    asked = {word.lower() for word in _WORD.findall(question)}
    words = list(_WORD.finditer(context))
    weights = [weight_of(match[0].lower()) if match[0].lower() in asked else 0.0 for match in words]
    best = ("", 0.0)
    for first in range(len(words)):
        for last in range(first, min(first + _LONGEST, len(words))):
            if any(weights[first : last + 1]):
                break
            around = weights[max(0, first - _AROUND) : first] + weights[last + 1 : last + 1 + _AROUND]
            own = sum(weight_of(match[0].lower()) for match in words[first : last + 1]) / (last - first + 1)
            score = sum(around) + 0.1 * own
            if score > best[1]:
                best = (context[words[first].start() : words[last].end()], score)
    return best


def answer(examples) -> tuple[dict[str, str], dict[str, float]]:
    """Return the best span and its overlap, by question id; rare words among the paragraphs weigh more."""
    counts = Counter(word for context in examples.contexts for word in {w.lower() for w in _WORD.findall(context)})
    total = len(examples.contexts)
    found = {
        question.id: best_span(
            question.text,
            examples.contexts[question.context],
            lambda word: math.log((total + 1) / (counts[word] + 0.5)),
        )
        for question in examples.questions
    }
    return {key: text for key, (text, _) in found.items()}, {key: score for key, (_, score) in found.items()}


def scores(train, held_out) -> dict[str, float]:
    """Return SQuAD 2.0's scores on `held_out` with the threshold that is best on `train`."""

    def with_threshold(examples, threshold):
        texts, overlaps = answer(examples)
        predictions = {key: text if overlaps[key] >= threshold else "" for key, text in texts.items()}
        return score_squad_2(answers_of(examples), predictions)

    thresholds = [value / 2 for value in range(30)]
    best = max(thresholds, key=lambda threshold: with_threshold(train, threshold)["f1"])
    return with_threshold(held_out, best)

"""Finds the n best answers of each question from the start and end logits of its windows.

A span's score is the start logit of its first token plus the end logit of its last token. All spans of at most
`max_answer_length` tokens whose first token has its maximum context in the window are compared; BERT's published code
compares only those between each window's n best starts and n best ends. The answer is the exact text of the paragraph
from the first character of the first token to the last character of the last, and the rest of the words that these are
pieces of: not "198" of 1987.
"""

import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from bert.arrays.ragged import offsets_of, positions_in_rows, ragged_indices
from bert.finetuning.squad.answer_settings import ReaderSettings
from bert.finetuning.squad.examples import SquadExamples
from bert.finetuning.squad.features import SquadFeatures

_NOTHING = -1e4  # the score of the best answer if there is none; finite, for JSON
# What a word is made of, in scripts that put spaces between words and add no particles to them.
_OF_A_WORD = re.compile(r"[^\W_\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_SPARE = 3  # spans kept in each window for each answer that is listed, because several may have the same text


class AnswerCandidate(NamedTuple):
    """A possible answer to a question.

    Attributes:
        start_logit, end_logit: of the first and last token; of [CLS] for no answer.
        start, end: characters of the context; 0 and 0 for no answer.
    """

    text: str  # "": no answer
    probability: float  # softmax over the n best answers of the question
    start_logit: float
    end_logit: float
    start: int
    end: int

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit


@dataclass(frozen=True)
class Predictions:
    """The answers to all questions, by id.

    Attributes:
        best_answers: the best text, ignoring the score of no answer; "" only if the paragraph has no token.
    """

    answers: dict[str, str]  # predicted text; "": no answer
    best_answers: dict[str, str]
    n_best: dict[str, list[AnswerCandidate]]  # candidates, best first; at least one
    null_odds: dict[str, float]  # score of no answer minus score of the best answer; empty without version_2

    def n_best_as_json(self) -> dict[str, list[dict[str, Any]]]:
        """Content of nbest_predictions.json."""
        return {identity: [entry._asdict() for entry in entries] for identity, entries in self.n_best.items()}


def predict(
    examples: SquadExamples,
    features: SquadFeatures,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    settings: ReaderSettings,
) -> Predictions:
    """Predict the answers to the questions of features that were built with training=False.

    Args:
        start_logits, end_logits: float32 [T], finite.
    """
    bounds = np.searchsorted(features.examples, np.arange(len(examples) + 1)).tolist()
    predictions = Predictions({}, {}, {}, {})
    for number, question in enumerate(examples.questions):
        rows = np.arange(bounds[number], bounds[number + 1])
        context = examples.contexts[question.context]
        candidates = _best_answers(context, features, rows, start_logits, end_logits, settings)
        # A question is unanswerable only if all windows agree: no answer has its lowest score over them.
        cls = features.offsets[rows]
        nulls = [(float(start), float(end)) for start, end in zip(start_logits[cls], end_logits[cls], strict=True)]
        null = AnswerCandidate("", 0.0, *min(nulls, key=sum), 0, 0)
        text = predictions.best_answers[question.id] = candidates[0].text if candidates else ""
        if settings.version_2_with_negative:
            best = candidates[0].score if candidates else _NOTHING
            odds = predictions.null_odds[question.id] = null.score - best
            text = "" if odds > settings.null_score_diff_threshold else text
            # No answer and the best one are always listed: one of them is predicted.
            listed = [*candidates[: max(1, settings.n_best_size - 1)], null]
            candidates = sorted(listed, key=lambda candidate: -candidate.score)
        predictions.answers[question.id] = text
        predictions.n_best[question.id] = _with_probabilities(candidates or [null])
    return predictions


def _best_answers(
    context: str,
    features: SquadFeatures,
    rows: np.ndarray,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    settings: ReaderSettings,
) -> list[AnswerCandidate]:
    """The n best distinct answers in the windows `rows`, best first; equal scores in text order."""
    begins = features.offsets[rows] + features.first_lengths[rows]
    lengths = features.offsets[rows + 1] - begins - 1
    width = min(settings.max_answer_length, max(1, int(lengths.max())))
    places = ragged_indices(begins, lengths)  # [t], the paragraph tokens of the windows
    tokens = ragged_indices(features.paragraph_starts[rows], lengths)
    starts = np.where(_has_maximum_context(tokens, lengths), start_logits[places], -np.inf).astype(np.float32)
    behind = np.full(width - 1, -np.inf, np.float32)
    ends = [
        sliding_window_view(np.append(end_logits[begin : begin + length], behind), width)
        for begin, length in zip(begins.tolist(), lengths.tolist(), strict=True)
        if length
    ]
    if not ends:
        return []
    scores = (starts[:, None] + np.concatenate(ends)).ravel()  # [t * width]: first token, further tokens
    number = min(len(scores), settings.n_best_size * _SPARE * len(rows))
    least = -np.partition(-scores, number - 1)[number - 1]  # argpartition would take any of those that have it
    better = np.flatnonzero(scores > least)
    best = np.sort(np.append(better, np.flatnonzero(scores == least)[: number - len(better)]))
    first, last = np.divmod(best[np.isfinite(scores[best])], width)
    last += first
    first_logits, last_logits = (
        logits[places[token]].astype(np.float64) for logits, token in ((start_logits, first), (end_logits, last))
    )
    candidates: dict[str, AnswerCandidate] = {}
    for index in np.argsort(-(first_logits + last_logits), kind="stable").tolist():
        start, end = int(features.token_starts[tokens[first[index]]]), int(features.token_ends[tokens[last[index]]])
        start, end = _whole_words(context, start, end)
        text = context[start:end]
        if text not in candidates:
            candidates[text] = AnswerCandidate(
                text, 0.0, float(first_logits[index]), float(last_logits[index]), start, end
            )
            if len(candidates) == settings.n_best_size:
                break
    return list(candidates.values())


def _whole_words(context: str, start: int, end: int) -> tuple[int, int]:
    """Extend the span to whole words."""

    def cuts(place: int) -> bool:
        return 0 < place < len(context) and all(map(_OF_A_WORD.match, context[place - 1 : place + 1]))

    while cuts(start):
        start -= 1
    while cuts(end):
        end += 1
    return start, end


def _has_maximum_context(tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Whether each paragraph token has more context in its window than in any other: bool [t].

    The context of a token is the smaller of the numbers of tokens before and after it in the window, plus a hundredth
    of the window's length; among equals the first window wins.

    Args:
        tokens: int64 [t], the paragraph tokens of all windows.
        lengths: int64 [windows], how many of them each window has.
    """
    if len(lengths) == 1:
        return np.ones(len(tokens), bool)
    window = np.repeat(np.arange(len(lengths)), lengths)
    inside = positions_in_rows(offsets_of(lengths))
    context = np.minimum(inside, lengths[window] - 1 - inside) * 100 + lengths[window]
    order = np.lexsort((window, -context, tokens))
    result = np.zeros(len(tokens), bool)
    result[order] = np.diff(tokens[order], prepend=-1) != 0
    return result


def _with_probabilities(candidates: list[AnswerCandidate]) -> list[AnswerCandidate]:
    scores = np.array([candidate.score for candidate in candidates])
    weights = np.exp(scores - scores.max())
    return [
        candidate._replace(probability=float(weight))
        for candidate, weight in zip(candidates, weights / weights.sum(), strict=True)
    ]

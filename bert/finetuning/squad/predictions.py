"""From the scores of first and last tokens to answers: the n best of each question over all of its windows. No Paddle.

A span's score is the sum of its first token's start logit and its last token's end logit. All spans of at most
`max_answer_length` tokens whose first token has its maximum context in the window compete; the published code looks
only at those between each window's n best starts and n best ends, so its n-best is a part of this one. The answer is
the text of the paragraph from the first character of the first token to the last of the last one, exactly as it was
written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bert.finetuning.squad.examples import SquadExamples
from bert.finetuning.squad.features import SquadFeatures, max_context

_NOTHING = -1e4  # the score of an answer that cannot be given; finite, so that JSON can hold it
_CELLS_PER_BLOCK = 1 << 22  # spans scored at a time
_SPARE = 3  # candidates kept for each answer wanted: several spans may be the same text


@dataclass(frozen=True)
class AnswerSettings:
    """What decides the answers.

    Attributes:
        n_best_size: answers to list for each question.
        max_answer_length: in tokens.
        version_2: there may be no answer.
        null_score_diff_threshold: with version_2, no answer is predicted where its score exceeds that of the best
            answer by more than this.
    """

    n_best_size: int = 20
    max_answer_length: int = 30
    version_2: bool = False
    null_score_diff_threshold: float = 0.0

    def __post_init__(self) -> None:
        for name in ("n_best_size", "max_answer_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")


class Candidate(NamedTuple):
    """An answer to one question.

    Attributes:
        text: "" for no answer.
        probability: among the n best of the question.
        start_logit, end_logit: of its first and last token; of [CLS] for no answer.
        start, end: characters of the context; 0 and 0 for no answer.
    """

    text: str
    probability: float
    start_logit: float
    end_logit: float
    start: int
    end: int


@dataclass(frozen=True)
class Predictions:
    """By question id.

    Attributes:
        answers: the predicted text, "" for no answer.
        best_answers: the best text whatever the score of no answer; "" only where there is no token to answer with.
        n_best: candidates, best first; at least one.
        null_odds: score of no answer minus that of the best answer; empty unless version_2.
    """

    answers: dict[str, str]
    best_answers: dict[str, str]
    n_best: dict[str, list[Candidate]]
    null_odds: dict[str, float]


class _Spans(NamedTuple):
    """Candidates of one window, best first: arrays of one length, and the window's score of no answer."""

    first: np.ndarray  # places in the window
    last: np.ndarray
    start_logits: np.ndarray
    end_logits: np.ndarray


def predict(
    examples: SquadExamples,
    features: SquadFeatures,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    settings: AnswerSettings,
) -> Predictions:
    """Answers to all questions.

    Args:
        examples: the questions that the features were built from, without training.
        features: n windows of T tokens in all.
        start_logits, end_logits: float32 [T].
        settings: what decides.
    Raises:
        ValueError: logits of another shape, or not finite.
    """
    for name, logits in (("start", start_logits), ("end", end_logits)):
        if logits.shape != features.input_ids.shape:
            raise ValueError(
                f"{name} logits of shape {logits.shape} must be one for each of the "
                f"{len(features.input_ids)} tokens of the features"
            )
        if not np.isfinite(logits).all():
            raise ValueError(
                f"{np.count_nonzero(~np.isfinite(logits))} {name} logits are NaN or infinite: the model "
                "is damaged or overflows; use another checkpoint, or predict without AMP"
            )
    windows: list[_Spans] = [None] * len(features)  # type: ignore[list-item]
    for rows, found in _best_spans(features, start_logits, end_logits, settings):
        for row, spans in zip(rows.tolist(), found, strict=True):
            windows[row] = spans
    bounds = np.searchsorted(features.examples, np.arange(len(examples) + 1)).tolist()
    answers, best_answers, n_best, null_odds = {}, {}, {}, {}
    for number, question in enumerate(examples.questions):
        own = range(bounds[number], bounds[number + 1])
        found_answers = _merge(examples.contexts[question.context], features, own, windows, settings)
        cls = features.offsets[own.start : own.stop]
        null = _null(start_logits[cls].astype(np.float64), end_logits[cls].astype(np.float64))
        best = found_answers[0].start_logit + found_answers[0].end_logit if found_answers else _NOTHING
        answers[question.id] = best_answers[question.id] = found_answers[0].text if found_answers else ""
        if settings.version_2:
            null_odds[question.id] = null.start_logit + null.end_logit - best
            if null_odds[question.id] > settings.null_score_diff_threshold:
                answers[question.id] = ""
            found_answers = _with_null(found_answers, null, settings.n_best_size)
        n_best[question.id] = _with_probabilities(found_answers or [null])
    return Predictions(answers, best_answers, n_best, null_odds)


def _best_spans(
    features: SquadFeatures, start_logits: np.ndarray, end_logits: np.ndarray, settings: AnswerSettings
) -> Iterator[tuple[np.ndarray, list[_Spans]]]:
    """(windows, their best spans), windows of like length together."""
    allowed = max_context(features)
    lengths = features.paragraph_lengths()
    order = np.argsort(lengths, kind="stable")
    begin = 0
    while begin < len(order):
        size = max(1, _CELLS_PER_BLOCK // max(1, int(lengths[order[begin]]) * settings.max_answer_length))
        rows = order[begin : begin + size]
        # The last of them may be longer than the first; half as many then, so that memory stays bounded.
        while len(rows) > 1 and len(rows) * int(lengths[rows[-1]]) * settings.max_answer_length > 2 * _CELLS_PER_BLOCK:
            rows = rows[: len(rows) // 2]
        yield rows, _best_spans_of(features, rows, allowed, start_logits, end_logits, settings)
        begin += len(rows)


def _best_spans_of(
    features: SquadFeatures,
    rows: np.ndarray,
    allowed: np.ndarray,
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    settings: AnswerSettings,
) -> list[_Spans]:
    lengths = features.paragraph_lengths()[rows]
    longest = max(1, int(lengths.max()))
    columns = np.arange(longest)
    inside = columns < lengths[:, None]  # [rows, longest]
    places = np.where(inside, (features.offsets[rows] + features.first_lengths[rows])[:, None] + columns, 0)
    starts = np.where(inside & allowed[places], start_logits[places], -np.inf).astype(np.float32)
    width = min(settings.max_answer_length, longest)
    ends = np.full((len(rows), longest + width - 1), -np.inf, np.float32)
    ends[:, :longest] = np.where(inside, end_logits[places], -np.inf)
    band = starts[:, :, None] + np.lib.stride_tricks.sliding_window_view(ends, width, axis=1)
    scores = band.reshape(len(rows), -1)  # [rows, longest * width]: first token, then tokens from it to the last
    kept = min(scores.shape[1], settings.n_best_size * _SPARE)
    best = np.argpartition(-scores, kept - 1, axis=1)[:, :kept]
    best = np.take_along_axis(best, np.lexsort((best, -np.take_along_axis(scores, best, 1)), axis=1), 1)
    first, last = best // width, best // width + best % width
    result = []
    for row, begin in enumerate(features.first_lengths[rows].tolist()):
        real = np.isfinite(scores[row, best[row]])
        a, b = first[row][real], last[row][real]
        result.append(_Spans(a + begin, b + begin, starts[row, a], ends[row, b]))
    return result


def _merge(
    context: str, features: SquadFeatures, rows: range, windows: list[_Spans], settings: AnswerSettings
) -> list[Candidate]:
    """The n best answers of different text over a question's windows, best first; equals in the order of the text."""
    spans = [windows[row] for row in rows]
    first = np.concatenate([span.first for span in spans])
    last = np.concatenate([span.last for span in spans])
    start_logits = np.concatenate([span.start_logits for span in spans]).astype(np.float64)
    end_logits = np.concatenate([span.end_logits for span in spans]).astype(np.float64)
    window = np.repeat(np.arange(rows.start, rows.stop), [len(span.first) for span in spans])
    to_paragraph = features.paragraph_starts[window] - features.first_lengths[window]
    starts, ends = features.token_starts[first + to_paragraph], features.token_ends[last + to_paragraph]
    candidates: dict[str, Candidate] = {}
    for index in np.argsort(-(start_logits + end_logits), kind="stable").tolist():
        start, end = int(starts[index]), int(ends[index])
        text = context[start:end]
        if text not in candidates:
            candidates[text] = Candidate(text, 0.0, float(start_logits[index]), float(end_logits[index]), start, end)
            if len(candidates) == settings.n_best_size:
                break
    return list(candidates.values())


def _null(start_logits: np.ndarray, end_logits: np.ndarray) -> Candidate:
    """No answer, with the lowest score that any window gives it: each must agree that there is none."""
    window = int(np.argmin(start_logits + end_logits))
    return Candidate("", 0.0, float(start_logits[window]), float(end_logits[window]), 0, 0)


def _with_null(found: list[Candidate], null: Candidate, n_best_size: int) -> list[Candidate]:
    """No answer among the others, where its score puts it; it is always listed."""
    kept = found[: max(0, n_best_size - 1)]
    return sorted([*kept, null], key=lambda candidate: -(candidate.start_logit + candidate.end_logit))


def _with_probabilities(found: list[Candidate]) -> list[Candidate]:
    scores = np.array([candidate.start_logit + candidate.end_logit for candidate in found])
    weights = np.exp(scores - scores.max())
    return [
        candidate._replace(probability=float(weight))
        for candidate, weight in zip(found, weights / weights.sum(), strict=True)
    ]


def n_best_as_json(predictions: Predictions) -> dict[str, list[dict[str, Any]]]:
    """What nbest_predictions.json holds."""
    return {identity: [candidate._asdict() for candidate in found] for identity, found in predictions.n_best.items()}

"""Find the n best answers of each question from the start and end logits of its windows.

A span's score is the start logit of its first token plus the end logit of its last token. All spans of at most
`max_answer_length` tokens whose first token has its maximum context in the window are compared; BERT's published code
compares only those between each window's n best starts and n best ends. The answer is the exact text of the paragraph
from the first character of the first token to the last character of the last.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bert.finetuning.squad.examples import SquadExamples
from bert.finetuning.squad.features import SquadFeatures, max_context

_NOTHING = -1e4  # the score of the best answer if there is none; finite, for JSON
_CELLS_PER_BLOCK = 1 << 22  # number of spans scored at a time
_SPARE = 3  # spans kept for each answer wanted, because several may have the same text


@dataclass(frozen=True)
class AnswerSettings:
    """The settings of answers.

    Attributes:
        null_score_diff_threshold: with version_2, no answer is predicted if its score exceeds that of the best answer
            by more than this.
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
    """A possible answer to a question.

    Attributes:
        text: "" for no answer.
        probability: relative to the n best answers of the question.
        start_logit, end_logit: of the first and last token; of [CLS] for no answer.
        start, end: characters of the context; 0 and 0 for no answer.
    """

    text: str
    probability: float
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
        answers: the predicted text; "" for no answer.
        best_answers: the best text, ignoring the score of no answer; "" only if the paragraph has no token.
        n_best: candidates, best first; at least one.
        null_odds: score of no answer minus score of the best answer; empty unless version_2.
    """

    answers: dict[str, str]
    best_answers: dict[str, str]
    n_best: dict[str, list[Candidate]]
    null_odds: dict[str, float]


class _Spans(NamedTuple):
    """The best spans of one window, in descending order; arrays of equal lengths."""

    first: np.ndarray  # token of the window
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
    """The answers to all questions.

    Args:
        examples: the questions that the features were built from, with training=False.
        features: n windows of T tokens in all.
        start_logits, end_logits: float32 [T].
    """
    _check_logits(features, start_logits, end_logits)
    windows = _best_spans(features, start_logits, end_logits, settings)
    bounds = np.searchsorted(features.examples, np.arange(len(examples) + 1)).tolist()
    predictions = Predictions({}, {}, {}, {})
    for number, question in enumerate(examples.questions):
        own = range(bounds[number], bounds[number + 1])
        found = _merge(examples.contexts[question.context], features, own, windows, settings)
        cls = features.offsets[own.start : own.stop]
        null = _null(start_logits[cls].astype(np.float64), end_logits[cls].astype(np.float64))
        text = predictions.best_answers[question.id] = found[0].text if found else ""
        if settings.version_2:
            odds = predictions.null_odds[question.id] = null.score - (found[0].score if found else _NOTHING)
            text = "" if odds > settings.null_score_diff_threshold else text
            found = _with_null(found, null, settings.n_best_size)
        predictions.answers[question.id] = text
        predictions.n_best[question.id] = _with_probabilities(found or [null])
    return predictions


def _check_logits(features: SquadFeatures, start_logits: np.ndarray, end_logits: np.ndarray) -> None:
    for name, logits in (("start", start_logits), ("end", end_logits)):
        if logits.shape != features.input_ids.shape:
            raise ValueError(
                f"{name} logits of shape {logits.shape} must be one for each of the "
                f"{len(features.input_ids)} tokens of the features"
            )
        if not np.isfinite(logits).all():
            raise ValueError(
                f"{np.count_nonzero(~np.isfinite(logits))} {name} logits are NaN or infinite: the weights "
                "are damaged or half precision overflows; use another checkpoint, or predict without --amp"
            )


def _best_spans(
    features: SquadFeatures, start_logits: np.ndarray, end_logits: np.ndarray, settings: AnswerSettings
) -> dict[int, _Spans]:
    """The best spans of every window; windows of similar lengths are computed together."""
    allowed = max_context(features)
    lengths = features.paragraph_lengths()
    order = np.argsort(lengths, kind="stable")
    windows: dict[int, _Spans] = {}
    while len(windows) < len(order):
        rows = order[len(windows) :]
        rows = rows[: max(1, _CELLS_PER_BLOCK // max(1, int(lengths[rows[0]]) * settings.max_answer_length))]
        # The last window of the block may be longer than the first: halve the block until it fits into memory.
        while len(rows) > 1 and len(rows) * int(lengths[rows[-1]]) * settings.max_answer_length > 2 * _CELLS_PER_BLOCK:
            rows = rows[: len(rows) // 2]
        spans = _best_spans_of(features, rows, allowed, start_logits, end_logits, settings)
        windows |= zip(rows.tolist(), spans, strict=True)
    return windows


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
    context: str, features: SquadFeatures, rows: range, windows: dict[int, _Spans], settings: AnswerSettings
) -> list[Candidate]:
    """The n best answers of different texts over a question's windows, best first; equal scores in text order."""
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
    """No answer, with its lowest score over the windows: a question is unanswerable only if all windows agree."""
    window = int(np.argmin(start_logits + end_logits))
    return Candidate("", 0.0, float(start_logits[window]), float(end_logits[window]), 0, 0)


def _with_null(found: list[Candidate], null: Candidate, n_best_size: int) -> list[Candidate]:
    """The candidates with no answer sorted in; it and the best one are always listed: one of them is predicted."""
    kept = found[: max(1, n_best_size - 1)]
    return sorted([*kept, null], key=lambda candidate: -candidate.score)


def _with_probabilities(found: list[Candidate]) -> list[Candidate]:
    scores = np.array([candidate.score for candidate in found])
    weights = np.exp(scores - scores.max())
    return [
        candidate._replace(probability=float(weight))
        for candidate, weight in zip(found, weights / weights.sum(), strict=True)
    ]


def n_best_as_json(predictions: Predictions) -> dict[str, list[dict[str, Any]]]:
    """The content of nbest_predictions.json."""
    return {identity: [candidate._asdict() for candidate in found] for identity, found in predictions.n_best.items()}

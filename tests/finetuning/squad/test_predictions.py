"""Answers from logits, compared with a search over all spans; logits are small integers, so many are equal."""

import math

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bert.arrays.ragged import offsets_of
from bert.finetuning.squad.answer_settings import ReaderSettings
from bert.finetuning.squad.examples import Question, SquadExamples
from bert.finetuning.squad.features import SquadFeatures
from bert.finetuning.squad.predictions import predict
from tests.support import oracle_squad

NUM_WORDS = 12
CONTEXT = " ".join(f"w{number:02d}" for number in range(NUM_WORDS))
SPANS = [(4 * number, 4 * number + 3) for number in range(NUM_WORDS)]
HEAD = 3  # [CLS], a question of one token, [SEP]
Windows = list[tuple[int, int]]  # first word and number of words


def features_of(questions: list[Windows]) -> SquadFeatures:
    """Make windows of any places and lengths, as another stride for each would make them."""
    windows = [window for windows in questions for window in windows]
    offsets = offsets_of([HEAD + length + 1 for _, length in windows])
    return SquadFeatures(
        input_ids=np.zeros(offsets[-1], np.int32),
        offsets=offsets,
        first_lengths=np.full(len(windows), HEAD, np.int32),
        examples=np.repeat(np.arange(len(questions)), [*map(len, questions)]).astype(np.int32),
        paragraph_starts=np.array([start for start, _ in windows]),
        token_starts=np.array([start for start, _ in SPANS], np.int32),
        token_ends=np.array([end for _, end in SPANS], np.int32),
    )


def examples_of(number: int) -> SquadExamples:
    return SquadExamples("a", (CONTEXT,), tuple(Question(f"q{row}", "?", 0) for row in range(number)))


def plain_answer(windows: Windows, starts: list[list[float]], ends: list[list[float]], reader: ReaderSettings):
    """Return (the answer, the listed texts with their scores and probabilities, the null odds) of one question."""
    inner = [[values[HEAD:-1] for values in logits] for logits in (starts, ends)]
    best = oracle_squad.best_answers(CONTEXT, SPANS, windows, *inner, reader.n_best_size, reader.max_answer_length)
    answer, odds = best[0][0], None
    if reader.version_2_with_negative:
        null = min(start[0] + end[0] for start, end in zip(starts, ends, strict=True))
        odds = null - best[0][1]
        answer = "" if odds > reader.null_score_diff_threshold else answer
        listed = [*best[: max(1, reader.n_best_size - 1)], ("", null)]
        best = sorted(listed, key=lambda entry: -entry[1])
    total = sum(math.exp(score) for _, score in best)
    return answer, [(text, score, math.exp(score) / total) for text, score in best], odds


@settings(max_examples=150, deadline=None, derandomize=True, phases=[Phase.generate])
@given(st.data())
def test_answers_are_those_of_a_search_through_every_span_and_equal_ones_stay_in_text_order(data):
    window = st.tuples(st.integers(0, NUM_WORDS - 1), st.integers(1, 7)).map(
        lambda drawn: (drawn[0], min(drawn[1], NUM_WORDS - drawn[0]))
    )
    questions = data.draw(st.lists(st.lists(window, min_size=1, max_size=4).map(sorted), min_size=1, max_size=2))
    features = features_of(questions)
    logits = st.lists(st.integers(-2, 2), min_size=len(features.input_ids), max_size=len(features.input_ids))
    start, end = (np.array(data.draw(logits), np.float32) for _ in range(2))
    reader = ReaderSettings(
        n_best_size=data.draw(st.sampled_from([1, 2, 5, 40])),
        max_answer_length=data.draw(st.sampled_from([1, 2, 3, 30])),
        version_2_with_negative=data.draw(st.booleans()),
        null_score_diff_threshold=data.draw(st.sampled_from([-2.0, 0.0, 1.0])),
    )
    found = predict(examples_of(len(questions)), features, start, end, reader)
    row = 0
    for number, windows in enumerate(questions):
        rows = [slice(*features.offsets[row + place : row + place + 2]) for place in range(len(windows))]
        row += len(windows)
        answer, listed, odds = plain_answer(
            windows, [start[part].tolist() for part in rows], [end[part].tolist() for part in rows], reader
        )
        identity = f"q{number}"
        ours = found.n_best[identity]
        assert [(entry.text, entry.score) for entry in ours] == [(text, score) for text, score, _ in listed]
        assert [entry.probability for entry in ours] == pytest.approx([probability for *_, probability in listed])
        assert [CONTEXT[entry.start : entry.end] for entry in ours] == [text for text, *_ in listed]
        assert found.answers[identity] == answer and found.null_odds.get(identity) == odds
        assert found.best_answers[identity] == next(text for text, *_ in listed if text)


def answers_of(windows: Windows, start: dict[tuple[int, int], float], **reader) -> list[str]:
    """Return the listed answers if the first tokens (window, word) have these logits and all others have 0."""
    features = features_of([windows])
    logits = np.zeros(len(features.input_ids), np.float32)
    for (window, word), value in start.items():
        logits[features.offsets[window] + HEAD + word - windows[window][0]] = value
    settings = ReaderSettings(max_answer_length=1, **reader)
    found = predict(examples_of(1), features, logits, np.zeros_like(logits), settings)
    return [entry.text for entry in found.n_best["q0"]]


def test_a_word_is_read_in_the_window_with_more_context_or_else_the_longer_one():
    """Word 1 has one word before it in both; word 2 has none behind it in the first."""
    assert answers_of([(0, 3), (0, 5)], {(0, 1): 9.0, (1, 1): 1.0}, n_best_size=1) == ["w01"]
    assert answers_of([(0, 3), (0, 5)], {(0, 1): 9.0, (1, 4): 1.0}, n_best_size=1) == ["w04"]
    assert answers_of([(0, 5), (0, 3)], {(1, 1): 9.0, (0, 4): 1.0}, n_best_size=1) == ["w04"]
    assert answers_of([(0, 3), (1, 3)], {(0, 2): 9.0, (1, 3): 1.0}, n_best_size=1) == ["w03"], "1 before it, not 0"
    assert answers_of([(0, 3), (0, 3)], {(1, 1): 9.0, (0, 2): 1.0}, n_best_size=1) == ["w02"], "the first of equals"


def test_of_many_equal_answers_the_first_in_the_text_are_listed():
    assert answers_of([(0, NUM_WORDS)], {}, n_best_size=1) == ["w00"]
    assert answers_of([(0, NUM_WORDS)], {(0, 7): 1.0}, n_best_size=3) == ["w07", "w00", "w01"]


def test_no_answer_is_predicted_only_from_more_than_the_threshold_on():
    features = features_of([[(0, 4)]])
    start, end = np.zeros((2, len(features.input_ids)), np.float32)
    start[0], start[HEAD + 2] = 2.5, 1.0
    for threshold, answer in ((1.5, "w02"), (1.25, ""), (1.75, "w02")):
        reader = ReaderSettings(version_2_with_negative=True, null_score_diff_threshold=threshold, max_answer_length=1)
        found = predict(examples_of(1), features, start, end, reader)
        assert found.null_odds == {"q0": 1.5} and found.answers == {"q0": answer}

"""The scores of SQuAD 1.1 and 2.0: examples by hand, and generated cases against an oracle."""

import random

import pytest

from bert.finetuning.squad.metrics import (
    best_threshold,
    best_thresholds,
    exact_match,
    f1,
    normalized_words,
    score_squad_1,
    score_squad_2,
)
from tests.support import oracle_squad
from tests.support.squad_files import random_text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat.", "cat"),
        ("A an the", ""),
        ("a-bomb", "abomb"),
        ("The The", ""),
        ("theatre", "theatre"),
        ("An  apple\tpie\n", "apple pie"),
        ("it's", "its"),
        ("U.S.A.", "usa"),
        ("$5,000", "5000"),
        ("the.", ""),
        ("“the” end", "“ ” end"),
        ("Äpfel", "äpfel"),
        ("İ", "i̇"),
        ("_a_", ""),
        ("a\u00a0b", "b"),
        ("", ""),
        ("...", ""),
        ("x the_y", "x they"),
        ("naïve a", "naïve"),
        ("東京 the", "東京"),
        ("ＴＨＥ", "ｔｈｅ"),
        ("—", "—"),
    ],
)
def test_what_counts_in_a_comparison(text, words):
    assert " ".join(normalized_words(text)) == words == oracle_squad.normal_form(text)


@pytest.mark.parametrize(
    ("prediction", "answer", "exact", "version_1", "version_2"),
    [
        ("the cat", "Cat!", 1, 1, 1),
        ("", "", 1, 0, 1),
        ("", "cat", 0, 0, 0),
        ("the", "a", 1, 0, 1),  # nothing but articles: both empty
        ("black cat", "cat", 0, 2 / 3, 2 / 3),
        ("cat cat cat", "cat", 0, 0.5, 0.5),
        ("cat dog", "dog cat", 0, 1, 1),  # the order counts for the exact match only
        ("dog", "cat", 0, 0, 0),
    ],
)
def test_scores_of_a_pair_by_hand(prediction, answer, exact, version_1, version_2):
    assert exact_match(prediction, answer) == exact
    assert f1(prediction, answer, empty_matches_empty=False) == pytest.approx(version_1)
    assert f1(prediction, answer, empty_matches_empty=True) == pytest.approx(version_2)


def cases(seed: int, count: int, version_2: bool):
    """Answers and predictions that share words; some are missing, empty, repeated or in another case."""
    rng = random.Random(seed)
    for _ in range(count):
        answers, predictions, odds = {}, {}, {}
        for number in range(rng.randint(1, 12)):
            identity = f"q{number}"
            texts = [random_text(rng, 4) for _ in range(rng.randint(0 if version_2 else 1, 4))]
            answers[identity] = texts
            if rng.random() < 0.9 or number == 0:
                near = rng.choice(texts) if texts else ""
                predictions[identity] = rng.choice(
                    [near, near.upper(), "the " + near + ".", random_text(rng, 4), "", near[:-1]]
                )
                odds[identity] = rng.choice([-1.0, 0.0, 0.5, 2.0, rng.gauss(0, 3)])
        yield answers, predictions, odds


def test_squad_1_agrees_with_the_definition_on_3000_generated_sets():
    for answers, predictions, _ in cases(1, 3000, version_2=False):
        assert score_squad_1(answers, predictions) == pytest.approx(oracle_squad.squad_1(answers, predictions))


def test_squad_2_agrees_with_the_definition_on_3000_generated_sets():
    for answers, predictions, odds in cases(2, 3000, version_2=True):
        scores, best = score_squad_2(answers, predictions), best_thresholds(answers, predictions, odds)
        thresholds = {name: best.pop(f"{name}_thresh") for name in ("best_exact", "best_f1")}
        assert scores | best == pytest.approx(oracle_squad.squad_2(answers, predictions, odds))
        for name, threshold in thresholds.items():
            # Applying the threshold gives the score, unless questions have equal odds. The official search also
            # returns the threshold 0 if no question should be answered.
            if len(set(odds.values())) == len(odds) and threshold and len(predictions) == len(answers):
                kept = {key: "" if odds[key] > threshold else text for key, text in predictions.items()}
                assert score_squad_2(answers, kept)[name[5:]] >= best[name] - 1e-9


def test_a_threshold_search_by_hand():
    answerable = {"right": True, "wrong": True, "none": False, "empty": False}
    predictions = {"right": "x", "wrong": "y", "none": "z", "empty": ""}
    scores = {"right": 1.0, "wrong": 0.0, "none": 0.0, "empty": 1.0}
    odds = {"right": -5.0, "wrong": -1.0, "none": 3.0, "empty": 0.0}
    # Both unanswerable ones are right at the start (2 of 4); answering `right` gains one, `none` would lose one.
    assert best_threshold(scores, predictions, odds, answerable) == (75.0, -5.0)


def test_answers_without_words_do_not_count_beside_others():
    assert score_squad_2({"q": ["the", "cat"]}, {"q": ""})["exact"] == 0
    assert score_squad_2({"q": ["the", "a"]}, {"q": ""})["HasAns_exact"] == 100


def test_missing_predictions_count_in_squad_1_only():
    assert score_squad_1({"a": ["x"], "b": ["x"]}, {"a": "x"}) == {"exact_match": 50, "f1": 50}
    assert score_squad_2({"a": ["x"], "b": ["x"]}, {"a": "x"})["total"] == 1


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda: score_squad_1({}, {}), "no question"),
        (lambda: score_squad_1({"a": []}, {"a": "x"}), "--version-2-with-negative"),
        (lambda: score_squad_2({"a": []}, {"b": "x"}), "another file"),
        (lambda: best_thresholds({"a": []}, {"a": ""}, {"b": 1.0}), "lacks 1 of 1 questions, e.g. 'a'"),
    ],
)
def test_what_cannot_be_scored_is_refused(score, message):
    with pytest.raises(ValueError, match=message):
        score()

"""The scores of SQuAD 1.1 and 2.0: examples by hand, and generated cases against an oracle."""

import json
import random

import numpy as np
import pytest

from bert.finetuning.squad.answer_settings import ReaderSettings
from bert.finetuning.squad.examples import Question, SquadExamples, read_squad
from bert.finetuning.squad.features import build_features
from bert.finetuning.squad.metrics import best_thresholds, normalized_words, score_squad_1, score_squad_2
from bert.finetuning.squad.predictions import _whole_words, predict
from tests.finetuning.squad.test_features import VOCABULARY
from tests.support import oracle_squad
from tests.support.squad_files import generated, random_text


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


def cases(seed: int, count: int, version_2: bool):
    """Make answers and predictions that share words; some are missing, empty, repeated or in another case."""
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


def test_squad_1_agrees_with_the_definition_on_generated_sets():
    for answers, predictions, _ in cases(1, 500, version_2=False):
        assert score_squad_1(answers, predictions) == pytest.approx(oracle_squad.squad_1(answers, predictions))


def test_squad_2_agrees_with_the_definition_on_generated_sets():
    for answers, predictions, odds in cases(2, 500, version_2=True):
        scores, best = score_squad_2(answers, predictions), best_thresholds(answers, predictions, odds)
        thresholds = {name: best.pop(f"{name}_thresh") for name in ("best_exact", "best_f1")}
        assert scores | best == pytest.approx(oracle_squad.squad_2(answers, predictions, odds))
        for name, threshold in thresholds.items():
            # Applying the threshold gives the score, unless questions have equal odds. The official search also
            # returns the threshold 0 if no question should be answered.
            if len(set(odds.values())) == len(odds) and threshold and len(predictions) == len(answers):
                kept = {key: "" if odds[key] > threshold else text for key, text in predictions.items()}
                assert score_squad_2(answers, kept)[name[5:]] >= best[name] - 1e-9


def test_missing_predictions_count_in_squad_1_only():
    assert score_squad_1({"a": ["x"], "b": ["x"]}, {"a": "x"}) == {"exact_match": 50, "f1": 50}
    assert score_squad_2({"a": ["x"], "b": ["x"]}, {"a": "x"})["total"] == 1


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (lambda: score_squad_1({"a": []}, {"a": "x"}), "--version-2-with-negative"),
        (lambda: score_squad_2({"a": []}, {"b": "x"}), "another file"),
        (lambda: best_thresholds({"a": []}, {"a": ""}, {"b": 1.0}), "lacks 1 of 1 questions, e.g. 'a'"),
    ],
)
def test_what_cannot_be_scored_is_refused(score, message):
    with pytest.raises(ValueError, match=message):
        score()


def one(context, question="What?", **settings):
    examples = SquadExamples("one", (context,), (Question("0", question, 0),))
    reader = ReaderSettings(**{"max_seq_length": 32, "doc_stride": 8, "max_query_length": 8, **settings})
    features, _ = build_features(examples, VOCABULARY, reader, training=False)
    return examples, features, *np.zeros((2, len(features.input_ids)), np.float32)


def test_an_answer_is_cut_from_the_text_as_it_was_written():
    examples, features, start, end = one("The NILE,  Café–1,000 is long.")
    start[5], end[11] = 5, 4  # [CLS] what ? [SEP] the nile , caf ##e – 1 , 000
    found = predict(examples, features, start, end, ReaderSettings(n_best_size=3))
    assert found.answers == {"0": "NILE,  Café–1,"}
    best = found.n_best["0"][0]
    assert (best.start, best.end, best.start_logit, best.end_logit) == (4, 18, 5, 4)
    assert found.null_odds == {} and len(found.n_best["0"]) == 3
    assert sum(candidate.probability for candidate in found.n_best["0"]) == pytest.approx(1)
    assert json.loads(json.dumps(found.n_best_as_json()))["0"][0]["text"] == "NILE,  Café–1,"


def test_no_answer_is_what_every_window_must_agree_on():
    context = "the nile is a long river in egypt and the sea is a sea ."
    examples, features, start, end = one(context, "What is long?", max_seq_length=12, doc_stride=3)
    cls = features.offsets[:-1]
    start[cls] = end[cls] = 3  # 6 in four windows
    start[cls[1]] = end[cls[1]] = 0.5  # 1 in that of the answer
    start[features.offsets[1] + 7], end[features.offsets[1] + 8] = 1.5, 1.0
    settings = ReaderSettings(version_2_with_negative=True, n_best_size=4)
    found = predict(examples, features, start, end, settings)
    assert found.null_odds["0"] == pytest.approx(1 - 2.5) and found.answers["0"] == "long river"
    assert "" in [candidate.text for candidate in found.n_best["0"]] and len(found.n_best["0"]) == 4
    lower = ReaderSettings(version_2_with_negative=True, null_score_diff_threshold=-2.0)
    found = predict(examples, features, start, end, lower)
    assert found.answers["0"] == "" and found.best_answers["0"] == "long river"


@pytest.mark.parametrize("no_answer", [0.0, 9.0])
def test_the_predicted_answer_is_listed_even_if_only_one_is_wanted(no_answer):
    """The answer's place and probability are read from the list."""
    examples, features, start, end = one("the nile is long")
    start[5], end[5] = 3, 3  # [CLS] what ? [SEP] the nile
    start[0] = end[0] = no_answer
    found = predict(examples, features, start, end, ReaderSettings(version_2_with_negative=True, n_best_size=1))
    assert found.answers["0"] == ("" if no_answer else "nile")
    wanted = [("nile", 4, 8), ("", 0, 0)]
    assert [candidate[:1] + candidate[-2:] for candidate in found.n_best["0"]] == wanted[:: -1 if no_answer else 1]


@pytest.mark.parametrize("version_2", [False, True])
def test_a_paragraph_without_tokens_gets_an_empty_answer(version_2):
    examples, features, start, end = one(" \u200b ")
    found = predict(examples, features, start, end, ReaderSettings(version_2_with_negative=version_2))
    assert found.answers["0"] == "" and found.n_best["0"][0].probability == 1
    assert json.loads(json.dumps(found.null_odds)) == ({"0": 10_000.0} if version_2 else {})


def test_the_n_best_are_those_of_a_search_through_every_span(tmp_path):
    rng = random.Random(8)
    for case in range(25):
        file = tmp_path / f"{case}.json"
        file.write_text(json.dumps(generated(rng, 6, version_2=True)))
        examples = read_squad(file, version_2=True)
        values = {"doc_stride": [2, 5], "n_best_size": [1, 5], "max_answer_length": [1, 3, 40]}
        drawn = {name: rng.choice(choices) for name, choices in values.items()}
        settings = ReaderSettings(max_seq_length=20, max_query_length=6, **drawn)
        features, _ = build_features(examples, VOCABULARY, settings, training=False)
        draw = np.random.RandomState(case)
        start, end = (draw.randn(len(features.input_ids)).astype(np.float32) for _ in range(2))
        found = predict(examples, features, start, end, settings)
        base = np.searchsorted(features.examples, np.arange(len(examples) + 1))
        lengths = features.lengths() - features.first_lengths - 1
        for number, item in enumerate(examples.questions):
            rows = range(base[number], base[number + 1])
            first = features.paragraph_starts[rows[0]]
            spans = [(int(features.paragraph_starts[row] - first), int(lengths[row])) for row in rows]
            tokens = list(
                zip(features.token_starts[first:].tolist(), features.token_ends[first:].tolist(), strict=True)
            )
            inner = [
                slice(features.offsets[row] + features.first_lengths[row], features.offsets[row + 1] - 1)
                for row in rows
            ]
            expected = oracle_squad.best_answers(
                examples.contexts[item.context],
                tokens,
                spans,
                [start[part] for part in inner],
                [end[part] for part in inner],
                settings.n_best_size,
                settings.max_answer_length,
            )
            ours = [(c.text, pytest.approx(c.start_logit + c.end_logit, abs=1e-5)) for c in found.n_best[item.id]]
            assert [text for text, _ in expected] == [text for text, _ in ours]
            assert [score for _, score in expected] == [score for _, score in ours]


@pytest.mark.parametrize(
    ("context", "cut", "whole"),
    [
        ("opened in 1987.", "198", "1987"),
        ("She is Japanese, he says", "anes", "Japanese"),
        ("a well-known cafe\u0301", "known", "known"),  # not over a hyphen
        ("1,000 euros", "000", "000"),
        ("\u6771\u4eac\u90fd\u3067", "\u4eac", "\u4eac"),  # nor where words have no spaces between them
        ("\uc11c\uc6b8\uc5d0\uc11c", "\uc11c\uc6b8", "\uc11c\uc6b8"),
    ],
)
def test_answers_are_whole_words(context, cut, whole):
    start = context.index(cut)
    assert context[slice(*_whole_words(context, start, start + len(cut)))] == whole

"""Answers from logits: examples by hand, and an exhaustive search over all spans."""

import json
import random

import numpy as np
import pytest

from bert.finetuning.squad import predictions as squad_predictions
from bert.finetuning.squad.examples import read_squad, single_paragraph
from bert.finetuning.squad.features import WindowSettings, build_features
from bert.finetuning.squad.predictions import AnswerSettings, n_best_as_json, predict
from tests.finetuning.squad.test_features import VOCABULARY
from tests.support import oracle_squad
from tests.support.squad_files import generated


def one(context, question="What?", **settings):
    examples = single_paragraph(context, [question])
    window = WindowSettings(**{"max_seq_length": 32, "doc_stride": 8, "max_query_length": 8, **settings})
    features, _ = build_features(examples, VOCABULARY, window, training=False)
    return (
        examples,
        features,
        np.zeros(len(features.input_ids), np.float32),
        np.zeros(len(features.input_ids), np.float32),
    )


def test_an_answer_is_cut_from_the_text_as_it_was_written():
    examples, features, start, end = one("The NILE,  Café–1,000 is long.")
    start[5], end[11] = 5, 4  # [CLS] what ? [SEP] the nile , caf ##e – 1 , 000
    found = predict(examples, features, start, end, AnswerSettings(n_best_size=3))
    assert found.answers == {"0": "NILE,  Café–1,"}
    best = found.n_best["0"][0]
    assert (best.start, best.end, best.start_logit, best.end_logit) == (4, 18, 5, 4)
    assert found.null_odds == {} and len(found.n_best["0"]) == 3
    assert sum(candidate.probability for candidate in found.n_best["0"]) == pytest.approx(1)
    assert json.loads(json.dumps(n_best_as_json(found)))["0"][0]["text"] == "NILE,  Café–1,"


def test_an_answer_lies_in_the_paragraph_in_order_and_is_not_too_long():
    examples, features, start, end = one("the nile is a long river .")
    start[1] = end[2] = 50  # in the question
    start[9], end[5] = 9, 9  # ends before it begins
    start[6], end[9] = 14, 3
    assert (
        predict(examples, features, start, end, AnswerSettings(max_answer_length=4)).answers["0"] == "is a long river"
    )
    assert len(predict(examples, features, start, end, AnswerSettings(max_answer_length=3)).answers["0"].split()) <= 3


def test_the_same_text_is_listed_once_with_its_best_score():
    examples, features, start, end = one("sea the sea the sea")
    start[[4, 6, 8]], end[[4, 6, 8]] = (1, 3, 2), (1, 3, 2)
    texts = [candidate.text for candidate in predict(examples, features, start, end, AnswerSettings()).n_best["0"]]
    assert texts[0] == "sea" and len(set(texts)) == len(texts)


def test_no_answer_is_what_every_window_must_agree_on():
    context = "the nile is a long river in egypt and the sea is a sea ."
    examples, features, start, end = one(context, "What is long?", max_seq_length=12, doc_stride=3)
    cls = features.offsets[:-1]
    start[cls] = end[cls] = 3  # 6 in four windows
    start[cls[1]] = end[cls[1]] = 0.5  # 1 in that of the answer
    start[features.offsets[1] + 7], end[features.offsets[1] + 8] = 1.5, 1.0
    settings = AnswerSettings(version_2=True, n_best_size=4)
    found = predict(examples, features, start, end, settings)
    assert found.null_odds["0"] == pytest.approx(1 - 2.5) and found.answers["0"] == "long river"
    assert "" in [candidate.text for candidate in found.n_best["0"]] and len(found.n_best["0"]) == 4
    lower = AnswerSettings(version_2=True, null_score_diff_threshold=-2.0)
    found = predict(examples, features, start, end, lower)
    assert found.answers["0"] == "" and found.best_answers["0"] == "long river"


@pytest.mark.parametrize("no_answer", [0.0, 9.0])
def test_the_predicted_answer_is_listed_even_if_only_one_is_wanted(no_answer):
    """Its place and its probability are read from the list."""
    examples, features, start, end = one("the nile is long")
    start[5], end[5] = 3, 3  # [CLS] what ? [SEP] the nile
    start[0] = end[0] = no_answer
    found = predict(examples, features, start, end, AnswerSettings(version_2=True, n_best_size=1))
    assert found.answers["0"] == ("" if no_answer else "nile")
    wanted = [("nile", 4, 8), ("", 0, 0)]
    assert [candidate[:1] + candidate[-2:] for candidate in found.n_best["0"]] == wanted[:: -1 if no_answer else 1]


@pytest.mark.parametrize("version_2", [False, True])
def test_a_paragraph_without_tokens_gets_an_empty_answer(version_2):
    examples, features, start, end = one(" \u200b ")
    found = predict(examples, features, start, end, AnswerSettings(version_2=version_2))
    assert found.answers["0"] == "" and found.n_best["0"][0].probability == 1
    assert json.loads(json.dumps(found.null_odds)) == ({"0": 10_000.0} if version_2 else {})


def test_logits_that_are_not_numbers_are_refused():
    examples, features, start, end = one("the sea")
    start[2] = np.nan
    with pytest.raises(ValueError, match="1 start logits are NaN or infinite"):
        predict(examples, features, start, end, AnswerSettings())
    with pytest.raises(ValueError, match=r"shape \(1,\) must be one for each of the 7 tokens"):
        predict(examples, features, start[:1], end, AnswerSettings())
    with pytest.raises(ValueError, match="n_best_size=0"):
        AnswerSettings(n_best_size=0)


def test_the_n_best_are_those_of_a_search_through_every_span(tmp_path, monkeypatch):
    """Generated files in windows, in blocks small enough to contain windows of different lengths."""
    monkeypatch.setattr(squad_predictions, "_CELLS_PER_BLOCK", 500)
    rng = random.Random(8)
    for case in range(25):
        file = tmp_path / f"{case}.json"
        file.write_text(json.dumps(generated(rng, 6, version_2=True)))
        examples = read_squad(file, version_2=True)
        features, _ = build_features(examples, VOCABULARY, WindowSettings(20, rng.choice([2, 5]), 6), training=False)
        draw = np.random.RandomState(case)
        start, end = (draw.randn(len(features.input_ids)).astype(np.float32) for _ in range(2))
        settings = AnswerSettings(n_best_size=rng.choice([1, 5]), max_answer_length=rng.choice([1, 3, 40]))
        found = predict(examples, features, start, end, settings)
        base = np.searchsorted(features.examples, np.arange(len(examples) + 1))
        for number, item in enumerate(examples.questions):
            rows = range(base[number], base[number + 1])
            first = features.paragraph_starts[rows[0]]
            spans = [
                (int(features.paragraph_starts[row] - first), int(features.paragraph_lengths()[row])) for row in rows
            ]
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

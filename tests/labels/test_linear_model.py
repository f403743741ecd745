"""Tests of a kept baseline: it gives scikit-learn's numbers, runs no code of its files, and refuses damaged files."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from scipy.special import softmax
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline

from bert.conversion.usage import LINEAR_MODEL_FILE
from bert.files import checksum_of_file
from bert.labels.decision import Decision
from bert.labels.linear_model import ARRAYS_FILE, METHODS, LinearTextModel

RNG = np.random.default_rng(3)
WORDS = ["Straße", "isn't", "中文", "a-b", "ÅNGSTRÖM", "x", "12,5", "naïve", "🙂🙂", "film", "Film", "\u00a0"]
TEXTS = [" ".join(RNG.choice(WORDS, 6)) + RNG.choice(["", "\n", "  !", "\ud800"]) for _ in range(90)]
NEW = [*TEXTS[:5], "nothing of these", "", "   ", "film film\tFILM", "中"]
CLASSES = RNG.integers(0, 3, 90)


def classifier():
    return OneVsRestClassifier(LogisticRegression(C=16, solver="liblinear", dual=True, max_iter=1000, random_state=0))


def fitted(method: str, targets, estimator):
    pipeline = make_pipeline(TfidfVectorizer(**METHODS[method], sublinear_tf=True), estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of labels that every text has
        return pipeline.fit(TEXTS, targets)


def kept(folder, method: str, pipeline, num_labels: int) -> LinearTextModel:
    LinearTextModel.of(method, 20_000, pipeline[0], pipeline[1], num_labels).write(folder)
    return LinearTextModel.load(folder)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("targets", [CLASSES, CLASSES > 0, 2 * (CLASSES > 0) + 1], ids=["three", "two", "two of four"])
def test_probabilities_of_classes_are_those_of_scikit_learn(tmp_path, method, targets):
    pipeline = fitted(method, targets.astype(int), classifier())
    model = kept(tmp_path, method, pipeline, 4)
    likely = softmax(model.logits(NEW), axis=-1)
    np.testing.assert_allclose(likely[:, pipeline.classes_], pipeline.predict_proba(NEW), rtol=0, atol=1e-12)
    np.testing.assert_allclose(likely.sum(-1), 1, rtol=0, atol=1e-12)
    assert (Decision().classes(Decision().probabilities(model.logits(NEW))) == pipeline.predict(NEW)).all()


@pytest.mark.parametrize("method", METHODS)
def test_probabilities_of_several_labels_are_those_of_scikit_learn(tmp_path, method):
    """The last two labels belong to all texts and to no text."""
    labels = np.stack([CLASSES == 0, CLASSES > 0, np.ones(90), np.zeros(90)], axis=1).astype(int)
    pipeline, decision = fitted(method, labels, classifier()), Decision(several=True)
    likely = decision.probabilities(kept(tmp_path, method, pipeline, 4).logits(NEW, several=True))
    np.testing.assert_allclose(likely, pipeline.predict_proba(NEW), rtol=0, atol=1e-12)
    assert (decision.classes(likely) == pipeline.predict(NEW)).all()


def test_numbers_are_those_of_scikit_learn(tmp_path):
    pipeline = fitted("words alone", CLASSES + 0.5, Ridge(0.25))
    numbers = kept(tmp_path, "words alone", pipeline, 1).logits(NEW)[:, 0]
    np.testing.assert_allclose(numbers, pipeline.predict(NEW), rtol=0, atol=1e-12)


def test_a_pair_is_joined_and_its_end_is_not_read():
    model = LinearTextModel("words alone", 5, ["a"], np.ones(1), np.ones((1, 1)), np.zeros(1), np.zeros(1, np.int64), 1)
    assert model.read([("ab", "cde"), ("abcdefg",)]) == ["ab cd", "abcde"]


def test_words_have_their_marks_and_letters_are_equal_but_for_older_models(tmp_path):
    """An older version cut Hindi words at their vowel signs, and took a word in NFD for another than in NFC."""
    vectorizer = TfidfVectorizer(**METHODS["words alone"])
    vectorizer.fit(["यह किताब अच्छी है schöne"])
    assert [word for word in vectorizer.get_feature_names_out() if " " not in word] == [
        *sorted(["यह", "किताब", "अच्छी", "है", "schöne"])
    ]
    ngrams = ["किताब", "schöne", "त"]  # the last is a part of the first, which older models read
    arrays = np.ones(3), np.array([[1.0, 2.0, 4.0]]), np.zeros(1), np.zeros(1, np.int64)
    LinearTextModel("words alone", 99, ngrams, *arrays, 1).write(tmp_path)
    facts = json.loads((tmp_path / LINEAR_MODEL_FILE).read_text())
    expected = {True: [[1], [2]], False: [[4], [0]]}
    for equal, texts in expected.items():
        facts.pop("equal_letters", None)
        (tmp_path / LINEAR_MODEL_FILE).write_text(json.dumps(facts | ({"equal_letters": True} if equal else {})))
        model = LinearTextModel.load(tmp_path)
        assert model.logits(model.read([["किताब"], ["scho\u0308ne"]])).tolist() == texts


def test_damaged_files_are_refused(tmp_path):
    kept(tmp_path, "words alone", fitted("words alone", CLASSES, classifier()), 3)
    facts, arrays = json.loads((tmp_path / LINEAR_MODEL_FILE).read_text()), load_file(tmp_path / ARRAYS_FILE)

    def refused(reason: str, facts=facts, **changed):
        save_file({**arrays, **changed}, tmp_path / ARRAYS_FILE)
        known = {"checksum": checksum_of_file(tmp_path / ARRAYS_FILE)} if "checksum" in facts else {}
        (tmp_path / LINEAR_MODEL_FILE).write_text(json.dumps({**facts, **known}))
        with pytest.raises(ValueError, match=f"a kept baseline that is damaged: .*{reason}.*; write it again"):
            LinearTextModel.load(tmp_path)

    refused("method=eval must be one of words alone, characters alone", {**facts, "method": "eval"})
    refused("arrays do not fit together", idf=arrays["idf"][1:])
    refused("arrays do not fit together", classes=arrays["classes"] + 1)
    refused("arrays do not fit together", intercepts=arrays["intercepts"][:2])
    refused("checksum", {name: value for name, value in facts.items() if name != "checksum"})
    save_file({**arrays, "idf": 2 * arrays["idf"]}, tmp_path / ARRAYS_FILE)
    (tmp_path / LINEAR_MODEL_FILE).write_text(json.dumps(facts))  # of other bytes
    with pytest.raises(ValueError, match="linear_model.safetensors has another checksum"):
        LinearTextModel.load(tmp_path)
    (tmp_path / ARRAYS_FILE).unlink()
    with pytest.raises(ValueError, match="a kept baseline that is damaged"):
        LinearTextModel.load(tmp_path)


def test_a_model_of_a_class_that_its_lines_lack_never_says_it(tmp_path):
    model = kept(tmp_path, "words alone", fitted("words alone", CLASSES, classifier()), 5)
    assert (softmax(model.logits(NEW), axis=-1)[:, 3:] == 0).all()
    one = replace(model, coefficients=model.coefficients[:1], intercepts=model.intercepts[:1], classes=np.array([2]))
    assert (softmax(one.logits(NEW), axis=-1) == np.eye(5)[2]).all()

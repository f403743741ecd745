"""A classifier among initial weights is used only for the outputs that it was trained for."""

import logging

import numpy as np
import pytest

from bert.conversion.reading import PretrainedWeights
from bert.conversion.usage import Usage, usage_texts
from bert.training.given_weights import weights_for_task

CLASSES, SEVERAL, TAGGER = Usage("custom"), Usage("custom", label_separator=";"), Usage("ner")
NUMBER = Usage("STS-B", regression=True)


def weights(folder, usage: Usage, labels: tuple[str, ...], outputs: int) -> PretrainedWeights:
    """Return an encoder's tensor, and a classifier with its number of outputs."""
    for name, text in usage_texts(usage, None, labels).items():
        (folder / name).write_text(text)
    tensors = {"classifier.weight": np.ones((8, outputs)), "classifier.bias": np.ones(outputs), "encoder": np.ones(1)}
    return PretrainedWeights(tensors, None, None, "native", [], None, labels or None, folder)


@pytest.mark.parametrize(
    ("theirs", "labels", "outputs", "ours", "wanted", "is_used"),
    [
        (CLASSES, ("file", "net", "text"), 3, CLASSES, ("file", "net", "text"), True),
        (CLASSES, ("file", "net", "text"), 3, CLASSES, ("net", "file", "text"), False),  # another order
        (CLASSES, ("file", "net", "text"), 3, CLASSES, ("A", "B", "C"), False),  # as many
        (CLASSES, ("file", "net", "text"), 3, CLASSES, ("file", "net"), False),
        (CLASSES, (), 2, CLASSES, ("LABEL_0", "LABEL_1"), True),  # of another library, without names
        (CLASSES, (), 2, CLASSES, ("no", "yes"), False),
        (CLASSES, ("a", "b"), 2, SEVERAL, ("a", "b"), False),
        (SEVERAL, ("a", "b"), 2, SEVERAL, ("a", "b"), True),
        (TAGGER, ("O", "B-LOC"), 2, CLASSES, ("O", "B-LOC"), False),
        (TAGGER, ("O", "B-LOC"), 2, TAGGER, ("O", "B-LOC"), True),
        (TAGGER, ("O", "B-LOC"), 2, TAGGER, ("O", "B-PER"), False),
        (NUMBER, (), 1, NUMBER, (), True),
        (CLASSES, (), 1, NUMBER, (), True),  # of another library
        (NUMBER, (), 1, CLASSES, ("a", "b"), False),
        (CLASSES, ("a", "b"), 2, NUMBER, (), False),
    ],
)
def test_a_classifier_is_used_for_its_own_outputs_alone(
    tmp_path, caplog, theirs, labels, outputs, ours, wanted, is_used
):
    caplog.set_level(logging.INFO, "bert")
    given = weights(tmp_path, theirs, labels, outputs)
    found = weights_for_task(given, usage_texts(ours, None, wanted))
    assert ("classifier.weight" in found, "classifier.bias" in found) == (is_used, is_used)
    assert "encoder" in found
    assert ("a new classifier is trained" in caplog.text) == (not is_used)


def test_another_librarys_tagger_is_known_by_its_task(tmp_path):
    tensors, tags = {"classifier.weight": np.ones((8, 2)), "classifier.bias": np.ones(2)}, ("O", "B-LOC")
    given = PretrainedWeights(tensors, None, None, "huggingface", [], "token-classification", tags, tmp_path)
    assert weights_for_task(given, usage_texts(TAGGER, None, tags)) == tensors
    assert weights_for_task(given, usage_texts(CLASSES, None, tags)) == {}


def test_a_task_without_a_classifier_gets_all_tensors(tmp_path):
    given = weights(tmp_path, CLASSES, ("a", "b"), 2)
    for texts in ({}, usage_texts(Usage("vectors"), None)):
        assert weights_for_task(given, texts).keys() == given.parameters.keys()

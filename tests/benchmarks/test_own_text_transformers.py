"""The masks that transformers' model learns from in the comparison on own text."""

import numpy as np

from tests.benchmarks.own_text_transformers import IGNORED, _masked

SPECIAL = {"PAD": 0, "CLS": 2, "SEP": 3, "MASK": 4}


def test_15_percent_are_masked_and_no_special_token():
    blocks = np.random.default_rng(1).integers(5, 99, (200, 126))
    blocks[:, 40] = SPECIAL["SEP"]
    inputs, labels = _masked(blocks, SPECIAL, 99, np.random.default_rng(2))
    whole, is_masked = np.pad(blocks, ((0, 0), (1, 1)), constant_values=((0, 0), (2, 3))), labels != IGNORED
    assert (inputs[~is_masked] == whole[~is_masked]).all() and (labels[is_masked] == whole[is_masked]).all()
    assert labels[is_masked].min() >= 5 and 0.14 < is_masked.mean() < 0.16
    assert 0.78 < (inputs[is_masked] == SPECIAL["MASK"]).mean() < 0.82
    assert 0.08 < (inputs[is_masked] == whole[is_masked]).mean() < 0.13

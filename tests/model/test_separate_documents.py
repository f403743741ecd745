"""Several documents in a row: losses and every gradient are those of a row for each document."""

from dataclasses import replace

import numpy as np
import pytest

from bert.config.architecture import FusedKernels
from bert.model.objectives import MaskedLMObjective
from bert.samples.collation import padded_predictions
from tests.model.test_attention import Gradients, assert_near
from tests.model.test_modernbert import MODEL as MODERN
from tests.support import tiny

ROWS = ([5, 1, 7], [16], [3, 9])  # lengths of the documents of each row


def feed_of(rows, separate: bool, seed: int = 1) -> dict[str, np.ndarray]:
    """Return the same documents and masks in any division into rows."""
    rng = np.random.RandomState(seed)
    feed = {name: np.zeros((len(rows), 16), "int64") for name in ("input_ids", "attention_mask", "position_ids")}
    masked = []
    for row, lengths in enumerate(rows):
        end = 0
        for length in lengths:
            place = slice(end, end := end + length)
            feed["input_ids"][row, place], feed["attention_mask"][row, place] = rng.randint(5, 99, length), 1
            feed["position_ids"][row, place] = np.arange(length)
            masked += [row * 16 + end - 1] * (length > 1)
        feed["position_ids"][row, end:] = np.arange(1, 17 - end)
    feed |= {**padded_predictions(np.array(masked), rng.randint(5, 99, len(masked)))}
    feed |= {"token_type_ids": 0 * feed["input_ids"], "masked_lm_normalizer": np.array([3.0], "float32")}
    if not separate:
        del feed["position_ids"]
    return feed


@pytest.mark.parametrize(
    ("model", "unpad"),
    [
        pytest.param(tiny.MODEL, True, id="bert-packed", marks=pytest.mark.long),
        pytest.param(tiny.MODEL, False, id="bert-padded"),
        pytest.param(MODERN, True, id="modernbert-packed", marks=pytest.mark.long),
        pytest.param(MODERN, False, id="modernbert-padded", marks=pytest.mark.long),
    ],
)
def test_losses_and_gradients_are_those_of_a_row_for_each_document(model, unpad):
    alone = MaskedLMObjective(model)
    together = replace(alone, separate_documents=True, kernels=FusedKernels(unpad=unpad))
    expected = Gradients(alone)(feed_of([[length] for row in ROWS for length in row], separate=False))
    run = Gradients(together)
    values = run(feed_of(ROWS, separate=True))
    assert expected.keys() == values.keys() and expected["sum 2"] == 6 and values["sum 2"] == len(ROWS)
    for name in expected.keys() - {"sum 2"}:
        assert_near(values[name], expected[name], name)
    if not unpad:  # it would notice if documents saw each other
        feed = feed_of(ROWS, separate=True)
        feed["position_ids"] = np.tile(np.arange(16), (3, 1))
        assert abs(run(feed)["loss"] - expected["loss"]) > 1e-3

"""The expected held-out loss of a small model."""

import pytest

from bert.config.setting_sources import resolve_config
from bert.config.training_settings import derive
from bert.pretraining.entry import ENTRY
from bert.pretraining.expectation import ERROR, expected_loss, judgement, nats_below_frequency

SMALL = {"config": "quickstart_phase1", "model_type": "modernbert", "objective": "mlm", "learning_rate": 5e-3}
SMALL |= {"optimizer": "AdamW", "initial_attention": "neighbours"}


def test_the_expected_loss_falls_with_the_sum_of_the_rates():
    config = resolve_config(SMALL, ENTRY)
    first, later = (expected_loss(config, 6.0, updates, 60) for updates in (200, 400))
    assert 6.0 > first > later > 3.5
    assert expected_loss(derive(config, learning_rate=2.5e-3), 6.0, 770, 60) == pytest.approx(later)
    assert expected_loss(config, 6.0, 100, 60) is None, "less than was measured"
    assert expected_loss(config, 6.0, 3000, 60) is None, "more than was measured"
    assert expected_loss(config, 1.5, 400, 60) is None, "a text of few characters"
    assert expected_loss(derive(config, num_hidden_layers=4), 6.0, 400, 60) == later
    others = ({"num_hidden_layers": 3}, {"eval_masked_lm_ratio": 0.3}, {"optimizer": "Lamb"})
    starts = ({"initial_attention": "random"}, {"model_type": "bert"}, {"from_pretrained_params": "bert"})
    for change in (*starts, *others):
        assert expected_loss(derive(config, **change), 6.0, 400, 60) is None
    assert nats_below_frequency(1e-2, 9000, 60) == (nats_below_frequency(1e-2, 830, 60)[0], True)


@pytest.mark.parametrize(("change", "words"), [(0.0, "as expected:"), (ERROR + 0.1, "late:"), (-ERROR - 0.1, "early:")])
def test_a_loss_is_judged(change, words):
    assert judgement(4.5 + change, 4.5).startswith(words)

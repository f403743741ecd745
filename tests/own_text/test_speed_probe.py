"""The batches with which the speed of a machine is measured; own text's last test runs the measurement itself."""

from types import SimpleNamespace

import pytest

from bert.config.training_settings import derive
from bert.own_text.speed_probe import made_up_batch
from bert.pretraining.recipes.quickstart import quickstart_phase2

PADDED_PROGRAM = SimpleNamespace(
    objective=SimpleNamespace(packing=lambda: None),
    main=SimpleNamespace(global_block=lambda: SimpleNamespace(has_var=lambda name: True)),
)


@pytest.mark.parametrize(("objective", "real", "masked"), [("mlm_nsp", 99, 120), ("mlm", 128, 152)])
def test_made_up_samples_are_as_long_as_real_ones(objective, real, masked):
    config = derive(quickstart_phase2(), objective=objective, batch_size=8)
    feed = made_up_batch(config, PADDED_PROGRAM)
    assert feed["input_ids"].shape == (8, 128) and feed["input_ids"].max() < config.model.vocab_size
    assert feed["attention_mask"].sum(axis=1).tolist() == [real] * 8 and feed["attention_mask"][:, real - 1].all()
    assert feed["masked_lm_positions"].shape == (masked,)
    assert (feed["masked_lm_positions"] % 128).max() < real

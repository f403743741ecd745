"""Pre-training put together: what the settings say is what the loader and the objective do."""

import dataclasses

import pytest

from bert.pretraining import task as pretraining
from bert.samples.loader import LoaderSettings
from tests.support import tiny

OTHER = {
    "max_seq_length": 12,
    "max_predictions_per_seq": 2,
    "masking": "dynamic",
    "whole_word_masking": True,
    "masked_lm_ratio": 0.3,
    "sequence_length_multiple": 4,
    "num_workers": 7,
    "group_by_length": True,
}


@pytest.mark.parametrize("name", OTHER)
def test_every_setting_of_the_data_reaches_the_loader(tmp_path, name):
    extra = {"masking": "dynamic"} if name == "whole_word_masking" else {}
    config = tiny.pretraining_config(tmp_path, **extra, **{name: OTHER[name]})
    assert getattr(pretraining.loader_settings(config), name) == OTHER[name]
    assert getattr(pretraining.loader_settings(tiny.pretraining_config(tmp_path)), name) != OTHER[name]


def test_no_setting_of_the_loader_is_out_of_reach():
    fixed = {"seed", "shuffle_window_samples"}  # the first is the run's, the second bounds memory
    assert {field.name for field in dataclasses.fields(LoaderSettings)} == OTHER.keys() | fixed


def test_the_objective_follows_the_settings(tmp_path):
    config = tiny.pretraining_config(tmp_path, fuse_mha=False)
    objective = pretraining.objective_of(config)
    assert (objective.model, objective.fuse_mha) == (config.model, False)

"""Ranges and consistency of the optimizer's and the precision's settings, and what follows from them."""

import itertools

import pytest

from bert.config.optimizer_settings import OptimizerSettings, PrecisionSettings

RATES = {"learning_rate": 0.5}


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        *((name, 1e-9, 0.0) for name in ("learning_rate", "embedding_rate_factor", "head_rate_factor", "epsilon")),
        ("warmup_start_lr", 0.5, 0.51),
        ("end_learning_rate", 0.5, 0.51),
        ("warmup_start_lr", 0.0, -0.1),
        ("end_learning_rate", 0.0, -0.1),
        ("warmup_proportion", 0.0, -0.1),
        ("warmup_proportion", 0.99, 1.0),
        ("lr_decay_power", 1e-9, 0.0),
        ("beta1", 0.0, -0.1),
        ("beta1", 0.99, 1.0),
        ("beta2", 0.0, -0.1),
        ("beta2", 0.99, 1.0),
        ("weight_decay", 0.0, -0.1),
        ("max_grad_norm", 0.0, -0.1),
    ],
)
def test_an_optimizers_setting_out_of_its_range_is_refused(name, allowed, refused):
    assert getattr(OptimizerSettings(**{**RATES, name: allowed}), name) == allowed
    with pytest.raises(ValueError, match=name):
        OptimizerSettings(**{**RATES, name: refused})


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("scale_loss", 1e-9, 0.0),
        ("scale_loss", 2.0**40, 2.0**40 + 2.0**20),
        ("loss_scale_growth_interval", 1, 0),
        ("loss_scale_growth_factor", 1.01, 1.0),
        ("loss_scale_backoff_factor", 0.01, 0.0),
        ("loss_scale_backoff_factor", 0.99, 1.0),
    ],
)
def test_a_loss_scales_setting_out_of_its_range_is_refused(name, allowed, refused):
    assert getattr(PrecisionSettings(**{name: allowed}), name) == allowed
    with pytest.raises(ValueError, match=name):
        PrecisionSettings(**{name: refused})


READS = {  # which schedules read a setting
    "lr_decay_power": (0.5, {"polynomial"}),
    "lr_decay_from": ("start", {"polynomial"}),
    "lr_decay_share": (0.2, {"wsd"}),
    "end_learning_rate": (1e-5, {"polynomial", "linear", "cosine", "inverse-sqrt", "wsd"}),
}


@pytest.mark.parametrize("schedule", ["polynomial", "linear", "cosine", "constant", "inverse-sqrt", "wsd"])
@pytest.mark.parametrize("name", READS)
def test_a_setting_that_the_schedule_does_not_read_is_refused(name, schedule):
    value, readers = READS[name]
    default = OptimizerSettings.model_fields[name].default
    assert getattr(OptimizerSettings(lr_schedule=schedule, **{name: default}), name) == default
    if schedule in readers:
        assert getattr(OptimizerSettings(lr_schedule=schedule, **{name: value}), name) == value
    else:
        flag = f"--{name.replace('_', '-')}"
        with pytest.raises(ValueError, match=f"{name}={value} has no effect with lr_schedule={schedule}; drop {flag}"):
            OptimizerSettings(lr_schedule=schedule, **{name: value})


def test_an_optimizer_of_which_checkpoints_would_lack_the_state_is_refused():
    with pytest.raises(ValueError, match="optimizer=DistributedFusedLamb must be Lamb, the same method"):
        OptimizerSettings(optimizer="DistributedFusedLamb")
    for value in ("lamb", "amp,lamb"):
        with pytest.raises(ValueError, match=f"fleet_strategies={value} must be without lamb"):
            OptimizerSettings(fleet_strategies=value)
    assert OptimizerSettings(fleet_strategies="amp,gradient_merge").fleet_strategies == "amp,gradient_merge"


@pytest.mark.parametrize(
    "amp, dtype, switch", itertools.product((False, True), ("float16", "bfloat16"), ("auto", "on", "off"))
)
def test_ranks_sum_in_half_precision_unless_it_is_bfloat16_or_float32_is_asked_for(amp, dtype, switch):
    expected = {("float16", "auto"), ("float16", "off"), ("bfloat16", "off")}
    settings = PrecisionSettings(amp=amp, amp_dtype=dtype, float32_all_reduce=switch)
    assert settings.sums_in_half_precision() == (amp and (dtype, switch) in expected)


@pytest.mark.parametrize(
    ("pure", "dynamic", "scale", "initial"),
    [
        (True, True, 2.0**20, 32_768.0),
        (True, True, 1024.0, 1024.0),
        (True, False, 2.0**20, 2.0**20),
        (False, True, 2.0**20, 2.0**20),
    ],
)
def test_the_dynamic_loss_scale_of_o2_starts_at_two_to_the_15_at_most(pure, dynamic, scale, initial):
    settings = PrecisionSettings(amp=True, use_pure_fp16=pure, use_dynamic_loss_scaling=dynamic, scale_loss=scale)
    assert settings.initial_loss_scale() == initial


def test_an_optimizer_is_by_default_that_of_the_paper():
    """Moments, decay and clipping are as in Devlin et al. (2019), A.2, and You et al. (2020); biases are not
    adapted."""
    settings = OptimizerSettings()
    assert (settings.optimizer, settings.beta1, settings.beta2, settings.epsilon) == ("Lamb", 0.9, 0.999, 1e-6)
    assert (settings.weight_decay, settings.max_grad_norm, settings.always_adapt) == (0.01, 1.0, False)
    assert (settings.lr_schedule, settings.lr_decay_power, settings.end_learning_rate) == ("polynomial", 1.0, 0.0)

"""The device of a run: what it cannot compute is refused before anything is built."""

import os

import paddle
import pytest

from bert.config.optimizer_settings import PrecisionSettings
from bert.config.training_settings import derive
from bert.runtime.distributed import Group
from bert.training.devices import TF32_VARIABLE, choose_device, join_ranks, tf32_notice
from tests.support import tiny


@pytest.mark.parametrize(
    ("changes", "has_cuda", "text"),
    [
        ({"amp": True}, True, "amp=true on device=cpu: this Paddle, made for GPUs, .* or pass --no-amp"),
        ({"device": "gpu"}, False, "device=gpu needs paddlepaddle-gpu"),
    ],
)
def test_what_the_device_lacks_is_refused(tmp_path, monkeypatch, changes, has_cuda, text):
    monkeypatch.setattr(paddle, "is_compiled_with_cuda", lambda: has_cuda)
    monkeypatch.setattr(paddle.device.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match=text):
        choose_device(derive(tiny.pretraining_config(tmp_path), **changes))


@pytest.mark.parametrize(
    ("setting", "is_allowed", "capability", "notice"),
    [
        ("auto", True, (8, 0), "in TF32 on this card of compute capability 8.0; --no-tf32 computes them in float32"),
        ("auto", True, (12, 0), "in TF32 on this card of compute capability 12.0"),
        ("on", True, (9, 0), "in TF32 on this card of compute capability 9.0"),
        ("auto", True, (7, 5), None),
        ("auto", True, None, None),
        ("auto", False, (8, 0), None),
        ("off", False, (8, 0), None),
        ("on", True, (7, 5), "tf32=on has no effect on this card of compute capability 7.5"),
        ("on", True, None, "tf32=on has no effect on a CPU: Ampere"),
    ],
)
def test_a_run_logs_that_float32_products_are_computed_in_tf32(setting, is_allowed, capability, notice):
    text = tf32_notice(setting, is_allowed, capability)
    assert notice in text if notice else text == ""


@pytest.mark.parametrize(
    ("setting", "of_user", "value"),
    [("auto", None, "1"), ("auto", "0", "0"), ("on", "0", "1"), ("off", None, "0"), ("off", "1", "0")],
)
def test_the_libraries_of_nvidia_are_allowed_tf32_unless_a_flag_or_the_users_variable_forbids_it(
    tmp_path, monkeypatch, setting, of_user, value
):
    monkeypatch.delenv(TF32_VARIABLE, raising=False)
    if of_user is not None:
        monkeypatch.setenv(TF32_VARIABLE, of_user)
    join_ranks(derive(tiny.pretraining_config(tmp_path), tf32=setting), Group(0, 1, "cpu", 0, 1))
    assert os.environ[TF32_VARIABLE] == value


@pytest.mark.parametrize(("before", "now"), [(False, "off"), (True, "on")])
def test_settings_written_when_tf32_was_a_boolean_mean_the_same(before, now):
    assert PrecisionSettings(tf32=before).tf32 == now

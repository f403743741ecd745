"""Settings that the device of a run cannot compute are refused before anything is built."""

import os

import paddle
import pytest

from bert.config.automatic import CPU, DeviceFeatures, resolve_auto
from bert.config.optimizer_settings import PrecisionSettings
from bert.config.training_settings import derive
from bert.runtime.distributed import Group
from bert.training import devices
from bert.training.devices import TF32_VARIABLE, choose_device, device_features, join_ranks, tf32_notice
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
def test_a_run_logs_that_float32_products_are_computed_in_tf32(tmp_path, setting, is_allowed, capability, notice):
    device = DeviceFeatures("gpu", capability, allows_tf32=is_allowed) if capability else CPU
    uses_tf32 = resolve_auto(tiny.pretraining_config(tmp_path, tf32=setting), device).precision.tf32 == "on"
    text = tf32_notice(setting, uses_tf32, device)
    assert notice in text if notice else text == ""


def test_the_features_of_a_gpu_are_asked_from_paddle_the_driver_and_the_variable(monkeypatch):
    group = Group(1, 2, "gpu", 1, 2)
    monkeypatch.setattr(paddle.device.cuda, "get_device_capability", lambda: (8, 6))
    monkeypatch.setattr(devices.core, "get_all_op_names", lambda: ["flash_attn", "relu"])
    for variable, near, allowed, known in (("0", [], False, False), ("1", [[0], [1]], True, True)):
        monkeypatch.setenv(TF32_VARIABLE, variable)
        monkeypatch.setattr(devices, "near_gpus", lambda rank, count, near=near: near if (rank, count) == (1, 2) else 1)
        expected = DeviceFeatures("gpu", (8, 6), frozenset({"flash_attn", "relu"}), allowed, known)
        assert device_features(group) == expected
    assert device_features(Group(0, 1, "cpu")) == CPU


@pytest.mark.parametrize(
    ("kind", "near", "setting", "is_bound"),
    [
        ("cpu", [], "auto", False),
        ("cpu", [], "on", True),
        ("gpu", [[0]], "auto", True),
        ("gpu", [], "auto", False),
        ("gpu", [[0]], "off", False),
    ],
)
def test_a_rank_is_bound_to_cores_by_the_resolved_setting(tmp_path, monkeypatch, kind, near, setting, is_bound):
    bound = []
    monkeypatch.setattr(devices, "near_gpus", lambda *_: near)
    monkeypatch.setattr(devices, "initialize", lambda group: None)
    monkeypatch.setattr(devices, "use_cores", lambda threads, is_bound, *place: bound.append(is_bound) or 3)
    monkeypatch.setattr(paddle.device.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setenv(TF32_VARIABLE, "0")
    config = tiny.pretraining_config(tmp_path, enable_cpu_affinity=setting)
    assert join_ranks(config, Group(0, 1, kind, 0, 1)) == 3 and bound == [is_bound]


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

"""The device of a run: what it cannot compute is refused before anything is built."""

import paddle
import pytest

from bert.config.training_settings import derive
from bert.training.devices import choose_device
from tests.support import tiny


@pytest.mark.parametrize(
    ("changes", "has_cuda", "text"),
    [
        ({"amp": True, "use_pure_fp16": True}, False, "use_pure_fp16=true on device=cpu"),
        ({"amp": True}, True, "amp=true on device=cpu: this Paddle, made for GPUs, .* or pass --no-amp"),
        ({"device": "gpu"}, False, "device=gpu needs paddlepaddle-gpu"),
    ],
)
def test_what_the_device_lacks_is_refused(tmp_path, monkeypatch, changes, has_cuda, text):
    monkeypatch.setattr(paddle, "is_compiled_with_cuda", lambda: has_cuda)
    monkeypatch.setattr(paddle.device.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match=text):
        choose_device(derive(tiny.pretraining_config(tmp_path), **changes))


def test_mixed_precision_runs_on_the_cpus_paddle(tmp_path):
    assert choose_device(derive(tiny.pretraining_config(tmp_path), amp=True, device="cpu")) == "cpu"

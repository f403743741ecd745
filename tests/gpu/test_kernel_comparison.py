"""The comparison of fused kernels with plain operators detects every kind of error; plain operators are stand-ins."""

from functools import partial

import numpy as np
import pytest

from bert.model import attention
from bert.model.modeling import PLAIN
from bert.runtime.paddle_api import nn
from bert.samples.packing import Packing
from tests.gpu.selftest import kernel_comparison
from tests.gpu.selftest.kernel_comparison import TOLERANCE, Comparison, disagreement, slowness
from tests.support import tiny


def raising(*_):
    raise RuntimeError("----\n\n  (External) CUBLAS_STATUS_NOT_SUPPORTED  \n")


def test_a_kernel_that_differs_fails_or_is_slower_is_told_why():
    for fused, reason in (
        ([1.0, 2.0, 3.001], ""),
        ([1.0, 2.0, 3.1], "its self-test differs from plain operators: output by 0.033, at most 0.02"),
        ([1.0, np.nan, 3.0], "its self-test gave another shape or values that are not finite: output"),
        ([1.0, 2.0], "its self-test gave another shape or values that are not finite: output"),
    ):
        found = {"plain": {"output": np.array([1.0, 2.0, 3.0])}, "fused": {"output": np.array(fused)}}
        assert disagreement(found.get, TOLERANCE["float16"]) == reason
    failed = "its self-test failed: RuntimeError: (External) CUBLAS_STATUS_NOT_SUPPORTED"
    assert disagreement(raising, TOLERANCE["float16"]) == failed
    for fused, text in ((0.0031, "3.1 ms, plain operators 4.5 ms"), (0.0046, "4.6 ms, plain operators 4.5 ms")):
        assert slowness({"fused": fused, "plain": 0.0045}.get) == ("", text)  # times vary by some hundredths
    assert slowness({"fused": 0.0050, "plain": 0.0045}.get)[0] == "it is slower: 5 ms, plain operators 4.5 ms"
    assert slowness(lambda kind: 0.005 if kind == "fused" else raising()) == ("", "5 ms, plain operators fail")
    assert slowness(raising)[0].startswith("its self-test failed at the run's micro-batch: RuntimeError")


def comparison(packing=None, model=tiny.MODEL_WITH_DROPOUT):
    """Compare plain operators with themselves, as this machine has no such kernels; 13 tokens, 8 numbers a head."""
    return Comparison(model, "float32", "cpu", (3, 13), PLAIN, packing)


def against(name, ours=None):
    return disagreement(partial((ours or comparison()).arrays, name), 1e-5)


@pytest.mark.parametrize("name", ["linear", "dropout_add", "attention"])
def test_plain_operators_agree_with_themselves_in_output_and_all_gradients(name):
    ours = comparison()
    assert against(name, ours) == "" == against(name, comparison(model=tiny.MODEL))
    inputs = {"linear": "x linear.weight linear.bias", "dropout_add": "x residual", "attention": "query key value"}
    arrays = ours.arrays(name, "plain")
    assert arrays.keys() == {"output", *(f"gradient of {part}" for part in inputs[name].split())}
    assert all(np.abs(values).max() > 1e-3 for values in arrays.values())
    assert all(ours.seconds(name, kind) > 0 for kind in ("plain", "fused"))


def test_attention_of_packed_tokens_and_to_near_tokens_is_compared_too(monkeypatch):
    packed = Packing(tiny.MODEL.num_attention_heads, 2, per_token=True)
    assert against("attention", comparison(packed, tiny.MODEL)) == ""
    modern = {"model_type": "modernbert", "local_attention": 4, "num_hidden_layers": 2}
    ours = comparison(model=tiny.MODEL.model_copy(update=modern))
    assert against("attention", ours) == ""

    def without_window(kind):
        ours._window = 4 if kind == "plain" else 100
        return ours.arrays("attention", kind)

    assert "its self-test differs from plain operators: output" in disagreement(without_window, 1e-5)
    real = attention.attention_bias
    monkeypatch.setattr(attention, "attention_bias", lambda *given: real(*given) * 0.0)  # ignores the mask
    assert "differs from plain operators" in against("attention")


REAL_DROPOUT = nn.functional.dropout


def another_mask_in_backward(x, p, training):
    """Return the gradient of dropout with other random numbers."""
    backward = REAL_DROPOUT(x, p, training=training)
    difference = REAL_DROPOUT(x, p, training=training) - backward
    difference.stop_gradient = True
    return backward + difference


def another_scale(x, p, training):
    return 0.9 * REAL_DROPOUT(x, p, training=training)


def another_share(x, p, training):
    return REAL_DROPOUT(x, 0.5, training=training)


@pytest.mark.parametrize(
    ("name", "dropout", "reason"),
    [
        ("dropout_add", another_mask_in_backward, "differs from plain operators: gradient of"),
        ("attention", another_mask_in_backward, "differs from plain operators: gradient of"),
        ("dropout_add", another_scale, "differs from plain"),
        ("attention", another_share, "of the values, not 90.00%"),
    ],
)
def test_a_kernel_with_wrong_dropout_is_noticed(name, dropout, reason, monkeypatch):
    monkeypatch.setattr(nn.functional, "dropout", dropout)
    assert reason in against(name)


def test_a_kernel_that_does_not_heed_the_seed_is_noticed(monkeypatch):
    """With such a kernel a resumed run would draw other masks than an uninterrupted run."""
    monkeypatch.setattr(kernel_comparison.paddle, "seed", lambda seed: None)
    assert "the same seed does not draw the same" in against("dropout_add")
    assert "differs from plain operators: output" in against("attention")

"""The comparison of fused kernels with plain operators notices each way to be wrong; plain operators stand for them."""

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


def kernel(fused):
    """A comparison whose plain result is 1, 2, 3."""
    return lambda kind: {"output": np.array([1.0, 2.0, 3.0])} if kind == "plain" else fused()


def raising():
    raise RuntimeError("----\n\n  (External) CUBLAS_STATUS_NOT_SUPPORTED  \n")


@pytest.mark.parametrize(
    ("fused", "reason"),
    [
        (lambda: {"output": np.array([1.0, 2.0, 3.001])}, ""),
        (lambda: {"output": np.array([1.0, 2.0, 3.1])}, "differs from plain operators: output by 0.033, at most 0.02"),
        (lambda: {"output": np.array([1.0, np.nan, 3.0])}, "values that are not finite: output"),
        (lambda: {"output": np.array([1.0, 2.0])}, "another shape"),
        (raising, "failed: RuntimeError: (External) CUBLAS_STATUS_NOT_SUPPORTED"),
    ],
)
def test_a_kernel_that_passes_differs_or_fails(fused, reason):
    against = disagreement(kernel(fused), TOLERANCE["float16"])
    assert reason in against and bool(against) == bool(reason)


@pytest.mark.parametrize(
    ("fused", "plain", "reason", "text"),
    [
        (0.0031, 0.0045, "", "3.1 ms, plain operators 4.5 ms"),
        (0.0046, 0.0045, "", "4.6 ms, plain operators 4.5 ms"),  # as fast, but for what times vary
        (0.0050, 0.0045, "it is slower: 5 ms, plain operators 4.5 ms", "5 ms, plain operators 4.5 ms"),
        (0.0050, MemoryError(), "", "5 ms, plain operators fail"),
        (MemoryError("none is left"), 0.0045, "failed at the run's micro-batch: MemoryError: none is left", ""),
    ],
)
def test_a_kernel_that_is_slower_is_not_used(fused, plain, reason, text):
    def seconds(kind):
        value = {"fused": fused, "plain": plain}[kind]
        if isinstance(value, Exception):
            raise value
        return value

    against, times = slowness(seconds)
    assert reason in against and bool(against) == bool(reason) and times == text


PADDED, PACKED = None, Packing(tiny.MODEL.num_attention_heads, 2, per_token=True)


def comparison(packing=PADDED, model=tiny.MODEL_WITH_DROPOUT):
    """Plain operators in the place of the kernels, which this machine does not have; 13 tokens, 8 numbers a head."""
    return Comparison(model, "float32", "cpu", (3, 13), PLAIN, packing)


def against(name, ours=None):
    return disagreement(partial((ours or comparison()).arrays, name), 1e-5)


def test_attention_to_near_tokens_is_compared_too():
    modern = {"model_type": "modernbert", "local_attention": 4, "num_hidden_layers": 2}
    ours = comparison(model=tiny.MODEL.model_copy(update=modern))
    assert against("attention", ours) == ""

    def without_window(name, kind):
        ours._window = 4 if kind == "plain" else 100
        return ours.arrays(name, kind)

    assert "its self-test differs from plain operators: output" in disagreement(
        partial(without_window, "attention"), 1e-5
    )


@pytest.mark.parametrize("name", ["linear", "dropout_add", "attention"])
def test_plain_operators_agree_with_themselves_in_output_and_all_gradients(name):
    ours = comparison()
    assert against(name, ours) == "" == against(name, comparison(model=tiny.MODEL))
    inputs = {"linear": "x linear.weight linear.bias", "dropout_add": "x residual", "attention": "query key value"}
    arrays = ours.arrays(name, "plain")
    assert arrays.keys() == {"output", *(f"gradient of {part}" for part in inputs[name].split())}
    assert all(np.abs(values).max() > 1e-3 for values in arrays.values())
    assert all(ours.seconds(name, kind) > 0 for kind in ("plain", "fused"))


def test_attention_of_packed_tokens_is_compared_where_real_tokens_are():
    assert against("attention", comparison(PACKED, tiny.MODEL)) == ""


def test_a_kernel_that_ignores_the_mask_is_noticed(monkeypatch):
    real = attention.attention_bias
    monkeypatch.setattr(attention, "attention_bias", lambda *given: real(*given) * 0.0)
    assert "differs from plain operators" in against("attention")


def _another_mask_in_backward(x, p, training):
    """The gradient is that of dropout with other random numbers."""
    backward = REAL_DROPOUT(x, p, training=training)
    difference = REAL_DROPOUT(x, p, training=training) - backward
    difference.stop_gradient = True
    return backward + difference


REAL_DROPOUT = nn.functional.dropout
WRONG_DROPOUTS = {
    "another mask in backward": (_another_mask_in_backward, "differs from plain operators: gradient of"),
    "another scale": (lambda x, p, training: 0.9 * REAL_DROPOUT(x, p, training=training), "differs from plain"),
    "another share": (lambda x, p, training: REAL_DROPOUT(x, 0.5, training=training), "of the values, not 90.00%"),
}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("dropout_add", "another mask in backward"),
        ("attention", "another mask in backward"),
        ("dropout_add", "another scale"),
        ("attention", "another share"),
    ],
)
def test_a_kernel_with_wrong_dropout_is_noticed(name, wrong, monkeypatch):
    dropout, reason = WRONG_DROPOUTS[wrong]
    monkeypatch.setattr(nn.functional, "dropout", dropout)
    assert reason in against(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [("dropout_add", "the same seed does not draw the same"), ("attention", "differs from plain operators: output")],
)
def test_a_kernel_that_does_not_heed_the_seed_is_noticed(name, reason, monkeypatch):
    """A resumed run would not draw the masks of the run that was not interrupted."""
    monkeypatch.setattr(kernel_comparison.paddle, "seed", lambda seed: None)
    assert reason in against(name)

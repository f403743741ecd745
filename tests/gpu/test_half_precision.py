"""Half-precision programs of a GPU, rounded on this CPU: they train as float32 does, and overflow when expected.

On two ranks: the cases with `of_gpu` in tests/runtime/test_distributed.py.
"""

from contextlib import nullcontext

import numpy as np
import pytest

from bert.checkpoints import state as checkpoint
from bert.config.optimizer_settings import PrecisionSettings
from bert.model.optimization import COUNTERS
from bert.runtime.paddle_api import paddle
from tests.gpu.half_precision import Rounding, of_gpu
from tests.support import runs, tiny

MICRO_STEPS, SCALE = 3, 2.0**12
FLOAT16 = PrecisionSettings(amp=True, scale_loss=SCALE)
PRECISIONS = {
    "O1": FLOAT16,
    "O2": PrecisionSettings(amp=True, use_pure_fp16=True),
    "bfloat16": PrecisionSettings(amp=True, amp_dtype="bfloat16"),
}


def session_of(precision, roundings: list[Rounding] | None = None):
    with of_gpu(roundings) if precision.amp else nullcontext():
        return tiny.Session(precision=precision, micro_steps=MICRO_STEPS)


def trained(session, steps, overflows: tuple[int, int] | None = None) -> list[float]:
    """Return the mean losses of the updates; `overflows`: step and micro-step."""
    losses = []
    for step in steps:
        feeds = tiny.feeds(tiny.random_batch(step, 12), MICRO_STEPS)
        if overflows and step == overflows[0]:
            feeds[overflows[1]] = tiny.overflowing(feeds[overflows[1]])
        losses.append(session.update(feeds)["loss"] / MICRO_STEPS)
    return losses


@pytest.mark.long
@pytest.mark.parametrize("name", PRECISIONS)
def test_losses_are_those_of_float32_and_every_number_of_16_bits_is_rounded(name):
    roundings: list[Rounding] = []
    session = session_of(PRECISIONS[name], roundings=roundings)
    losses = trained(session, range(6))
    np.testing.assert_allclose(losses, trained(session_of(tiny.FLOAT32), range(6)), rtol=2e-3)
    assert [session.value(counter) for counter in COUNTERS] == [6, 0, 0]
    kinds = {rounding.operator for rounding in roundings}
    assert {"matmul_v2", "matmul_v2_grad", "softmax", "layer_norm", "gelu_grad"} <= kinds
    assert not {"softmax_with_cross_entropy", "lamb"} & kinds


def test_rounding_is_to_the_nearest(monkeypatch):
    """Paddle's own casts on a CPU truncate instead."""
    roundings: list[Rounding] = []
    session = session_of(FLOAT16, roundings=roundings)
    place = next(rounding for rounding in roundings if rounding.operator == "layer_norm")
    (feed, *_) = tiny.feeds(tiny.random_batch(0, 12), MICRO_STEPS)
    names = [place.exact, place.rounded]
    exact, rounded = session.executor.run(session.program.main, feed=feed, fetch_list=names, scope=session.scope)
    np.testing.assert_array_equal(rounded, exact.astype("float16").astype("float32"))
    assert rounded.dtype == np.float32 and (rounded != exact).mean() > 0.9


@pytest.mark.long
def test_an_overflow_halves_the_scale_and_a_resumed_run_continues_exactly(tmp_path):
    """tests/test_program.py tests an overflow in any micro-step."""
    whole, other = session_of(FLOAT16), session_of(FLOAT16)
    trained(whole, range(2))
    before = whole.parameters() | whole.optimizer_state()
    trained(whole, [2], overflows=(2, 1))
    tiny.assert_identical(whole.parameters() | whole.optimizer_state(), before)
    assert whole.value(whole.program.loss_scale) == SCALE / 2
    trained(whole, [2])
    assert [whole.value(counter) for counter in COUNTERS] == [3, 1, 0]
    trained(other, range(7, 9))  # leaves other copies of the parameters behind
    parameters, state, scalars = checkpoint.capture(whole.scope, whole.program)
    progress = runs.fresh_progress(tiny.pretraining_config(tmp_path, amp=True), step=3, **scalars)
    checkpoint.restore(other.scope, other.place, other.program, parameters, state, progress)
    assert trained(other, range(3, 6)) == trained(whole, range(3, 6))
    tiny.assert_identical(other.parameters(), whole.parameters())


@pytest.mark.long
def test_parameters_are_cast_in_the_first_micro_step_of_an_update_alone():
    session = session_of(FLOAT16)
    block = session.program.main.global_block()
    copies = {v.name for v in session.program.main.list_vars() if v.name.endswith(".cast_fp16") and v.persistable}
    in_float32 = (".LayerNorm.", ".token_type_embeddings.")
    cast = [name for name in session.program.parameters if not any(kind in name for kind in in_float32)]
    assert copies == {f"{name}.cast_fp16" for name in cast}
    parameter = "bert.encoder.layer.0.output.dense.weight"
    name = f"{parameter}.cast_fp16"
    assert block.var(name).dtype == paddle.float32, "rounded"
    feeds = tiny.feeds(tiny.random_batch(0, 12), MICRO_STEPS)
    value = session.read(parameter)
    for micro_step, feed in enumerate(feeds):
        session.micro_step(feed, micro_step)
        session.write(parameter, value * 0)  # not read before the next update
        np.testing.assert_array_equal(session.read(name), value.astype("float16").astype("float32"))
    session.write(parameter, value * 2)
    session.micro_step(feeds[0], 3)
    np.testing.assert_array_equal(session.read(name), (value * 2).astype("float16").astype("float32"))

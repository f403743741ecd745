"""Fleet's strategies (--fleet-strategies amp, gradient_merge or both) train as our program; lamb is refused.

Ranks: tests/runtime/test_distributed.py.
"""

from collections import Counter

import numpy as np
import pytest

from bert.config.optimizer_settings import OptimizerSettings
from bert.model.optimization import COUNTERS
from bert.runtime.paddle_api import paddle
from tests.support import tiny

FLEETS = tiny.LAMB.model_copy(update={"fleet_strategies": "amp,gradient_merge"})
AMP, MERGE = (tiny.LAMB.model_copy(update={"fleet_strategies": name}) for name in ("amp", "gradient_merge"))
PRECISIONS = {"float32": tiny.FLOAT32, "float16": tiny.FLOAT16}


def trained(optimizer, precision, micro_steps, overflowing_step=None):
    session, losses = tiny.Session(optimizer=optimizer, precision=precision, micro_steps=micro_steps), []
    for step in range(6):
        feeds = tiny.feeds(tiny.random_batch(step, 12), micro_steps)
        if step == overflowing_step:
            feeds[-1] = tiny.overflowing(feeds[-1])
        losses.append(session.update(feeds)["loss"] / micro_steps)
    return session, losses


@pytest.mark.long
@pytest.mark.parametrize(
    ("fleets", "precision", "micro_steps"),
    [
        pytest.param(FLEETS, "float32", 3, id="both"),
        pytest.param(AMP, "float16", 1, id="amp"),
        pytest.param(MERGE, "float16", 3, id="gradient_merge"),
    ],
)
def test_losses_parameters_and_skipped_updates_are_those_of_our_program(fleets, precision, micro_steps):
    ours, our_losses = trained(tiny.LAMB, PRECISIONS[precision], micro_steps, overflowing_step=3)
    theirs, their_losses = trained(fleets, PRECISIONS[precision], micro_steps, overflowing_step=3)
    np.testing.assert_allclose(their_losses, our_losses, rtol=2e-6)
    assert tiny.relative_difference(theirs.parameters(), ours.parameters()) < 3e-6
    assert [theirs.value(name) for name in COUNTERS] == [ours.value(name) for name in COUNTERS] == [5, 1, 0]
    if ours.program.loss_scale:
        assert theirs.value(theirs.program.loss_scale) == ours.value(ours.program.loss_scale)
    kinds = [Counter(op.type for block in s.program.main.blocks for op in block.ops) for s in (theirs, ours)]
    if micro_steps > 1:  # what our accumulation is for
        assert (kinds[0].total() > 1.25 * kinds[1].total()) == ("gradient_merge" in fleets.fleet_strategies)


@pytest.mark.long
def test_a_checkpoint_of_one_continues_with_the_other():
    """The names and values of the state are the same, so both ways of a switch are exact to rounding."""
    ours, theirs = (tiny.Session(optimizer=kind, precision=tiny.FLOAT16, micro_steps=2) for kind in (tiny.LAMB, FLEETS))
    assert ours.optimizer_state().keys() == theirs.optimizer_state().keys()
    for step in range(3):
        ours.update(tiny.feeds(tiny.random_batch(step, 12), 2))
    for name, value in [*ours.parameters().items(), *((n, ours.read(n)) for n in COUNTERS)]:
        theirs.write(name, value)
    for key, name in theirs.program.optimizer_state.items():
        theirs.write(name, ours.read(ours.program.optimizer_state[key]))
    theirs.write(theirs.program.loss_scale, ours.read(ours.program.loss_scale))
    for step in range(3, 6):
        feeds = tiny.feeds(tiny.random_batch(step, 12), 2)
        np.testing.assert_allclose(theirs.update(feeds)["loss"], ours.update(feeds)["loss"], rtol=2e-6)
    assert tiny.relative_difference(theirs.parameters(), ours.parameters()) < 3e-6


def test_fleets_lamb_is_refused_because_it_applies_an_update_that_overflowed():
    with pytest.raises(ValueError, match="fleet_strategies=lamb must be without lamb"):
        OptimizerSettings(fleet_strategies="lamb")
    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        x = paddle.static.data("x", [1, 4])
        loss = paddle.mean(paddle.static.nn.fc(x, 2))
        strategy = paddle.distributed.fleet.DistributedStrategy()
        strategy.without_graph_optimization = True
        strategy.amp, strategy.lamb = True, True
        tiny.join(tiny.ONE_RANK)
        paddle.distributed.fleet.distributed_optimizer(paddle.optimizer.Adam(), strategy).minimize(loss)
    updates = [op for op in main.global_block().ops if op.type == "lamb"]
    assert updates and not any(op.input("SkipUpdate") for op in updates if "SkipUpdate" in op.input_names)

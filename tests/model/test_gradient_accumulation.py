"""Accumulated gradients in one buffer: the same memory as their parts, the same results as Paddle's accumulation."""

from functools import partial
from unittest import mock

import numpy as np
import pytest

import program
from bert.config.optimizer_settings import OptimizerSettings
from bert.model.gradient_accumulation import AccumulatedGradients
from bert.model.objectives import PretrainingObjective
from bert.model.optimization import GRADIENT_NORM
from bert.runtime.paddle_api import paddle
from bert.training.feeding import Feeding
from program import TRAINING_METRICS, build_training_program
from tests.support import tiny

ADAMW = OptimizerSettings(optimizer="AdamW", learning_rate=3e-3)
BUFFER = "float32@GradientMerge"
PART = "{}@GRAD@GradientMerge"


class OnePerParameter(AccumulatedGradients):
    """Uses Paddle's own accumulation: operators for each parameter."""

    apply_gradients = paddle.incubate.optimizer.GradientMergeOptimizer.apply_gradients


def trained(monkeypatch, kind, precision, optimizer, overflows: int | None):
    """Return a session after six updates of a program that is built now; one update may overflow."""
    with monkeypatch.context() as patched:
        patched.setattr(program, "AccumulatedGradients", kind)
        patched.setattr(tiny, "build", program.build_training_program)
        session = tiny.Session(precision=precision, optimizer=optimizer, micro_steps=3)
    for step in range(6):
        micro_batches = tiny.feeds(tiny.random_batch(step, 12), 3)
        if step == overflows:
            micro_batches[1] = tiny.overflowing(micro_batches[1])
        session.update(micro_batches)
    return session


@pytest.mark.long
@pytest.mark.parametrize(
    ("precision", "optimizer"), [(tiny.FLOAT32, ADAMW), (tiny.FLOAT16, tiny.LAMB)], ids=["AdamW", "Lamb in float16"]
)
def test_one_buffer_trains_as_gradients_of_their_own(monkeypatch, precision, optimizer):
    merged, apart = (
        trained(monkeypatch, kind, precision, optimizer, 4) for kind in (AccumulatedGradients, OnePerParameter)
    )
    assert tiny.relative_difference(merged.parameters(), apart.parameters()) < 1e-5
    assert merged.value("gradient_norm") == pytest.approx(apart.value("gradient_norm"), rel=1e-6)
    assert merged.value("skipped_updates") == apart.value("skipped_updates") == 1
    counts = [sum(len(block.ops) for block in session.program.main.blocks) for session in (merged, apart)]
    assert counts[0] < counts[1] - 3 * len(merged.program.parameters)


def norm_and_loss(session: tiny.Session, micro_steps: int) -> tuple[float, float]:
    """Return norm and loss of the next update of a session with the initial weights."""
    session.write(TRAINING_METRICS, np.zeros(len(session.program.objective.metric_names)))
    for feed in tiny.feeds(tiny.random_batch(0, 12), micro_steps):
        session.micro_step(feed, 0)
    return session.value(GRADIENT_NORM), session.read(TRAINING_METRICS)[1] / micro_steps


@pytest.fixture(scope="module")
def of_one_micro_step():
    norm, loss = norm_and_loss(tiny.Session(), 1)
    return pytest.approx(norm, rel=1e-4), pytest.approx(loss, rel=1e-5)


def test_norm_and_loss_do_not_depend_on_the_number_of_micro_steps(of_one_micro_step):
    """Both are means over the micro-steps, not sums: an optimizer would hide such a factor, its norm does not."""
    session = tiny.Session(micro_steps=3)
    assert norm_and_loss(session, 3) == of_one_micro_step
    assert session.value("applied_updates") == 1


def test_parameters_are_cast_in_the_first_micro_step_alone(monkeypatch):
    """The program is a GPU's: this build of Paddle has no half-precision kernels, and would insert no casts."""
    tiny.build_as_on_a_gpu(monkeypatch)
    tiny.join(tiny.ONE_RANK)
    steps = {"gradient_accumulation_steps": 2, "num_scheduled_steps": 9}
    built = build_training_program(PretrainingObjective(tiny.MODEL), tiny.LAMB, tiny.FLOAT16, tiny.ONE_RANK, **steps)
    operators = built.main.global_block().ops
    is_first, once = operators[:2]
    assert is_first.type == "equal" and once.type == "conditional_block"
    assert [*is_first.input("X"), *is_first.input("Y")] == ["gradient_merge_step", "gradient_merge_zero"]
    assert once.input("Cond") == is_first.output("Out")
    casts = built.main.block(once.attr("sub_block").id).ops
    assert {operator.type for operator in casts} == {"cast"}
    cast = [operator.input("X")[0] for operator in casts]
    weights = {name for name in built.parameters if name.endswith("dense.weight")}
    assert weights <= set(cast) <= set(built.parameters) and len(set(cast)) == len(cast)
    assert not [op for op in operators if op.type == "cast" and op.input("X")[0] in built.parameters]
    copies = [built.main.global_block().var(operator.output("Out")[0]) for operator in casts]
    assert all(copy.persistable and copy.dtype == paddle.float16 for copy in copies)


@pytest.fixture(scope="module")
def varying():
    with mock.patch.object(tiny, "build", partial(build_training_program, accumulation_varies=True)):
        return tiny.Session(micro_steps=3)


@pytest.mark.parametrize("micro_steps", [2, 3])
def test_norm_and_loss_are_the_same_if_the_number_varies(of_one_micro_step, varying, micro_steps):
    before, updates = varying.parameters(), varying.value("applied_updates")
    Feeding(varying.program, varying.device()).accumulate(micro_steps)
    assert norm_and_loss(varying, micro_steps) == of_one_micro_step
    assert varying.value("applied_updates") == updates + 1
    for name, value in before.items():
        varying.write(name, value)


def test_the_parts_are_the_memory_of_the_buffer_between_micro_steps():
    session = tiny.Session(micro_steps=3)
    micro_batches = tiny.feeds(tiny.random_batch(0, 12), 3)
    names = session.program.parameters
    for feed in micro_batches[:2]:
        session.executor.run(session.program.main, feed=feed, scope=session.scope)
        parts = {name: session.read(PART.format(name)) for name in names}
        assert all(part.any() for name, part in parts.items() if not name.endswith("key.bias"))
        buffer = session.read(BUFFER)
        squares = sum(np.square(part.astype("float64")).sum() for part in parts.values())
        assert np.square(buffer.astype("float64")).sum() == pytest.approx(squares, rel=1e-12)
    session.write(BUFFER, np.ones_like(buffer))
    assert all((session.read(PART.format(name)) == 1).all() for name in names)


def test_the_executor_is_told_what_is_before_and_after_the_buffer():
    """The executor orders by names: without `nop` an update might read its part before the buffer is clipped."""
    session = tiny.Session(micro_steps=3)
    main, update = session.program.main.blocks
    parts = {PART.format(name) for name in session.program.parameters}
    (summed,) = (op for op in main.ops if op.type == "nop")
    assert set(summed.input("X")) == parts and summed.output("Out") == [BUFFER]
    conditional = next(op for op in main.ops if op.type == "conditional_block")
    assert {BUFFER, *parts} <= {*conditional.input("Input"), *conditional.output("Out")}
    assert BUFFER in conditional.input("Input")
    clipped, updated = (op for op in update.ops if op.type == "nop")
    assert clipped.input("X") == [BUFFER] and set(clipped.output("Out")) == parts
    assert set(updated.output("Out")) == {BUFFER, *parts}
    order = [op.type for op in update.ops]
    first, last = order.index("lamb"), len(order) - order[::-1].index("lamb")
    places = [index for index, op in enumerate(order) if op == "nop"]
    assert order.index("elementwise_mul") < places[0] < first < last <= places[1]

"""The record of a program agrees with its execution: memory by the allocator, operators by hand."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from bert import REPOSITORY
from bert.config.architecture import FusedKernels
from bert.model.objectives import PretrainingObjective, QuestionAnsweringObjective
from bert.runtime.paddle_api import paddle, static
from program import build_evaluation_program, build_prediction_program
from tests.gpu import kernel_coverage
from tests.gpu.kernel_coverage import missing_kernels, registered_kernels
from tests.gpu.program_record import bound_shapes, differences, dump, record, waits_for_device
from tests.support import tiny

BATCH, LENGTH, MASKED = 13, 7, 29
NUM_PARAMETERS = 46  # tensors of the tiny model
INPUTS = {
    **dict.fromkeys(("input_ids", "token_type_ids", "attention_mask"), (BATCH, LENGTH)),
    **dict.fromkeys(("masked_lm_positions", "masked_lm_labels", "masked_lm_weights"), (MASKED,)),
    "next_sentence_labels": (BATCH,),
}


def facts(**settings):
    return record(tiny.Session(**settings).program, INPUTS)


@pytest.mark.long
@pytest.mark.parametrize(("micro_steps", "dropout"), [(1, 0.0), (2, 0.1)])
def test_the_worst_moment_is_what_the_allocator_counts(micro_steps, dropout):
    """Paddle's statistics are of the update in which its thread that frees variables lagged least."""
    command = [sys.executable, str(REPOSITORY / "tests/support/measured_memory.py"), str(micro_steps), str(dropout)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert min(found["measured"]) == pytest.approx(found["predicted"], rel=0.02)


def test_a_shape_that_does_not_follow_is_refused():
    main = static.Program()
    with static.program_guard(main, static.Program()):
        paddle.nonzero(static.data("x", [-1], "int64"))
    with pytest.raises(ValueError, match="where_index -> .*does not follow from the given inputs; teach"):
        bound_shapes(main, {"x": (5,)})


def test_operators_that_run_once_per_update_are_recorded_in_order():
    found = facts(micro_steps=3, precision=tiny.FLOAT16)
    order = found["order of the update"]["operators"]
    assert order[0] == "scale float32", "of all gradients at once"
    positions = [
        next(i for i, text in enumerate(order) if text.startswith(name))
        for name in ("check_finite_and_unscale", "update_loss_scaling", "squared_l2_norm", "lamb")
    ]
    assert positions == sorted(positions)
    assert found["update"]["lamb float32"] == NUM_PARAMETERS
    assert found["loss scaling"]["initial scale"] == 2**20
    assert "check_finite_and_unscale float32" not in found["backward"]


def test_a_loss_in_half_precision_is_recorded():
    """A loss scale of 2^16 and more is infinite in float16."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup):
        weight = static.create_parameter([4], "float32", name="weight")
        loss = weight.sum().astype("float16")
        static.append_backward((loss + loss).astype("float32"))
    program = SimpleNamespace(main=main, startup=startup, parameters=("weight",), optimizer_state={}, loss_scale=None)
    assert f"{loss.name}@GRAD" in record(program, {})["loss scaling"]["gradients of scalars in a short type"]


def test_a_change_shows_as_a_short_diff_by_section():
    before, after = facts(), facts(micro_steps=3)
    assert differences(before, json.loads(dump(before)), "tiny") == ""
    text = differences(before, after, "tiny")
    assert "--- tiny, update: recorded" in text and "+++ tiny, update: built now" in text
    assert f"+elementwise_add float32: {NUM_PARAMETERS}" in text, "the sums of a micro-step"
    assert "tiny, casts" not in text, "sections that agree are not shown"


def test_a_sum_along_the_only_axis_makes_the_host_wait():
    with static.program_guard(static.Program(), static.Program()):
        for shape, waits in (([7], True), ([7, 2], False)):
            result = paddle.cumsum(static.data(f"x{len(shape)}", shape, "int64"), axis=0)
            block = result.block
            assert waits_for_device(block.ops[-1], block) == waits


@pytest.mark.parametrize("optimizer", [tiny.LAMB, tiny.STEADY_ADAMW], ids=["Lamb", "AdamW"])
def test_programs_that_run_lack_nothing(optimizer):
    session = tiny.Session(optimizer=optimizer, precision=tiny.FLOAT16, micro_steps=3)
    prediction = build_prediction_program(QuestionAnsweringObjective(tiny.MODEL))
    evaluation = build_evaluation_program(PretrainingObjective(tiny.MODEL), tiny.FLOAT16)
    for program in (
        session.program.main,
        session.program.startup,
        evaluation.main,
        prediction.main,
        prediction.startup,
    ):
        assert missing_kernels(program, "cpu") == []


@pytest.mark.long
def test_every_kind_of_program_of_a_combination_is_looked_through(monkeypatch):
    """These are programs for GPUs; a Paddle that was not built for GPUs lacks their kernels."""
    tiny.join(tiny.ONE_RANK)
    chosen = [
        ("SequenceRegression", "AdamW", "float16", FusedKernels()),
        ("MaskedLM", "Lamb", "float32", FusedKernels()),
    ]
    monkeypatch.setattr(kernel_coverage, "combinations", lambda: iter(chosen))
    here, on_gpus = (kernel_coverage.missing(tiny.ONE_RANK, device) for device in ("cpu", "gpu"))
    assert here == {"SequenceRegression, AdamW, float16, plain": [], "MaskedLM, Lamb, float32, plain": []}
    if not paddle.is_compiled_with_cuda():
        kinds = {line.split(": ")[0] for lines in on_gpus.values() for line in lines}
        assert kinds == {"training", "start-up", "evaluation", "prediction", "start-up of prediction"}


def test_an_operator_of_the_other_place_or_type_is_named():
    main = static.Program()
    with static.program_guard(main, static.Program()):
        half, whole = static.data("half", [4, 4], "float16"), static.data("whole", [4, 4], "float32")
        paddle.nn.functional.gelu(half)
        block = main.global_block()
        mixed = block.create_var(name="mixed", dtype=half.dtype, shape=[4, 4])
        block.append_op(type="elementwise_add", inputs={"X": half, "Y": whole}, outputs={"Out": mixed})
    found = missing_kernels(main, "cpu")
    assert found == [
        "elementwise_add: reads float16 and float32 at once x 1",
        f"gelu: no kernel on cpu for float16, only {', '.join(sorted(_types('gelu')))} x 1",
    ]
    assert any(line.startswith("gelu: no kernel on gpu") for line in missing_kernels(main, "gpu"))


def _types(operator):
    return {dtype for place, dtype in registered_kernels(operator) if place == "cpu"}

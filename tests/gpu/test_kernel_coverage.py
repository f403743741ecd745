"""Operators without a kernel are found: on this machine's processor, with programs that can and cannot run there."""

import pytest

from bert.config.architecture import FusedKernels
from bert.model.objectives import PretrainingObjective, QuestionAnsweringObjective
from bert.runtime.paddle_api import paddle, static
from program import build_evaluation_program, build_prediction_program
from tests.gpu import combinations
from tests.gpu.kernel_coverage import missing_kernels, registered_kernels
from tests.support import tiny


@pytest.mark.parametrize("optimizer", [tiny.LAMB, tiny.STEADY_ADAMW], ids=["Lamb", "AdamW"])
def test_programs_that_run_lack_nothing(optimizer):
    session = tiny.Session(optimizer=optimizer, precision=tiny.FLOAT16, micro_steps=3)
    prediction = build_prediction_program(QuestionAnsweringObjective(tiny.MODEL))
    programs = [
        session.program.main,
        session.program.startup,
        build_evaluation_program(PretrainingObjective(tiny.MODEL), tiny.FLOAT16).main,
        prediction.main,
        prediction.startup,
    ]
    assert [missing_kernels(program, "cpu") for program in programs] == [[]] * len(programs)


def test_every_kind_of_program_of_a_combination_is_looked_through(monkeypatch):
    """The programs of GPUs, of which this Paddle lacks the kernels, if it was not built for them."""
    tiny.join(tiny.ONE_RANK)
    chosen = [
        ("SequenceRegression", "AdamW", "float16", FusedKernels()),
        ("MaskedLM", "Lamb", "float32", FusedKernels()),
    ]
    monkeypatch.setattr(combinations, "combinations", lambda: iter(chosen))
    here, on_gpus = (combinations.missing(tiny.ONE_RANK, device) for device in ("cpu", "gpu"))
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


def test_kernels_of_both_registries_are_read():
    assert ("cpu", "float32") in registered_kernels("matmul_v2")
    assert ("cpu", "float32") in registered_kernels("cast"), "known under its new name only"
    assert not registered_kernels("no_such_operator")

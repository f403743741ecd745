"""The training program: its operators, the effect of an overflow, what it learns, and golden losses."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from bert.config.optimizer_settings import OptimizerSettings, PrecisionSettings
from bert.model.objectives import PretrainingObjective
from bert.model.optimization import COUNTERS, LEARNING_RATE
from bert.runtime.paddle_api import paddle, read_variable, static
from program import TRAINING_METRICS, build_evaluation_program, build_prediction_program, build_training_program
from tests.support import tiny

GOLDEN = Path(__file__).parent / "golden" / "losses.json"
BFLOAT16 = PrecisionSettings(amp=True, amp_dtype="bfloat16")
FIXED_SCALE = PrecisionSettings(amp=True, use_dynamic_loss_scaling=False, scale_loss=128.0)
PRECISIONS = {"float32": tiny.FLOAT32, "float16": tiny.FLOAT16, "bfloat16": BFLOAT16, "fixed_scale": FIXED_SCALE}
# Not part of the training state: sums for the log, and counters of skipped updates.
OBSERVED = (*COUNTERS, TRAINING_METRICS, "gradient_norm", LEARNING_RATE)
# Learning rates at which twenty updates visibly change a tiny model.
FAST_LAMB = OptimizerSettings(optimizer="Lamb", learning_rate=0.1)
FAST_ADAMW = OptimizerSettings(optimizer="AdamW", learning_rate=1e-2)


BUFFER = "float32@GradientMerge"


def operators(block) -> list[str]:
    return [op.type for op in block.ops]


def batch_of(step: int, micro_steps: int = 1, size: int = 12) -> list[dict]:
    return tiny.feeds(tiny.random_batch(step, size), micro_steps)


# Operators


@pytest.mark.parametrize("precision", PRECISIONS)
def test_with_accumulation_the_update_is_in_the_conditional_block_only(precision):
    """Single operators on all gradients scale by 1/k, check and unscale, adapt the scale, take the norm, clip,
    clear."""
    main, update = tiny.Session(precision=PRECISIONS[precision], micro_steps=3).program.main.blocks
    always, sometimes = operators(main), operators(update)
    num_parameters = 46
    assert not set(always) & {"lamb", "squared_l2_norm", "check_finite_and_unscale", "update_loss_scaling"}
    assert always.count("conditional_block") == 1
    assert sometimes.count("lamb") == num_parameters
    order = [op.type for op in update.ops if BUFFER in (*op.input_arg_names, *op.output_arg_names)]
    unscaling = {
        "float16": ["check_finite_and_unscale", "update_loss_scaling"],
        "fixed_scale": ["check_finite_and_unscale"],
    }.get(precision, [])
    assert order == ["scale", *unscaling, "squared_l2_norm", "elementwise_mul", "nop", "nop", "fill_constant"]


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_evaluation_and_prediction_in_mixed_precision_compute_the_same_on_a_cpu(precision):
    """float16, which has no kernels there, gives equal bits; outputs are float32 everywhere."""
    objective = PretrainingObjective(tiny.MODEL)
    session, (feed,) = tiny.Session(), batch_of(0)
    plain, mixed = (build_evaluation_program(objective, kind) for kind in (tiny.FLOAT32, PRECISIONS[precision]))
    values = [
        session.executor.run(evaluation.main, feed=feed, fetch_list=[evaluation.metrics], scope=session.scope)[0]
        for evaluation in (plain, mixed)
    ]
    assert values[0].tobytes() == values[1].tobytes() or precision == "bfloat16"
    np.testing.assert_allclose(values[0], values[1], rtol=1e-2)
    for prediction in (build_prediction_program(objective, kind) for kind in (tiny.FLOAT32, PRECISIONS[precision])):
        variables = [prediction.main.global_block().var(name) for name in prediction.outputs.values()]
        assert {variable.dtype for variable in variables} == {paddle.float32}


def types_read(main) -> dict[str, set]:
    """Return the types of the numbers that operators of each kind read, without parameters."""
    block, found = main.global_block(), defaultdict(set)
    parameters = {parameter.name for parameter in main.all_parameters()}
    for operator in block.ops:
        names = [name for name in operator.input_arg_names if block.has_var(name) and name not in parameters]
        found[operator.type] |= {block.var(name).dtype for name in names}
    return {kind: types & {paddle.float16, paddle.float32} for kind, types in found.items()}


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Make casts as on a GPU: this build of Paddle has no half-precision kernels, and would insert none."""
    tiny.build_as_on_a_gpu(monkeypatch)


def test_on_a_gpu_all_between_products_is_half_and_losses_and_outputs_are_not(as_on_a_gpu):
    objective = PretrainingObjective(tiny.MODEL)
    types = types_read(build_evaluation_program(objective, tiny.FLOAT16).main)
    for kind in ("matmul_v2", "softmax", "gelu", "layer_norm", "assign", "tanh"):
        assert types[kind] == {paddle.float16}, kind
    for kind in ("softmax_with_cross_entropy", "reduce_sum", "reduce_mean"):
        assert types[kind] == {paddle.float32}, kind
    prediction = build_prediction_program(objective, tiny.FLOAT16)
    assert types_read(prediction.main)["softmax"] == {paddle.float16}
    outputs = [prediction.main.global_block().var(name).dtype for name in prediction.outputs.values()]
    assert outputs == [paddle.float32, paddle.float32]


def test_a_prediction_without_weights_has_those_of_its_seed():
    """The weights equal the initial weights of a training with that seed; another seed has others."""
    objective, found = PretrainingObjective(tiny.MODEL), []
    for seed in (3, 4):
        prediction, scope = build_prediction_program(objective, seed=seed), static.Scope()
        static.Executor(paddle.CPUPlace()).run(prediction.startup, scope=scope)
        found.append({name: read_variable(scope, name) for name in prediction.parameters})
    tiny.assert_identical(found[0], tiny.Session(seed=3).parameters())
    different = [name for name in found[0] if found[0][name].tobytes() != found[1][name].tobytes()]
    assert different == [name for name in found[0] if name.endswith("weight") and "LayerNorm" not in name]


def test_building_reads_no_clock_and_no_environment():
    """Two builds give the same program, so all ranks and processes have equal programs."""
    settings = (PretrainingObjective(tiny.MODEL_WITH_DROPOUT), tiny.LAMB, tiny.FLOAT16, tiny.ONE_RANK)
    tiny.join(tiny.ONE_RANK)
    one, two = (
        build_training_program(*settings, gradient_accumulation_steps=2, num_scheduled_steps=9, seed=5)
        for _ in range(2)
    )
    assert one.parameters == two.parameters and one.optimizer_state == two.optimizer_state
    for left, right in ((one.main, two.main), (one.startup, two.startup)):
        assert [operators(block) for block in left.blocks] == [operators(block) for block in right.blocks]
    assert str(one.startup) == str(two.startup)


def test_nothing_that_outlives_an_update_is_unknown():
    """Every persistable variable is a parameter, optimizer state, a counter, the schedule, or zero between updates."""
    session = tiny.Session(precision=tiny.FLOAT16, micro_steps=2)
    session.update(batch_of(0, 2))
    built = session.program
    known = {
        *built.parameters,
        *built.optimizer_state.values(),
        *OBSERVED,
        "learning_rate_table",
        built.loss_scale,
        *built.loss_scale_counters,
        "learning_rate_0",
    }  # Paddle's own: every update reads ours, see above
    for name, value in session.persistables().items():
        if name in known:
            continue
        if name.endswith("@GradientMerge"):
            assert not value.any(), name
        else:
            assert "gradient_merge" in name, name
            assert value.reshape(-1)[0] in (0, 2), (name, value)


# Overflow


@pytest.mark.long
@pytest.mark.parametrize("precision,where", [("float32", 0), ("float16", 1), ("bfloat16", 2), ("fixed_scale", 2)])
def test_one_overflowing_pass_discards_the_update_and_nothing_else(precision, where):
    session = tiny.Session(precision=PRECISIONS[precision], micro_steps=3)
    for step in range(2):
        session.update(batch_of(step, 3))
    before = session.persistables()
    micro_batches = batch_of(2, 3)
    micro_batches[where] = tiny.overflowing(micro_batches[where])
    session.update(micro_batches)
    after = session.persistables()
    scaling = {session.program.loss_scale, *session.program.loss_scale_counters}
    same = [name for name in before if name not in (*OBSERVED, *scaling)]
    tiny.assert_identical({name: after[name] for name in same}, {name: before[name] for name in same})
    assert [int(session.value(name)) for name in COUNTERS] == [2, 1, 1]
    if precision == "float16":
        assert session.value(session.program.loss_scale) == 2.0**19
    if precision == "fixed_scale":
        assert session.value(session.program.loss_scale) == 128.0
    # Training continues: the repaired batch trains with the learning rate that it would have had.
    session.update(batch_of(2, 3))
    assert session.value(LEARNING_RATE) == np.float32(session.schedule.learning_rate_at(2))
    assert [int(session.value(name)) for name in COUNTERS] == [3, 1, 0]
    undisturbed = tiny.Session(precision=PRECISIONS[precision], micro_steps=3)
    for step in range(3):
        undisturbed.update(batch_of(step, 3))
    # The gradients had half the loss scale: a power of two, which causes no rounding.
    tiny.assert_identical(session.parameters(), undisturbed.parameters())


def test_an_overflowing_pass_does_not_blind_the_sums_for_the_log():
    session = tiny.Session(micro_steps=2)
    micro_batches = batch_of(0, 2)
    sums = session.update([tiny.overflowing(micro_batches[0]), micro_batches[1]])
    assert sums["passes"] == 1
    assert all(np.isfinite(list(sums.values())))


def test_the_loss_scale_grows_after_its_interval_and_halves_on_overflow():
    precision = PrecisionSettings(amp=True, scale_loss=1024.0, loss_scale_growth_interval=3)
    session = tiny.Session(precision=precision)
    scales = []
    for step in range(8):
        (feed,) = batch_of(step)
        session.update([tiny.overflowing(feed) if step == 4 else feed])
        scales.append(session.value(session.program.loss_scale))
    assert scales == [1024, 1024, 2048, 2048, 1024, 1024, 1024, 2048]


# Learning


@pytest.mark.long
@pytest.mark.parametrize(
    ("masked", "padding", "optimizer"), [((0,), 1, FAST_LAMB), ((1, *[0] * 11), 0, FAST_ADAMW)], ids=["none", "one"]
)
def test_batches_with_no_or_one_masked_token_train(masked, padding, optimizer):
    """Without masks the masked-LM loss is 0, not NaN, and next-sentence prediction is still learned.

    A loader pads to at least one entry: Paddle has no tensors of 0 rows.
    """
    session = tiny.Session(optimizer=optimizer)
    losses = []
    for _ in range(15):
        sums = session.update(tiny.feeds(tiny.random_batch(0, 12, masked=masked), num_padding=padding))
        assert np.isfinite(list(sums.values())).all()
        assert sums["masked_tokens"] == sum(masked)
        assert (sums["masked_lm_loss"] == 0) == (not any(masked))
        losses.append(sums["next_sentence_loss"])
    assert losses[-1] < 0.9 * losses[0]
    assert [int(session.value(name)) for name in COUNTERS] == [15, 0, 0]


@pytest.mark.parametrize("micro_steps", [1, 3])
def test_metrics_count_what_they_say(micro_steps):
    session = tiny.Session(micro_steps=micro_steps)
    batch = tiny.random_batch(0, 12)
    sums = session.update(tiny.feeds(batch, micro_steps))
    assert sums["passes"] == micro_steps
    assert sums["masked_tokens"] == len(batch["rows"])
    assert sums["sequences"] == 12
    assert sums["loss"] == pytest.approx(sums["masked_lm_loss"] + sums["next_sentence_loss"], rel=1e-6)
    # An untrained model guesses uniformly: log of the vocabulary size, and log 2.
    assert sums["masked_lm_loss"] / micro_steps == pytest.approx(np.log(104), abs=0.2)
    assert sums["next_sentence_loss"] / micro_steps == pytest.approx(np.log(2), abs=0.1)


@pytest.mark.parametrize("name", ["Lamb_float32", "Lamb_float16_2_passes", "AdamW_float32"])
def test_twenty_losses_are_the_golden_ones(name, write_golden):
    """To record an intended change: pytest tests/test_program.py -k golden --write-golden"""
    optimizer = FAST_ADAMW if name.startswith("AdamW") else FAST_LAMB
    precision = tiny.FLOAT16 if "float16" in name else tiny.FLOAT32
    micro_steps = 2 if "2_passes" in name else 1
    session = tiny.Session(optimizer=optimizer, precision=precision, micro_steps=micro_steps)
    losses = [session.update(batch_of(step % 4, micro_steps))["loss"] / micro_steps for step in range(tiny.NUM_STEPS)]
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if write_golden:
        GOLDEN.write_text(json.dumps({**golden, name: [round(loss, 6) for loss in losses]}, indent=1) + "\n")
        pytest.skip("golden losses replaced: look at the difference before you commit them")
    np.testing.assert_allclose(losses, golden[name], rtol=0, atol=1e-4)
    assert losses[-1] < losses[0] - 0.4, "it learns"

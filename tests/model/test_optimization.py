"""LAMB and AdamW against float64 references written from the papers; the schedule; which parameters decay."""

import math

import numpy as np
import pytest

from bert.config.optimizer_settings import OptimizerSettings
from bert.model.learning_rate_schedule import Schedule
from bert.model.optimization import (
    APPLIED_UPDATES,
    COUNTERS,
    GRADIENT_NORM,
    LEARNING_RATE,
    create_optimizer,
    decays,
    load_schedule,
)
from bert.runtime.paddle_api import paddle, place_of, read_variable, static, unique_name
from tests.support import tiny

# Two kinds of parameters, with gradients of norms on both sides of 1.
SHAPES = {
    "bert.encoder.layer.0.output.dense.weight": (5, 3),
    "bert.encoder.layer.0.output.dense.bias": (3,),
    "bert.encoder.layer.0.output.LayerNorm.weight": (4,),
    "cls.predictions.bias": (6,),
    "bert.embeddings.word_embeddings.weight": (7, 2),
}
NUM_UPDATES = 20
SCHEDULE = Schedule(OptimizerSettings(learning_rate=0.05), warmup_steps=5, total_steps=NUM_UPDATES)


def gradients_of(step: int) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(step)
    scale = 0.05 if step % 2 else 3.0
    return {name: (scale * rng.randn(*shape)).astype("float32") for name, shape in SHAPES.items()}


def initial_parameters() -> dict[str, np.ndarray]:
    rng = np.random.RandomState(99)
    return {name: rng.randn(*shape).astype("float32") for name, shape in SHAPES.items()}


class Rig:
    """Builds a program whose gradients are its feed: loss = sum of parameter x feed."""

    def __init__(self, settings: OptimizerSettings, schedule: Schedule = SCHEDULE):
        tiny.join(tiny.ONE_RANK)
        self.main, startup = static.Program(), static.Program()
        initial = initial_parameters()
        with static.program_guard(self.main, startup), unique_name.guard():
            terms = []
            for name, shape in SHAPES.items():
                value = paddle.nn.initializer.Assign(initial[name])
                parameter = static.create_parameter(
                    list(shape), "float32", attr=paddle.ParamAttr(name=name, initializer=value)
                )
                terms.append((parameter * static.data(f"gradient of {name}", list(shape), "float32")).sum())
            optimizer = create_optimizer(settings, schedule.total_steps)
            optimizer.minimize(paddle.add_n(terms))
        self.state = {
            f"{parameter}/{accumulator}": variable.name
            for accumulator, variables in optimizer._accumulators.items()
            for parameter, variable in variables.items()
        }
        self.place, self.scope = place_of("cpu"), static.Scope()
        self.executor = static.Executor(self.place)
        self.executor.run(startup, scope=self.scope)
        load_schedule(self.scope, schedule, self.place)

    def update(self, gradients: dict[str, np.ndarray]) -> None:
        feed = {f"gradient of {name}": gradient for name, gradient in gradients.items()}
        self.executor.run(self.main, feed=feed, scope=self.scope)

    def read(self, name: str) -> np.ndarray:
        return read_variable(self.scope, name)

    def everything(self) -> dict[str, np.ndarray]:
        names = [*SHAPES, *self.state.values()]
        return {name: self.read(name) for name in names}


def clip(gradients: dict, max_norm: float) -> dict:
    norm = np.sqrt(sum((gradient**2).sum() for gradient in gradients.values()))
    return {name: g * (max_norm / norm) if max_norm and norm > max_norm else g for name, g in gradients.items()}


def reference(settings: OptimizerSettings, steps, rates) -> dict[str, np.ndarray]:
    """Return the parameters after LAMB (You et al., 2020, algorithm 2) or AdamW (Loshchilov & Hutter, 2019, algorithm
    2).

    Both with bias correction; gradients scaled to `max_grad_norm` first (NVLAMB); decay scaled by the learning rate.
    """
    parameters = {name: value.astype("float64") for name, value in initial_parameters().items()}
    m = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    v = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    for t, (step, rate) in enumerate(zip(steps, rates, strict=True), start=1):
        gradients = clip({n: g.astype("float64") for n, g in gradients_of(step).items()}, settings.max_grad_norm)
        for name, g in gradients.items():
            decay = 0.0 if "bias" in name or "LayerNorm" in name else settings.weight_decay
            m[name] = settings.beta1 * m[name] + (1 - settings.beta1) * g
            v[name] = settings.beta2 * v[name] + (1 - settings.beta2) * g**2
            corrected_m, corrected_v = m[name] / (1 - settings.beta1**t), v[name] / (1 - settings.beta2**t)
            u = corrected_m / (np.sqrt(corrected_v) + settings.epsilon) + decay * parameters[name]
            adapts = settings.optimizer == "Lamb" and (decay > 0 or settings.always_adapt)
            trust = np.linalg.norm(parameters[name]) / np.linalg.norm(u) if adapts else 1.0
            factor = settings.head_rate_factor if name.startswith("cls") else 1.0
            factor = settings.embedding_rate_factor if "word_embeddings" in name else factor
            parameters[name] = parameters[name] - factor * rate * trust * u
    return parameters


@pytest.mark.parametrize("max_grad_norm", [0.0, 1.0])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize(("name", "always_adapt"), [("Lamb", False), ("Lamb", True), ("AdamW", False)])
def test_twenty_updates_equal_the_float64_reference(name, max_grad_norm, always_adapt, weight_decay):
    sizes = {
        "learning_rate": SCHEDULE.settings.learning_rate,
        "weight_decay": weight_decay,
        "max_grad_norm": max_grad_norm,
        "embedding_rate_factor": 1.0 if max_grad_norm else 3.0,
        "head_rate_factor": 2.0 if max_grad_norm else 1.0,
    }
    if weight_decay:
        sizes |= {"beta1": 0.8, "beta2": 0.97, "epsilon": 1e-2}
    settings = OptimizerSettings(optimizer=name, always_adapt=always_adapt, **sizes)
    rig = Rig(settings)
    for step in range(NUM_UPDATES):
        rig.update(gradients_of(step))
    rates = [SCHEDULE.learning_rate_at(step) for step in range(NUM_UPDATES)]
    expected = reference(settings, range(NUM_UPDATES), rates)
    for parameter, value in expected.items():
        np.testing.assert_allclose(rig.read(parameter), value, rtol=2e-5, atol=2e-5, err_msg=parameter)


def test_the_logged_gradient_norm_is_that_before_clipping():
    rig = Rig(OptimizerSettings(max_grad_norm=1.0))
    rig.update(gradients_of(0))
    expected = np.sqrt(sum((g.astype("float64") ** 2).sum() for g in gradients_of(0).values()))
    assert expected > 1
    assert rig.read(GRADIENT_NORM)[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("name", "bad"), [("Lamb", np.nan), ("AdamW", np.inf)])
def test_a_skipped_update_is_counted_and_changes_nothing(name, bad):
    """The learning rate does not advance either: it counts the applied updates."""
    settings = OptimizerSettings(optimizer=name, learning_rate=SCHEDULE.settings.learning_rate)
    rig, counted = Rig(settings), []
    for step, is_bad in enumerate([False, True, True, False, True]):
        before, gradients = rig.everything(), gradients_of(step)
        if is_bad:
            gradients["cls.predictions.bias"][1] = bad
        rig.update(gradients)
        counted.append([int(rig.read(counter)[0]) for counter in COUNTERS])
        if is_bad:
            tiny.assert_identical(rig.everything(), before)
        rate = SCHEDULE.learning_rate_at(counted[-1][0] - (not is_bad))
        assert rig.read(LEARNING_RATE)[0] == np.float32(rate)
    assert counted == [[1, 0, 0], [1, 1, 1], [1, 2, 2], [2, 2, 0], [2, 3, 1]], "applied, skipped, skipped in a row"


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "bad", "parameter"),
    zip(["Lamb", "AdamW"] * 2 + ["Lamb"], [np.nan, np.inf, -np.inf, np.nan, np.inf], SHAPES, strict=True),
)
def test_one_value_that_is_not_finite_changes_nothing_and_holds_the_learning_rate(name, bad, parameter):
    """A skipped update leaves parameters, moments, beta powers and the learning rate unchanged."""
    settings = OptimizerSettings(optimizer=name, learning_rate=SCHEDULE.settings.learning_rate)
    rig = Rig(settings)
    for step in range(3):
        rig.update(gradients_of(step))
    before = rig.everything()
    assert sorted({key.split("/")[1] for key in rig.state})[:2] == ["beta1_pow_acc", "beta2_pow_acc"]
    gradients = gradients_of(3)
    gradients[parameter].reshape(-1)[1] = bad
    rig.update(gradients)
    tiny.assert_identical(rig.everything(), before)
    assert [int(rig.read(counter)[0]) for counter in COUNTERS] == [3, 1, 1]
    for step in range(3, NUM_UPDATES):
        rig.update(gradients_of(step))
        assert rig.read(LEARNING_RATE)[0] == np.float32(SCHEDULE.learning_rate_at(step))
    assert [int(rig.read(counter)[0]) for counter in COUNTERS] == [NUM_UPDATES, 1, 0]
    undisturbed = Rig(settings)
    for step in range(NUM_UPDATES):
        undisturbed.update(gradients_of(step))
    tiny.assert_identical(rig.everything(), undisturbed.everything())


@pytest.mark.parametrize("power", [1.0, 0.5])
@pytest.mark.parametrize("start", [0.0, 1e-3])
def test_schedule_is_exact_at_its_ends(power, start):
    rates = {"learning_rate": 6e-3, "warmup_start_lr": start, "end_learning_rate": 1e-4}
    schedule = Schedule(OptimizerSettings(**rates, lr_decay_power=power), warmup_steps=4, total_steps=14)
    assert schedule.learning_rate_at(0) == start + (6e-3 - start) / 4
    assert schedule.learning_rate_at(3) == 6e-3 == schedule.learning_rate_at(4)
    assert schedule.learning_rate_at(13) == pytest.approx(1e-4 + (6e-3 - 1e-4) * 0.1**power, rel=1e-12)
    assert schedule.learning_rate_at(14) == schedule.learning_rate_at(999) == 1e-4
    assert (np.diff(schedule.table()[4:]) < 0).all()


def table_of(warmup_steps: int, total_steps: int, **settings) -> np.ndarray:
    return Schedule(OptimizerSettings(learning_rate=1.0, **settings), warmup_steps, total_steps).table()


CURVES = {
    "linear": {8: 0.5, 11: 0.125},
    "cosine": {6: 0.5 * (1 + np.cos(np.pi / 4)), 8: 0.5, 11: 0.5 * (1 - np.cos(np.pi / 8))},
    "constant": {6: 1.0, 11: 1.0},
    "inverse-sqrt": {8: 0.5**0.5, 11: (4 / 11) ** 0.5},
    "wsd": {8: 1.0, 9: 1.0, 10: 2 / 3, 11: 1 / 3},
}


@pytest.mark.parametrize("kind", CURVES)
def test_each_schedule_has_its_shape_after_the_same_warm_up(kind):
    """The schedule has 12 updates, 4 of them warm-up, from 1 to 0; wsd decays in the last quarter."""
    settings = {"lr_schedule": kind} | ({"lr_decay_share": 0.25} if kind == "wsd" else {})
    table = table_of(4, 12, **settings)
    np.testing.assert_allclose(table[:5], [0.25, 0.5, 0.75, 1.0, 1.0], rtol=1e-6)
    for step, rate in CURVES[kind].items():
        assert table[step] == pytest.approx(rate, rel=1e-6), step
    assert (np.diff(table[4:]) <= 0).all()
    if kind != "constant":  # which has no end
        raised = table_of(4, 12, end_learning_rate=0.5, **settings)
        np.testing.assert_allclose(raised[4:], 0.5 + 0.5 * table[4:], rtol=1e-6)


def rate_by_formula(settings: OptimizerSettings, warmup: int, total: int, step: int) -> float:
    """Compute the docstrings of `Schedule` and of its settings, an update at a time."""
    peak, end, kind = settings.learning_rate, settings.end_learning_rate, settings.lr_schedule
    if step < warmup:
        return settings.warmup_start_lr + (peak - settings.warmup_start_lr) * (step + 1) / warmup
    if kind == "constant":
        return peak
    if kind == "inverse-sqrt":
        share = math.sqrt(max(1, warmup) / (max(1, warmup) + step - warmup))
        return end + (peak - end) * share
    first = warmup
    if kind == "wsd":  # the last share of all updates, one at least, but not before the warm-up is over
        first = max(total - max(1, math.floor(settings.lr_decay_share * total + 0.5)), min(warmup, total - 1))
    if kind == "polynomial" and settings.lr_decay_from == "start":
        first = 0
    left = min(1.0, (total - step) / max(1, total - first))
    if kind == "cosine":
        return end + (peak - end) * (1 + math.cos(math.pi * (1 - left))) / 2
    return end + (peak - end) * left ** (settings.lr_decay_power if kind == "polynomial" else 1.0)


@pytest.mark.parametrize("kind", [*CURVES, "polynomial"])
def test_every_rate_is_that_of_the_formula(kind):
    """Lengths, warm-ups, ends, powers and shares are random; updates after the last hold the end."""
    rng = np.random.RandomState(7)
    for _ in range(60):
        total = int(rng.randint(1, 41))
        warmup = int(rng.randint(0, total + 1))
        values = {"learning_rate": 0.5, "warmup_start_lr": rng.choice([0.0, 0.1])}
        values["end_learning_rate"] = 0.0 if kind == "constant" else rng.choice([0.0, 0.2])
        if kind == "polynomial":
            values |= {"lr_decay_power": rng.choice([0.5, 1.0, 2.0]), "lr_decay_from": rng.choice(["start", "warmup"])}
        elif kind == "wsd":
            values["lr_decay_share"] = rng.uniform(0.01, 0.9)
        settings = OptimizerSettings(lr_schedule=kind, **values)
        schedule = Schedule(settings, warmup, total)
        expected = [rate_by_formula(settings, warmup, total, step) for step in range(total)]
        np.testing.assert_allclose(schedule.table(), expected, rtol=1e-6, err_msg=str((settings, warmup, total)))
        assert [schedule.learning_rate_at(step) for step in range(total)] == pytest.approx(expected, rel=1e-12)
        if kind not in ("constant", "inverse-sqrt"):
            assert schedule.learning_rate_at(total + 5) == pytest.approx(settings.end_learning_rate)


@pytest.mark.parametrize(
    ("share", "warmup", "start"), [(0.13, 0, 17), (0.15, 0, 17), (0.99, 5, 5), (0.001, 5, 19), (0.5, 20, 19)]
)
def test_the_decay_of_wsd_has_at_least_an_update_and_begins_after_warm_up(share, warmup, start):
    assert Schedule(OptimizerSettings(lr_schedule="wsd", lr_decay_share=share), warmup, 20).decay_start == start


@pytest.mark.parametrize("kind", [*CURVES, "polynomial"])
@pytest.mark.parametrize("warmup_steps", [0, 1, 19, 20])
def test_any_share_of_warm_up_gives_a_rate_for_every_update(warmup_steps, kind):
    table = table_of(warmup_steps, 20, lr_schedule=kind)
    assert table.shape == (20,)
    assert np.isfinite(table).all() and (table > 0).all() and table.max() == 1.0


def test_the_program_runs_at_the_rates_of_the_schedule_and_holds_the_last():
    settings = OptimizerSettings(learning_rate=0.1, warmup_start_lr=0.01, lr_decay_power=0.5)
    schedule = Schedule(settings, warmup_steps=3, total_steps=6)
    rig = Rig(settings, schedule)
    rates = []
    for step in range(8):
        rig.update(gradients_of(step))
        rates.append(rig.read(LEARNING_RATE)[0])
    expected = schedule.table()
    np.testing.assert_array_equal(rates, [*expected, expected[-1], expected[-1]])
    assert rig.read(APPLIED_UPDATES)[0] == 8


def test_every_lamb_operator_decays_or_not_by_its_parameters_name():
    program = tiny.Session().program.main
    operators = [op for block in program.blocks for op in block.ops if op.type == "lamb"]
    assert len(operators) == len(program.all_parameters())
    for op in operators:
        (name,) = op.input("Param")
        expected = 0.01 if decays(name) else 0.0
        assert op.attr("weight_decay") == pytest.approx(expected), name


@pytest.mark.long
@pytest.mark.parametrize(("amp", "micro_steps"), [(False, 1), (True, 2)])
def test_adamw_with_a_flag_on_the_host_skips_only_the_damaged_update(amp, micro_steps):
    """tests/test_program.py tests LAMB."""
    precision = tiny.FLOAT32.model_copy(update={"amp": amp, "amp_dtype": "bfloat16"})
    session = tiny.Session(optimizer=tiny.STEADY_ADAMW, precision=precision, micro_steps=micro_steps)
    batches = [tiny.feeds(tiny.random_batch(step, 12), micro_steps) for step in range(3)]
    session.update(batches[0])
    before = {**session.parameters(), **session.optimizer_state()}
    session.update([*batches[1][:-1], tiny.overflowing(batches[1][-1])])
    tiny.assert_identical({**session.parameters(), **session.optimizer_state()}, before)
    session.update(batches[2])
    assert [int(session.value(counter)) for counter in COUNTERS] == [2, 1, 0]
    assert all(np.isfinite(value).all() for value in session.parameters().values())

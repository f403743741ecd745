"""CPU kernels give the same results: LayerNorm's gradient, oneDNN's operators, and bfloat16 linear products."""

from collections import Counter

import numpy as np
import pytest

from bert.config.optimizer_settings import PrecisionSettings
from bert.config.training_settings import BertConfig
from bert.model.modeling import PLAIN, activation_function, linear
from bert.model.objectives import masked_lm_loss, weighted_correct
from bert.runtime import cpu_kernels, cpu_linear
from bert.runtime.cpu_kernels import use_cpu_kernels
from bert.runtime.distributed import Group
from bert.runtime.paddle_api import core, nn, paddle, place_of, static, unique_name
from bert.training.devices import join_ranks, mixed_precision_notice
from tests.support import tiny

BFLOAT16 = PrecisionSettings(amp=True, amp_dtype="bfloat16")
# Matrices large enough for bfloat16, of sizes that cannot be confused.
MODEL = BertConfig(
    vocab_size=99,
    hidden_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=72,
    max_position_embeddings=16,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
NUM_LINEAR = 6 * MODEL.num_hidden_layers + 3  # layers: 3 projections, 3 dense; pooler, transform, decoder
EPSILON = 2.0**-8  # half a unit in the last place of bfloat16, relative
needs_onednn = pytest.mark.skipif(
    core.is_compiled_with_cuda() or not core.is_compiled_with_mkldnn(), reason="the pass is for CPU wheels with oneDNN"
)
needs_bfloat16 = pytest.mark.skipif(not cpu_linear.computes_bfloat16(), reason="needs AVX512-BF16 or AMX")


@pytest.fixture(autouse=True)
def _fresh_programs():
    """Clear the tests' cache of programs: its keys have settings, not the processor that a test pretends to have."""
    tiny.build.cache_clear()
    yield
    tiny.build.cache_clear()


def gradients_of(layers, inputs: dict, replaced: bool) -> list[np.ndarray]:
    """Return output and gradients of inputs and parameters of `layers()` (x -> y); the loss is a weighted sum of y."""
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), unique_name.guard():
        x = static.data("x", [-1] * (inputs["x"].ndim - 1) + [inputs["x"].shape[-1]], "float32")
        x.stop_gradient = False
        weights = static.data("weights", [-1] * inputs["weights"].ndim, "float32")
        y = layers()(x * 1.0)
        parameters = main.all_parameters()
        found = static.gradients([(y * weights).sum()], [x, *parameters])
    if replaced:
        use_cpu_kernels(main)
    executor, scope = static.Executor(place_of("cpu")), static.Scope()
    executor.run(startup, scope=scope)
    rng = np.random.RandomState(5)
    for parameter in parameters:
        scope.find_var(parameter.name).get_tensor().set(rng.randn(*parameter.shape).astype("float32"), place_of("cpu"))
    values = executor.run(main, feed=inputs, fetch_list=[y, *found], scope=scope)
    assert ("batch_norm_grad" in [op.type for op in main.global_block().ops]) == replaced
    return values


@needs_onednn
@pytest.mark.parametrize(("shape", "mean"), [((4, 7, 33), 3.0), ((29, 64), 0.0), ((1, 1, 8), 3.0)])
def test_the_gradient_of_layer_norm_is_paddles(shape, mean):
    rng = np.random.RandomState(1)
    inputs = {"x": (rng.randn(*shape) * 0.5 + mean).astype("float32"), "weights": rng.randn(*shape).astype("float32")}
    plain, fast = (gradients_of(lambda: nn.LayerNorm(shape[-1], 1e-12), inputs, replaced) for replaced in (False, True))
    for expected, value in zip(plain, fast, strict=True):
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=0, atol=3e-6 * np.abs(expected).max())


def losses_of(feed: dict, replaced: bool, trained: bool = True, correct_first: bool = False) -> list[np.ndarray]:
    """Return loss, correct predictions and, if `trained`, the logits' gradient of a vocabulary of 1,500."""
    main = static.Program()
    with static.program_guard(main, static.Program()), unique_name.guard():
        logits = static.data("logits", [-1, 1500], "float32")
        logits.stop_gradient = False
        labels, weights = static.data("labels", [-1], "int64"), static.data("weights", [-1], "float32")
        normalizer = static.data("normalizer", [1], "float32")
        computed = logits * 1.0
        parts = {
            "correct": lambda: weighted_correct(computed, labels, weights),
            "loss": lambda: masked_lm_loss(computed, labels, weights, normalizer),
        }
        values = {name: parts[name]() for name in sorted(parts, reverse=not correct_first)}
        loss = values["loss"]
        found = [loss, values["correct"]]
        found += static.gradients([loss], [logits]) if trained else []
    if replaced:
        use_cpu_kernels(main)
        kinds = {operator.type for operator in main.global_block().ops}
        assert "softmax_with_cross_entropy" not in kinds and ("arg_max" in kinds) != trained
    return static.Executor(place_of("cpu")).run(main, feed=feed, fetch_list=found)


@needs_onednn
@pytest.mark.parametrize("rows,spread,correct_first", [(1, 1.0, False), (37, 5.0, False), (37, 5.0, True)])
def test_cross_entropy_over_a_vocabulary_and_its_accuracy_are_paddles(rows, spread, correct_first):
    rng = np.random.RandomState(2)
    logits = (rng.randn(rows, 1500) * spread).astype("float32")
    labels = np.where(np.arange(rows) % 3, rng.randint(0, 1500, rows), logits.argmax(1))
    weights = (np.arange(rows) % 5 < 4).astype("float32")
    feed = {"logits": logits, "labels": labels, "weights": weights, "normalizer": np.array([rows], "float32")}
    found = (losses_of(feed, replaced, correct_first=correct_first) for replaced in (False, True))
    for expected, value in zip(*found, strict=True):
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6 * np.abs(expected).max())


@needs_onednn
def test_a_large_loss_is_exact():
    """Paddle's own operator is limited to a little over 64 nats."""
    logits = np.zeros((1, 1500), "float32")
    logits[0, 7] = 300.0
    one = np.ones(1, "float32")
    feed = {"logits": logits, "labels": np.array([3]), "weights": one, "normalizer": one}
    assert losses_of(feed, replaced=True)[0] == pytest.approx(300.0)


def operators(session, kind: str) -> list:
    return [op for op in session.program.main.global_block().ops if op.type == kind]


@needs_onednn
def test_a_training_program_has_the_fast_kernels():
    session = tiny.Session(model=MODEL)
    num_norms = 1 + 2 * MODEL.num_hidden_layers + 1
    assert len(operators(session, "batch_norm_grad")) == num_norms and not operators(session, "layer_norm_grad")
    for kind in ("gelu", "gelu_grad", "layer_norm", "softmax"):
        assert operators(session, kind) and all(op.attr("use_mkldnn") for op in operators(session, kind))
    assert len(operators(session, "fused_matmul")) == NUM_LINEAR + MODEL.num_hidden_layers, "linear layers and scores"
    assert not any(op.attr("use_mkldnn") for op in operators(session, "matmul_v2")), "MKL's is faster in float32"


def linear_layers(shape: tuple[int, ...], activation: str | None, trained: bool):
    """Return outputs and gradients of two linear layers, and their number of operators by type, fast and plain."""
    rng = np.random.RandomState(6)
    inputs = {"x": rng.randn(*shape).astype("float32"), "weights": rng.randn(*shape[:-1], 40).astype("float32")}
    values = {name: rng.randn(*size).astype("float32") for name, size in (("w", (shape[-1], 40)), ("b", (40,)))}

    def run(replaced: bool):
        main, startup = static.Program(), static.Program()
        with static.program_guard(main, startup), unique_name.guard():
            x = static.data("x", [-1] * (len(shape) - 1) + [shape[-1]], "float32")
            x.stop_gradient = False
            w, b = (paddle.create_parameter(list(value.shape), "float32", name=k) for k, value in values.items())
            y = linear(x, w, b, PLAIN) if trained else paddle.matmul(x, w) + b
            y = activation_function(activation)(y) if activation else y
            fetched = [y]
            if trained:
                weights = static.data("weights", [-1] * len(shape), "float32")
                fetched += static.gradients([(y * weights + y * weights).sum()], [x, w, b])
        if replaced:
            use_cpu_kernels(main)
        executor, scope = static.Executor(place_of("cpu")), static.Scope()
        executor.run(startup, scope=scope)
        for name, value in values.items():
            scope.find_var(name).get_tensor().set(value, place_of("cpu"))
        feed = inputs if trained else {"x": inputs["x"]}
        kinds = Counter(op.type for op in main.global_block().ops)
        return executor.run(main, feed=feed, fetch_list=fetched, scope=scope), kinds

    return run(True), run(False)


@needs_onednn
@pytest.mark.parametrize(
    ("shape", "activation", "trained"),
    [
        *(((7, 33), None, True), ((3, 5, 33), "gelu", True), ((3, 5, 33), None, False)),
        *(((3, 5, 33), "gelu", False), ((7, 33), "gelu_tanh", False)),
    ],
)
def test_a_bias_is_added_within_the_product(shape, activation, trained):
    (fast, operators), (plain, _) = linear_layers(shape, activation, trained)
    for value, expected in zip(fast, plain, strict=True):
        assert value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=0, atol=3e-6 * np.abs(expected).max())
    assert operators["fused_matmul"] == 1 and not operators["matmul_v2"]
    assert operators["gelu"] == (trained and activation is not None), "its gradient reads what it is applied to"
    assert operators["fill_any_like"] >= trained and (trained or not operators["elementwise_add"])


@needs_onednn
def test_the_kernels_change_the_losses_of_a_training_by_rounding_only(monkeypatch):
    def losses() -> list[float]:
        tiny.build.cache_clear()
        session = tiny.Session(model=MODEL, optimizer=tiny.STEADY_LAMB, micro_steps=2)
        return [session.update(tiny.feeds(tiny.random_batch(step, 12), 2))["loss"] for step in range(6)]

    fast = losses()
    monkeypatch.setattr("program.use_cpu_kernels", lambda *_, **__: None)
    np.testing.assert_allclose(fast, losses(), rtol=1e-5)


def first_gradients(precision) -> dict[str, np.ndarray]:
    """Return the gradients of the first update by their parameters, and the loss."""
    session = tiny.Session(model=MODEL, precision=precision)
    updates = [op for block in session.program.main.blocks for op in block.ops if op.type == "lamb"]
    names = {op.input("Param")[0]: op.input("Grad")[0] for op in updates}
    batch = tiny.feeds(tiny.random_batch(0, 12))[0]
    run = {"fetch_list": list(names.values()), "scope": session.scope}
    fetched = session.executor.run(session.program.main, feed=batch, **run)
    return dict(zip(names, fetched, strict=True))


@needs_bfloat16
def test_linear_products_and_their_gradients_read_bfloat16_and_write_float32():
    session = tiny.Session(model=MODEL, precision=BFLOAT16)
    block = session.program.main.global_block()
    products = [op for op in operators(session, "matmul_v2") if op.attr("use_mkldnn")]
    products += [op for op in operators(session, "fused_matmul") if len(block.var(op.input("Y")[0]).shape) == 2]
    assert len(products) == 3 * NUM_LINEAR, "forward, gradient of the input, gradient of the weight"
    for op in products:
        assert {block.var(op.input(name)[0]).dtype for name in ("X", "Y")} == {paddle.bfloat16}
        assert block.var(op.output("Out")[0]).dtype == paddle.float32
    casts = [op.input("X")[0] for op in operators(session, "cast") if op.attr("out_dtype") == int(paddle.bfloat16)]
    assert len(casts) == len(set(casts)), "each tensor is cast once"
    for kind in ("layer_norm", "softmax", "softmax_with_cross_entropy", "gelu"):
        for op in operators(session, kind):
            assert {block.var(name).dtype for name in op.input_arg_names} <= {paddle.float32, paddle.int64}


@pytest.mark.long
@needs_bfloat16
def test_gradients_in_bfloat16_are_those_of_float32_within_its_rounding():
    exact, rounded = first_gradients(tiny.FLOAT32), first_gradients(BFLOAT16)
    for name in exact:
        if name.endswith("key.bias"):  # rounding noise in both: softmax cancels what it adds
            continue
        scale = np.abs(exact[name]).max()
        error = np.abs(exact[name] - rounded[name])
        assert error.max() < 16 * EPSILON * scale and error.mean() < EPSILON * scale, name
    assert any((exact[name] != rounded[name]).any() for name in exact)


@pytest.mark.long
@needs_onednn
def test_without_fast_bfloat16_the_program_is_that_of_float32(monkeypatch):
    monkeypatch.setattr(cpu_kernels, "computes_bfloat16", lambda: False)
    exact, same = first_gradients(tiny.FLOAT32), first_gradients(BFLOAT16)
    tiny.assert_identical(exact, same)


def test_the_notice_of_mixed_precision_says_what_is_computed():
    assert "products in bfloat16" in mixed_precision_notice("bfloat16", True)
    assert "stays float32" in mixed_precision_notice("bfloat16", False)
    assert "AVX512-BF16 or AMX" in mixed_precision_notice("bfloat16", False)
    assert "--amp-dtype bfloat16" in mixed_precision_notice("float16", True)
    assert "--amp-dtype" not in mixed_precision_notice("float16", False)


@pytest.mark.parametrize("amp", [True, False])
def test_bfloat16_without_mixed_precision_is_not_silent(amp, tmp_path, caplog, monkeypatch):
    for name in ("use_cores", "initialize"):
        monkeypatch.setattr(f"bert.training.devices.{name}", lambda *_: 1)
    monkeypatch.setattr("paddle.device.cuda.get_device_capability", lambda: (8, 0))
    join_ranks(tiny.pretraining_config(tmp_path, amp=amp, amp_dtype="bfloat16"), Group(0, 1, "gpu"))
    assert ("amp_dtype=bfloat16 has no effect" in caplog.text and "pass --amp" in caplog.text) == (not amp)

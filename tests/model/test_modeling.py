"""The network: its parameters, and which inputs change its outputs."""

import numpy as np
import pytest

from bert.model.heads import BertForPretraining
from bert.model.objectives import ENCODER_INPUTS, PretrainingObjective
from bert.runtime.paddle_api import paddle, static, unique_name
from program import build_evaluation_program
from tests.support import tiny


class Forward:
    """Runs BertForPretraining in evaluation mode, with its hidden states, on given weights."""

    def __init__(self, weights: dict, model=tiny.MODEL, fuse_mha: bool = False):
        self.main = static.Program()
        with static.program_guard(self.main, static.Program()), unique_name.guard():
            inputs = {name: static.data(name, [-1, -1], "int64") for name in ENCODER_INPUTS}
            positions = static.data("masked_lm_positions", [-1], "int64")
            network = BertForPretraining(model, fuse_mha=fuse_mha)
            network.eval()
            self.outputs = network(*inputs.values(), positions)
            self.hidden = network.bert(*inputs.values())[0]
        self.scope, self.executor = static.Scope(), static.Executor(paddle.CPUPlace())
        for name, value in weights.items():
            self.scope.var(name).get_tensor().set(value, paddle.CPUPlace())

    def __call__(self, feed: dict) -> list[np.ndarray]:
        """Return logits [n, vocab], next-sentence logits [b, 2] and the last hidden state [b, s, hidden]."""
        feed = {name: feed[name] for name in (*ENCODER_INPUTS, "masked_lm_positions")}
        fetched = [*self.outputs, self.hidden]
        return self.executor.run(self.main, feed=feed, fetch_list=fetched, scope=self.scope)


@pytest.fixture(scope="module")
def weights():
    """Return weights so large that every part of the network affects the outputs."""
    rng = np.random.RandomState(2)
    return {
        name: value + 0.3 * rng.randn(*value.shape).astype("float32")
        for name, value in tiny.Session().parameters().items()
    }


@pytest.fixture(scope="module")
def forward(weights):
    return Forward(weights)


def test_parameters_are_as_many_as_the_settings_say():
    session = tiny.Session()
    assert sum(value.size for value in session.parameters().values()) == tiny.MODEL.num_parameters()
    assert session.parameters()["bert.embeddings.word_embeddings.weight"].shape == (104, 32)  # 99 rounded up to 8 x 13


def test_initial_weights_are_a_function_of_the_seed():
    first, same, other = (tiny.Session(seed=seed).parameters() for seed in (3, 3, 4))
    tiny.assert_identical(first, same)
    assert sum(first[name].tobytes() != other[name].tobytes() for name in first) == 6 * 2 + 6


def test_initial_weights_are_truncated_normals_and_biases_zero():
    parameters = tiny.Session().parameters()
    for name, value in parameters.items():
        if name.endswith("LayerNorm.weight"):
            assert (value == 1).all(), name
        elif name.endswith("bias"):
            assert (value == 0).all(), name
        else:
            assert np.abs(value).max() <= 0.04 + 1e-6, name
    table = parameters["bert.embeddings.word_embeddings.weight"]
    assert table.std() == pytest.approx(0.02 * 0.88, rel=0.05)  # cut at two standard deviations


def test_logits_are_computed_at_masked_positions_only(forward):
    (feed,) = tiny.feeds(tiny.random_batch(0), num_padding=0)
    num_masked = len(feed["masked_lm_positions"])
    logits, _, _ = forward(feed)
    assert logits.shape == (num_masked, 104)
    everywhere, _, _ = forward({**feed, "masked_lm_positions": np.arange(13 * 7)})
    np.testing.assert_allclose(logits, everywhere[feed["masked_lm_positions"]], atol=1e-5)
    table = "bert.embeddings.word_embeddings.weight"
    operators = [op for op in forward.main.global_block().ops if table in op.input_arg_names]
    assert [op.type for op in operators][:2] == ["lookup_table_v2", "matmul_v2"]
    rows = forward.main.global_block().var(operators[1].input("X")[0])
    assert len(rows.shape) == 2, "the decoder multiplies [n, hidden], not [b, s, hidden]"


def test_fused_projections_change_nothing_but_the_last_digit(weights, forward):
    (feed,) = tiny.feeds(tiny.random_batch(0))
    for ours, fused in zip(forward(feed), Forward(weights, fuse_mha=True)(feed), strict=True):
        np.testing.assert_allclose(fused, ours, rtol=1e-6, atol=5e-6)


def test_padded_tokens_have_no_influence_and_real_ones_have(forward):
    (feed,) = tiny.feeds(tiny.random_batch(0))
    row = int(np.argmin(feed["attention_mask"].sum(1)))
    length = int(feed["attention_mask"][row].sum())
    assert length < 7
    before = forward(feed)[1][row]
    for column, changes in ((length, False), (length - 1, True)):
        other = {**feed, "input_ids": feed["input_ids"].copy()}
        other["input_ids"][row, column] = 88
        assert (np.abs(forward(other)[1][row] - before).max() > 1e-4) == changes


@pytest.mark.long
@pytest.mark.parametrize(("activation", "low", "high"), [("gelu_tanh", 1e-6, 0.2), ("relu", 0.2, 1e3)])
def test_activations_are_what_they_are_called(weights, forward, activation, low, high):
    (feed,) = tiny.feeds(tiny.random_batch(0))
    logits = Forward(weights, tiny.MODEL.model_copy(update={"hidden_act": activation}))(feed)[0]
    assert low <= np.abs(logits - forward(feed)[0]).max() <= high


def test_evaluation_shares_the_weights_of_training_through_the_scope():
    session = tiny.Session()
    evaluation = build_evaluation_program(PretrainingObjective(tiny.MODEL))
    (feed,) = tiny.feeds(tiny.random_batch(0))

    def evaluate():
        fetched = {"fetch_list": [evaluation.metrics], "scope": session.scope}
        (values,) = session.executor.run(evaluation.main, feed=feed, **fetched)
        return dict(zip(PretrainingObjective.metric_names, values.tolist(), strict=True))

    first = evaluate()
    assert first == evaluate(), "evaluating changes nothing"
    trained = session.update([feed])  # metrics are of the weights before this update
    for name in PretrainingObjective.metric_names:
        assert first[name] == pytest.approx(trained[name], rel=1e-5), name
    for _ in range(5):
        session.update([feed])
    assert evaluate()["loss"] < first["loss"]


def test_evaluation_has_no_dropout_and_training_has():
    training = tiny.Session(model=tiny.MODEL_WITH_DROPOUT)
    evaluation = build_evaluation_program(PretrainingObjective(tiny.MODEL_WITH_DROPOUT))

    def active(program):
        return [op for block in program.blocks for op in block.ops if op.type == "dropout" and not op.attr("is_test")]

    assert len(training.program.dropout.pools[0].places) == 1 + 3 * tiny.MODEL.num_hidden_layers
    assert not active(evaluation.main)
    (feed,) = tiny.feeds(tiny.random_batch(0))
    runs = [
        training.executor.run(evaluation.main, feed=feed, fetch_list=[evaluation.metrics], scope=training.scope)[0]
        for _ in range(2)
    ]
    assert runs[0].tobytes() == runs[1].tobytes()

"""Encoders, heads and losses against NumPy: each state of each layer, padded and with documents in a row."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from bert.config.architecture import FusedKernels
from bert.model.attention import FlashPackedSequences
from bert.model.modeling import activation_function
from bert.model.objectives import (
    EncoderObjective,
    MaskedLMObjective,
    MultiLabelObjective,
    PretrainingObjective,
    QuestionAnsweringObjective,
    SequenceClassificationObjective,
    SequenceRegressionObjective,
    TokenClassificationObjective,
)
from bert.runtime.paddle_api import paddle, place_of, static, unique_name
from tests.references.encoders import bert, cross_entropies, dense, gelu, modern_bert, pooled, prediction_head
from tests.support import tiny

MODERN = tiny.MODEL.model_copy(
    update={
        "model_type": "modernbert",
        "num_hidden_layers": 4,
        "global_attn_every_n_layers": 3,
        "local_attention": 4,
        "layer_norm_eps": 1e-3,
        "global_rope_theta": 1000.0,
        "local_rope_theta": 50.0,
    }
)
BERT = tiny.MODEL.model_copy(update={"layer_norm_eps": 1e-3})
LENGTHS = np.array([9, 7, 12, 4])
WIDTH = 12
REAL = np.arange(WIDTH) < LENGTHS[:, None]


class Network:
    """Runs an objective's program, with weights so large that each matters. The models have no dropout."""

    def __init__(self, objective, training: bool = False):
        self.main, startup = static.Program(), static.Program()
        with static.program_guard(self.main, startup), unique_name.guard():
            feed, network = objective.inputs(with_labels=training), objective.network()
            network.train() if training else network.eval()
            self.found = objective.outputs(feed, network)
            if training:
                loss, sums = objective.loss(feed, self.found)
                self.found = {"loss": loss, **dict(zip(objective.metric_names[2:], sums, strict=True)), **self.found}
        self.names = list(feed)
        self.scope, self.executor, rng = static.Scope(), static.Executor(place_of("cpu")), np.random.RandomState(5)
        self.executor.run(startup, scope=self.scope)
        self.weights = {}
        for parameter in sorted(self.main.all_parameters(), key=lambda parameter: parameter.name):
            self.weights[parameter.name] = rng.normal(0.1, 0.4, parameter.shape).astype("float32")
            self.scope.var(parameter.name).get_tensor().set(self.weights[parameter.name], paddle.CPUPlace())

    def __call__(self, feed: dict) -> dict[str, np.ndarray]:
        fed = {name: feed[name] for name in self.names}
        values = self.executor.run(self.main, feed=fed, fetch_list=list(self.found.values()), scope=self.scope)
        return dict(zip(self.found, values, strict=True))


def texts(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.RandomState(seed)
    return {
        "input_ids": rng.randint(5, 99, REAL.shape) * REAL,
        "token_type_ids": rng.randint(0, 2, REAL.shape) * REAL,
        "attention_mask": REAL.astype("int64"),
    }


def documents() -> tuple[np.ndarray, np.ndarray]:
    """Return positions that begin again at each document, and masks by which its tokens see each other."""
    starts = np.zeros(REAL.shape, bool)
    starts[:, 0] = starts[0, 5] = starts[2, 3] = starts[2, 4] = True
    starts |= ~REAL  # padding: documents of their own
    numbers = starts.cumsum(1)
    firsts = np.maximum.accumulate(np.where(starts, np.arange(WIDTH), 0), 1)
    return np.arange(WIDTH) - firsts, (numbers[:, :, None] == numbers[:, None, :])


def assert_near(found, expected, name, tolerance=2e-5):
    assert found.shape == expected.shape, name
    assert np.abs(found - expected).max() <= tolerance * max(1.0, np.abs(expected).max()), name


def kernel(query, key, value, mask, dropout, training):
    """Stand in for a GPU's kernel: [b, s, heads, size] and a mask for each query, which is not broadcast."""
    assert (dropout, training) == (0.0, False)
    length = paddle.shape(query)[1]
    query, key, value = (part.transpose([0, 2, 1, 3]) for part in (query, key, value))
    scores = paddle.matmul(query, key, transpose_y=True) / math.sqrt(query.shape[-1])
    shares = paddle.nn.functional.softmax(scores + mask.reshape([-1, 1, length, length]))
    return paddle.matmul(shares, value).transpose([0, 2, 1, 3])


@pytest.mark.parametrize(
    ("model", "has_kernel", "with_documents"),
    [(BERT, False, False), (BERT, False, True), (BERT, True, False), (MODERN, False, False), (MODERN, True, True)],
)
def test_each_state_of_an_encoder_is_that_of_the_papers(monkeypatch, model, has_kernel, with_documents):
    """The last state of a ModernBERT has the final norm, also where the states of layers are requested."""
    monkeypatch.setattr(paddle.nn.functional, "scaled_dot_product_attention", kernel)
    kernels = FusedKernels(attention=has_kernel)
    layers = tuple(range(model.num_hidden_layers + 1))
    settings = {"with_pooler": True, "layers": layers, "separate_documents": with_documents, "kernels": kernels}
    objective = EncoderObjective(model, **settings)
    network, feed = Network(objective), texts()
    positions, visible = np.broadcast_to(np.arange(WIDTH), REAL.shape), np.broadcast_to(REAL[:, None], (4, 12, 12))
    if with_documents:
        positions, together = documents()
        feed, visible = {**feed, "position_ids": positions}, together
    found = network(feed)
    if model is BERT:
        given = (feed["input_ids"], feed["token_type_ids"], positions, visible)
        states = bert(network.weights, model, *given)
        first = pooled(states, network.weights)
    else:
        states = modern_bert(network.weights, model, feed["input_ids"], positions, visible)
        first = prediction_head(states[-1][:, 0], network.weights, model.layer_norm_eps)
    each = np.split(found["hidden_states"], len(layers), axis=-1)
    for number, (ours, expected) in enumerate(zip(each, states, strict=True)):
        assert_near(ours[REAL], expected[REAL], f"layer {number}")
    assert_near(found["last_hidden_state"][REAL], states[-1][REAL], "last")
    assert_near(found["pooler_output"], first, "pooled")


@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "relu"])
def test_activations_are_their_formulas(name):
    """GELU is by Hendrycks and Gimpel (2016): exact, and approximated by a hyperbolic tangent."""
    x = np.linspace(-4, 4, 81).astype("float32")
    expected = {
        "gelu": gelu(x),
        "gelu_tanh": 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        "relu": np.maximum(x, 0),
    }[name]
    main = static.Program()
    with static.program_guard(main, static.Program()):
        found = activation_function(name)(static.data("x", [81], "float32"))
    value = static.Executor(place_of("cpu")).run(main, feed={"x": x}, fetch_list=[found])[0]
    np.testing.assert_allclose(value, expected, atol=1e-6)


def dropouts(objective) -> list[float]:
    """Return the rates of the dropout operators of a network in training, in order."""
    main = static.Program()
    with static.program_guard(main, static.Program()), unique_name.guard():
        feed, network = objective.inputs(with_labels=False), objective.network()
        network.train()
        objective.outputs(feed, network)
    return [round(op.attr("dropout_prob"), 6) for op in main.global_block().ops if op.type == "dropout"]


def test_dropout_is_where_the_papers_have_it():
    """In BERT, dropout follows embeddings and attention's shares, and precedes each residual sum and a classifier; in
    ModernBERT it follows attention's output, with attention's rate, and is inside of the feed-forward block."""
    rates = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2}
    model, modern = BERT.model_copy(update=rates), MODERN.model_copy(update={**rates, "num_hidden_layers": 2})
    assert dropouts(EncoderObjective(model)) == [0.1, *[0.2, 0.1, 0.1] * 2]
    assert dropouts(QuestionAnsweringObjective(model)) == [0.1, *[0.2, 0.1, 0.1] * 2]
    for kind in (SequenceClassificationObjective, TokenClassificationObjective):
        assert dropouts(kind(model)) == [0.1, *[0.2, 0.1, 0.1] * 2, 0.1]
    assert dropouts(EncoderObjective(modern)) == [0.1, *[0.2, 0.2, 0.1] * 2]


def test_the_layers_that_are_asked_for_come_in_their_order():
    network = Network(EncoderObjective(BERT, layers=(2, 0)))
    states = bert(network.weights, BERT, *inputs(texts()))
    found = network(texts())
    assert set(found) == {"last_hidden_state", "hidden_states"}, "no pooler, if it is not asked for"
    assert_near(found["hidden_states"][REAL], np.concatenate([states[2], states[0]], -1)[REAL], "2, 0")


def places():
    return np.broadcast_to(np.arange(WIDTH), REAL.shape), np.broadcast_to(REAL[:, None], (4, 12, 12))


def masked_feed() -> dict[str, np.ndarray]:
    """Return a feed with five masked positions, one of weight 0."""
    return {
        **texts(),
        "masked_lm_positions": np.array([1, 14, 25, 26, 0]),
        "masked_lm_labels": np.array([7, 8, 98, 9, 0]),
        "masked_lm_weights": np.array([1, 1, 1, 1, 0], "float32"),
        "masked_lm_normalizer": np.array([2.5], "float32"),
        "next_sentence_labels": np.array([0, 1, 1, 0]),
    }


@pytest.mark.parametrize("kind", [PretrainingObjective, MaskedLMObjective])
def test_the_losses_of_pre_training_are_those_of_the_paper(kind):
    network, feed = Network(kind(BERT), training=True), masked_feed()
    hidden = bert(network.weights, BERT, *inputs(feed))
    states = hidden[-1].reshape(-1, 32)[feed["masked_lm_positions"]]
    table = network.weights["bert.embeddings.word_embeddings.weight"]
    logits = prediction_head(states, network.weights, 1e-3) @ table.T + network.weights["cls.predictions.bias"]
    found = network(feed)
    assert_near(found["masked_lm_logits"], logits, "logits")
    each = cross_entropies(logits, feed["masked_lm_labels"])
    masked_lm = each[:4].sum() / 2.5
    hits = (logits.argmax(-1) == feed["masked_lm_labels"])[:4].sum()
    assert (found["masked_lm_correct"], found["masked_tokens"], found["sequences"]) == (hits, 4, 4)
    if kind is MaskedLMObjective:
        assert "next_sentence_logits" not in found and found["loss"] == pytest.approx(masked_lm, rel=1e-5)
        return
    next_sentence = dense(pooled(hidden, network.weights), network.weights, "cls.seq_relationship")
    assert_near(found["next_sentence_logits"], next_sentence, "next sentence")
    loss = cross_entropies(next_sentence, feed["next_sentence_labels"]).mean()
    assert found["masked_lm_loss"] == pytest.approx(masked_lm, rel=1e-5)
    assert found["next_sentence_loss"] == pytest.approx(loss, rel=1e-5)
    assert found["loss"] == pytest.approx(masked_lm + loss, rel=1e-5)
    assert found["next_sentence_correct"] == (next_sentence.argmax(-1) == feed["next_sentence_labels"]).sum()


def test_the_loss_of_an_answer_is_the_mean_of_its_ends():
    network = Network(QuestionAnsweringObjective(BERT), training=True)
    starts, ends = np.array([2, 0, 11, 3]), np.array([3, 0, 11, 1])
    feed = texts() | {"start_positions": starts, "end_positions": ends}
    states = bert(network.weights, BERT, *inputs(feed))
    logits = dense(states[-1], network.weights, "qa_outputs")
    found = network(feed)
    losses = []
    for number, (name, labels) in enumerate((("start", starts), ("end", ends))):
        assert_near(found[f"{name}_logits"][REAL], logits[..., number][REAL], name)
        real = np.where(REAL, logits[..., number], -np.inf)
        losses.append(cross_entropies(real, labels))
        assert found[f"{name}_correct"] == (real.argmax(-1) == labels).sum()
    assert found["loss"] == pytest.approx((losses[0].mean() + losses[1].mean()) / 2, rel=1e-5)
    assert found["sequences"] == 4


def inputs(feed) -> tuple:
    return feed["input_ids"], feed["token_type_ids"], *places()


@pytest.mark.parametrize(
    ("objective", "labels"),
    [
        (SequenceClassificationObjective(BERT, num_labels=3), np.array([2, 0, 1, 1])),
        (MultiLabelObjective(BERT, num_labels=3), np.random.RandomState(2).randint(0, 2, (4, 3)).astype("float32")),
        (SequenceRegressionObjective(BERT), np.array([0.5, -1.0, 3.0, 0.0], "float32")),
    ],
    ids=["classes", "several", "number"],
)
def test_the_losses_of_classifiers_are_their_definitions(objective, labels):
    """The pooled first token gives cross-entropy, a decision for each label, and the squared error."""
    network, feed = Network(objective, training=True), {**texts(), "labels": labels}
    first = pooled(bert(network.weights, BERT, *inputs(feed)), network.weights)
    logits, found = dense(first, network.weights, "classifier"), network(feed)
    assert_near(found["logits"], logits, objective)
    if labels.dtype == np.int64:
        expected = cross_entropies(logits, labels).mean()
        assert (found["correct"], found["sequences"]) == ((logits.argmax(-1) == labels).sum(), 4)
    elif labels.ndim == 2:
        chances = 1 / (1 + np.exp(-logits))
        expected = -(labels * np.log(chances) + (1 - labels) * np.log(1 - chances)).mean()
    else:
        expected = ((logits[:, 0] - labels) ** 2).mean()
    assert found["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean", "tokens"])
def test_the_heads_of_a_modernbert_read_the_prediction_head(pooling):
    """The heads read it at the first token, as the mean of the real tokens, or at each token."""
    model = MODERN.model_copy(update={"num_hidden_layers": 2, "classifier_pooling": pooling.replace("tokens", "cls")})
    kind = TokenClassificationObjective if pooling == "tokens" else SequenceClassificationObjective
    network, feed = Network(kind(model, num_labels=3)), texts()
    states = modern_bert(network.weights, model, feed["input_ids"], *places())[-1]
    means = (states * REAL[..., None]).sum(1) / REAL.sum(1, keepdims=True)
    read = {"cls": states[:, 0], "mean": means, "tokens": states}[pooling]
    expected = dense(prediction_head(read, network.weights, model.layer_norm_eps), network.weights, "classifier")
    real = REAL if pooling == "tokens" else np.ones(4, bool)
    assert_near(network(feed)["logits"][real], expected[real], pooling)


def test_the_loss_of_labelled_tokens_counts_no_other():
    network = Network(TokenClassificationObjective(BERT, num_labels=3), training=True)
    labels = np.where(REAL, np.random.RandomState(3).randint(-1, 3, REAL.shape), -1)
    feed = {**texts(), "labels": labels, "label_normalizer": np.array([6.0], "float32")}
    states = bert(network.weights, BERT, *inputs(feed))
    logits, found = dense(states[-1], network.weights, "classifier"), network(feed)
    assert_near(found["logits"][REAL], logits[REAL], "logits")
    known = labels >= 0
    assert found["loss"] == pytest.approx(cross_entropies(logits[known], labels[known]).sum() / 6, rel=1e-5)
    assert (found["correct"], found["tokens"]) == ((logits.argmax(-1) == labels)[known].sum(), known.sum())


def test_a_uniform_guess_and_means_of_sums():
    assert PretrainingObjective(BERT).chance_loss() == math.log(99) + math.log(2)
    assert MaskedLMObjective(BERT).chance_loss() == math.log(99)
    assert SequenceRegressionObjective(BERT).chance_loss() is None
    names = PretrainingObjective.metric_names
    sums = dict(zip(names, (4.0, 10.0, 8.0, 2.0, 3.0, 12.0, 5.0, 20.0), strict=True))
    assert PretrainingObjective(BERT).summarise(sums) == {
        "loss": 2.5,
        "masked_lm_loss": 2.0,
        "next_sentence_loss": 0.5,
        "masked_lm_accuracy": 0.25,
        "next_sentence_accuracy": 0.25,
    }
    nothing = PretrainingObjective(BERT).summarise(dict.fromkeys(names, 0.0))
    assert all(map(math.isnan, nothing.values())), "every micro-batch overflowed: nothing was measured"
    alone = dict(zip(MaskedLMObjective.metric_names, (2.0, 6.0, 1.0, 4.0, 9.0), strict=True))
    expected = {"loss": 3.0, "masked_lm_loss": 3.0, "masked_lm_accuracy": 0.25}
    assert MaskedLMObjective(BERT).summarise(alone) == expected


@pytest.mark.parametrize("is_finite", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_the_sums_of_a_micro_batch_begin_with_its_loss_and_are_0_if_that_overflowed(training, is_finite):
    """The sums are 0 in training only, where the update is skipped; an evaluation shows the overflow."""
    objective, main, startup = SequenceRegressionObjective(BERT), static.Program(), static.Program()
    with static.program_guard(main, startup), unique_name.guard():
        loss, metrics, outputs = objective.forward(training)
    assert set(outputs) == {"logits"} and metrics.dtype == paddle.float64 and metrics.stop_gradient
    executor, scope = static.Executor(place_of("cpu")), static.Scope()
    executor.run(startup, scope=scope)
    feed = texts() | {"labels": np.array([3.0, -1.0, 0.0, 2.0 if is_finite else np.inf], "float32")}
    value, found = executor.run(main, feed=feed, fetch_list=[loss, metrics], scope=scope)
    shown = is_finite or not training
    assert found.tolist() == ([1.0, value.item()] if shown else [0.0, 0.0]) and np.isfinite(value.item()) == is_finite


def test_a_small_feed_has_integers_of_32_bits_and_of_8_where_they_are_0_or_1():
    main = static.Program()
    with static.program_guard(main, static.Program()), unique_name.guard():
        plain = PretrainingObjective(BERT)
        cast = plain.inputs(small=True)
    declared = {name: variable.dtype for name, variable in main.global_block().vars.items() if variable.is_data}
    assert declared == {
        "input_ids": paddle.int32,
        "token_type_ids": paddle.uint8,
        "attention_mask": paddle.uint8,
        "masked_lm_positions": paddle.int32,
        "masked_lm_labels": paddle.int32,
        "masked_lm_weights": paddle.float32,
        "masked_lm_normalizer": paddle.float32,
        "next_sentence_labels": paddle.uint8,
    }
    assert {variable.dtype for variable in cast.values()} == {paddle.int64, paddle.float32}
    assert set(cast) == {*plain.encoder_inputs(), *plain.labels}


@pytest.mark.parametrize("training", [True, False])
def test_flash_attention_gets_the_scale_of_the_head_and_no_dropout_outside_of_training(monkeypatch, training):
    asked = []

    def kernel(*arguments, **named):
        asked.append((arguments, named))
        return ["context"]

    monkeypatch.setattr(paddle.nn.functional.flash_attention, "flash_attn_unpadded", kernel)
    layout = FlashPackedSequences({"position_ids": None, "sequence_offsets": "offsets"}, 128)
    query = SimpleNamespace(shape=[9, 4, 16])
    assert layout.attend(query, "key", "value", 0.1, training) == "context"
    expected = (query, "key", "value", "offsets", "offsets", 128, 128, 0.25)
    assert asked == [(expected, {"dropout": 0.1 if training else 0.0, "training": training})]

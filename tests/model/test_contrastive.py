"""Tests of the contrastive loss and its gradient against NumPy, in micro-batches on several ranks, and of pooling.

The whole training step: tests/vectors/test_contrastive.py.
"""

from dataclasses import replace

import numpy as np
import pytest

from bert.config.architecture import FusedKernels
from bert.model.contrastive import BATCH_VECTORS, ContrastiveObjective
from bert.model.objectives import EncoderObjective
from bert.runtime.paddle_api import paddle, place_of, static, unique_name
from tests.support import tiny

NUM_PAIRS, NUM_TEXTS, SIZE = 5, 12, 32  # two texts are further negatives
GROUPS = np.array([0, 1, 2, 3, 0, *[0, 1, 2, 3, 0], 7, 1])  # pairs 0 and 4 are alike; the last negative is of pair 1
NUMBERS = np.array([0, 1, 2, 3, 4, *[5, 6, 0, 8, 9], 10, 11])  # the query of pair 0 is the passage of pair 2
_ALIKE = (GROUPS[:NUM_PAIRS, None] == GROUPS[NUM_PAIRS:]) | (NUMBERS[:NUM_PAIRS, None] == NUMBERS[NUM_PAIRS:])
NOT_NEGATIVES = (_ALIKE & ~np.eye(NUM_PAIRS, NUM_TEXTS - NUM_PAIRS, dtype=bool)).astype("float32")
VECTORS = np.random.RandomState(1).randn(NUM_TEXTS, SIZE).astype("float32")
VECTORS[NUM_PAIRS : 2 * NUM_PAIRS] += 0.3 * VECTORS[:NUM_PAIRS]  # most passages are like their queries


def info_nce(vectors: np.ndarray, temperature: float, dimensions: tuple[int, ...] = ()) -> tuple[float, np.ndarray]:
    """Compute the loss of van den Oord et al. (2018), a row at a time, and its gradient by the chain rule; float64."""
    losses, gradient = [], np.zeros(vectors.shape)
    sizes = (SIZE, *dimensions)
    texts = np.arange(NUM_TEXTS)
    for size in sizes:
        parts = vectors[:, :size].astype("float64")
        norms = np.linalg.norm(parts, axis=1, keepdims=True)
        units, upstream = parts / norms, np.zeros(parts.shape)
        for pair in range(NUM_PAIRS):
            for own, answer, others in (
                (pair, NUM_PAIRS + pair, texts[NUM_PAIRS:]),
                (NUM_PAIRS + pair, pair, texts[:NUM_PAIRS]),
            ):
                is_alike = (GROUPS[others] == GROUPS[own]) | (NUMBERS[others] == NUMBERS[own])
                allowed = others[~is_alike | (others == answer)]
                scores = np.exp(units[allowed] @ units[own] / temperature)
                shares = scores / scores.sum()
                losses.append(-np.log(shares[allowed == answer].item()))
                slopes = (shares - (allowed == answer)) / temperature
                upstream[own] += slopes @ units[allowed]
                upstream[allowed] += slopes[:, None] * units[own]
        along = (upstream * units).sum(1, keepdims=True)
        gradient[:, :size] += (upstream - along * units) / norms
    return float(np.mean(losses)), gradient / (2 * NUM_PAIRS * len(sizes))


class Loss:
    """Computes the loss of an objective whose live vectors are a parameter: it has no encoder."""

    def __init__(self, **attributes):
        objective, self.main, startup = (
            ContrastiveObjective(tiny.MODEL, **attributes),
            static.Program(),
            static.Program(),
        )
        with static.program_guard(self.main, startup), unique_name.guard():
            labels = {name: static.data(name, shape, dtype) for name, (shape, dtype) in objective.labels.items()}
            live = static.data("live", [-1, SIZE], "float32")
            live.stop_gradient = False
            loss, sums = objective.loss(labels, {"vectors": live})
            self.found = [loss, *sums, static.gradients([loss], [live])[0]]
        self.executor = static.Executor(place_of("cpu"))

    def __call__(self, places: np.ndarray, number: int):
        """Return (loss, correct, pairs, gradient of the live vectors) of a micro-batch; its cached ones are noise."""
        cached = VECTORS.copy()
        cached[places] = 99.0
        feed = {
            BATCH_VECTORS: cached,
            "live": VECTORS[places],
            "text_places": places,
            "not_negatives": NOT_NEGATIVES,
            "pair_numbers": np.arange(NUM_PAIRS),
            "num_micro_batches": np.array([number], "float32"),
        }
        return self.executor.run(self.main, feed=feed, fetch_list=self.found)


@pytest.mark.parametrize("attributes", [{}, {"temperature": 0.2, "dimensions": (16, 8)}], ids=["plain", "nested"])
def test_loss_and_gradient_are_the_definition_however_the_batch_is_divided(attributes):
    """The mean over micro-batches and ranks, which optimizers take, is the gradient of the whole batch."""
    attributes = {"temperature": 0.05, **attributes}
    loss, gradient = info_nce(VECTORS, **attributes)
    function = Loss(**attributes)
    order = np.random.RandomState(4).permutation(NUM_TEXTS)
    for number in (1, 3, 6):
        mean = np.zeros(VECTORS.shape)
        for places in np.array_split(order, number):
            found = function(places, number)
            assert found[0] == pytest.approx(loss, rel=1e-4), "the value is that of the batch in each"
            assert found[2] == NUM_PAIRS
            mean[places] += found[3] / number
        np.testing.assert_allclose(mean, gradient, rtol=1e-3, atol=1e-5 * np.abs(gradient).max())
        assert np.linalg.norm(mean) == pytest.approx(np.linalg.norm(gradient), rel=1e-4)


def test_a_query_is_correct_whose_passage_is_the_nearest_of_those_that_count():
    units = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    scores = units[:NUM_PAIRS] @ units[NUM_PAIRS:].T
    for row in range(NUM_PAIRS):
        for column in range(NUM_TEXTS - NUM_PAIRS):
            other = NUM_PAIRS + column
            if column != row and (GROUPS[row] == GROUPS[other] or NUMBERS[row] == NUMBERS[other]):
                scores[row, column] = -9
    correct = (scores.argmax(1) == np.arange(NUM_PAIRS)).sum()
    assert 1 < correct < NUM_PAIRS and Loss()(np.arange(NUM_TEXTS), 1)[1] == correct


def vectors_of(objective, feed) -> dict[str, np.ndarray]:
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), unique_name.guard():
        inputs, network = objective.inputs(with_labels=False), objective.network()
        network.eval()
        outputs = objective.outputs(inputs, network)
    scope, executor, rng = static.Scope(), static.Executor(place_of("cpu")), np.random.RandomState(3)
    executor.run(startup, scope=scope)
    for parameter in sorted(main.all_parameters(), key=lambda parameter: parameter.name):
        value = rng.normal(0.0, 0.3, parameter.shape).astype("float32")
        scope.var(parameter.name).get_tensor().set(value, paddle.CPUPlace())
    fed = {name: feed[name] for name in inputs}
    values = executor.run(main, feed=fed, fetch_list=list(outputs.values()), scope=scope)
    return dict(zip(outputs, values, strict=True))


def test_a_vector_is_the_mean_of_the_real_tokens_or_the_first():
    objective = ContrastiveObjective(tiny.MODEL)
    feed = tiny.random_batch(2, 6)
    states = vectors_of(EncoderObjective(tiny.MODEL), feed)["last_hidden_state"]
    real = feed["attention_mask"][..., None]
    assert real.min() == 0, "some is padding"
    means = (states * real).sum(1) / real.sum(1)
    np.testing.assert_allclose(vectors_of(objective, feed)["vectors"], means, rtol=1e-4, atol=1e-5)
    first = vectors_of(replace(objective, pooling="cls"), feed)["vectors"]
    np.testing.assert_allclose(first, states[:, 0], rtol=1e-4, atol=1e-5)
    assert ContrastiveObjective(tiny.MODEL, kernels=FusedKernels(unpad=True)).packing().per_token
    assert objective.packing() is None

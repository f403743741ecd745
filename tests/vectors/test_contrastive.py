"""Tests of the contrastive loss: it equals its definition, for every division of a batch into micro-batches."""

from typing import NamedTuple

import numpy as np
import pytest

from bert.config.architecture import FusedKernels
from bert.model.contrastive import BATCH_VECTORS, ContrastiveObjective
from bert.model.optimization import GRADIENT_NORM
from bert.samples.collation import MicroBatch
from bert.training.feeding import Feeding
from program import TRAINING_METRICS
from tests.support import tiny

TEMPERATURE = 0.05
NUM_PAIRS, NUM_TEXTS = 6, 14  # two texts are further negatives
GROUPS = np.array([0, 1, 2, 3, 4, 0, *range(5), 0, 7, 8])  # pairs 0 and 5 are alike
NUMBERS = np.array([*range(6), 6, 0, *range(8, 14)])  # the query of pair 0 is the passage of pair 1
_ALIKE = (GROUPS[:NUM_PAIRS, None] == GROUPS[NUM_PAIRS:]) | (NUMBERS[:NUM_PAIRS, None] == NUMBERS[NUM_PAIRS:])
NOT_NEGATIVES = (_ALIKE & ~np.eye(NUM_PAIRS, NUM_TEXTS - NUM_PAIRS, dtype=bool)).astype("float32")


def micro_batches(number: int, objective: ContrastiveObjective) -> list[MicroBatch]:
    batch = tiny.random_batch(2, NUM_TEXTS)
    inputs = {name: batch[name] for name in ("input_ids", "token_type_ids", "attention_mask")}
    shared = {
        "not_negatives": NOT_NEGATIVES,
        "pair_numbers": np.arange(NUM_PAIRS),
        "num_micro_batches": np.array([number], "float32"),
    }
    result = []
    for places in np.array_split(np.arange(NUM_TEXTS).reshape(7, 2).T.reshape(-1), number):
        feed = {**{name: array[places] for name, array in inputs.items()}, **shared, "text_places": places}
        result.append(MicroBatch(feed, len(places), 1, 1, 0).packed(objective.packing()))
    return result


class Update(NamedTuple):
    losses: list[float]  # of each micro-batch
    moments: dict[str, np.ndarray]  # of the gradient, which may be cut to the greatest norm
    vectors: np.ndarray  # before the update
    norm: float  # of the whole gradient
    correct_and_pairs: np.ndarray  # of the last micro-batch


def update(number: int, *, group=tiny.ONE_RANK, dropout: bool = False, precision=tiny.FLOAT32, **attributes):
    """Make an update of `number` micro-batches a rank."""
    model = tiny.MODEL_WITH_DROPOUT if dropout else tiny.MODEL
    attributes = {"temperature": TEMPERATURE, **attributes}
    objective = ContrastiveObjective(model, kernels=FusedKernels(unpad=True), **attributes)
    session = tiny.Session(
        objective=objective,
        optimizer=tiny.STEADY_ADAMW,
        micro_steps=number,
        precision=precision,
        warmup_steps=0,
        group=group,
    )
    device = session.device()

    def draw(micro_step, feed):
        session.program.dropout.draw(session.scope, session.place, feed, np.uint64(7 + micro_step))

    feeding, losses = Feeding(session.program, device), []
    batches = micro_batches(number * group.world_size, objective)[group.rank :: group.world_size]
    for micro_step, batch in enumerate(feeding.with_batch_vectors(batches, draw)):
        session.write(TRAINING_METRICS, np.zeros(4))
        draw(micro_step, batch.feed)
        device.executor.run(session.program.main, feed=feeding.arrays(batch.feed), scope=device.scope)
        losses.append(session.read(TRAINING_METRICS)[1])
    moments = {key.split("/")[0]: value for key, value in session.optimizer_state().items() if "/moment1" in key}
    return Update(
        losses, moments, batch.feed[BATCH_VECTORS], session.value(GRADIENT_NORM), session.read(TRAINING_METRICS)[2:]
    )


def info_nce(vectors: np.ndarray, temperature: float) -> float:
    """Compute the definition, a pair at a time."""
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    queries, passages = units[:NUM_PAIRS], units[NUM_PAIRS:]
    losses = []
    first_texts, second_texts = np.arange(NUM_PAIRS), np.arange(NUM_PAIRS, NUM_TEXTS)
    for first, second, ours, others in (
        (queries, passages, first_texts, second_texts),
        (passages[:NUM_PAIRS], queries, second_texts[:NUM_PAIRS], first_texts),
    ):
        for row in range(NUM_PAIRS):
            alike = (GROUPS[ours[row]] == GROUPS[others]) | (NUMBERS[ours[row]] == NUMBERS[others])
            allowed = [j for j in range(len(second)) if j == row or not alike[j]]
            scores = np.exp([first[row] @ second[j] / temperature for j in allowed])
            losses.append(-np.log(scores[allowed.index(row)] / scores.sum()))
    return float(np.mean(losses))


def test_loss_norm_and_accuracy_of_two_micro_batches_are_those_of_the_whole_batch():
    """The norm by which gradients are cut, logged and compared belongs to the mean over all pairs of the batch."""
    whole, halves = update(1, dimensions=(16,)), update(2, dimensions=(16,))
    defined = np.mean([info_nce(halves.vectors[:, :size], TEMPERATURE) for size in (32, 16)])
    assert halves.losses == pytest.approx([defined] * 2, abs=1e-5) and whole.losses == pytest.approx(
        [defined], abs=1e-5
    )
    assert halves.norm == pytest.approx(whole.norm, rel=1e-4) and whole.norm > 0.01
    units = halves.vectors / np.linalg.norm(halves.vectors, axis=1, keepdims=True)
    correct = 0
    for row in range(NUM_PAIRS):
        texts = range(NUM_PAIRS, NUM_TEXTS)
        others = [t for t in texts if t == NUM_PAIRS + row or (GROUPS[t] != GROUPS[row] and NUMBERS[t] != NUMBERS[row])]
        correct += max(others, key=lambda text, row=row: units[row] @ units[text]) == NUM_PAIRS + row
    assert halves.correct_and_pairs.tolist() == whole.correct_and_pairs.tolist() == [correct, NUM_PAIRS]


@pytest.mark.long
@pytest.mark.parametrize("attributes", [{}, {"pooling": "cls", "dimensions": (16, 8), "temperature": 0.2}], ids=str)
def test_an_update_is_the_same_however_the_batch_is_divided(attributes):
    """With cached gradients, losses and gradients of 7 micro-batches equal those of one."""
    (whole,), gradients, _, norm, _ = update(1, **attributes)
    losses, divided, vectors, norm_of_parts, _ = update(7, **attributes)
    assert norm_of_parts == pytest.approx(norm, rel=1e-4), "the sum over micro-batches, not their mean"
    assert losses == pytest.approx([whole] * 7, abs=1e-6)
    sizes = (32, *attributes.get("dimensions", ()))
    defined = np.mean([info_nce(vectors[:, :size], attributes.get("temperature", TEMPERATURE)) for size in sizes])
    assert whole == pytest.approx(defined, abs=1e-5)
    assert tiny.relative_difference(divided, gradients) < 3e-6


@pytest.mark.parametrize("precision", [tiny.FLOAT32, tiny.FLOAT16], ids=["float32", "float16"])
def test_the_vectors_before_the_micro_steps_have_their_dropout(precision):
    """Otherwise the live vectors, and so the loss of each micro-step, would differ from the vectors before."""
    losses, _, vectors, *_ = update(7, dropout=True, precision=precision)
    assert losses == pytest.approx([info_nce(vectors, TEMPERATURE)] * 7, abs=1e-5)

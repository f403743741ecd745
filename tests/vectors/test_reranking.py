"""Tests of the training of a reranker: the listwise loss, groups, and metrics of reordered candidates."""

import json
import math

import numpy as np
import pytest

from bert.config.architecture import FusedKernels
from bert.conversion.usage import RerankingForm
from bert.finetuning.task import Features
from bert.model.reranking import RerankingObjective
from bert.samples.packing import pack
from bert.tokenization.vocabulary import SPECIAL_TOKENS
from bert.vectors.reranker_settings import RerankerConfig
from bert.vectors.reranking import GroupLoader, RerankingTask
from tests.support import tiny

GROUP_SIZE, NUM_GROUPS = 3, 4


def update(micro_steps: int, *, group=tiny.ONE_RANK, precision=tiny.FLOAT32, unpad: bool = False):
    """Make an update of four groups; return the session, and the sums of this rank."""
    objective = RerankingObjective(tiny.MODEL, kernels=FusedKernels(unpad=unpad), group_size=GROUP_SIZE)
    session = tiny.Session(
        objective=objective,
        optimizer=tiny.STEADY_ADAMW,
        precision=precision,
        micro_steps=micro_steps,
        warmup_steps=0,
        group=group,
    )
    return session, session.update(
        shares(micro_steps * group.world_size, unpad, objective)[group.rank :: group.world_size]
    )


def parameters(session: tiny.Session) -> dict[str, np.ndarray]:
    """Return all parameters but the score's bias, which a group's softmax cancels: its gradient is rounding noise."""
    return {name: value for name, value in session.parameters().items() if name != "classifier.bias"}


def shares(number: int, unpad: bool, objective) -> list[dict]:
    """Return micro-batches of whole groups."""
    batch = tiny.random_batch(5, GROUP_SIZE * NUM_GROUPS)
    rows = np.array_split(np.arange(GROUP_SIZE * NUM_GROUPS), number)
    feeds = [{name: batch[name][own] for name in ("input_ids", "token_type_ids", "attention_mask")} for own in rows]
    return [pack(feed, objective.packing()) for feed in feeds] if unpad else feeds


def scores_before_training() -> np.ndarray:
    """Return the sequences' scores by the initial weights of `update`, float64 [groups, sequences]."""
    objective = RerankingObjective(tiny.MODEL, group_size=GROUP_SIZE)
    session = tiny.Session(objective=objective, optimizer=tiny.STEADY_ADAMW, warmup_steps=0)
    (feed,) = shares(1, False, objective)
    (logits,) = session.executor.run(
        session.program.main, feed=feed, fetch_list=[session.program.outputs["logits"]], scope=session.scope
    )
    return logits.reshape(NUM_GROUPS, GROUP_SIZE).astype("float64")


def listwise(scores: np.ndarray) -> list[float]:
    """Compute each group's loss by its definition, minus the log of a share of exponentials (Cao et al., 2007)."""
    return [-math.log(math.exp(row[0]) / sum(math.exp(score) for score in row)) for row in scores.tolist()]


@pytest.mark.parametrize("unpad", [False, True])
@pytest.mark.parametrize("precision", [tiny.FLOAT32, tiny.FLOAT16], ids=["float32", "float16"])
def test_the_loss_is_the_mean_of_the_groups_in_any_number_of_micro_batches(precision, unpad):
    scores = scores_before_training()
    losses, first = listwise(scores), (scores.argmax(axis=1) == 0).sum()
    assert np.std(losses) > 0.003, "groups that could not be told apart"
    for number in (1, 2):
        _, sums = update(number, precision=precision, unpad=unpad)
        assert sums["loss"] / number == pytest.approx(np.mean(losses), abs=1e-5)
        assert (sums["correct"], sums["groups"]) == (first, NUM_GROUPS)


def test_two_micro_batches_make_the_update_of_one():
    (whole, _), (halves, _) = update(1), update(2)
    assert tiny.relative_difference(parameters(halves), parameters(whole)) < 1e-5
    assert abs(halves.read("classifier.bias")).max() < 1e-5


WORDS = "abcdefghijk"
VOCABULARY = (*SPECIAL_TOKENS, *WORDS)
ID = {token: number for number, token in enumerate(VOCABULARY)}
MODEL = tiny.MODEL.model_copy(update={"vocab_size": len(VOCABULARY)})
PAIRS = [
    {"query": "a b", "passage": "a b c", "negatives": ["d", "e", "f"]},
    {"query": "c", "passage": "c d", "negatives": ["a b c"]},
    {"query": "e", "passage": "f", "negatives": []},
    {"query": "g h", "passage": "g", "negatives": ["h i", "j"]},
]
CANDIDATES = [
    {"query": "a", "candidates": ["b", "a", "c"], "relevant": [False, True, False], "scores": [3, 2, 1]},
    {"query": "b", "candidates": ["c", "b"], "relevant": [True, False], "scores": [2, 1.5]},
    {"query": "d", "candidates": ["a"], "relevant": [False], "scores": [0.5]},
]


def config_of(folder, **data) -> RerankerConfig:
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    for name, rows in (("negatives", PAIRS), ("candidates", CANDIDATES)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = {"train_file": folder / "negatives.jsonl", "eval_file": folder / "candidates.jsonl"}
    data = {"vocab_file": folder / "vocab.txt", **files, "max_seq_length": 16, "num_negatives": 2, "depth": 3, **data}
    return RerankerConfig(
        model=MODEL,
        data=data,
        run={"do_train": True, "do_eval": True, "epochs": 1, "output_dir": folder / "out", "bert_model": "bert-test"},
        batch={"batch_size": 2},
        hardware={"device": "cpu", "visualdl": False},
    )


def texts_of(feed) -> list[str]:
    rows = zip(feed["input_ids"].tolist(), feed["attention_mask"].tolist(), strict=True)
    return [" ".join(VOCABULARY[token] for token, is_real in zip(*row, strict=True) if is_real) for row in rows]


def test_a_group_is_the_passage_and_the_next_negatives_of_each_epoch(tmp_path):
    task = RerankingTask(config_of(tmp_path))
    table, counts = task.features(task.training, training=True)
    assert "left out: pairs without a negative: 1" in task.notes and counts["pairs"] == len(table) == 3
    first = table.groups(np.array([0, 1]), np.array([0, 0]))
    assert texts_of(first.feed(np.arange(6), 8, with_labels=False)) == [
        "[CLS] a b [SEP] a b c [SEP]",
        "[CLS] a b [SEP] d [SEP]",
        "[CLS] a b [SEP] e [SEP]",
        "[CLS] c [SEP] c d [SEP]",
        "[CLS] c [SEP] a b c [SEP]",  # its one negative, twice
        "[CLS] c [SEP] a b c [SEP]",
    ]
    second = table.groups(np.array([0]), np.array([1]))
    assert texts_of(second.feed(np.arange(3), 8, with_labels=False))[1:] == [
        "[CLS] a b [SEP] f [SEP]",
        "[CLS] a b [SEP] d [SEP]",
    ]
    feed = second.feed(np.arange(3), 8, with_labels=False)
    assert feed["token_type_ids"][0].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    short = RerankingTask(config_of(tmp_path, max_seq_length=8)).features(task.training, training=True)[0]
    assert texts_of(short.groups(np.array([0]), np.array([0])).feed(np.arange(3), 8, with_labels=False))[0] == (
        "[CLS] a b [SEP] a b c [SEP]"
    )


def test_ranks_share_whole_groups_of_a_global_batch(tmp_path):
    task = RerankingTask(config_of(tmp_path))
    table, _ = task.features(task.training, training=True)

    def sequences(world_size: int, size: int) -> list[str]:
        loaders = [
            GroupLoader(
                table, global_batch_size=4, micro_batch_size=size, rank=rank, world_size=world_size, max_seq_length=16
            )
            for rank in range(world_size)
        ]
        steps = 4 // size // world_size
        feeds = [loader.micro_batch(1, step).feed for step in range(steps) for loader in loaders]
        return [text for feed in feeds for text in texts_of(feed)]

    whole = sequences(1, 4)
    assert len(whole) == 12 and len(set(whole)) > 4
    assert whole == sequences(1, 2) == sequences(2, 2) == sequences(2, 1)


def test_the_order_is_measured_alone_and_weighted_with_the_first_stage(tmp_path):
    task = RerankingTask(config_of(tmp_path))
    part = task.evaluated[0]
    examples = task.read(part)
    table, counts = task.features(examples)
    assert len(table) == counts["pairs"] == 6
    assert examples.is_candidate.tolist() == [[True] * 3, [True, True, False], [True, False, False]]
    features = Features(examples, table, counts)
    logits = np.array([[0], [1], [0.5], [1], [0], [7]], "float32")
    decoded = task.decode(features, {"logits": logits})
    assert decoded.tolist() == [[0, 1, 0.5], [1, 0, 0], [7, 0, 0]]
    task.learn_to_decode(features, {"logits": logits})
    figures = task.score(part, features, decoded)
    beside = task.baseline(features, decoded)
    assert beside["eval_first_stage_mrr_at_10"] == pytest.approx((1 / 2 + 1) / 3)
    assert beside["eval_reranker_alone_mrr_at_10"] == pytest.approx((1 + 1) / 3)
    # Of each half the other half's weight, 0.5, puts `a` before `b`: (0 + 1.22) / 2 against (1.22 - 1.22) / 2.
    assert figures["eval_mrr_at_10"] == pytest.approx((1 + 1) / 3)
    assert task.usage().reranking == RerankingForm(0.0, 3), "three queries do not decide"
    figures = task.baseline(features, -decoded)
    assert figures["eval_reranker_weight"] == 0 and "Do not use the reranker" in figures["verdict"]


def test_recall_is_of_all_answers_also_of_those_that_are_no_candidates(tmp_path):
    config = config_of(tmp_path)
    rows = [{**row, "answers": number} for row, number in zip(CANDIDATES, (2, 1, 30), strict=True)]
    (tmp_path / "candidates.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = RerankingTask(config)
    examples = task.read(task.evaluated[0])
    features = Features(examples, *task.features(examples))
    figures = task.baseline(features, examples.scores)
    assert figures["eval_first_stage_recall_at_10"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert figures["eval_first_stage_mrr_at_10"] == pytest.approx((1 / 2 + 1) / 3), "as without them"


def test_the_scores_get_a_weight_where_they_help_beyond_the_margin(tmp_path):
    """The first stage has the answer third of three, the reranker first, for all queries but one."""
    config = config_of(tmp_path)
    rows = [
        {"query": "a", "candidates": ["b", "c", "d"], "relevant": [False, False, True], "scores": [3, 2.9, 2.8]}
    ] * 40
    (tmp_path / "candidates.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = RerankingTask(config)
    examples = task.read(task.evaluated[0])
    features = Features(examples, *task.features(examples))
    logits = np.tile(np.array([[0], [1], [9]], "float32"), (40, 1))
    logits[:3] = [[9], [1], [0]]
    task.learn_to_decode(features, {"logits": logits})
    assert 0.5 < task.usage().reranking.weight <= 1
    figures = task.baseline(features, task.decode(features, {"logits": logits}))
    assert "The reranked order is better than the order of the first stage on 40 queries" in figures["verdict"]
    assert figures["eval_reranker_weight"] == task.usage().reranking.weight

"""`--batch-size-warmup-*`: the batch grows by whole multiples; samples, gradients, logs and a resume follow it."""

from unittest import mock

import numpy as np
import pytest

from bert.checkpoints.directories import CheckpointError
from bert.config.batch_settings import BatchSchedule, PretrainingBatchSettings
from bert.config.training_settings import derive
from bert.planning.hardware import parse_hardware
from bert.planning.planner import make_plan
from bert.pretraining.entry import dry_run_report
from bert.samples.dataset import PretrainingDataset
from bert.samples.loader import PretrainingLoader
from bert.samples.settings import LoaderSettings
from tests.support import runs, tiny
from tests.support.corpora import random_table, vocabulary, write_shards

SCHEDULE = BatchSchedule(12, 4, 2)  # 4, 4, 8, 8, 12 ...
WARMUP = {"batch_size": 4, "global_batch_size": 12, "batch_size_warmup_min_size": 4, "batch_size_warmup_sequences": 25}


@pytest.mark.parametrize("schedule", [SCHEDULE, BatchSchedule(4608, 768, 3), BatchSchedule(7)])
def test_sequences_and_updates_are_counted_as_they_come(schedule):
    total = 0
    for step in range(40):
        assert schedule.sequences(step) == total
        assert [schedule.steps(total + more) for more in (0, 0.5)] == [step, step]
        total += schedule.batch_size(step)
        assert schedule.steps(total - 0.5) == step
    assert schedule.batch_size(40) == schedule.full


def test_modernberts_published_warmup():
    """The warm-up reads 50 billion tokens of sequences of 1,024, from 768 to 4,608, with equal updates at each size."""
    sizes = {"batch_size": 96, "global_batch_size": 4608, "batch_size_warmup_min_size": 768}
    schedule = PretrainingBatchSettings(**sizes, batch_size_warmup_sequences=48_828_125).schedule(8)
    assert schedule == BatchSchedule(4608, 768, 4239) and schedule.warmup_steps() == 5 * 4239


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"batch_size_warmup_sequences": None}, "batch_size_warmup_min_size=4 and .*=None belong together"),
        ({"batch_size_warmup_min_size": 6}, r"min_size=6 must be a multiple of batch_size x world_size = 4 x 1 = 4"),
        ({"batch_size_warmup_min_size": 8}, "=8 must be .*, and the global batch, 12, a larger multiple of it"),
        ({"batch_size_warmup_min_size": 12}, "a larger multiple of it; change --batch-size-warmup-min-size"),
        ({"batch_size_warmup_sequences": 5}, "batch_size_warmup_sequences=5 must be at least 12 for an update of each"),
        ({"group_by_length": True}, "group_by_length=True has a fixed number of sequences .* or the warm-up"),
        ({"data_loader": "lddl", "masking": "static"}, "data_loader=lddl has a fixed number"),
        ({"fleet_strategies": "amp,gradient_merge"}, "fleet_strategies=amp,gradient_merge has a fixed number"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, changes, rule):
    with pytest.raises(ValueError, match=rule):
        tiny.pretraining_config(tmp_path, **{**WARMUP, **changes}).batch.schedule(1)


def loader(folder, **batches) -> PretrainingLoader:
    settings = LoaderSettings(max_seq_length=16, max_predictions_per_seq=3, masking="dynamic", num_workers=0)
    data = PretrainingDataset(folder / "shards", vocabulary(), settings, seed=1)
    return PretrainingLoader(data, micro_batch_size=4, **batches)


@pytest.fixture
def shards(tmp_path):
    write_shards(tmp_path / "shards", [random_table(60, 1, longest=12)])
    return tmp_path


def test_updates_take_the_samples_one_after_the_other(shards):
    growing, steady = (loader(shards, global_batch_size=12, schedule=SCHEDULE), loader(shards, global_batch_size=4))
    found = [growing.sample_ids(index) for index in range(9)]
    assert [len(ids) for ids in found] == [4, 4, 8, 8, 12, 12, 12, 12, 12]
    expected = [steady.sample_ids(index) for index in range(sum(map(len, found)) // 4)]
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(expected))
    assert [growing.epoch(index) for index in range(9)] == [0] * 7 + [1] * 2  # of 60 samples
    batches = growing.batches(3)
    counts = [
        (batch.num_micro_steps, len(list(batch.micro_batches))) for batch, _ in zip(batches, range(2), strict=False)
    ]
    batches.close()
    assert counts == [(2, 2), (3, 3)]
    assert growing._dataset.epochs(5, SCHEDULE) == 36 / 60


@pytest.mark.long
def test_a_resumed_warmup_is_the_uninterrupted_one_and_begins_as_a_run_of_small_batches(shards):
    model = tiny.MODEL.model_copy(update={"vocab_size": len(vocabulary())})
    config = tiny.pretraining_config(shards, model=model, max_steps=6, **WARMUP)

    def trained(name, last_step, batches, **changes):
        with mock.patch.object(tiny, "updates", lambda step, micro_steps, change: batches.batches(step)):
            return runs.run(derive(config, output_dir=shards / name, **changes), last_step)

    growing = loader(shards, global_batch_size=12, schedule=SCHEDULE)
    whole = trained("whole", 6, growing)
    first = trained("parts", 2, growing)
    resume = {"from_checkpoint": shards / "parts", "last_step_of_checkpoint": "auto"}
    parts = trained("parts", 6, growing, **resume)
    tiny.assert_identical(parts.parameters, whole.parameters)
    tiny.assert_identical(parts.optimizer_state, whole.optimizer_state)
    assert parts.outcome.metrics["step_samples"] == 12 and parts.outcome.totals.sequences == 4 + 4 + 8 + 8 + 12 + 12
    with pytest.raises(CheckpointError, match="batch_size_warmup_sequences is 25 in the checkpoint, 50 in this run"):
        trained("parts", 6, growing, **resume, batch_size_warmup_sequences=50)

    small = {"global_batch_size": 4, "batch_size_warmup_min_size": None, "batch_size_warmup_sequences": None}
    plain = trained("small", 2, loader(shards, global_batch_size=4), **small)
    for name in ("loss", "gradient_norm", "learning_rate", "step_samples"):
        assert first.outcome.metrics[name] == pytest.approx(plain.outcome.metrics[name], rel=1e-4), name


def test_the_plan_and_epochs_count_the_smaller_updates(shards):
    config = tiny.pretraining_config(shards, input_dir=shards / "shards", max_steps=-1, epochs=1, **WARMUP)
    assert config.with_steps(60, 1).run.max_steps == 7
    text = " ".join(dry_run_report(derive(config, epochs=None, max_steps=7), 1).split())
    assert "; the first 4 grow by 4 from 4, with 2 of each size, 24 sequences in all" in text
    plans = [
        make_plan(derive(config, epochs=None, max_steps=steps), parse_hardware("1xA100-80GB")) for steps in (5, 500)
    ]
    assert [plan.warmup_share for plan in plans] == [36 / 60, pytest.approx(1 - 24 / 6000)]
    few, many = (plan.seconds() / plan.max_steps for plan in plans)
    assert few < many < plans[0].update.total()
    assert "7 updates, 60 sequences" in text and "1.00 epochs over 60 samples" in text

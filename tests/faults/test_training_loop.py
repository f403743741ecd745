"""Faults of the loop and the loader, injected in this process: sample order, workers, overflows, spikes, drift.

Rows 14 to 17 and 20 of the fault matrix (tests/README.md).
"""

import random
import threading
import time
import zlib
from dataclasses import replace

import numpy as np
import pytest

from bert.checkpoints.directories import list_steps
from bert.checkpoints.progress import LoopState, SpikeState
from bert.config.optimizer_settings import PrecisionSettings
from bert.training.device_guards import RankGuard, RanksDiffer
from bert.training.loss_guards import TrainingDiverged
from tests.faults.trainings import Data, loader, make_data
from tests.support import runs, tiny
from tests.support.full_counts import times

GLOBAL_BATCH = 16


def global_batches(data: Data, first: int, last: int, world_size: int, workers: int, micro: int) -> list[list]:
    """Return the sorted token ids of every sequence that all ranks read in the global batches first .. last - 1."""
    found: list[list[list[int]]] = [[] for _ in range(first, last)]
    for rank in range(world_size):
        batches = loader(data.folder, world_size, rank, workers, GLOBAL_BATCH, micro).batches(first)
        for mine, batch in zip(found, batches, strict=False):
            for feed in (micro_batch.feed for micro_batch in batch.micro_batches):
                rows = zip(feed["input_ids"], feed["attention_mask"], strict=True)
                mine.extend(ids[: mask.sum()].tolist() for ids, mask in rows)
        batches.close()
    return [sorted(mine) for mine in found]


def test_a_stop_under_other_ranks_and_workers_loses_and_doubles_no_sample(tmp_path):
    """Row 14: a run stops anywhere and continues with other ranks and workers; every update has its samples."""
    data, chance, last = make_data(tmp_path), random.Random(1014), 40
    expected = global_batches(data, 0, last, 1, 0, GLOBAL_BATCH)  # two epochs of 18 batches, and a part
    for _ in range(times(8, 100)):
        stop = chance.randrange(1, 36)
        legs = [(chance.choice([1, 2, 4]), chance.choice([0, 1, 4])) for _ in range(2)]
        micros = [chance.choice([m for m in (1, 2, 4, 8, 16) if m * world <= GLOBAL_BATCH]) for world, _ in legs]
        found = global_batches(data, 0, stop, *legs[0], micros[0])
        found += global_batches(data, stop, last, *legs[1], micros[1])
        differing = [step for step in range(last) if found[step] != expected[step]]
        assert not differing, (
            f"stop at {stop}, ranks and workers {legs}, micro-batches of {micros}: updates {differing}"
        )


def test_a_worker_of_the_loader_that_fails_is_heard_at_once_and_leaves_no_thread(tmp_path):
    """Row 15. Workers are threads: they cannot be killed or stopped but with their process (rows 1 and 18)."""
    data, chance = make_data(tmp_path), random.Random(1015)
    for _ in range(times(10, 20)):
        workers, fails_at = chance.choice([1, 2, 4]), chance.randrange(20)
        one = loader.__wrapped__(data.folder, 1, 0, workers, GLOBAL_BATCH, 4)
        calls, real = iter(range(10**6)), one.micro_batch

        def micro_batch(index, step, real=real, calls=calls, fails_at=fails_at):
            if next(calls) == fails_at:
                raise OSError(5, "Input/output error", "shard-1.parquet")
            return real(index, step)

        one.micro_batch = micro_batch
        begin, batches = time.monotonic(), one.batches(0)
        with pytest.raises(OSError, match=r"shard-1\.parquet"):
            for _, batch in zip(range(10), batches, strict=False):
                list(batch.micro_batches)
        batches.close()
        assert time.monotonic() - begin < 30
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("batches")]


PRECISIONS = {
    "float32": tiny.FLOAT32,
    "bfloat16": PrecisionSettings(amp=True, amp_dtype="bfloat16"),
    "float16": PrecisionSettings(amp=True, scale_loss=4.0),
}


@pytest.mark.long
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_gradient_that_is_not_finite_moves_no_variable(precision):
    """Row 16: one micro-step of an update has NaN or Inf."""
    chance = random.Random(precision)
    for number in range(times(1, 17)):
        micro_steps, optimizer = (1, 2)[number % 2], (tiny.LAMB, tiny.STEADY_ADAMW)[number // 2 % 2]
        session = tiny.Session(precision=PRECISIONS[precision], micro_steps=micro_steps, optimizer=optimizer)
        batch = [tiny.feeds(tiny.random_batch(step, 12), micro_steps) for step in range(3)]
        session.update(batch[0])
        before = {**session.parameters(), **session.optimizer_state()}
        damaged, bad = list(batch[1]), chance.randrange(micro_steps)
        weights = damaged[bad]["masked_lm_weights"].copy()
        weights[0] = chance.choice([np.inf, -np.inf, np.nan])
        damaged[bad] = {**damaged[bad], "masked_lm_weights": weights}
        session.update(damaged)
        tiny.assert_identical({**session.parameters(), **session.optimizer_state()}, before)
        assert session.value("skipped_updates") == 1
        session.update(batch[2])
        after = session.parameters()
        assert all(np.isfinite(array).all() for array in after.values())
        assert any(after[name].tobytes() != before[name].tobytes() for name in after), "it stands still"


def test_gradients_that_are_never_finite_again_end_the_run(tmp_path):
    """Row 16: no gradient is finite from step 3 on."""
    config = tiny.pretraining_config(tmp_path, max_consecutive_skipped_steps=4, num_steps_per_checkpoint=2)
    with pytest.raises(TrainingDiverged, match="the last 4 updates had NaN or Inf gradients"):
        runs.run(config, 20, change=lambda step, feeds: feeds if step < 3 else [tiny.overflowing(feeds[0])])
    assert max(list_steps(config.checkpoint_dir())) <= 6
    assert not [thread for thread in threading.enumerate() if thread.name == "checkpoint"], "a save is in flight"


SPIKES = ("alert", "rollback, interrupted", "rollback of an interval")


def _spiking(at: int):
    def change(step: int, feeds: list[dict]) -> list[dict]:
        if step != at:
            return feeds
        return [{**feed, "masked_lm_weights": feed["masked_lm_weights"] * 100} for feed in feeds]

    return change


@pytest.mark.long
@pytest.mark.parametrize("kind", SPIKES)
def test_a_loss_spike_is_reported_or_rolled_back_exactly(kind, tmp_path):
    """Row 17: the losses of one batch are a hundred times too large."""
    at = random.Random(kind).randrange(12, 16)
    freq = 4 if kind == "rollback of an interval" else 1
    first = at // freq * freq
    settings = {"num_steps_per_checkpoint": 4, "log_freq": freq, "max_steps": 28, "keep_checkpoints": 3}
    if freq > 1:  # five intervals are the least that say what is usual
        at, first, settings["max_steps"] = at + 12, first + 12, 40

    def config(name: str, **more):
        (tmp_path / name).mkdir(exist_ok=True)
        return tiny.pretraining_config(tmp_path / name, model=tiny.MODEL_WITH_DROPOUT, **{**settings, **more})

    end, change, lines = settings["max_steps"], _spiking(at), list[str]()
    if kind == "alert":
        found = runs.run(config("run", loss_spike_factor=3.0), end, change=change)
        plain = runs.run(config("plain", loss_spike_factor=0.0), end, change=change)
        assert (_spikes(found.said), _spikes(plain.said)) == (1, 0), found.said
        tiny.assert_identical(found.parameters, plain.parameters)
        return
    rolling = config("run", loss_spike_action="rollback")
    if kind == "rollback, interrupted":
        lines += runs.run(rolling, at + 2, change=change).said
        rolling = config("run", loss_spike_action="rollback", from_checkpoint=rolling.run.output_dir)
    found = runs.run(rolling, end, change=change)
    lines += found.said
    assert _spikes(lines) == 1 and any("rolled back to step" in line for line in lines), lines
    never = config("never")  # a run that skips these batches from its beginning
    start = runs.fresh_progress(never, carried=LoopState(spikes=SpikeState(skipped_batches=[(first, first + freq)])))
    expected = runs.run(never, end, change=change, start=start)
    tiny.assert_identical(found.parameters, expected.parameters)
    tiny.assert_identical(found.optimizer_state, expected.optimizer_state)


def _spikes(lines: list[str]) -> int:
    return sum("loss spike" in line for line in lines)


class _TwoRanks:
    """Stands in for a collective whose other rank holds the parameters of another session."""

    def __init__(self, mine, other):
        self._mine, self._other = mine, other

    def gather(self, values):
        names = self._mine.program.parameters
        return np.stack([values, [zlib.crc32(self._other.read(name).tobytes()) for name in names]])


def test_one_bit_of_a_parameter_of_another_rank_is_named():
    """Row 20 of the fault matrix in tests/README.md."""
    mine, other, chance = tiny.Session(), tiny.Session(), random.Random(1020)
    device = replace(mine.device(), group=replace(tiny.ONE_RANK, world_size=2), collective=_TwoRanks(mine, other))
    for _ in range(times(20, 100)):
        name = chance.choice(mine.program.parameters)
        whole = other.read(name)
        RankGuard(mine.program, device, 1).check(0)
        damaged = whole.copy()
        bits = damaged.view("uint32").reshape(-1)
        bits[chance.randrange(len(bits))] ^= np.uint32(1 << chance.randrange(32))
        other.write(name, damaged)
        with pytest.raises(RanksDiffer) as error:
            RankGuard(mine.program, device, 1).check(7)
        assert "at step 7" in str(error.value) and name in str(error.value)
        other.write(name, whole)

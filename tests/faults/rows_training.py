"""Rows about the loop and the loader, in this process: order of samples, workers, overflows, spikes, drift."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.faults.harness import Row, Trials
from tests.faults.trainings import Data, loader, make_data

GLOBAL_BATCH = 16


def global_batches(data: Data, first: int, last: int, world_size: int, workers: int, micro: int) -> list[list]:
    """The token ids of every sequence that all ranks together read of the global batches first .. last - 1, sorted."""
    found: list[list[list[int]]] = [[] for _ in range(first, last)]
    for rank in range(world_size):
        batches = loader(data.folder, world_size, rank, workers, GLOBAL_BATCH, micro).batches(first)
        for mine, batch in zip(found, batches, strict=False):
            for feed in (micro_batch.feed for micro_batch in batch.micro_batches):
                rows = zip(feed["input_ids"], feed["attention_mask"], strict=True)
                mine.extend(ids[: mask.sum()].tolist() for ids, mask in rows)
        batches.close()
    return [sorted(mine) for mine in found]


def elastic_order(trials: Trials) -> None:
    """Stop anywhere under some ranks and workers, go on under others: nothing is lost, doubled or in another update."""
    data = make_data(trials.folder)
    expected = global_batches(data, 0, 40, 1, 0, GLOBAL_BATCH)  # two epochs of 18 batches, and a part
    for _ in range(trials.count):
        stop, last = trials.random.randrange(1, 36), 40
        legs = [(trials.random.choice([1, 2, 4]), trials.random.choice([0, 1, 4])) for _ in range(2)]
        micros = [trials.random.choice([m for m in (1, 2, 4, 8, 16) if m * world <= GLOBAL_BATCH]) for world, _ in legs]
        with trials.trial(f"stop at {stop}, ranks and workers {legs}, micro-batches of {micros}"):
            found = global_batches(data, 0, stop, *legs[0], micros[0]) + global_batches(
                data, stop, last, *legs[1], micros[1]
            )
            for step, (one, other) in enumerate(zip(found, expected, strict=True)):
                assert one == other, f"global batch {step} differs"


def workers_that_fail(trials: Trials) -> None:
    """A thread that reads ahead raises: the loop hears of it at once, and no thread is left."""
    data = make_data(trials.folder)
    trials.note("workers are threads: they cannot be killed or stopped but with their process (rows 1, 18)")
    for number in range(trials.count):
        workers, fails_at = trials.random.choice([1, 2, 4]), trials.random.randrange(20)
        one = loader.__wrapped__(data.folder, 1, 0, workers, GLOBAL_BATCH, 4)
        calls, real = iter(range(10**6)), one.micro_batch

        def micro_batch(index, step, real=real, calls=calls, fails_at=fails_at):
            if next(calls) == fails_at:
                raise OSError(5, "Input/output error", "shard-1.parquet")
            return real(index, step)

        one.micro_batch = micro_batch
        with trials.trial(f"{number}: {workers} workers, the read {fails_at} fails"):
            begin, heard = time.monotonic(), False
            batches = one.batches(0)
            try:
                for _, batch in zip(range(10), batches, strict=False):
                    list(batch.micro_batches)
            except OSError as error:
                heard = "shard-1.parquet" in str(error)
            batches.close()
            assert heard, "nobody was told"
            assert time.monotonic() - begin < 30
            assert not [thread for thread in threading.enumerate() if thread.name.startswith("batches")]


def overflows(trials: Trials) -> None:
    """NaN or Inf in one micro-step of an update, in float32, bfloat16 and float16: no variable of the model moves."""
    from bert.config.training_settings import PrecisionSettings
    from tests.support import tiny

    precisions = [
        tiny.FLOAT32,
        PrecisionSettings(amp=True, amp_dtype="bfloat16"),
        PrecisionSettings(amp=True, scale_loss=4.0),
    ]
    for number in range(trials.count):
        precision, micro_steps = precisions[number % 3], (1, 2)[number // 3 % 2]
        optimizer = (tiny.LAMB, tiny.STEADY_ADAMW)[number // 6 % 2]
        bad, value = trials.random.randrange(micro_steps), trials.random.choice([np.inf, -np.inf, np.nan])
        name = f"{precision.amp_dtype if precision.amp else 'float32'}, micro-batch {bad + 1} of {micro_steps}, {value}"
        with trials.trial(name):
            session = tiny.Session(precision=precision, micro_steps=micro_steps, optimizer=optimizer)
            batch = [tiny.feeds(tiny.random_batch(step, 12), micro_steps) for step in range(3)]
            session.update(batch[0])
            before = {**session.parameters(), **session.optimizer_state()}
            damaged = list(batch[1])
            weights = damaged[bad]["masked_lm_weights"].copy()
            weights[0] = value
            damaged[bad] = {**damaged[bad], "masked_lm_weights": weights}
            session.update(damaged)
            tiny.assert_identical({**session.parameters(), **session.optimizer_state()}, before)
            assert session.value("skipped_updates") == 1
            session.update(batch[2])
            after = session.parameters()
            assert all(np.isfinite(array).all() for array in after.values())
            assert any(after[name].tobytes() != before[name].tobytes() for name in after), "it stands still"
    _persistent_overflow(trials)


def _persistent_overflow(trials: Trials) -> None:
    from bert.checkpoints.directories import list_steps
    from bert.training.loss_guards import TrainingDiverged
    from tests.support import runs, tiny

    folder = trials.folder / "persistent"
    folder.mkdir()
    config = tiny.pretraining_config(folder, max_consecutive_skipped_steps=4, num_steps_per_checkpoint=2)
    with trials.trial("every update from step 3 on"):
        try:
            runs.run(config, 20, change=lambda step, feeds: feeds if step < 3 else [tiny.overflowing(feeds[0])])
        except TrainingDiverged as error:
            assert "the last 4 updates had NaN or Inf gradients" in str(error)
        else:
            raise AssertionError("it went on for ever")
        assert max(list_steps(config.checkpoint_dir())) <= 6
        assert not [thread for thread in threading.enumerate() if thread.name == "checkpoint"], "a save is in flight"


SPIKES = ("alert", "rollback", "rollback, interrupted", "rollback of an interval", "off")


def _spiking(at: int):
    def change(step: int, feeds: list[dict]) -> list[dict]:
        if step != at:
            return feeds
        return [{**feed, "masked_lm_weights": feed["masked_lm_weights"] * 100} for feed in feeds]

    return change


def spikes(trials: Trials) -> None:
    """The losses of one batch are a hundred times too large."""
    for number, kind in enumerate(trials.cases(SPIKES)):
        folder = trials.folder / str(number)
        folder.mkdir()
        with trials.trial(kind):
            _spike(kind, trials.random.randrange(12, 16), folder)


def _spike(kind: str, at: int, folder: Path) -> None:
    from bert.checkpoints.progress import LoopState, SpikeState
    from tests.support import runs, tiny

    freq = 4 if kind == "rollback of an interval" else 1
    first = at // freq * freq
    settings = {"num_steps_per_checkpoint": 4, "log_freq": freq, "max_steps": 28, "keep_checkpoints": 3}
    if freq > 1:  # five intervals are the least that say what is usual
        at, first, settings["max_steps"] = at + 12, first + 12, 40

    def config(name: str, **more):
        (folder / name).mkdir(exist_ok=True)
        return tiny.pretraining_config(folder / name, model=tiny.MODEL_WITH_DROPOUT, **{**settings, **more})

    end, change, lines = settings["max_steps"], _spiking(at), list[str]()
    if kind in ("off", "alert"):
        factor = 3.0 if kind == "alert" else 0.0
        found = runs.run(config("run", loss_spike_factor=factor), end, change=change)
        plain = runs.run(config("plain", loss_spike_factor=0.0), end, change=change)
        assert _spikes(found.said) == (1 if kind == "alert" else 0), found.said
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
    """A collective whose other rank holds the parameters of another session."""

    def __init__(self, mine, other):
        self._mine, self._other = mine, other

    def gather(self, values):
        import zlib

        names = self._mine.program.parameters
        return np.stack([values, [zlib.crc32(self._other.read(name).tobytes()) for name in names]])


def drifting_ranks(trials: Trials) -> None:
    """One bit of one parameter of another rank: the comparison names it."""
    from bert.training.device_guards import RankGuard, RanksDiffer
    from tests.support import tiny

    mine, other = tiny.Session(), tiny.Session()
    device = replace(mine.device(), group=replace(tiny.ONE_RANK, world_size=2), collective=_TwoRanks(mine, other))
    for _ in range(trials.count):
        name = trials.random.choice(mine.program.parameters)
        whole = other.read(name)
        with trials.trial(name):
            RankGuard(mine.program, device, 1).check(0)
            damaged = whole.copy()
            bits = damaged.view("uint32").reshape(-1)
            bits[trials.random.randrange(len(bits))] ^= np.uint32(1 << trials.random.randrange(32))
            other.write(name, damaged)
            try:
                RankGuard(mine.program, device, 1).check(7)
            except RanksDiffer as error:
                assert "at step 7" in str(error) and name in str(error), error
            else:
                raise AssertionError("the drift was not seen")
        other.write(name, whole)


ROWS = [
    Row(
        14,
        "other numbers of ranks (1, 2, 4) and workers (0, 1, 4) after a stop at a random step",
        "no sample lost, doubled or in another update",
        elastic_order,
        (8, 100),
        ("ranks have shares of their own",),
    ),
    Row(
        15,
        "a loader's worker fails",
        "error at once, no thread left",
        workers_that_fail,
        (10, 20),
        ("errors of workers are dropped",),
    ),
    Row(
        16,
        "NaN or Inf in one micro-step, or persistent; float32, bfloat16, float16",
        "no variable moves, counted; abort after K",
        overflows,
        (3, 50),
        ("no guard against overflows",),
    ),
    Row(17, "loss spike x 100", "alert or roll back, as configured, exactly", spikes, (1, 5), ("spikes are not seen",)),
    Row(
        20,
        "one bit of one rank's parameters drifts",
        "the checksum trips and names it",
        drifting_ranks,
        (20, 100),
        ("checksums are constant",),
    ),
]

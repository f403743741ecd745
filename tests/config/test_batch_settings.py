"""The batch size of every update, compared with a list counted by hand."""

import re

import pytest

from bert.config.batch_settings import BatchSchedule, PretrainingBatchSettings


def sizes_of_updates(full: int, smallest: int, updates: int) -> list[int]:
    """List the batch size of every update: each size below the full one for some updates, then a few full updates."""
    return [size for size in range(smallest, full, smallest) for _ in range(updates)] + [full] * 4


@pytest.mark.parametrize(("full", "smallest", "updates"), [(20, 4, 3), (6, 3, 1), (9, 3, 2), (7, 1, 2)])
def test_a_batch_that_warms_up_has_as_many_updates_at_each_size(full, smallest, updates):
    schedule, sizes = BatchSchedule(full, smallest, updates), sizes_of_updates(full, smallest, updates)
    assert schedule.unit() == smallest
    assert schedule.warmup_steps() == len(sizes) - 4
    assert [schedule.batch_size(step) for step in range(len(sizes))] == sizes
    totals = [sum(sizes[:step]) for step in range(len(sizes) + 1)]
    assert [schedule.sequences(step) for step in range(len(sizes) + 1)] == totals
    for sequences in range(totals[-1]):
        whole = max(step for step, total in enumerate(totals) if total <= sequences)
        assert schedule.steps(sequences) == schedule.steps(sequences + 0.9) == whole


def test_a_batch_without_warmup_is_always_full():
    schedule = BatchSchedule(13)
    assert (schedule.unit(), schedule.warmup_steps()) == (13, 0)
    assert [schedule.batch_size(step) for step in (0, 5)] == [13, 13]
    assert [schedule.sequences(step) for step in (0, 1, 5)] == [0, 13, 65]
    assert [schedule.steps(sequences) for sequences in (0, 12.9, 13, 38, 39)] == [0, 0, 1, 2, 3]


def warming(sequences: int, smallest: int = 8, **changes) -> PretrainingBatchSettings:
    settings = {"batch_size": 4, "global_batch_size": 40, **changes}
    return PretrainingBatchSettings(
        batch_size_warmup_min_size=smallest, batch_size_warmup_sequences=sequences, **settings
    )


@pytest.mark.parametrize(("sequences", "updates"), [(80, 1), (119, 1), (121, 2), (230, 3), (240, 3), (41, 1)])
def test_the_updates_at_each_size_are_the_nearest_to_the_sequences_of_the_warmup(sequences, updates):
    """One update at each of 8, 16, 24 and 32 sequences reads 80 sequences."""
    settings = warming(sequences)
    assert settings.warms_up() and not PretrainingBatchSettings().warms_up()
    assert settings.schedule(world_size=2) == BatchSchedule(40, 8, updates)


@pytest.mark.parametrize(
    ("settings", "world_size", "text"),
    [
        (
            warming(80, smallest=6),
            1,
            "batch_size_warmup_min_size=6 must be a multiple of batch_size x world_size = 4 x 1",
        ),
        (warming(80, smallest=16), 1, "and the global batch, 40, a larger multiple of it"),
        (warming(80, smallest=40), 1, "and the global batch, 40, a larger multiple of it"),
        (
            warming(80, smallest=30, global_batch_size=60),
            5,
            "must be a multiple of batch_size x world_size = 4 x 5 = 20",
        ),
        (warming(39), 1, "batch_size_warmup_sequences=39 must be at least 80 for an update of each size"),
    ],
    ids=lambda value: "" if isinstance(value, PretrainingBatchSettings) else str(value)[:20],
)
def test_a_warmup_that_does_not_divide_the_batch_is_refused(settings, world_size, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        settings.schedule(world_size)


@pytest.mark.parametrize("name", ["batch_size_warmup_min_size", "batch_size_warmup_sequences"])
def test_half_of_a_warmup_is_refused(name):
    with pytest.raises(ValueError, match=f"{name}=8.* belong together"):
        PretrainingBatchSettings(**{name: 8})


@pytest.mark.parametrize("name", ["batch_size", "gradient_merge_steps", "global_batch_size"])
def test_a_count_of_the_batch_is_at_least_one(name):
    assert getattr(PretrainingBatchSettings(**{name: 1}), name) == 1
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        PretrainingBatchSettings(**{name: 0})

"""Noticing a loss that jumps, and remembering it across a resume."""

import math

import pytest

from bert.training.spike_detection import LEAST, WINDOW, SpikeGuard


def feed(guard: SpikeGuard, losses, first: int = 0, size: int = 10):
    """One observation for each interval of `size` updates."""
    return [
        guard.observe(first + number * size, first + (number + 1) * size, loss * size, size, complete=True)
        for number, loss in enumerate(losses)
    ]


def test_a_jump_over_the_factor_is_a_spike_and_names_its_updates():
    found = feed(SpikeGuard(3.0), [10, 9, 8, 7, 6, 25, 5])
    assert [spike is not None for spike in found] == [False] * 5 + [True, False]
    spike = found[5]
    assert (spike.first, spike.last, spike.loss, spike.usual) == (50, 60, 25.0, 8.0)
    assert str(spike) == "loss spike: 25.0000 in the updates of steps 51-60, 3.1 times the usual 8.0000"


def test_what_is_usual_does_not_follow_a_spike():
    assert [spike is not None for spike in feed(SpikeGuard(3.0), [1] * 5 + [9] * 30)] == [False] * 5 + [True] * 30


@pytest.mark.parametrize("losses", [[1] * (LEAST - 1) + [100], [1, 2.9, 1, 2.9, 1, 2.9], [0.0] * 9, [math.nan] * 9])
def test_too_little_to_say_and_ordinary_noise_are_none(losses):
    assert not any(feed(SpikeGuard(3.0), losses))


def test_a_factor_of_0_is_off():
    assert not any(feed(SpikeGuard(0), [1] * 9 + [1000]))


def test_an_interval_that_an_interruption_cut_is_judged_as_a_whole():
    guard = SpikeGuard(3.0)
    feed(guard, [1] * 5)
    assert guard.observe(50, 54, 4 * 1.0, 4, complete=False) is None
    resumed = SpikeGuard(3.0, guard.carried())
    spike = resumed.observe(54, 60, 6 * 10.0, 6, complete=True)
    assert spike is not None and (spike.first, spike.last, spike.loss) == (50, 60, pytest.approx(6.4))


def test_what_is_carried_is_bounded_plain_and_complete():
    import json

    guard = SpikeGuard(3.0)
    feed(guard, [1.0 + number / 100 for number in range(99)])
    guard = guard.restored(guard.carried(), (5, 7))
    carried = json.loads(json.dumps(guard.carried()))
    assert len(carried["losses"]) == WINDOW
    again = SpikeGuard(3.0, carried).restored(carried, (20, 21))
    assert again.carried() == {**guard.carried(), "skipped_batches": [[5, 7], [20, 21]]}
    assert again.restored({}, (5, 7)).carried()["skipped_batches"] == [[5, 7], [20, 21]]
    assert [step for step in range(30) if again.skips(step)] == [5, 6, 20]

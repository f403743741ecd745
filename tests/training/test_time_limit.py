"""Number of updates that fit in a time, compared with a run counted update by update."""

import itertools

import pytest

from bert.training.time_limit import Pause, updates_within

PAUSES = (Pause(10, 4.0), Pause(15, 2.5))


def updates_of_a_simulated_run(seconds: float, seconds_per_update: float, step: int, most: int, pauses) -> int:
    """Make updates one by one, and after each the pauses that are due, until the next update would end too late."""
    passed = 0.0
    for updates in itertools.count():
        if updates == most or passed + seconds_per_update > seconds:
            return updates
        passed += seconds_per_update
        passed += sum(pause.seconds for pause in pauses if (step + updates + 1) % pause.every == 0)


@pytest.mark.parametrize("pauses", [(), PAUSES[:1], PAUSES])
def test_the_updates_that_fit_are_those_of_a_simulated_run(pauses):
    for seconds, speed, step, most in itertools.product((0.0, 0.5, 9.0, 60.25), (0.25, 1.5), (0, 8, 15), (0, 7, 400)):
        expected = updates_of_a_simulated_run(seconds, speed, step, most, pauses)
        assert updates_within(seconds, speed, step, most, pauses) == expected, (seconds, speed, step, most)


def test_no_update_fits_in_a_time_that_is_over():
    assert updates_within(-3.0, 1.0, 5, 100) == 0 == updates_within(float("-inf"), 1.0, 5, 100, PAUSES)

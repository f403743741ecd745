"""The length of a training on own text: updates, time, and whether it is reached."""

import pytest

from bert.own_text import constants
from bert.own_text.length import Length


def test_one_length_is_given():
    with pytest.raises(ValueError, match="--hours=1 and --epochs=2 both decide how long to train; give one of them"):
        Length(hours=1, epochs=2)
    with pytest.raises(ValueError, match="--epochs=2 and --max-steps=30 both decide"):
        Length(epochs=2, max_steps=30)
    assert Length(hours=1, finish_in=300) == Length(hours=1), "--finish-in is of one start"


def test_the_updates_of_a_run():
    """Those of the passes, or that were given; hours have more than can fit in them."""
    known, unknown = (lambda passes: round(10 * passes)), (lambda passes: None)
    assert Length(max_steps=7).updates(50, 60.0, known) == 7
    assert Length(epochs=2.5).updates(50, 60.0, known) == 25
    assert Length().updates(50, 60.0, known) == 10 * constants.EPOCHS and Length().updates(50, 60.0, unknown) == 50
    assert Length(hours=1).updates(50, 3600.0, known) == 50 * constants.MOST_UPDATES
    assert Length(hours=2).updates(50, 3600.0, known) == 100 * constants.MOST_UPDATES


def test_the_time_that_a_training_has():
    assert Length(hours=1).seconds_left(used=600, end_seconds=10) == 2990
    assert Length().seconds_left(used=600, end_seconds=10) == constants.MOST_HOURS * 3600 - 610
    assert Length(hours=1, finish_in=300).seconds_left(used=5000, end_seconds=10) == 300
    assert Length(epochs=2).seconds_left(0, 10) is None and Length(max_steps=2).seconds_left(0, 10) is None


def test_the_time_that_is_planned():
    """Of a pass of 100 seconds, with 60 seconds for data, start and end."""
    assert Length(epochs=2.5).training_seconds(100, 60) == 250
    assert Length(hours=0.1).training_seconds(100, 60) == 300
    assert Length().training_seconds(100, 60) == 4000 and Length().training_seconds(10_000, 60) == 8 * 3600 - 60
    with pytest.raises(ValueError, match=r"hours=0.01 leave no time .* 1.0 minutes; pass at least --hours 0.04"):
        Length(hours=0.01).training_seconds(100, 60)


@pytest.mark.parametrize(
    ("asked", "finished", "is_reached"),
    [
        (Length(hours=1), None, False),
        (Length(hours=1), Length(hours=2), True),
        (Length(hours=2), Length(hours=1), False),
        (Length(max_steps=9), Length(hours=1), False),
        (Length(), Length(), True),
        (Length(), Length(max_steps=9), True),  # whatever was asked for then
        (Length(hours=1), Length(), False),
    ],
)
def test_a_length_is_reached_by_one_like_it_or_longer(asked, finished, is_reached):
    assert asked.is_reached(finished) is is_reached


def test_twice_as_long():
    assert Length(hours=2).doubled(hours=1.0) == ("--hours", "4") and Length().doubled(0.5) == ("--hours", "1")
    assert Length(epochs=1.5).doubled(0.5) == ("--epochs", "3")
    assert Length(max_steps=20).doubled(0.5) == ("--max-steps", "40")


def test_a_schedule_without_a_stable_rate_needs_updates():
    with pytest.raises(ValueError, match="lr_schedule=linear needs the number of updates, which --hours=1 leaves open"):
        Length(hours=1).refuse_schedule("linear")
    Length().refuse_schedule("linear"), Length(hours=1).refuse_schedule("wsd")

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
    """The number is given, or follows from the passes; with hours it is more than can fit in them."""
    known, unknown = (lambda passes: round(10 * passes)), (lambda passes: None)
    assert Length(max_steps=7).updates(50, 60.0, known) == 7
    assert Length(epochs=2.5).updates(50, 60.0, known) == 25
    assert Length().updates(50, 60.0, known) == 10 * constants.EPOCHS and Length().updates(50, 60.0, unknown) == 50
    assert Length(hours=1).updates(50, 3600.0, known) == 50 * constants.MOST_UPDATES
    assert Length(hours=2).updates(50, 3600.0, known) == 100 * constants.MOST_UPDATES
    assert Length(hours=1).updates(50, 7200.0, known) == 50 * constants.MOST_UPDATES, "of a plan of more hours"
    assert Length(hours=1.0001).updates(1, 3600.0, known) == constants.MOST_UPDATES + 1


def test_the_time_that_a_training_has():
    assert Length(hours=1).seconds_left(used=600, end_seconds=10) == 2990
    assert Length().seconds_left(used=600, end_seconds=10) == constants.MOST_HOURS * 3600 - 610
    assert Length(hours=1, finish_in=300).seconds_left(used=5000, end_seconds=10) == 300
    assert Length(epochs=2).seconds_left(0, 10) is None and Length(max_steps=2).seconds_left(0, 10) is None


@pytest.mark.parametrize(
    ("hours", "slowness", "seconds"),
    [(1, 1.0, 10), (1, 0.5, 10), (1, 3.0, 30), (0.1, 4.0, 40), (0.03, 4.0, 108 / 7), (0.01, 4.0, 10), (None, 4.0, 40)],
)
def test_the_time_that_is_kept_for_the_results(hours, slowness, seconds):
    """The time is ten seconds times the machine's slowness, at most a seventh of all, and at least ten seconds."""
    assert Length(hours=hours).end_seconds(slowness) == pytest.approx(seconds)


def test_the_time_that_is_planned():
    """A pass takes 100 seconds; data, start and end take 60 seconds."""
    assert Length(epochs=2.5).training_seconds(100, 60) == 250
    assert Length(hours=0.1).training_seconds(100, 60) == 300
    assert Length().training_seconds(100, 60) == 4000 and Length().training_seconds(10_000, 60) == 8 * 3600 - 60
    assert Length().training_seconds(100, 8 * 3600 - 2) == 5, "five seconds at least, if no hours were given"
    assert Length(hours=1).training_seconds(1, 3595) == 5
    with pytest.raises(ValueError, match=r"hours=1 leave no time for training: .* pass at least --hours 2$"):
        Length(hours=1).training_seconds(1, 3596)
    with pytest.raises(ValueError, match=r"hours=0.01 leave no time .* 1.0 minutes; pass at least --hours 0.04"):
        Length(hours=0.01).training_seconds(100, 60)


def test_the_hours_of_a_refusal_leave_time_for_another_such_start():
    """1,000 s were used, 100 of them by this start; data, start and end take 200 s: 1,500 s leave one start."""
    with pytest.raises(ValueError) as error:
        Length(hours=0.2).refuse_used_up(used=1000, used_here=100, other_seconds=200)
    assert str(error.value) == (
        "hours=0.2 leave no time for training: 16.7 minutes were used; pass at least --hours 0.42, which continues "
        "with what is there, or --finish-in 5m to end with what was learned"
    )
    assert 0.42 * 3600 - (1000 + 100) >= 2 * 200


@pytest.mark.parametrize(
    ("length", "by_time"),
    [(Length(), True), (Length(hours=1), True), (Length(epochs=1), False), (Length(max_steps=1), False)],
)
def test_without_a_number_of_passes_or_updates_the_time_decides(length, by_time):
    assert length.is_by_time() is by_time


@pytest.mark.parametrize(
    ("asked", "finished", "is_reached"),
    [
        (Length(hours=1), None, False),
        (Length(hours=1), Length(hours=2), True),
        (Length(hours=2), Length(hours=1), False),
        (Length(epochs=2), Length(epochs=2), True),
        (Length(epochs=2), Length(epochs=1.9), False),
        (Length(max_steps=9), Length(max_steps=10), True),
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
    assert Length(hours=0.1).doubled(hours=0.7) == ("--hours", "1.4"), "what was used, if that is more"
    assert Length(epochs=1.5).doubled(0.5) == ("--epochs", "3")
    assert Length(max_steps=20).doubled(0.5) == ("--max-steps", "40")


def test_a_schedule_without_a_stable_rate_needs_updates():
    with pytest.raises(ValueError, match="lr_schedule=linear needs the number of updates, which --hours=1 leaves open"):
        Length(hours=1).refuse_schedule("linear")
    Length().refuse_schedule("linear"), Length(hours=1).refuse_schedule("wsd")

"""How many updates a phase of a pre-training on own text makes: by the time that is left, the epochs, or as given."""

import math

from bert.own_text import rules
from bert.own_text.facts import Wishes
from bert.own_text.plan import TextPlan, phase_shares
from bert.own_text.record import TextRecord
from bert.planning.estimates import training_flops_per_sequence
from bert.reporting.progress import duration

_LEAST_SECONDS = 5.0
_MOST_FROM_WORK = 1.2  # times the ratio of speeds that the arithmetic of two phases gives
_LEAST_OF_PHASE_2 = 0.25  # of its planned time, though phase 1 took longer: with a few updates it harms the model


def steps_of_new_phase(
    plan: TextPlan,
    phase: int,
    record: TextRecord,
    *,
    sample_ratio: float,
    speed: float,
    start_seconds: float = rules.START_SECONDS,
    stopped_early: bool = False,
) -> int:
    """Updates of a phase that has made none.

    Args:
        start_seconds: of the ranks, as this machine has them now.
        stopped_early: the phase before; the time that it left is not for this one, which would overfit too.
        sample_ratio: samples that the text really gave, as a share of the estimate of the plan.
        speed: sequences per second, as an earlier phase corrects the measured ones.
    """
    made = plan.phases[phase]
    if (given := plan.wishes.setting(phase, "max_steps")) is not None:
        return given
    if plan.wishes.hours is not None:
        seconds = _seconds_of(plan, phase, record, start_seconds)
        if phase == min(plan.phases) and seconds < _LEAST_SECONDS:
            needed = plan.wishes.hours * 3600 + max(record.used(), 60.0) - seconds
            raise ValueError(
                f"hours={plan.wishes.hours:g} leave no time for training: {duration(record.used())} were used for the "
                f"data; pass at least --hours {math.ceil(needed / 36) / 100:g}, which continues with them"
            )
        if phase > min(plan.phases):
            seconds = max(seconds, _LEAST_OF_PHASE_2 * made.seconds)
        return made.steps_in(min(seconds, made.seconds) if stopped_early else seconds, speed)
    more = 1.0 if plan.wishes.epochs is None else plan.wishes.epochs / plan.epochs  # raised since the plan was made
    return max(1, round(made.steps * sample_ratio * more))


def steps_in_time_left(
    plan: TextPlan,
    phase: int,
    record: TextRecord,
    *,
    done: int,
    updates_per_second: float,
    start_seconds: float = rules.START_SECONDS,
) -> int:
    """All updates of a phase that has made `done`, if it uses its share of the time that is left.

    Args:
        updates_per_second: of this phase until now, evaluations and checkpoints included.
        start_seconds: as for `steps_of_new_phase`.
    """
    return done + max(0, int(_seconds_of(plan, phase, record, start_seconds) * updates_per_second))


def _seconds_of(plan: TextPlan, phase: int, record: TextRecord, start_seconds: float) -> float:
    """The phase's share of what is left of the hours, without starts and end, which take longer on a busy machine."""
    assert plan.wishes.hours is not None
    shares = {number: share for number, share in phase_shares(plan.wishes).items() if number >= phase}
    end = rules.END_SECONDS * start_seconds / rules.START_SECONDS
    left = plan.wishes.hours * 3600 - record.used() - start_seconds * len(shares) - end
    return left * shares[phase] / sum(shares.values())


def speed_after(plan: TextPlan, phase: int, seen: float) -> float:
    """Expected sequences per second of a phase after the one before it trained at `seen`.

    The ratio is that of the measured speeds, kept near that of the arithmetic: each was measured for two seconds.
    """
    candidate = plan.candidate
    work = {
        number: training_flops_per_sequence(candidate.model, candidate.lengths[number], candidate.predictions(number))
        for number in (phase - 1, phase)
    }
    by_work = work[phase - 1] / work[phase]
    measured = plan.phases[phase].sequences_per_second / plan.phases[phase - 1].sequences_per_second
    return seen * min(max(measured, by_work / _MOST_FROM_WORK), by_work * _MOST_FROM_WORK)


def extended_steps(
    plan: TextPlan,
    phase: int,
    record: TextRecord,
    asked: Wishes,
    *,
    done: int,
    updates_per_second: float,
    samples: float,
) -> int:
    """Updates of a phase that was started with `record.steps`, after a new start asked for more (or less).

    Args:
        asked: by the new start.
        done: updates that the phase has made, at this rate.
        samples: of one pass over the text, in this phase.
    """
    before = record.steps[phase]
    if (given := asked.setting(phase, "max_steps")) is not None:
        if given < done:
            raise ValueError(
                f"max_steps={given} must be at least the {done:,} updates that phase {phase} has made (more extends "
                "it); for a shorter training pass another --output-dir"
            )
        return given
    if asked.hours is not None and asked.hours != record.hours:
        least = before if asked.hours > (record.hours or 0) else max(1, done)
        return max(least, steps_in_time_left(plan, phase, record, done=done, updates_per_second=updates_per_second))
    if asked.epochs is not None and asked.epochs != record.epochs:
        more = asked.epochs - (record.epochs or plan.epochs)
        return max(done, before + round(more * samples / plan.phases[phase].global_batch))
    return before

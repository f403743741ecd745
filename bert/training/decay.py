"""Decides when the decay of a stable learning rate begins (--lr-schedule wsd), and how many updates it has.

Without a limit of time, the decay takes the last --lr-decay-share of --max-steps. With a limit (--finish-in, or a file
FINISH), the decay begins when that share of the time is left, and ends with the last update that fits. If 20% more or
fewer updates fit than were expected, the warm-up is rescaled.

Decisions are made where a log interval ends. Rank 0 decides, as clocks differ, and all ranks follow. `LoopState` keeps
the decisions, so that a resumed run has the same rates.
"""

import logging
from collections.abc import Callable

import numpy as np

from bert.checkpoints.progress import DecayState, LoopState, Totals
from bert.config.settings_base import seconds_of
from bert.config.training_settings import TrainingConfig
from bert.model.learning_rate_schedule import Schedule
from bert.model.optimization import APPLIED_UPDATES, LEARNING_RATE_TABLE
from bert.reporting.progress import duration
from bert.runtime.paddle_api import read_variable, write_variable
from bert.training.devices import Device
from bert.training.interruption import FINISH_FILE, STOP_FILE, StopRequest
from bert.training.metrics import Throughput
from bert.training.resumed_schedule import schedule_of
from bert.training.time_limit import TimeLimit

logger = logging.getLogger(__name__)

LEAST_UPDATES = 5  # of a decay, however little time is left
CORRECTED_FROM = 0.02  # of the updates left: a smaller error of the last step is not corrected
RESCALED_FROM = 0.2  # of the expected updates: a smaller error does not rescale the warm-up
MOST_WARMUP = 0.5  # of the updates left before the decay


def has_decay_phase(config: TrainingConfig) -> bool:
    """Whether the learning rate is stable until a decay, whose start and end are decided during the run."""
    return config.optimizer.lr_schedule == "wsd" and not config.run.benchmark


def open_time_limit(config: TrainingConfig, before: Totals, throughput: Throughput, stop: StopRequest) -> TimeLimit:
    """Time limit of a start from --finish-in, counted from the start of the process.

    Args:
        before: totals of the earlier legs; the decay has its share of the time of all legs.
    """
    limit, seconds = TimeLimit(config.run, throughput, stop.clock), config.run.finish_in
    if seconds is not None and has_decay_phase(config):
        limit.set_deadline(stop.started + seconds, config.optimizer.lr_decay_share * (before.total_seconds + seconds))
    return limit


def learning_rates(schedule: Schedule, decay: DecayState | None) -> np.ndarray:
    """Learning rates of all applied updates, float32 [most updates]; the decay is linear to the final rate."""
    rates = schedule.table()
    if decay is not None:
        end_rate = schedule.settings.end_learning_rate
        passed = np.arange(len(rates) - decay.applied) / (decay.last - decay.step)
        rates[decay.applied :] = end_rate + (decay.rate - end_rate) * np.maximum(0.0, 1.0 - passed)
    return rates


def rescaled_warmup(planned: int, rescaled: int, applied: int, before_decay: int) -> int:
    """Number of warm-up updates, rescaled if more or fewer updates fit in the time than expected.

    Args:
        planned: updates of the warm-up until now.
        rescaled: its updates by the number of updates that fit.
        applied: updates that were applied until now; a warm-up that is over by then stays as it was.
        before_decay: updates left before the decay.
    """
    wanted = rescaled if rescaled > applied else planned
    longest = applied + int(MOST_WARMUP * before_decay)
    warmup = min(wanted, longest)
    is_over = applied >= planned or applied >= warmup
    return planned if is_over else warmup


class Decay:
    """The learning-rate decay during one start. All ranks call its public methods at the same updates.

    Args:
        step: the update that `state` is of.
        log_event: (kind, step, epoch, values).
    """

    def __init__(
        self,
        config: TrainingConfig,
        device: Device,
        state: LoopState,
        time_limit: TimeLimit,
        step: int,
        log_event: Callable[[str, int, int, dict], None],
    ) -> None:
        self._config, self._max_steps = config, config.run.max_steps
        self._device, self._state, self._time_limit = device, state, time_limit
        self._log_event = log_event
        self._is_on = has_decay_phase(config)
        self._first_step = self._max_steps  # the step after which the decay begins, as far as is known
        self.follow_state(step)

    @property
    def last_step(self) -> int:
        """Last update of the run, as far as it is known."""
        return self._state.decay.last if self._state.decay else self._max_steps

    @property
    def known_last_step(self) -> int | None:
        """Last update of the run; None if a time limit decides it. Only rank 0's value is reliable."""
        return None if self._time_limit.is_set() else self.last_step

    def follow_state(self, step: int) -> None:
        """Load the rates of `state`, the state of `step`, at the start and after a roll back."""
        if not self._is_on:
            return
        self._first_step = max(step, self._schedule().decay_start)
        self._load_rates()
        decay = self._state.decay
        was_shortened = decay is not None and decay.last > self._max_steps > step
        if was_shortened:
            self._spread(step, self._max_steps)

    def begins_at(self, step: int) -> bool:
        return self._is_on and self._state.decay is None and self._first_step <= step < self._max_steps

    def needs_evaluation(self) -> bool:
        """Whether an evaluation must be timed before the decay, because one follows it."""
        return bool(self._from_main(int(self._time_limit.needs_evaluation())))

    def begin(self, step: int, epoch: int) -> None:
        """Begin the decay after update `step`."""
        most = self._max_steps - step
        fitting = self._time_limit.updates_before_end(step)
        num_updates = self._from_main(most if fitting is None else min(most, max(LEAST_UPDATES, fitting)))
        decay = self._spread(step, step + num_updates)
        self._log_decay(step, epoch, decay)
        about = "about " if self._time_limit.is_set() else ""
        logger.info(
            f"the learning rate decays from {decay.rate:.3g} after update {step:,}, "
            f"in the last {about}{num_updates:,} updates"
        )

    def after_interval(self, step: int, epoch: int) -> None:
        """Plan the start of the decay, or correct its end."""
        decay = self._state.decay
        if not self._is_on:
            return
        if decay is None:
            self._first_step = self._from_main(self._planned_first_step(step))
            self._rescale_warmup(step, epoch)
        elif step < decay.last:
            last = self._from_main(self._corrected_last_step(step, decay))
            if last != decay.last:
                self._log_decay(step, epoch, self._spread(step, last))

    def take_finish_file(self, stop: StopRequest, seconds_of_run: float) -> None:
        """Read the remaining time from a file FINISH; if it is empty, use the decay's share of the past time.

        The file is seen by rank 0 only.
        """
        text = stop.take_finish()
        if text is None:
            return
        seconds = seconds_of(text) if text else self._config.optimizer.lr_decay_share * seconds_of_run
        if not self._is_on:
            logger.warning(f"{FINISH_FILE} needs --lr-schedule wsd and is ignored; a file {STOP_FILE} saves and ends")
        elif seconds is None:
            logger.warning(
                f"{FINISH_FILE} says {text[:40]!r} and is ignored: it must be empty or say 90, 90s, 10m or 2h"
            )
        elif self._state.decay and not text:
            logger.info(f"{FINISH_FILE}: the decay has begun already; a duration in the file corrects it")
        else:
            self._time_limit.decay_now(seconds)
            logger.info(f"{FINISH_FILE}: the learning rate decays now, the run ends in about {duration(seconds)}")

    # ---- decisions of rank 0 -----------------------------------------------------------------------------------------

    def _planned_first_step(self, step: int) -> int:
        fitting = self._time_limit.updates_before_decay(step)
        if fitting is None:
            return self._first_step
        return max(step, min(self._schedule().decay_start, step + fitting))

    def _corrected_last_step(self, step: int, decay: DecayState) -> int:
        planned, fitting = decay.last - step, self._time_limit.updates_before_end(step)
        if fitting is None or abs(fitting - planned) <= CORRECTED_FROM * planned:
            return decay.last
        least = max(step + 1, decay.first + LEAST_UPDATES)
        return min(max(step + fitting, least), self._max_steps)

    def _last_step_in_time(self, step: int, expected: int) -> int:
        """Last update that fits in the time; `expected` until the speed is known."""
        if not self._time_limit.speed_is_measured():
            return expected
        fitting = self._time_limit.updates_before_end(step)
        return expected if fitting is None else min(step + max(1, fitting), self._max_steps)

    # ---- all ranks follow --------------------------------------------------------------------------------------------

    def _from_main(self, number: int) -> int:
        return self._device.collective.from_main(number)

    def _log_decay(self, step: int, epoch: int, decay: DecayState) -> None:
        self._log_event("decay", step, epoch, {"learning_rate": decay.rate, "last_step": decay.last})

    def _rescale_warmup(self, step: int, epoch: int) -> None:
        """Rescale the warm-up if 20% more or fewer updates fit in the time than were expected."""
        config, state = self._config, self._state
        expected = round(state.fitting * config.expected_steps())
        last = self._from_main(self._last_step_in_time(step, expected))
        if abs(last - expected) < RESCALED_FROM * expected:
            return
        state.fitting = last / config.expected_steps()
        applied, planned = self._applied_updates(), self._schedule().warmup_steps
        rescaled = int(config.optimizer.warmup_proportion * last) if config.expects_fewer_steps() else planned
        warmup = rescaled_warmup(planned, rescaled, applied, self._first_step - step)
        if warmup != planned:
            state.warmup_steps = warmup
            self._load_rates()
        self._log_event("speed", step, epoch, {"expected_steps": last, "warmup_steps": warmup})
        goes_on = f"; the warm-up has {warmup:,}" if applied < warmup else ""
        logger.info(f"about {last:,} updates fit in the time instead of {expected:,}{goes_on}")

    def _spread(self, step: int, last: int) -> DecayState:
        """Let the rates fall from the rate after `step` to the final rate after `last`."""
        applied, rates = self._applied_updates(), self._rates()
        first = self._state.decay.first if self._state.decay else step
        decay = DecayState(first, last, step, applied, rate=float(rates[min(applied, len(rates) - 1)]))
        self._state.decay = decay
        self._load_rates()
        return decay

    def _applied_updates(self) -> int:
        """Number of updates of the run, without skipped ones."""
        return int(read_variable(self._device.scope, APPLIED_UPDATES)[0])

    def _schedule(self) -> Schedule:
        return schedule_of(self._config, self._state.warmup_steps)

    def _rates(self) -> np.ndarray:
        return learning_rates(self._schedule(), self._state.decay)

    def _load_rates(self) -> None:
        write_variable(self._device.scope, LEARNING_RATE_TABLE, self._rates(), self._device.place)

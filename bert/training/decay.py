"""Decides when the decay of a stable learning rate begins (--lr-schedule wsd), and how many updates it has.

Without a limit of time it takes the last --lr-decay-share of --max-steps. With one (--finish-in, or a file FINISH) it
begins when that share of the time is left, and ends at the update that fits. Where a fifth fewer or more updates fit
than were expected, the warm-up and all that is counted from them follow, so that the rate is stable in between.
Rank 0 decides, where a log interval ends, and all ranks follow. `LoopState` keeps what was decided, so that a resumed
run has the same rates.
"""

import logging
import math
from bisect import bisect_right
from collections.abc import Callable

import numpy as np

from bert.checkpoints.progress import DecayState, LoopState
from bert.checkpoints.writer import SaveTimes
from bert.config.settings_base import seconds_of
from bert.config.training_settings import TrainingConfig
from bert.model.optimization import APPLIED_UPDATES, LEARNING_RATE_TABLE
from bert.reporting.progress import duration
from bert.runtime.paddle_api import read_variable, write_variable
from bert.training.devices import Device
from bert.training.interruption import FINISH_FILE, STOP_FILE, StopRequest
from bert.training.metrics import Throughput
from bert.training.schedule import schedule_of

logger = logging.getLogger(__name__)

FEW = 5  # updates that a decay has in any case
WINDOW = 0.25  # of the time that is planned: the time before, whose speed is expected
TOLERANCE = 0.02  # of the updates that are left: a smaller difference is not corrected
MOST_WARMUP = 0.5  # of the updates before the decay
MEASURED = 0.05  # of the time of a leg, before its speed is compared with what was expected
CHANGED = 0.2  # of the updates that were expected: a smaller difference is not followed
SECONDS_TO_EXIT = 0.5  # summary, logs, leaving the group


class Decay:
    """The decay of one leg. Methods without another word are called by all ranks."""

    def __init__(
        self,
        config: TrainingConfig,
        device: Device,
        state: LoopState,
        throughput: Throughput,
        stop: StopRequest,
        step: int,
        log_event: Callable[[str, int, int, dict], None],
    ) -> None:
        run, optimizer, self._config = config.run, config.optimizer, config
        self._run, self._share, self._end_rate = run, optimizer.lr_decay_share, optimizer.end_learning_rate
        self._device, self._state, self._throughput, self._stop = device, state, throughput, stop
        self._log_event = log_event
        self._is_on = optimizer.lr_schedule == "wsd" and not run.benchmark
        self._evaluation_seconds: float | None = None
        self._pause_seconds = self._write_seconds = 0.0  # of a save: training waits, the thread writes
        self._begun = stop.clock()
        self._deadline: float | None = None  # by that clock
        self._kept_seconds = 0.0  # before the deadline, for the decay
        if self._is_on and run.finish_in is not None:
            self._deadline = stop.started + run.finish_in
            self._kept_seconds = self._share * (state.totals.total_seconds + run.finish_in)
        self._start = run.max_steps  # the step after which it begins, as far as is known
        self.restored(step)

    @property
    def last_step(self) -> int:
        """The last update of the run, as far as is known."""
        return self._state.decay.last if self._state.decay else self._run.max_steps

    @property
    def known_last_step(self) -> int | None:
        """The last update, by rank 0; None where the time that is left decides it."""
        return None if self._deadline is not None else self.last_step

    def restored(self, step: int) -> None:
        """Follow the state, which is that of `step` again: at the start, and after a roll back."""
        if not self._is_on:
            return
        self._schedule = schedule_of(self._config, self._state.warmup_steps)
        self._start = max(step, self._schedule.decay_start)
        self._write_rates()
        if self._state.decay and self._state.decay.last > self._run.max_steps > step:  # the run was shortened
            self._spread(step, self._run.max_steps)

    def begins_at(self, step: int) -> bool:
        return self._is_on and self._state.decay is None and self._start <= step < self._run.max_steps

    def needs_evaluation(self) -> bool:
        """Whether time is limited and no evaluation was measured, as the end will have one."""
        missing = self._deadline is not None and self._evaluation_seconds is None
        return bool(self._device.collective.from_main(int(missing)))

    def begin(self, step: int, epoch: int) -> None:
        """The decay begins after update `step`."""
        most = self._run.max_steps - step
        fitting = self._fitting(step, self._seconds_for_updates())
        num_updates = self._device.collective.from_main(most if fitting is None else min(most, max(FEW, fitting)))
        self._decide(step, epoch, step + num_updates)

    def after_interval(self, step: int, epoch: int) -> None:
        """Plan the start of the decay, or correct its end."""
        self._take_file()
        if not self._is_on:
            return
        decay, collective = self._state.decay, self._device.collective
        if decay is None:
            self._start = collective.from_main(self._planned_start(step))
            self._follow_speed(step, epoch)
        elif step < decay.last and (last := collective.from_main(self._corrected_last(step, decay))) != decay.last:
            self._decide(step, epoch, last)

    def _follow_speed(self, step: int, epoch: int) -> None:
        """Where the time allows other updates than were expected, count the shares of the schedule from these.

        The warm-up ends within a share of the updates before the decay. One that is over stays as it was.
        """
        of_settings = self._config.expected_steps()
        before = round(self._state.fitting * of_settings)
        last = self._device.collective.from_main(self._last_in_time(step, before))
        if abs(last - before) < CHANGED * before:
            return
        self._state.fitting = last / of_settings
        applied, planned = self._applied(), self._schedule.warmup_steps
        share = self._config.optimizer.warmup_proportion
        wanted = int(share * last) if self._config.expects_fewer_steps() else planned
        warmup = min(wanted if wanted > applied else planned, applied + int(MOST_WARMUP * (self._start - step)))
        if applied < min(planned, warmup) and warmup != planned:
            self._state.warmup_steps = warmup
            self._schedule = schedule_of(self._config, warmup)
            self._write_rates()
        warmup = self._schedule.warmup_steps
        self._log_event("speed", step, epoch, {"expected_steps": last, "warmup_steps": warmup})
        goes_on = f"; the warm-up has {warmup:,}" if applied < warmup else ""
        logger.info(f"about {last:,} updates fit in the time instead of {before:,}{goes_on}")

    def _decide(self, step: int, epoch: int, last: int) -> None:
        has_begun, decay = self._state.decay is not None, self._spread(step, last)
        self._log_event("decay", step, epoch, {"learning_rate": decay.rate, "last_step": last})
        if not has_begun:
            rest = f"{'' if self._deadline is None else 'about '}{last - step:,} updates"
            logger.info(f"the learning rate decays from {decay.rate:.3g} after update {step:,}, in the last {rest}")

    # ---- rank 0 decides ----------------------------------------------------------------------------------------------

    def evaluated(self, seconds: float) -> None:
        self._evaluation_seconds = seconds

    def saved(self, times: SaveTimes) -> None:
        waits = not self._run.async_checkpoint
        self._pause_seconds = times.wait_seconds + times.copy_seconds + times.write_seconds * waits
        self._write_seconds = 0.0 if waits else times.write_seconds

    def seconds_left(self, by_updates: float) -> float:
        """The time that is left, of which the speed of the updates says `by_updates`."""
        if self._deadline is None:
            return by_updates
        return max(0.0, min(by_updates, self._deadline - self._stop.clock()))

    def _last_in_time(self, step: int, expected: int) -> int:
        """The last update that fits, once its speed was measured; until then `expected`."""
        if self._deadline is None or self._stop.clock() - self._begun < MEASURED * (self._deadline - self._begun):
            return expected
        fitting = self._fitting(step, self._seconds_for_updates())
        return expected if fitting is None else min(step + max(1, fitting), self._run.max_steps)

    def _planned_start(self, step: int) -> int:
        if self._deadline is None:
            return self._start
        fitting = self._fitting(step, self._deadline - self._stop.clock() - self._kept_seconds)
        return self._start if fitting is None else max(step, min(self._schedule.decay_start, step + fitting))

    def _corrected_last(self, step: int, decay: DecayState) -> int:
        planned, fitting = decay.last - step, self._fitting(step, self._seconds_for_updates())
        if fitting is None or abs(fitting - planned) <= TOLERANCE * planned:
            return decay.last
        return min(max(step + max(1, fitting), decay.first + FEW), self._run.max_steps)

    def _seconds_for_updates(self) -> float | None:
        """The time that is left, without that of the end; None without a limit."""
        if self._deadline is None:
            return None
        at_end = self._pause_seconds + max(self._evaluation_seconds or 0.0, self._write_seconds) + SECONDS_TO_EXIT
        return self._deadline - self._stop.clock() - at_end

    def _fitting(self, step: int, seconds: float | None) -> int | None:
        """Updates after `step` for which `seconds` are enough, with the evaluations and saves before the last of them;
        None without a limit, or before a speed is known."""
        if seconds is None or (speed := self._throughput.seconds_per_update(WINDOW * seconds)) is None:
            return None
        pauses = [(self._run.num_steps_per_checkpoint, self._pause_seconds)]
        if self._run.eval_freq and self._evaluation_seconds:
            pauses.append((self._run.eval_freq, self._evaluation_seconds))

        def needed(updates: int) -> float:
            before = max(step, step + updates - 1)
            return updates * speed + sum(cost * (before // every - step // every) for every, cost in pauses)

        return max(0, bisect_right(range(self._run.max_steps - step + 1), seconds, key=needed) - 1)

    def _take_file(self) -> None:
        """Take the file FINISH: the time that it says is left."""
        if (text := self._stop.take_finish()) is None:
            return
        seconds = seconds_of(text) if text else self._share * self._throughput.seconds_of_run()
        if not self._is_on:
            logger.warning(f"{FINISH_FILE} needs --lr-schedule wsd and is ignored; a file {STOP_FILE} saves and ends")
        elif seconds is None:
            logger.warning(
                f"{FINISH_FILE} says {text[:40]!r} and is ignored: it must be empty or say 90, 90s, 10m or 2h"
            )
        elif self._state.decay and not text:
            logger.info(f"{FINISH_FILE}: the decay has begun already; a duration in the file corrects it")
        else:
            self._deadline, self._kept_seconds = self._stop.clock() + seconds, math.inf
            logger.info(f"{FINISH_FILE}: the learning rate decays now, the run ends in about {duration(seconds)}")

    # ---- the rates ---------------------------------------------------------------------------------------------------

    def _spread(self, step: int, last: int) -> DecayState:
        """Let the rate of the next update fall to the end in the updates up to `last`."""
        applied, decay = self._applied(), self._state.decay
        rate = float(self._rates[min(applied, len(self._rates) - 1)])
        self._state.decay = decay = DecayState(decay.first if decay else step, last, step, applied, rate)
        self._write_rates()
        return decay

    def _applied(self) -> int:
        """Updates of the run, without those that were skipped."""
        return int(read_variable(self._device.scope, APPLIED_UPDATES)[0])

    def _write_rates(self) -> None:
        self._rates, decay = self._schedule.table(), self._state.decay
        if decay is not None:
            falling = np.arange(len(self._rates) - decay.applied) / (decay.last - decay.step)
            share = np.maximum(0.0, 1.0 - falling)
            self._rates[decay.applied :] = self._end_rate + (decay.rate - self._end_rate) * share
        write_variable(self._device.scope, LEARNING_RATE_TABLE, self._rates, self._device.place)

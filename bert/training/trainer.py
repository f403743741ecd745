"""The training loop: updates of a program on batches, with logs, guards, evaluations and checkpoints."""

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bert.checkpoints.progress import DecayState, LoopState, Progress, Totals
from bert.model.optimization import SKIPPED_UPDATES
from bert.randomness import stream_key
from bert.reporting.logs import Log
from bert.runtime.paddle_api import read_variable, write_variable
from bert.training.decay import Decay, open_time_limit
from bert.training.device_guards import FiniteGuard, RankGuard
from bert.training.devices import Device
from bert.training.feeding import Feeding
from bert.training.interruption import StopOnAnyRank, StopRequest, beat
from bert.training.loss_guards import DivergenceGuard, EvaluationGuard, Guard, Interval, SpikeGuard
from bert.training.metrics import Throughput, collect
from bert.training.saving import Checkpoints
from bert.training.task import Task
from program import TrainingProgram


@dataclass(frozen=True)
class LegOutcome:
    """The result of a leg, which is one start of a run."""

    step: int
    finished: bool  # all steps of the stage are done, or early stopping ended it
    interrupted_by: str | None
    metrics: dict[str, float]  # last log line's metrics, and later evaluations
    totals: Totals
    evaluations: dict  # figures about the followed metric: best, initial, early stopping
    decay: DecayState | None  # state of the learning-rate decay; None before it
    warmup_steps: int | None  # if they differ from the settings


class Trainer:
    """Runs the updates of a start until its last step or a stop request.

    Args:
        progress: where the leg starts.
        evaluate: step -> metrics; None without held-out data.
    """

    def __init__(
        self,
        program: TrainingProgram,
        device: Device,
        task: Task,
        log: Log,
        stop: StopRequest,
        progress: Progress,
        last_step: int,
        checkpoints: Checkpoints,
        evaluate: Callable[[int], dict[str, float]] | None,
    ) -> None:
        config, run, start_step = task.config, task.config.run, progress.step
        self._state = LoopState() if run.benchmark else progress.carried
        self._program, self._device, self._task, self._log, self._stop = program, device, task, log, stop
        self._config, self._evaluate, self._metric = config, evaluate, task.best_metric
        self._start_step = self._step = start_step
        self._last_of_leg, self._epoch, self._checkpoints = last_step, 0, checkpoints
        self._feeding = Feeding(program, device)
        self._stop_on_any_rank = StopOnAnyRank(stop, device.group, device.collective)
        self._batch_schedule = config.batch.schedule(device.group.world_size)
        self._warmup_end = start_step + run.benchmark_warmup_steps if run.benchmark else None
        self._throughput = Throughput(config.model, self._state.totals, stop.clock)
        self._time_limit = open_time_limit(config, self._state.totals, self._throughput, stop)
        self._decay = Decay(config, device, self._state, self._time_limit, start_step, log.event)
        log.total_steps = self._decay.known_last_step
        self._evaluations = EvaluationGuard(self._state, self._metric)
        best = self._state.evaluations.best
        if self._metric.keeps and best and not self._checkpoints.has(best[0]):
            self._evaluations.forget_best()
        self._interrupted, self._stopped_early = False, self._evaluations.has_stopped
        self._metrics = dict[str, float]()
        self._guards = self._open_guards()

    def _open_guards(self) -> list[Guard]:
        config, run, program, device = self._config, self._config.run, self._program, self._device
        ranks = RankGuard(program, device, 0 if run.benchmark else run.rank_check_freq)
        ranks.check(self._step)
        guards: list[Guard] = [FiniteGuard(program, device, run.max_consecutive_skipped_steps), ranks]
        if not run.benchmark:  # a spike is rolled back before the run can count as diverged
            guards.append(SpikeGuard(self._state, run, self._step, self._checkpoints.restore, self._log.event))
            if (chance_loss := program.objective.chance_loss()) is not None:
                guards.append(DivergenceGuard(self._state, chance_loss, config.optimizer, run.max_steps))
        return guards

    def run(self, open_batches: Callable[[int], Generator]) -> LegOutcome:
        """Run the updates up to the last step, or until a stop request.

        Args:
            open_batches: step -> generator of global batches from there on.
        """
        if self._step == 0 and self._task.evaluates_first and self._config.initialization.initial_weights() is not None:
            self._run_evaluation()
        self._begin_decay_if_due()
        batches = open_batches(self._step)
        self._throughput.start()
        try:
            while not self._is_ending():
                beat(f"reading the batch of update {self._step + 1}")
                self._update(next(batches))
                if self._is_due_to_log() and self._end_interval():  # rolled back
                    batches.close()
                    batches = open_batches(self._step)
                    continue
                self._log.total_steps = self._decay.known_last_step
                self._log.advance(self._step, self._seconds_left(), self._metrics.get("loss"))
                if self._step == self._warmup_end:
                    self._throughput.forget()
                self._throughput.pause()
                for guard in self._guards:
                    guard.after_update(self._step)
                self._evaluate_and_save()
                self._throughput.start()
        finally:
            batches.close()
        if self._step == self._start_step:  # the run was stopped between its last save and its summary
            self._run_evaluation()
            self._save()
        self._checkpoints.finish()
        self._log_saves()
        return self._outcome()

    def _is_every(self, frequency: int) -> bool:
        """Whether the current step is a multiple of `frequency` (0: never); never in a benchmark."""
        return frequency > 0 and not self._config.run.benchmark and self._step % frequency == 0

    @property
    def _last_step(self) -> int:
        """Last step of this start, as far as it is known."""
        return min(self._last_of_leg, self._decay.last_step)

    def _is_ending(self) -> bool:
        return self._interrupted or self._stopped_early or self._step >= self._last_step

    def _is_due_to_log(self) -> bool:
        """Whether the interval ends here; also before a save, which lacks the interval's sums on the device."""
        run = self._config.run
        ends = self._is_ending() or self._step == self._warmup_end or self._is_every(run.num_steps_per_checkpoint)
        ends = ends or self._decay.begins_at(self._step)
        may_save = bool(self._metric.name) and self._is_every(run.eval_freq)
        return ends or may_save or self._step % run.log_freq == 0

    def _seconds_left(self) -> float:
        return self._time_limit.seconds_left(self._throughput.seconds_left(self._last_step - self._step))

    def _outcome(self) -> LegOutcome:
        stopped_by = self._stop.signal_name or "a signal to another rank"
        return LegOutcome(
            self._step,
            finished=self._step >= self._decay.last_step or self._stopped_early,
            interrupted_by=stopped_by if self._step < self._last_step and not self._stopped_early else None,
            metrics=self._metrics,
            totals=self._totals(),
            evaluations=self._evaluations.figures(),
            decay=self._state.decay,
            warmup_steps=self._state.warmup_steps,
        )

    def _update(self, batch) -> None:
        """Run all micro-steps of an update, the last of which applies it; none if a guard skips the batch."""
        device = self._device
        if any(guard.skips(self._step) for guard in self._guards):
            beat(f"skipping update {self._step + 1}")  # the learning rate stays where it was
            count = read_variable(device.scope, SKIPPED_UPDATES)
            write_variable(device.scope, SKIPPED_UPDATES, count + 1, device.place)
        else:
            self._feeding.accumulate(batch.num_micro_steps)
            micro_batches = self._feeding.with_batch_vectors(batch.micro_batches, self._draw_dropout)
            for micro_step, micro_batch in enumerate(micro_batches):
                self._draw_dropout(micro_step, micro_batch.feed)
                arrays = self._feeding.arrays(micro_batch.feed)
                device.executor.run(self._program.main, feed=arrays, scope=device.scope)
                self._throughput.add_micro_batch(micro_batch)
            self._throughput.interval.updates += 1
        self._step, self._epoch = self._step + 1, batch.epoch
        self._interrupted = self._stop_on_any_rank.after(self._step, will_sync=self._is_due_to_log())

    def _draw_dropout(self, micro_step: int, feed: Mapping[str, Any]) -> None:
        """Draw the dropout masks of a micro-step from its own key, so that a resumed run repeats them."""
        beat(f"micro-step {micro_step + 1} of update {self._step + 1}")
        device = self._device
        key = stream_key(self._config.run.seed, "dropout", self._step, micro_step, device.group.rank)
        self._program.dropout.draw(device.scope, device.place, feed, key)

    def _end_interval(self) -> bool:
        """Log the updates since the last log line; returns whether a guard rolled the run back."""
        beat(f"waiting for update {self._step}")
        batch_size = self._batch_schedule.batch_size(self._step - 1)
        metrics, loss_sum, micro_steps = collect(self._program, self._device, self._throughput, batch_size)
        self._metrics = metrics
        if math.isfinite(metrics["step_cost"]):
            self._stop_on_any_rank.measured(metrics["step_cost"])
        if (epochs := self._task.epochs(self._step)) is not None:
            metrics["epochs"] = epochs
        self._log.train(self._step, self._epoch, metrics, self._seconds_left())
        complete = self._step % self._config.run.log_freq == 0
        interval = Interval(self._step, self._epoch, complete, metrics, loss_sum, micro_steps)
        for guard in self._guards:
            if (progress := guard.after_interval(interval)) is not None:
                self._step, self._interrupted = progress.step, False  # a stop request is looked at again later
                restored = progress.carried
                self._state.spikes, self._state.divergence = restored.spikes, restored.divergence
                self._state.evaluations, self._state.decay = restored.evaluations, restored.decay
                self._decay.follow_state(self._step)
                return True
        self._decay.take_finish_file(self._stop, self._throughput.seconds_of_run())
        self._decay.after_interval(self._step, self._epoch)
        return False

    def _evaluate_and_save(self) -> None:
        run = self._config.run
        is_last = self._step == self._decay.last_step
        if is_last and self._evaluate is not None:
            self._save()  # first, so that nothing that ends the evaluation can lose an update
        is_best = (is_last or self._is_every(run.eval_freq)) and self._run_evaluation()
        self._begin_decay_if_due()
        if self._is_ending() or self._is_every(run.num_steps_per_checkpoint) or is_best:
            self._save()
        self._log_saves()

    def _begin_decay_if_due(self) -> None:
        """Begin the decay and save; the checkpoint is kept, because a longer run continues from it."""
        if self._is_ending() or not self._decay.begins_at(self._step):
            return
        if self._decay.needs_evaluation():
            self._run_evaluation()
        self._decay.begin(self._step, self._epoch)
        if self._step:
            self._save()

    def _run_evaluation(self) -> bool:
        """Evaluate held-out data, if any, and log the metrics; returns whether to save now.

        Rank 0, which has the metrics, decides for all.
        """
        if self._evaluate is None:
            return False
        self._state.totals = self._totals()  # while all ranks are at one place
        began = self._stop.clock()
        try:
            beat(f"evaluating after update {self._step}")
            metrics = self._evaluate(self._step)
            beat(f"continuing after the evaluation of update {self._step}")
        except Exception:
            if self._step:
                self._checkpoints.save(self._step, self._epoch, self._state)
                self._checkpoints.finish()
            raise
        self._time_limit.evaluated(self._stop.clock() - began)
        self._metrics |= metrics
        self._log.evaluation(self._step, self._epoch, metrics)
        if not self._metric.name:
            return False
        collective, is_main = self._device.collective, self._device.group.is_main
        is_best = self._evaluations.observe(self._step, metrics)
        self._stopped_early |= collective.any(is_main and self._evaluations.has_stopped)
        return collective.any(is_main and is_best and self._metric.keeps)

    def _save(self) -> None:
        if self._config.run.benchmark:
            return
        for guard in self._guards:
            guard.before_save()
        beat(f"saving step {self._step}")
        self._state.totals = self._totals()
        self._checkpoints.save(self._step, self._epoch, self._state)

    def _log_saves(self) -> None:
        """Log the times of finished saves. Raises SaveFailed if one failed."""
        for times in self._checkpoints.saved():
            self._time_limit.saved(times)
            costs = {f"checkpoint_{name}": value for name, value in asdict(times).items() if name != "step"}
            self._log.event("checkpoint", times.step, self._epoch, costs)

    def _totals(self) -> Totals:
        """Totals of the run over all ranks. Every rank must call it."""
        return self._throughput.totals(self._device.collective, self._device.group.world_size)

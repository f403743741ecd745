"""The training loop: runs updates of a program on batches, with logs, evaluations and checkpoints in between."""

import logging
from collections.abc import Callable, Generator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from bert.config.training_settings import TrainingConfig
from bert.model.optimization import SKIPPED_UPDATES
from bert.randomness import stream_key
from bert.reporting.logs import Log
from bert.runtime.paddle_api import read_variable, write_variable
from bert.training.devices import Device
from bert.training.divergence import DivergenceGuard
from bert.training.feeding import Feeding
from bert.training.health_checks import check_divergence, check_finite, check_ranks
from bert.training.held_out_loss import HeldOutLoss
from bert.training.interruption import StopRequest
from bert.training.interval_metrics import collect
from bert.training.saving import NoCheckpoints
from bert.training.spike_detection import SpikeGuard
from bert.training.spike_recovery import SpikeRecovery
from bert.training.stop_on_any_rank import StopOnAnyRank
from bert.training.throughput import Throughput, Totals
from bert.training.watchdog import Watchdog
from program import TrainingProgram

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """The end of a leg, that is one start of a run."""

    step: int
    epoch: int
    finished: bool  # all steps of the stage are done, or early stopping ended it
    interrupted_by: str | None
    metrics: dict[str, float]  # of the last log line, and of evaluations after it
    totals: Totals
    held_out: dict  # figures of the held-out loss: the best, that of the given weights, early stopping


class Trainer:
    """Runs updates until the last step or a stop request.

    Args:
        log: of this rank.
        evaluate: step -> metrics; None without held-out data.
        checkpoints: saves and restores; by default nothing is saved.
        held_out: the held-out loss that is followed; by default none.
        keeps_best: save a checkpoint when an evaluation is the best so far.
        evaluates_first: evaluate before the first update, of given weights.
        num_samples: samples of an epoch; 0: not logged.
    """

    def __init__(
        self,
        program: TrainingProgram,
        device: Device,
        config: TrainingConfig,
        log: Log,
        stop: StopRequest,
        *,
        evaluate: Callable[[int], dict[str, float]] | None = None,
        checkpoints: NoCheckpoints | None = None,
        watchdog: Watchdog | None = None,
        held_out: HeldOutLoss | None = None,
        keeps_best: bool = False,
        evaluates_first: bool = False,
        num_samples: int = 0,
    ) -> None:
        self._program, self._device, self._config, self._log, self._stop = program, device, config, log, stop
        self._feeding = Feeding(program, device)
        self._evaluate, self._held_out = evaluate, held_out or HeldOutLoss(None)
        self._keeps_best, self._evaluates_first, self._num_samples = keeps_best, evaluates_first, num_samples
        self._checkpoints = checkpoints or NoCheckpoints()
        self._watchdog = watchdog or Watchdog(0, Path(), 0)
        self._sequences_per_update = config.batch.resolved_global_batch_size(device.group.world_size)

    def _begin_leg(self, start_step: int, last_step: int, carried: dict) -> None:
        run = self._config.run
        self._step, self._last_step, self._epoch = start_step, last_step, 0
        self._interrupted = False
        self._stop_on_any_rank = StopOnAnyRank(self._stop, self._device.group, self._device.collective)
        self._metrics: dict[str, float] = {}
        if self._keeps_best and self._held_out.best and not self._checkpoints.has(self._held_out.best[0]):
            self._held_out.forget_best()
        self._stopped_early = self._held_out.has_stopped
        self._warmup_end = start_step + run.benchmark_warmup_steps if run.benchmark else None
        known = {field.name for field in fields(Totals)}
        before = Totals(**{name: value for name, value in carried.get("totals", {}).items() if name in known})
        self._throughput = Throughput(self._config.model, None if run.benchmark else before)
        self._divergence = DivergenceGuard(self._program.objective.chance_loss(), carried.get("divergence"))
        factor = 0.0 if run.benchmark else run.loss_spike_factor
        self._spikes = SpikeRecovery(
            SpikeGuard(factor, carried), start_step, self._checkpoints.restore, run.loss_spike_action == "rollback"
        )

    def run(
        self, open_batches: Callable[[int], Generator], start_step: int, last_step: int, carried: dict | None = None
    ) -> Outcome:
        """Run the updates from `start_step` to `last_step`, or fewer if asked to stop.

        Args:
            open_batches: step -> generator of global batches from there on.
            carried: `Progress.carried` of the checkpoint that is resumed.
        Raises:
            TrainingDiverged, RanksDiffer: before anything is saved.
            SaveFailed: a checkpoint could not be written.
        """
        run = self._config.run
        self._begin_leg(start_step, last_step, carried or {})
        check_ranks(self._program, self._device, start_step)
        if self._evaluates_first and start_step == 0:
            self.evaluate()
        batches = open_batches(start_step)
        self._throughput.start()
        try:
            while self._step < last_step and not self._interrupted and not self._stopped_early:
                self._watchdog.beat(f"reading the batch of update {self._step + 1}")
                batch = next(batches)
                if self._spikes.guard.skips(self._step):
                    self._skip_update()
                else:
                    self._update(batch)
                self._step, self._epoch = self._step + 1, batch.epoch
                self._interrupted = self._stop_on_any_rank.after(self._step, waits=self._is_due_to_log())
                if self._is_due_to_log() and (progress := self._end_interval()):  # rolled back
                    batches.close()
                    batches = open_batches(progress.step)
                    continue
                self._log.advance(self._step, self._seconds_left(), self._metrics.get("loss"))
                if self._step == self._warmup_end:
                    self._throughput.forget()
                self._throughput.pause()
                if self._is_every(run.rank_check_freq):
                    check_ranks(self._program, self._device, self._step)
                is_best = False
                if self._step == run.max_steps and self._evaluate is not None:
                    self._save()  # first, so that nothing that ends the evaluation can lose an update
                if self._step == run.max_steps or self._is_every(run.eval_freq):
                    is_best = self.evaluate()
                if self._is_ending() or self._is_every(run.num_steps_per_checkpoint) or is_best:
                    self._save()
                self._log_saves()
                self._throughput.start()
        finally:
            batches.close()
        if self._step == start_step:  # the run was stopped between its last save and its summary
            self.evaluate()
            self._save()
        self._checkpoints.finish()
        self._log_saves()
        return self._outcome()

    def evaluate(self) -> bool:
        """Add metrics of the held-out data, if there is any, to those of the last log line -> whether to save now."""
        if self._evaluate is None:
            return False
        carried = self._carried()  # before, while all ranks are at one place
        try:
            with self._watchdog.paused(f"evaluating after update {self._step}"):
                metrics = self._evaluate(self._step)
        except Exception:
            if self._step:
                self._checkpoints.save(self._step, self._epoch, carried)
                self._checkpoints.finish()
            raise
        self._metrics |= metrics
        self._log.evaluation(self._step, self._epoch, metrics)
        return self._judge(metrics)

    def _judge(self, metrics: dict[str, float]) -> bool:
        """Follow the held-out loss -> whether this is the best so far and is kept. Rank 0 decides for all."""
        if self._held_out.metric is None:
            return False
        collective, is_main = self._device.collective, self._device.group.is_main
        verdict = self._held_out.observe(self._step, metrics)
        if verdict.overfits:
            logger.warning("%s", self._held_out.overfitting())
        if collective.any(is_main and verdict.stops):
            self._stopped_early = True
            logger.info(f"early stopping after update {self._step:,}: {self._held_out.reason()}")
        return collective.any(is_main and verdict.is_best and self._keeps_best)

    # ---- position ----------------------------------------------------------------------------------------------------

    def _is_every(self, frequency: int | None) -> bool:
        """Whether the current step is a multiple of `frequency`; never in a benchmark."""
        return bool(frequency) and not self._config.run.benchmark and self._step % (frequency or 1) == 0

    def _is_ending(self) -> bool:
        return self._interrupted or self._stopped_early or self._step == self._last_step

    def _is_due_to_log(self) -> bool:
        """Whether the interval ends here. A save ends it too, as checkpoints lack the interval's sums on the device."""
        run = self._config.run
        ends = self._is_ending() or self._step == self._warmup_end or self._is_every(run.num_steps_per_checkpoint)
        may_save = self._held_out.metric is not None and self._is_every(run.eval_freq)
        return ends or may_save or self._step % run.log_freq == 0

    def _seconds_left(self) -> float:
        return self._throughput.seconds_left(self._last_step - self._step)

    # ---- updates -----------------------------------------------------------------------------------------------------

    def _update(self, batch) -> None:
        """All micro-steps of one update; the last of them applies it."""
        program, device = self._program, self._device
        for micro_step, micro_batch in enumerate(batch.micro_batches):
            self._watchdog.beat(f"micro-step {micro_step + 1} of update {self._step + 1}")
            # So that a resumed run draws the same masks.
            key = stream_key(self._config.run.seed, "dropout", self._step, micro_step, device.group.rank)
            program.dropout.draw(device.scope, device.place, micro_batch.feed, key)
            self._feeding.run(micro_batch.feed)
            self._throughput.add_micro_batch(micro_batch)
        self._throughput.add_update()

    def _skip_update(self) -> None:
        """Count the update as skipped; the learning rate stays where it was."""
        self._watchdog.beat(f"skipping update {self._step + 1}")
        count = read_variable(self._device.scope, SKIPPED_UPDATES)
        write_variable(self._device.scope, SKIPPED_UPDATES, count + 1, self._device.place)

    # ---- intervals ---------------------------------------------------------------------------------------------------

    def _end_interval(self):
        """Log the updates since the last log line -> Progress of the checkpoint that a loss spike rolled back to."""
        self._watchdog.beat(f"waiting for update {self._step}")
        found = collect(self._program, self._device, self._throughput, self._sequences_per_update)
        self._metrics = found.metrics
        self._stop_on_any_rank.measured(found.metrics["step_cost"])
        if self._num_samples:
            self._metrics["epochs"] = self._step * self._sequences_per_update / self._num_samples
        self._log.train(self._step, self._epoch, found.metrics, self._seconds_left())
        self._check_finite()
        if self._config.run.benchmark:
            return None
        complete = self._step % self._config.run.log_freq == 0
        progress = self._spikes.observe(self._step, self._epoch, found, complete, self._log)
        if progress is None:
            check_divergence(self._divergence, found.metrics["loss"], self._config, self._step)
        else:
            self._step, self._interrupted = progress.step, False  # a stop request is looked at again later
            self._divergence = DivergenceGuard(
                self._program.objective.chance_loss(), progress.carried.get("divergence")
            )
            self._held_out = self._held_out.restored(progress.carried.get("held_out"))
        return progress

    def _check_finite(self) -> None:
        check_finite(self._program, self._device, self._config.run.max_consecutive_skipped_steps)

    # ---- checkpoints -------------------------------------------------------------------------------------------------

    def _save(self) -> None:
        if self._config.run.benchmark:
            return
        self._check_finite()
        self._watchdog.beat(f"saving step {self._step}")
        self._checkpoints.save(self._step, self._epoch, self._carried())

    def _carried(self) -> dict:
        """What a checkpoint carries of the loop. Every rank must call it."""
        carried = {**self._spikes.guard.carried(), "totals": asdict(self._totals())}
        if divergence := self._divergence.carried():
            carried["divergence"] = divergence
        if held_out := self._held_out.carried():
            carried["held_out"] = held_out
        return carried

    def _log_saves(self) -> None:
        """Log the times of finished saves. Raises SaveFailed if one failed."""
        for times in self._checkpoints.saved():
            costs = {
                "checkpoint_wait_seconds": times.wait_seconds,
                "checkpoint_copy_seconds": times.copy_seconds,
                "checkpoint_write_seconds": times.write_seconds,
            }
            self._log.event("checkpoint", times.step, self._epoch, costs)

    # ---- the end -----------------------------------------------------------------------------------------------------

    def _totals(self) -> Totals:
        return self._throughput.totals(self._device.collective, self._device.group.world_size)

    def _outcome(self) -> Outcome:
        stopped_by = self._stop.signal_name or "a signal to another rank"
        return Outcome(
            self._step,
            self._epoch,
            finished=self._step >= self._config.run.max_steps or self._stopped_early,
            interrupted_by=stopped_by if self._step < self._last_step and not self._stopped_early else None,
            metrics=self._metrics,
            totals=self._totals(),
            held_out=self._held_out.figures(),
        )

"""The loop: a training program and batches -> updates, with logs, held-out evaluation and checkpoints in between."""

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bert.checkpoints.state import Progress
from bert.checkpoints.writer import CheckpointWriter
from bert.config.base import TrainingConfig
from bert.model.optimization import GRADIENT_NORM, LEARNING_RATE, SKIPPED_UPDATES
from bert.randomness import stream_key
from bert.reporting.logs import RunLog
from bert.runtime.distributed import Collective, Group
from bert.runtime.paddle_api import paddle, read_variable, write_variable
from bert.training import divergence as guards
from bert.training.divergence import RanksDiffer, TrainingDiverged
from bert.training.interruption import StopRequest
from bert.training.loss_spikes import Spike, SpikeGuard
from bert.training.throughput import Interval
from bert.training.watchdog import Watchdog
from program import TRAINING_METRICS

__all__ = ["Device", "Outcome", "RanksDiffer", "Trainer", "TrainingDiverged"]
MAX_ROLL_BACKS = 5  # of one leg of a run


@dataclass(frozen=True)
class Device:
    """Where programs run."""

    executor: Any
    scope: Any
    place: Any
    group: Group
    collective: Collective
    peak_tflops: float  # of one rank


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    step: int
    epoch: int
    finished: bool  # all steps of the phase are done
    interrupted_by: str | None
    final_metrics: dict[str, float]
    raw_train_seconds: float  # updates only: no evaluation, no checkpoints
    total_seconds: float
    sequences: int  # over all ranks, in the timed updates
    tokens: int
    mfu: float | None  # over the timed updates


@dataclass
class _Position:
    """Where the loop is."""

    step: int  # global batches consumed
    last_step: int
    saved_at: int
    logged_at: int
    epoch: int = 0
    interrupted: bool = False
    metrics: dict[str, float] = field(default_factory=dict)  # of the last log line, and of evaluations after it

    @property
    def ending(self) -> bool:
        return self.interrupted or self.step == self.last_step


class Trainer:
    """Runs updates; `save(step, epoch, carried)` and `evaluate(step)` are given by the entry point.

    `restore(step)` brings back the newest valid checkpoint up to that step, for a roll back after a loss spike.
    """

    def __init__(
        self,
        program,
        device: Device,
        config: TrainingConfig,
        log: RunLog | None,
        stop: StopRequest,
        save: Callable[[int, int, dict], None],
        evaluate: Callable[[int], dict[str, float]] | None,
        *,
        restore: Callable[[int], Progress | None] | None = None,
        writer: CheckpointWriter | None = None,
        watchdog: Watchdog | None = None,
    ):
        self._program, self._device, self._config, self._log, self._stop = program, device, config, log, stop
        self._save, self._evaluate, self._restore = save, evaluate, restore
        self._writer = writer or CheckpointWriter(asynchronous=False)
        self._watchdog = watchdog or Watchdog(0, Path(), 0)
        model = config.model
        self._has_dropout = model.hidden_dropout_prob > 0 or model.attention_probs_dropout_prob > 0
        self._interval = Interval()
        self._total = Interval()
        self._before: dict[str, float] = {}  # totals of the legs of this run before this one
        self._last_loss: float | None = None
        self._spikes = SpikeGuard(0)
        self._roll_backs = 0

    def run(
        self, open_batches: Callable[[int], Generator], start_step: int, last_step: int, carried: dict | None = None
    ) -> Outcome:
        """Updates `start_step` .. `last_step` - 1 (those that end the run at `last_step`), or fewer if asked to stop.

        Args:
            open_batches: step -> global batches from there on, a generator.
            carried: `Progress.carried` of the checkpoint that is continued.
        Raises:
            TrainingDiverged, RanksDiffer: before anything is saved.
            SaveFailed: a checkpoint could not be written.
        """
        run = self._config.run
        self._at = _Position(start_step, last_step, saved_at=start_step, logged_at=start_step)
        self._spikes = SpikeGuard(run.loss_spike_factor, carried)
        self._before = (carried or {}).get("totals", {}) if not run.benchmark else {}
        warmup_end = start_step + (run.benchmark_warmup_steps if run.benchmark else 0)
        self.check_ranks(start_step)
        self._begin = time.perf_counter()
        self._open_batches, self._batches = open_batches, open_batches(start_step)
        self._interval.start()
        try:
            while self._at.step < last_step and not self._at.interrupted:
                self._one_update(warmup_end)
        finally:
            self._batches.close()
        self._writer.finish()
        self._report_saves()
        assert run.benchmark or self._at.saved_at == self._at.step
        if start_step >= run.max_steps:  # stopped between the last save and the summary
            self._at.metrics = self.run_evaluation(self._at.step, self._at.epoch)
        return self._outcome()

    def _one_update(self, warmup_end: int) -> None:
        """The next global batch, and what is due after it; a roll back may end it at an earlier step."""
        run, at = self._config.run, self._at
        self._watchdog.beat(f"reading the batch of update {at.step + 1}")
        batch = next(self._batches)
        at.epoch = batch.epoch
        if self._spikes.skips(at.step):
            self._pass_over(at.step)
        else:
            self._update(at.step, batch)
        at.step += 1
        at.interrupted = self._device.collective.any(bool(self._stop))
        saves = not run.benchmark and at.step % run.num_steps_per_checkpoint == 0
        # A save ends an interval: what was summed since the last log line lies in the device, not in checkpoints.
        if at.step % run.log_freq == 0 or at.ending or at.step == warmup_end or saves:
            at.metrics, sums = self._report(at.step, at.epoch, at.last_step)
            if not run.benchmark and self._rolled_back(sums):
                return
        self._show_progress(at.step, at.last_step)
        if run.benchmark:
            if at.step == warmup_end:
                self._total = Interval()
            return
        self._interval.pause()
        if run.rank_check_freq and at.step % run.rank_check_freq == 0:
            self.check_ranks(at.step)
        if at.step == run.max_steps or (run.eval_freq and at.step % run.eval_freq == 0):
            at.metrics = at.metrics | self.run_evaluation(at.step, at.epoch)
        if saves or at.ending:
            self._checkpoint()
        self._report_saves()
        self._interval.start()

    def _outcome(self) -> Outcome:
        at, totals = self._at, self._totals()
        capacity = self._device.peak_tflops * 1e12 * totals["rank_seconds"]
        return Outcome(
            step=at.step,
            epoch=at.epoch,
            finished=at.step >= self._config.run.max_steps,
            interrupted_by=(self._stop.signal_name or "a signal to another rank") if at.step < at.last_step else None,
            final_metrics=at.metrics,
            raw_train_seconds=totals["seconds"],
            total_seconds=totals["total_seconds"],
            sequences=int(totals["sequences"]),
            tokens=int(totals["tokens"]),
            mfu=totals["flops"] / capacity if capacity else None,
        )

    def _totals(self) -> dict[str, float]:
        """Over all ranks and all legs of the run so far; every rank must call it."""
        mine, seconds = self._total, self._total.seconds
        local = np.array([mine.sequences, mine.tokens, mine.flops], "float64")
        sequences, tokens, flops = self._device.collective.sum(local).tolist()
        now = {
            "sequences": sequences,
            "tokens": tokens,
            "flops": flops,
            "seconds": seconds,
            "rank_seconds": seconds * self._device.group.world_size,
            "total_seconds": time.perf_counter() - self._begin,
        }
        return {name: value + self._before.get(name, 0.0) for name, value in now.items()}

    def _checkpoint(self) -> None:
        at = self._at
        self._check_finite()
        self._watchdog.beat(f"saving step {at.step}")
        self._save(at.step, at.epoch, {**self._spikes.carried(), "totals": self._totals()})
        at.saved_at = at.step

    def _report_saves(self) -> None:
        """Log what saves that were finished by now have cost; SaveFailed if one could not be."""
        for times in self._writer.check():
            if self._log:
                self._log.event(
                    "checkpoint",
                    times.step,
                    self._at.epoch,
                    {
                        "checkpoint_wait_seconds": times.wait_seconds,
                        "checkpoint_copy_seconds": times.copy_seconds,
                        "checkpoint_write_seconds": times.write_seconds,
                    },
                )

    def _rolled_back(self, sums: dict[str, float]) -> bool:
        """Tell of a loss spike in the updates since the last log line; whether the run went back before it.

        Raises:
            TrainingDiverged: again and again.
        """
        at, run = self._at, self._config.run
        spike = self._spikes.observe(
            at.logged_at, at.step, sums["loss"], sums["passes"], complete=at.step % run.log_freq == 0
        )
        at.logged_at = at.step
        if spike is None:
            return False
        self._say(f"warning: {spike}")
        if self._log:
            self._log.event(
                "loss_spike",
                at.step,
                at.epoch,
                {"first_step": spike.first + 1, "loss_spike": spike.loss, "usual_loss": spike.usual},
            )
        if run.loss_spike_action != "rollback" or self._restore is None:
            return False
        if self._roll_backs == MAX_ROLL_BACKS:
            raise TrainingDiverged(
                f"{spike}, after {MAX_ROLL_BACKS} roll backs already; lower --learning-rate or lengthen the warm-up, "
                "check the data, and continue from the last checkpoint"
            )
        progress = self._restore(spike.first)
        if progress is None:
            self._say(
                f"no valid checkpoint from before step {spike.first + 1} is left to roll back to; going on "
                "(--keep-checkpoints, --num-steps-per-checkpoint)"
            )
            return False
        self._go_back(spike, progress)
        return True

    def _go_back(self, spike: Spike, progress: Progress) -> None:
        """The loop goes on where the restored checkpoint stands, and will pass over the batches of the spike."""
        self._roll_backs += 1
        already = self._spikes.skipped()
        self._spikes = SpikeGuard(self._config.run.loss_spike_factor, progress.carried)
        self._spikes.skip([*already, (spike.first, spike.last)])
        self._batches.close()
        self._at.step = self._at.saved_at = self._at.logged_at = progress.step
        self._at.interrupted = False  # asked again after the next update
        self._batches = self._open_batches(progress.step)
        self._say(
            f"rolled back to step {progress.step}; the batches of steps {spike.first + 1}-{spike.last} will be "
            "passed over"
        )

    def _say(self, message: str) -> None:
        if self._log:
            self._log.say(message)

    def _pass_over(self, step: int) -> None:
        """An update that is not made: counted as skipped, and the learning rate stays where it was."""
        self._watchdog.beat(f"passing over update {step + 1}")
        count = read_variable(self._device.scope, SKIPPED_UPDATES)
        write_variable(self._device.scope, SKIPPED_UPDATES, count + 1, self._device.place)

    def _mfu(self, flops: float, seconds: float) -> float:
        """FLOPs of all ranks' padded batches over what the ranks' peak allows."""
        return flops / max(seconds, 1e-9) / (self._device.peak_tflops * 1e12 * self._device.group.world_size)

    def check_ranks(self, step: int) -> None:
        guards.check_ranks(self._program, self._device, step)

    def _update(self, step: int, batch) -> None:
        """All passes of one update; the last of them applies it."""
        for micro_step, micro_batch in enumerate(batch.micro_batches):
            self._watchdog.beat(f"pass {micro_step + 1} of update {step + 1}")
            if self._has_dropout:
                # Dropout is a function of (seed, step, pass, rank): what a resumed run draws is what it would have.
                key = stream_key(self._config.run.seed, "dropout", step, micro_step, self._device.group.rank)
                paddle.seed(int(key) & 0x7FFFFFFF)
            self._device.executor.run(self._program.main, feed=micro_batch.feed, scope=self._device.scope)
            self._interval.add(micro_batch, self._config.model)
        self._interval.updates += 1

    def _report(self, step: int, epoch: int, last_step: int) -> tuple[dict[str, float], dict[str, float]]:
        """Bring the sums of the interval to the host, over all ranks, and log them -> (metrics, the loss's sums)."""
        self._watchdog.beat(f"waiting for update {step}")
        sums = self._collect()
        interval, self._interval = self._interval, Interval()
        interval.pause()  # after the wait for the device, which on a GPU is in `_collect`
        self._interval.start()
        self._total.extend(interval)
        objective = self._program.objective
        names = objective.metric_names
        tokens, padded_tokens, flops = sums[len(names) :]
        named = dict(zip(names, sums[: len(names)].tolist(), strict=True))
        seconds = max(interval.seconds, 1e-9)
        updates = max(interval.updates, 1)
        read = lambda name: float(read_variable(self._device.scope, name).reshape(-1)[0])  # noqa: E731
        metrics = {
            **objective.summarise(named),
            "learning_rate": read(LEARNING_RATE),
            "gradient_norm": read(GRADIENT_NORM),
            "skipped_steps": read(SKIPPED_UPDATES),
            "step_cost": seconds / updates,
            "step_samples": self._sequences_per_update(),
            "seqs_per_sec": interval.updates * self._sequences_per_update() / seconds,
            "tokens_per_sec": tokens / seconds,
            "padded_tokens_per_sec": padded_tokens / seconds,
            "mfu": self._mfu(flops, seconds),
        }
        if self._program.loss_scale:
            metrics["loss_scale"] = read(self._program.loss_scale)
        self._last_loss = metrics["loss"]
        if self._log:
            self._log.train(step, epoch, metrics, self._eta(step, last_step))
        self._check_finite()
        return metrics, named

    def _collect(self) -> np.ndarray:
        """Sums over ranks of the device's metrics and of this interval's tokens and FLOPs; the device starts anew."""
        local = read_variable(self._device.scope, TRAINING_METRICS)
        write_variable(self._device.scope, TRAINING_METRICS, np.zeros_like(local), self._device.place)
        mine = self._interval
        return self._device.collective.sum(
            np.concatenate([local, np.array([mine.tokens, mine.padded_tokens, mine.flops], "float64")])
        )

    def _check_finite(self) -> None:
        guards.check_finite(self._program, self._device, self._config.run.max_consecutive_skipped_steps)

    def run_evaluation(self, step: int, epoch: int) -> dict[str, float]:
        """Held-out metrics after `step`, logged; none without held-out data."""
        if self._evaluate is None:
            return {}
        with self._watchdog.paused(f"evaluating after update {step}"):
            metrics = self._evaluate(step)
        if self._log:
            self._log.evaluation(step, epoch, metrics)
        return metrics

    def _show_progress(self, step: int, last_step: int) -> None:
        if self._log:
            self._log.advance(step, self._eta(step, last_step), self._last_loss)

    def _eta(self, step: int, last_step: int) -> float:
        updates = self._total.updates + self._interval.updates
        seconds = self._total.seconds + self._interval.elapsed()
        return (last_step - step) * seconds / updates if updates else float("inf")

    def _sequences_per_update(self) -> int:
        return self._config.batch.resolved_global_batch_size(self._device.group.world_size)

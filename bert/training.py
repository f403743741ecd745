"""The loop: a training program and batches -> updates, with logs, held-out evaluation and checkpoints in between."""

import time
import zlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert.checkpoint import Progress
from bert.checkpoint_writer import CheckpointWriter
from bert.config import TrainingConfig
from bert.distributed import Collective, Group
from bert.framework import paddle, read_variable, write_variable
from bert.interruption import StopRequest
from bert.logs import RunLog
from bert.optimization import CONSECUTIVE_SKIPPED_UPDATES, GRADIENT_NORM, LEARNING_RATE, SKIPPED_UPDATES
from bert.randomness import stream_key
from bert.spikes import Spike, SpikeGuard
from bert.throughput import Interval
from bert.watchdog import Watchdog
from program import TRAINING_METRICS

MAX_ROLL_BACKS = 5  # of one leg of a run


class TrainingDiverged(RuntimeError):
    """Too many updates in a row had gradients that were not finite, or the loss jumped again and again."""


class RanksDiffer(RuntimeError):
    """The ranks no longer hold the same parameters."""


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


class Trainer:
    """Runs updates; `save(step, epoch, carried)` and `evaluate(step)` are given by the entry point.

    `restore(step)` brings back the newest valid checkpoint up to that step, for a roll back after a loss spike.
    """

    def __init__(self, program, device: Device, config: TrainingConfig, log: RunLog | None, stop: StopRequest,
                 save: Callable[[int, int, dict], None], evaluate: Callable[[int], dict[str, float]] | None, *,
                 restore: Callable[[int], Progress | None] | None = None, writer: CheckpointWriter | None = None,
                 watchdog: Watchdog | None = None):  # fmt: skip
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

    def run(self, open_batches: Callable[[int], Generator], start_step: int, last_step: int,
            carried: dict | None = None) -> Outcome:  # fmt: skip
        """Updates `start_step` .. `last_step` - 1 (those that end the run at `last_step`), or fewer if asked to stop.

        Args:
            open_batches: step -> global batches from there on, a generator.
            carried: `Progress.carried` of the checkpoint that is continued.
        Raises:
            TrainingDiverged, RanksDiffer: before anything is saved.
            SaveFailed: a checkpoint could not be written.
        """
        run, step, epoch, saved_at = self._config.run, start_step, 0, start_step
        metrics: dict[str, float] = {}
        self._spikes = SpikeGuard(run.loss_spike_factor, carried)
        self._before = (carried or {}).get("totals", {}) if not run.benchmark else {}
        warmup_end = start_step + (run.benchmark_warmup_steps if run.benchmark else 0)
        self.check_ranks(step)
        self._begin, logged_at = time.perf_counter(), step
        batches = open_batches(step)
        self._interval.start()
        try:
            while step < last_step:
                self._watchdog.beat(f"reading the batch of update {step + 1}")
                batch = next(batches)
                epoch = batch.epoch
                if self._spikes.skips(step):
                    self._pass_over(step)
                else:
                    self._update(step, batch)
                step += 1
                interrupted = self._device.collective.any(bool(self._stop))
                ending = interrupted or step == last_step
                if step % run.log_freq == 0 or ending or step == warmup_end:
                    metrics, sums = self._report(step, epoch, last_step)
                    spike = None if run.benchmark else self._spikes.observe(
                        logged_at, step, sums["loss"], sums["passes"], complete=step % run.log_freq == 0)
                    logged_at = step
                    if spike and (back_to := self._handle(spike, step, epoch)) is not None:
                        batches.close()
                        step = saved_at = logged_at = back_to
                        batches = open_batches(step)
                        continue
                self._show_progress(step, last_step)
                if step == warmup_end and run.benchmark:
                    self._total = Interval()
                self._interval.pause()
                if run.benchmark:
                    if interrupted:
                        break
                    self._interval.start()
                    continue
                if run.rank_check_freq and step % run.rank_check_freq == 0:
                    self.check_ranks(step)
                if step == run.max_steps or (run.eval_freq and step % run.eval_freq == 0):
                    metrics = metrics | self.run_evaluation(step, epoch)
                if step % run.num_steps_per_checkpoint == 0 or ending:
                    self._checkpoint(step, epoch)
                    saved_at = step
                self._report_saves(epoch)
                if interrupted:
                    break
                self._interval.start()
        finally:
            batches.close()
        self._writer.finish()
        self._report_saves(epoch)
        assert run.benchmark or saved_at == step
        if start_step >= run.max_steps:  # stopped between the last save and the summary
            metrics = self.run_evaluation(step, epoch)
        return self._outcome(step, epoch, last_step, metrics)

    def _outcome(self, step: int, epoch: int, last_step: int, metrics: dict[str, float]) -> Outcome:
        totals = self._totals()
        capacity = self._device.peak_tflops * 1e12 * totals["rank_seconds"]
        return Outcome(
            step=step,
            epoch=epoch,
            finished=step >= self._config.run.max_steps,
            interrupted_by=(self._stop.signal_name or "a signal to another rank") if step < last_step else None,
            final_metrics=metrics,
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
        now = {"sequences": sequences, "tokens": tokens, "flops": flops, "seconds": seconds,
               "rank_seconds": seconds * self._device.group.world_size,
               "total_seconds": time.perf_counter() - self._begin}  # fmt: skip
        return {name: value + self._before.get(name, 0.0) for name, value in now.items()}

    def _checkpoint(self, step: int, epoch: int) -> None:
        self._check_finite()
        self._watchdog.beat(f"saving step {step}")
        self._save(step, epoch, {**self._spikes.carried(), "totals": self._totals()})

    def _report_saves(self, epoch: int) -> None:
        """Log what saves that were finished by now have cost; SaveFailed if one could not be."""
        for times in self._writer.check():
            if self._log:
                self._log.event("checkpoint", times.step, epoch, {
                    "checkpoint_wait_seconds": times.wait_seconds, "checkpoint_copy_seconds": times.copy_seconds,
                    "checkpoint_write_seconds": times.write_seconds})  # fmt: skip

    def _handle(self, spike: Spike, step: int, epoch: int) -> int | None:
        """Tell of a spike; rolled back, the step to go on from, else None.

        Raises:
            TrainingDiverged: again and again.
        """
        if self._log:
            self._log.say(f"warning: {spike}")
            self._log.event("loss_spike", step, epoch, {"first_step": spike.first + 1, "loss_spike": spike.loss,
                                                        "usual_loss": spike.usual})  # fmt: skip
        if self._config.run.loss_spike_action != "rollback" or self._restore is None:
            return None
        if self._roll_backs == MAX_ROLL_BACKS:
            raise TrainingDiverged(
                f"{spike}, after {MAX_ROLL_BACKS} roll backs already; lower --learning-rate or lengthen the warm-up, "
                "check the data, and continue from the last checkpoint"
            )
        progress = self._restore(spike.first)
        if progress is None:
            if self._log:
                self._log.say(f"no valid checkpoint from before step {spike.first + 1} is left to roll back to; going "
                              "on (--keep-checkpoints, --num-steps-per-checkpoint)")  # fmt: skip
            return None
        self._roll_backs += 1
        already = self._spikes.skipped()
        self._spikes = SpikeGuard(self._config.run.loss_spike_factor, progress.carried)
        self._spikes.skip([*already, (spike.first, spike.last)])
        if self._log:
            self._log.say(f"rolled back to step {progress.step}; the batches of steps {spike.first + 1}-{spike.last} "
                          "will be passed over")  # fmt: skip
        return progress.step

    def _pass_over(self, step: int) -> None:
        """An update that is not made: counted as skipped, and the learning rate stays where it was."""
        self._watchdog.beat(f"passing over update {step + 1}")
        count = read_variable(self._device.scope, SKIPPED_UPDATES)
        write_variable(self._device.scope, SKIPPED_UPDATES, count + 1, self._device.place)

    def _mfu(self, flops: float, seconds: float) -> float:
        """FLOPs of all ranks' padded batches over what the ranks' peak allows."""
        return flops / max(seconds, 1e-9) / (self._device.peak_tflops * 1e12 * self._device.group.world_size)

    def check_ranks(self, step: int) -> None:
        """Compare the ranks' parameters by checksum; RanksDiffer names those that drifted."""
        if self._device.group.world_size == 1:
            return
        names = self._program.parameters
        sums = np.array([zlib.crc32(read_variable(self._device.scope, n).tobytes()) for n in names], "int64")
        table = self._device.collective.gather(sums)  # [world_size, parameters]
        drifted = [name for name, column in zip(names, table.T, strict=True) if len(set(column.tolist())) > 1]
        if drifted:
            raise RanksDiffer(
                f"at step {step} the ranks hold different values of {len(drifted)} of {len(names)} parameters "
                f"({', '.join(drifted[:3])}...); resume all ranks from the last checkpoint, and check that every host "
                "runs the same program, data and hardware"
            )

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
        tokens, padded_tokens, flops = sums[len(names):]
        named = dict(zip(names, sums[:len(names)].tolist(), strict=True))
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
        """Stop after too many skipped updates in a row; with dynamic loss scaling, only once the scale is down.

        Raises:
            TrainingDiverged
        """
        skipped = int(read_variable(self._device.scope, CONSECUTIVE_SKIPPED_UPDATES)[0])
        scale = float(read_variable(self._device.scope, self._program.loss_scale)[0]) if self._program.loss_scale else 0
        still_falling = bool(self._program.loss_scale_counters) and 1.0 < scale < float("inf")
        if skipped >= self._config.run.max_consecutive_skipped_steps and not still_falling:
            raise TrainingDiverged(
                f"the last {skipped} updates had NaN or Inf gradients and changed no parameter "
                f"(--max-consecutive-skipped-steps={self._config.run.max_consecutive_skipped_steps}); lower "
                "--learning-rate or lengthen the warm-up, check the data, or use --amp-dtype bfloat16, and continue "
                "from the last checkpoint"
            )

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

"""The loop: a training program and batches -> updates, with logs, held-out evaluation and checkpoints in between."""

import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert.config import TrainingConfig
from bert.distributed import Collective, Group
from bert.estimates import training_flops_per_sequence
from bert.framework import paddle, read_variable, write_variable
from bert.interruption import StopRequest
from bert.logs import RunLog
from bert.optimization import CONSECUTIVE_SKIPPED_UPDATES, GRADIENT_NORM, LEARNING_RATE, SKIPPED_UPDATES
from bert.randomness import stream_key
from program import TRAINING_METRICS


class TrainingDiverged(RuntimeError):
    """Too many updates in a row had gradients that were not finite."""


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
    """Runs updates from `step` on; `save(step, epoch)` and `evaluate(step)` are given by the entry point."""

    def __init__(self, program, device: Device, config: TrainingConfig, log: RunLog | None, stop: StopRequest,
                 save: Callable[[int, int], None], evaluate: Callable[[int], dict[str, float]] | None):  # fmt: skip
        self._program, self._device, self._config, self._log, self._stop = program, device, config, log, stop
        self._save, self._evaluate = save, evaluate
        model = config.model
        self._has_dropout = model.hidden_dropout_prob > 0 or model.attention_probs_dropout_prob > 0
        self._interval = _Interval()
        self._total = _Interval()
        self._last_loss: float | None = None

    def run(self, batches: Iterator, start_step: int, last_step: int) -> Outcome:
        """Updates `start_step` .. `last_step` - 1 (those that end the run at `last_step`), or fewer if asked to stop.

        Raises:
            TrainingDiverged, RanksDiffer: before anything is saved.
        """
        run = self._config.run
        step, epoch, saved_at = start_step, 0, start_step
        metrics: dict[str, float] = {}
        warmup_end = start_step + (run.benchmark_warmup_steps if run.benchmark else 0)
        self.check_ranks(step)
        begin = time.perf_counter()
        self._interval.start()
        while step < last_step:
            batch = next(batches)
            epoch = batch.epoch
            self._update(step, batch)
            step += 1
            interrupted = self._device.collective.any(bool(self._stop))
            ending = interrupted or step == last_step
            if step % run.log_freq == 0 or ending or step == warmup_end:
                metrics = self._report(step, epoch, last_step)
            self._show_progress(step, last_step)
            if step == warmup_end and run.benchmark:
                self._total = _Interval()
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
                self._check_finite()
                self._save(step, epoch)
                saved_at = step
            if interrupted:
                break
            self._interval.start()
        assert run.benchmark or saved_at == step
        if start_step >= run.max_steps:  # stopped between the last save and the summary
            metrics = self.run_evaluation(step, epoch)
        totals = np.array([self._total.sequences, self._total.tokens, self._total.flops], "float64")
        sequences, tokens, flops = self._device.collective.sum(totals)
        return Outcome(
            step=step,
            epoch=epoch,
            finished=step >= run.max_steps,
            interrupted_by=(self._stop.signal_name or "a signal to another rank") if step < last_step else None,
            final_metrics=metrics,
            raw_train_seconds=self._total.seconds,
            total_seconds=time.perf_counter() - begin,
            sequences=int(sequences),
            tokens=int(tokens),
            mfu=self._mfu(flops, self._total.seconds) if self._total.updates else None,
        )

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
            if self._has_dropout:
                # Dropout is a function of (seed, step, pass, rank): what a resumed run draws is what it would have.
                key = stream_key(self._config.run.seed, "dropout", step, micro_step, self._device.group.rank)
                paddle.seed(int(key) & 0x7FFFFFFF)
            self._device.executor.run(self._program.main, feed=micro_batch.feed, scope=self._device.scope)
            self._interval.add(micro_batch, self._config.model)
        self._interval.updates += 1

    def _report(self, step: int, epoch: int, last_step: int) -> dict[str, float]:
        """Bring the sums of the interval to the host, over all ranks, and log them."""
        sums = self._collect()
        interval, self._interval = self._interval, _Interval()
        interval.pause()  # after the wait for the device, which on a GPU is in `_collect`
        self._interval.start()
        self._total.extend(interval)
        objective = self._program.objective
        names = objective.metric_names
        tokens, padded_tokens, flops = sums[len(names):]
        seconds = max(interval.seconds, 1e-9)
        updates = max(interval.updates, 1)
        read = lambda name: float(read_variable(self._device.scope, name).reshape(-1)[0])  # noqa: E731
        metrics = {
            **objective.summarise(dict(zip(names, sums[:len(names)].tolist(), strict=True))),
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
        return metrics

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


class _Interval:
    """This rank's counts between two log lines."""

    def __init__(self) -> None:
        self.updates = self.sequences = self.tokens = self.padded_tokens = 0
        self.flops = self.seconds = 0.0
        self._started: float | None = None

    def start(self) -> None:
        """The clock runs: reading, updates and waiting for the device count; evaluation and saving do not."""
        self._started = time.perf_counter()

    def pause(self) -> None:
        self.seconds, self._started = self.elapsed(), None

    def elapsed(self) -> float:
        return self.seconds + (time.perf_counter() - self._started if self._started is not None else 0.0)

    def add(self, batch, model) -> None:
        self.sequences += batch.num_sequences
        self.tokens += batch.num_tokens
        self.padded_tokens += batch.num_padded_tokens
        length = batch.num_padded_tokens // batch.num_sequences
        predictions = round(batch.num_masked / batch.num_sequences)
        self.flops += batch.num_sequences * training_flops_per_sequence(model, length, predictions)

    def extend(self, other: "_Interval") -> None:
        for name in ("updates", "sequences", "tokens", "padded_tokens", "flops", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))

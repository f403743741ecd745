"""Checks that end an unhealthy run: updates that are not finite, a loss far too high, ranks whose parameters differ."""

import logging
import zlib
from typing import Any

import numpy as np

from bert.config.training_settings import TrainingConfig
from bert.exit_codes import DIVERGED, Failure
from bert.model.optimization import CONSECUTIVE_SKIPPED_UPDATES
from bert.runtime.paddle_api import read_variable
from bert.training.divergence import DivergenceGuard

logger = logging.getLogger(__name__)


class TrainingDiverged(Failure):
    """Too many updates in a row had gradients that were not finite, or the loss jumped again and again."""

    exit_code = DIVERGED


class RanksDiffer(Failure):
    """The ranks no longer hold the same parameters."""

    exit_code = DIVERGED


def check_ranks(program: Any, device: Any, step: int) -> None:
    """Compare the ranks' parameters; RanksDiffer names those that drifted.

    On GPUs on the device, against rank 0's: a copy to the host would take a second for BERT-large. On CPU by checksum.
    """
    if device.group.world_size == 1:
        return
    names = program.parameters
    if device.group.device == "gpu":
        differ = device.collective.count_differences(program.main, names, device.scope) > 0
    else:
        sums = np.array([zlib.crc32(read_variable(device.scope, n).tobytes()) for n in names], "int64")
        table = device.collective.gather(sums)  # [world_size, parameters]
        differ = (table != table[0]).any(axis=0)
    drifted = [name for name, is_other in zip(names, differ, strict=True) if is_other]
    if drifted:
        raise RanksDiffer(
            f"at step {step} the ranks hold different values of {len(drifted)} of {len(names)} parameters "
            f"({', '.join(drifted[:3])}...); resume all ranks from the last checkpoint, and check that every host "
            "runs the same program, data and hardware"
        )


def check_finite(program: Any, device: Any, most: int) -> None:
    """Stop after `most` skipped updates in a row; with dynamic loss scaling, only once the scale is down.

    Raises:
        TrainingDiverged
    """
    skipped = int(read_variable(device.scope, CONSECUTIVE_SKIPPED_UPDATES)[0])
    scale = float(read_variable(device.scope, program.loss_scale)[0]) if program.loss_scale else 0
    still_falling = bool(program.loss_scale_counters) and 1.0 < scale < float("inf")
    if skipped >= most and not still_falling:
        raise TrainingDiverged(
            f"the last {skipped} updates had NaN or Inf gradients and changed no parameter "
            f"(--max-consecutive-skipped-steps={most}); lower --learning-rate or lengthen the warm-up, check the data, "
            "or use --amp-dtype bfloat16, and continue from the last checkpoint"
        )


def check_divergence(guard: DivergenceGuard, loss: float, config: TrainingConfig, step: int) -> None:
    """Warn of a loss that stays far too high; end the run if it does for very long, or where the training ends.

    Raises:
        TrainingDiverged: before the last checkpoint is saved.
    """
    optimizer = config.optimizer
    text = (
        f"lower --learning-rate (now {optimizer.learning_rate:g}) or lengthen the warm-up (--warmup-proportion, now "
        f"{optimizer.warmup_proportion:g}), check the data, and start in another --output-dir"
    )
    warns = guard.observe(loss)
    if guard.has_diverged(at_end=step >= config.run.max_steps):
        raise TrainingDiverged(f"{guard}; {text}")
    if warns:
        logger.warning(f"{guard}; {text}")

"""Compares the batch of a training with its recipe's, for which the learning rate was chosen."""

import math

from bert.config.flags import flag_name
from bert.pretraining.config import PretrainingConfig


def batch_warning(config: PretrainingConfig, recipe: PretrainingConfig, world_size: int) -> str:
    """A warning that the global batch differs from the recipe's but the learning rate does not; otherwise "".

    The rate that is named grows with the square root of the batch, which keeps the variance of an update (You et al.,
    2020).
    """
    batch, usual = config.batch.resolved_global_batch_size(world_size), recipe.batch.global_batch_size
    rate, updates = config.optimizer.learning_rate, config.run.max_steps
    if usual is None or batch == usual or rate != recipe.optimizer.learning_rate:
        return ""
    text = (
        f"{config.stage()}: an update reads {batch:,} sequences, {batch / usual:.3g} times the recipe's {usual:,}, "
        f"with the recipe's rate {rate:g}"
    )
    if updates == recipe.run.max_steps > 0 and batch < usual:
        text += f", so its {updates:,} updates read {batch / usual:.3g} times the recipe's samples"
    remedies = [
        *_remedies_of_batch(config, usual, world_size),
        f"about {_flag(config, 'learning_rate')} {rate * math.sqrt(batch / usual):.2g}, by the root of the batch",
    ]
    return f"{text}; pass {', or '.join(remedies)}"


def _remedies_of_batch(config: PretrainingConfig, usual: int, world_size: int) -> list[str]:
    """Flags that restore the recipe's batch, if possible."""
    if config.batch.global_batch_size is not None:
        return [f"{_flag(config, 'global_batch_size')} {usual}"]
    micro_steps, rest = divmod(usual, config.batch.batch_size * world_size)
    return [] if rest else [f"{_flag(config, 'gradient_merge_steps')} {micro_steps}"]


def _flag(config: PretrainingConfig, name: str) -> str:
    return f"--{config.stage()}-{flag_name(name)[2:]}"

"""Explains a micro-batch that does not fit in a rank's memory, and names one that does."""

import contextlib
from collections.abc import Iterator

import psutil

from bert.config.automatic import resolve_auto
from bert.config.training_settings import TrainingConfig
from bert.runtime.distributed import Group
from bert.runtime.paddle_api import paddle
from bert.training.devices import device_features

USABLE = 0.9  # of a device's memory: the framework's workspaces take the rest


@contextlib.contextmanager
def memory_errors(config: TrainingConfig, group: Group) -> Iterator[None]:
    """Context manager: an update without enough memory becomes a ValueError with the remedy."""
    try:
        yield
    except Exception as error:  # Paddle's is a MemoryError, or another with these words
        words = ("ResourceExhausted", "out of memory")
        if not isinstance(error, MemoryError) and not any(word in str(error) for word in words):
            raise
        resolved = resolve_auto(config, device_features(group))
        raise ValueError(too_large(resolved, group.world_size, _memory_bytes(group))) from error


def too_large(config: TrainingConfig, world_size: int, memory_bytes: float) -> str:
    """The error for a micro-batch, with the largest one that fits by estimate and keeps the update.

    The settings are resolved for the device of the rank (`resolve_auto`).
    """
    from bert.planning.estimates import memory_per_rank  # which a training without this error does not load

    batch_size, total = config.batch.batch_size, config.batch.resolved_global_batch_size(world_size)
    memory, room = memory_per_rank(config, world_size), USABLE * memory_bytes
    fitting = memory.largest_batch_size(batch_size, total // world_size, batch_size // 2, room)
    remedy = "pass --recompute, a shorter --max-seq-length or a smaller model"
    if fitting:
        remedy = (
            f"pass --batch-size {fitting} --global-batch-size {total}, which fits by estimate and leaves an update "
            "as it is, or --recompute"
        )
    return f"batch_size={batch_size} does not fit in the {memory_bytes / 1e9:.3g} GB of memory of a rank; {remedy}"


def _memory_bytes(group: Group) -> float:
    """Memory of a rank in bytes: its card's, or its share of the machine's."""
    if group.device == "gpu":
        return float(paddle.device.cuda.get_device_properties().total_memory)
    return psutil.virtual_memory().total / group.local_world_size

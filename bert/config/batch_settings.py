"""Settings of the global batch, and of its growth at the beginning of a training."""

from bisect import bisect_right
from dataclasses import dataclass

from pydantic import Field, model_validator

from bert.config.settings_base import Settings


@dataclass(frozen=True)
class BatchSchedule:
    """Number of sequences in every update, over all ranks.

    A batch that warms up is a multiple of `smallest` and grows by it up to `full`, with as many updates at each size,
    as ModernBERT's (Warner et al., 2024).

    Attributes:
        updates_at_each: updates at each size below `full`; 0: all have `full`.
    """

    full: int
    smallest: int = 0
    updates_at_each: int = 0

    def unit(self) -> int:
        """Largest number that divides the batch size of every update."""
        return self.smallest or self.full

    def warmup_steps(self) -> int:
        """Number of updates with fewer sequences than `full`."""
        return self.updates_at_each * (self.full // self.unit() - 1)

    def batch_size(self, step: int) -> int:
        """Number of sequences in the update with index `step`, from 0."""
        is_full = step >= self.warmup_steps()
        return self.full if is_full else self.smallest * (1 + step // self.updates_at_each)

    def sequences(self, step: int) -> int:
        """Number of sequences in the first `step` updates."""
        growing = min(step, self.warmup_steps())
        size, rest = divmod(growing, self.updates_at_each or 1)  # `size` sizes are done
        units = self.updates_at_each * size * (size + 1) // 2 + rest * (size + 1)
        return units * self.smallest + (step - growing) * self.full

    def steps(self, sequences: float) -> int:
        """Number of whole updates that so many sequences fill."""
        if not self.updates_at_each:
            return int(sequences / self.full)
        return bisect_right(range(int(sequences) // self.smallest + 1), sequences, key=self.sequences) - 1


class BatchSettings(Settings):
    batch_size: int = Field(32, ge=1, description="sequences per micro-batch on one rank")
    gradient_merge_steps: int = Field(1, ge=1, description="micro-batches accumulated into one update")
    global_batch_size: int | None = Field(
        None,
        ge=1,
        description="sequences per update over all ranks; decides the micro-batches per update "
        "(default: --batch-size x --gradient-merge-steps x ranks)",
    )

    def resolved_global_batch_size(self, world_size: int) -> int:
        """Sequences per update over all ranks, after a warm-up of the batch."""
        return self.batch_size * world_size * self.gradient_accumulation_steps(world_size)

    def warms_up(self) -> bool:
        """Whether the batch size grows at the beginning."""
        return False

    def schedule(self, world_size: int) -> BatchSchedule:
        """The batch size of every update."""
        return BatchSchedule(self.resolved_global_batch_size(world_size))

    def gradient_accumulation_steps(self, world_size: int) -> int:
        """Micro-steps per update, after a warm-up of the batch."""
        if self.global_batch_size is None:
            return self.gradient_merge_steps
        per_micro_step = self.batch_size * world_size
        steps, rest = divmod(self.global_batch_size, per_micro_step)
        if steps == 0 or rest:
            raise ValueError(
                f"global_batch_size={self.global_batch_size} must be a multiple of batch_size x world_size = "
                f"{self.batch_size} x {world_size} = {per_micro_step}; change --batch-size or --global-batch-size"
            )
        if self.gradient_merge_steps not in (1, steps):
            raise ValueError(
                f"gradient_merge_steps={self.gradient_merge_steps} contradicts global_batch_size="
                f"{self.global_batch_size}, which needs {steps} micro-steps of {per_micro_step} sequences; give only "
                "one of them (--global-batch-size none)"
            )
        return steps


class PretrainingBatchSettings(BatchSettings):
    batch_size_warmup_min_size: int | None = Field(
        None, ge=1, description="batch size of the first updates; must divide the global batch size (default: off)"
    )
    batch_size_warmup_sequences: int | None = Field(
        None,
        ge=1,
        description="sequences in which an update grows from --batch-size-warmup-min-size to the global batch, with as "
        "many updates at each size (default: off)",
    )

    @model_validator(mode="after")
    def _whole_warmup(self) -> "PretrainingBatchSettings":
        smallest, sequences = self.batch_size_warmup_min_size, self.batch_size_warmup_sequences
        if (smallest is None) != (sequences is None):
            raise ValueError(
                f"batch_size_warmup_min_size={smallest} and batch_size_warmup_sequences={sequences} belong together; "
                "give both or none"
            )
        return self

    def warms_up(self) -> bool:
        return self.batch_size_warmup_min_size is not None

    def schedule(self, world_size: int) -> BatchSchedule:
        full, smallest = self.resolved_global_batch_size(world_size), self.batch_size_warmup_min_size
        if smallest is None or self.batch_size_warmup_sequences is None:
            return BatchSchedule(full)
        per_micro_step = self.batch_size * world_size
        if smallest % per_micro_step or full % smallest or full == smallest:
            raise ValueError(
                f"batch_size_warmup_min_size={smallest} must be a multiple of batch_size x world_size = "
                f"{self.batch_size} x {world_size} = {per_micro_step}, and the global batch, {full}, a larger multiple "
                "of it; change --batch-size-warmup-min-size, --batch-size or --global-batch-size"
            )
        sizes = full // smallest
        updates = round(self.batch_size_warmup_sequences / (smallest * sizes * (sizes - 1) // 2))
        if not updates:
            raise ValueError(
                f"batch_size_warmup_sequences={self.batch_size_warmup_sequences} must be at least "
                f"{smallest * sizes * (sizes - 1) // 2} for an update of each size; raise it, or drop the warm-up"
            )
        return BatchSchedule(full, smallest, updates)

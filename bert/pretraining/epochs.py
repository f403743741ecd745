"""Epochs of a phase: passes over the samples of its shards.

A sample is a pair of sentences or a packed sequence in the shards. Text that was made into samples several times
(--duplicate-factor) is read as many times in an epoch.
"""

from dataclasses import dataclass

from bert.config.training_settings import derive
from bert.pretraining.config import PretrainingConfig
from bert.samples.manifest import read_manifest
from bert.samples.mixture import read_mixture


@dataclass(frozen=True)
class SampleSet:
    """The samples of one epoch: their number, and how many times the text is in them."""

    num_samples: int
    passes_over_text: int = 1

    def describe(self, sequences: int, epochs_of: str = "samples") -> str:
        """`3.50 epochs over 1,000 samples`, with the passes over the text where they are others; or these alone."""
        epochs = sequences / self.num_samples
        if epochs_of == "text":
            return f"{epochs * self.passes_over_text:,.2f} epochs over the text"
        text = f", {epochs * self.passes_over_text:,.2f} over the text" if self.passes_over_text > 1 else ""
        return f"{epochs:,.2f} epochs over {self.num_samples:,} samples{text}"


def sample_set(config: PretrainingConfig) -> SampleSet | None:
    """The training samples by the records beside the shards; None while there are no shards."""
    folder = config.data.input_dir
    if not folder.exists():
        return None
    from bert.samples.shards import count_samples  # loads the packages of all formats

    try:
        num_samples = count_samples(folder)
    except FileNotFoundError:
        return None
    manifest = read_manifest(folder / next(iter(read_mixture(folder) or {".": 1})))  # the sources are made alike
    pairs = manifest.settings.get("pairs") if manifest else None
    return SampleSet(num_samples, pairs.get("duplicate_factor", 1) if isinstance(pairs, dict) else 1)


def with_steps(config: PretrainingConfig, num_samples: int, world_size: int) -> PretrainingConfig:
    """The settings with --max-steps in place of --epochs: the whole updates in so many passes over the samples."""
    epochs = config.run.epochs
    if epochs is None:
        return config
    steps = config.batch.schedule(world_size).steps(epochs * num_samples)
    return derive(config, max_steps=max(1, steps), epochs=None)


def with_known_steps(config: PretrainingConfig, world_size: int) -> PretrainingConfig:
    """`with_steps` if the shards are there; otherwise the settings as they are."""
    samples = None if config.run.epochs is None else sample_set(config)
    return config if samples is None else with_steps(config, samples.num_samples, world_size)

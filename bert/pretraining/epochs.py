"""Epochs of a phase, counted as passes over the samples in its shards.

A sample is a pair of sentences or a packed sequence in the shards. Text that was made into samples several times
(--duplicate-factor) is read as many times in an epoch.
"""

from dataclasses import dataclass
from pathlib import Path

from bert.samples.manifest import read_manifest
from bert.samples.mixture import read_mixture


@dataclass(frozen=True)
class SampleSet:
    """The samples of one epoch: their number, and how often each text is in them."""

    num_samples: int
    passes_over_text: int = 1

    def describe(self, sequences: int, epochs_of: str = "samples") -> str:
        """Text such as `3.50 epochs over 1,000 samples`, with passes over the text if they differ."""
        epochs = sequences / self.num_samples
        if epochs_of == "text":
            return f"{epochs * self.passes_over_text:,.2f} epochs over the text"
        text = f", {epochs * self.passes_over_text:,.2f} over the text" if self.passes_over_text > 1 else ""
        return f"{epochs:,.2f} epochs over {self.num_samples:,} samples{text}"


def sample_set(folder: Path) -> SampleSet | None:
    """The samples in a folder of shards, from its records; None without shards."""
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

"""Shards for the learning curve, from the text of this machine."""

from pathlib import Path

from tests.benchmarks.processes import run_module

VOCABULARY_SIZE = 30_000
MAX_MEGABYTES = 8


def make_shards(
    folder: Path, sequence_length: int, *, vocabulary_size: int = VOCABULARY_SIZE, megabytes: int = MAX_MEGABYTES
) -> Path:
    """Make a vocabulary and shards below `folder` from text of this machine, each once; return the shards' folder."""
    corpus, vocabulary, shards = folder / "corpus", folder / "vocab.txt", folder / f"shards-{sequence_length}"
    source = corpus / "train/source"
    sample = ["--output-dir", corpus, "--max-megabytes", megabytes, "--sources", "docstrings"]
    sample += ["--held-out-fraction", 0.05]
    train = ["--input", source, "--vocab-size", vocabulary_size, "--output", vocabulary]
    preprocess = ["--text", source, "--sink", shards, "--vocab-file", vocabulary, "--num-shards", 1]
    preprocess += ["--target-seq-length", sequence_length, "--masking", "static"]
    preprocess += ["--max-predictions-per-seq", predictions_of(sequence_length)]
    commands: tuple[tuple[Path, str, list], ...] = (
        (corpus / "report.json", "data.examples.documentation", sample),
        (vocabulary, "data.train_vocabulary", train),
        (shards / "manifest.json", "data.preprocess_bert_pretrain", preprocess),
    )
    for product, module, arguments in commands:
        if not product.exists():
            run_module(module, *arguments)
    return shards


def predictions_of(sequence_length: int) -> int:
    return max(1, round(sequence_length * 20 / 128))

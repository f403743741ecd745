"""Samples per CPU second of the loader over a directory of shards, decoding included; one line of JSON.

python -m tests.benchmarks.measure_loader SHARDS vocab.txt --batch-size 64 [--group-by-length]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from bert.command_errors import command
from bert.config.setting_errors import explain
from bert.samples.loader import PretrainingDataset, PretrainingLoader
from bert.samples.settings import LoaderSettings
from bert.tokenization.vocabulary import Vocabulary


def measure(directory: Path, vocabulary: Vocabulary, settings: LoaderSettings, batch_size: int, seconds: float) -> dict:
    """Walk through the data from the start for about `seconds`, epoch after epoch."""
    cpu, begun = time.process_time(), time.monotonic()
    dataset = PretrainingDataset(directory, vocabulary, settings, seed=42)
    loader = PretrainingLoader(dataset, global_batch_size=batch_size, micro_batch_size=batch_size)
    samples = tokens = padded = 0
    first = None
    batches = loader.batches()
    for whole in batches:
        for batch in whole.micro_batches:
            first = first or time.monotonic() - begun
            samples += batch.num_sequences
            tokens += batch.num_tokens
            padded += batch.num_padded_tokens
        if time.monotonic() - begun > seconds:
            break
    batches.close()
    return {
        "samples": samples,
        "seconds": time.monotonic() - begun,
        "cpu_seconds": time.process_time() - cpu,
        "first_batch_seconds": first,
        "padding": 1 - tokens / padded,
        "tokens": tokens,
    }


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("vocab_file", type=Path)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--masking", choices=("static", "dynamic"), default="dynamic")
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--group-by-length", action="store_true")
    arguments = parser.parse_args(argv)
    with command(explain=explain):
        settings = LoaderSettings(
            masking=arguments.masking, num_workers=arguments.num_workers, group_by_length=arguments.group_by_length
        )
        vocabulary = Vocabulary.from_file(arguments.vocab_file)
        result = measure(arguments.directory, vocabulary, settings, arguments.batch_size, arguments.seconds)
        print(json.dumps(result))


if __name__ == "__main__":
    main()

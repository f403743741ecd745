"""Samples per CPU second of the loader over a directory of shards, decoding included; one line of JSON.

python -m tests.benchmarks.measure_loader SHARDS vocab.txt --batch-size 64 [--global-batch-size 65536 --world-size 8]
"""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from bert.command_errors import command
from bert.config.setting_errors import explain
from bert.help_parser import HelpParser
from bert.samples.dataset import PretrainingDataset
from bert.samples.loader import PretrainingLoader
from bert.samples.settings import LoaderSettings
from bert.tokenization.vocabulary import Vocabulary
from bert.tokenization.vocabulary_files import read_vocabulary


@dataclass(frozen=True)
class Sizes:
    """Holds the sequences per micro-batch and per update, and the ranks."""

    batch_size: int
    global_batch_size: int
    world_size: int

    def loader(self, dataset: PretrainingDataset, rank: int = 0) -> PretrainingLoader:
        return PretrainingLoader(
            dataset,
            global_batch_size=self.global_batch_size,
            micro_batch_size=self.batch_size,
            rank=rank,
            world_size=self.world_size,
        )


def measure(directory: Path, vocabulary: Vocabulary, settings: LoaderSettings, sizes: Sizes, seconds: float) -> dict:
    """Walk through the data of rank 0 from the start for about `seconds`, epoch after epoch."""
    cpu, begun = time.process_time(), time.monotonic()
    dataset = PretrainingDataset(directory, vocabulary, settings, seed=42)
    samples = tokens = padded = 0
    first = None
    batches = sizes.loader(dataset).batches()
    for batch in (batch for whole in batches for batch in whole.micro_batches):
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


def slowest_rank(directory: Path, vocabulary: Vocabulary, settings: LoaderSettings, sizes: Sizes) -> float:
    """Return the first update's padded tokens on the rank with the most, divided by the mean of the ranks."""
    dataset = PretrainingDataset(directory, vocabulary, settings, seed=42)
    work = []
    for rank in range(sizes.world_size):
        batches = sizes.loader(dataset, rank).batches()
        work.append(sum(batch.num_padded_tokens for batch in next(batches).micro_batches))
        batches.close()
    return max(work) * len(work) / sum(work)


def main(argv: list[str] | None = None) -> None:
    parser = HelpParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("vocab_file", type=Path)
    parser.add_argument("--batch-size", type=int, default=64, help="of a micro-batch")
    parser.add_argument("--global-batch-size", type=int, help="of an update (default: 8 micro-batches of each rank)")
    parser.add_argument("--world-size", type=int, default=1, help="ranks; with several their work is compared")
    parser.add_argument("--max-seq-length", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--masking", choices=("static", "dynamic"), default="dynamic")
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--group-by-length", action="store_true")
    arguments = parser.parse_args(argv)
    with command(explain=explain):
        settings = LoaderSettings(
            max_seq_length=arguments.max_seq_length,
            masking=arguments.masking,
            num_workers=arguments.num_workers,
            group_by_length=arguments.group_by_length,
        )
        size = arguments.global_batch_size or 8 * arguments.batch_size * arguments.world_size
        sizes = Sizes(arguments.batch_size, size, arguments.world_size)
        data = (arguments.directory, read_vocabulary(arguments.vocab_file), settings, sizes)
        result = measure(*data, arguments.seconds)
        if sizes.world_size > 1:
            result["slowest_rank"] = slowest_rank(*data)
        print(json.dumps(result))


if __name__ == "__main__":
    main()

"""Shards on demand: the commands of data/ that make what a run lacks. Starts them; does none of their work."""

import itertools
import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from bert.launching.plan import LaunchPlan
from bert.pretraining.config import PretrainingConfig
from bert.samples.manifest import MANIFEST_NAME, is_unfinished

Run = Callable[[Sequence[str]], int]  # runs a command, returns its exit code


def prepare_shards(plan: LaunchPlan, config: PretrainingConfig, run: Run, only_this_node: bool = False) -> int:
    """Make the shards of one phase from the Wikipedia text if their folder is missing or empty.

    Of several nodes none makes them, unless it knows that it is the only one that was asked (`only_this_node`).

    Raises:
        ValueError: there is no text either.
    """
    folder, source = config.data.input_dir, plan.preparation.wikipedia_source
    if _has_files(folder) and not is_unfinished(folder):
        return 0
    if plan.num_nodes > 1 and not only_this_node:
        raise ValueError(
            f"input_dir={folder} has no shards; make them on one node first (--num-nodes 1), in a folder "
            "that all nodes share"
        )
    if not _has_files(source):
        unset = "; set BERT_PREP_WORKING_DIR to the folder of your data" if "$" in f"{folder}{source}" else ""
        raise ValueError(
            f"input_dir={folder} has no shards and wikipedia_source={source} no text to make them from; pass "
            f"--input-dir or --wikipedia-source{unset}, or start without arguments for the quickstart"
        )
    print(f"{folder} has no shards: making them from {source}", flush=True)
    return run(
        preprocessing_command(
            "--wikipedia",
            source,
            folder,
            config,
            num_shards=plan.preparation.num_shards(config, plan.world_size()),
            seed=config.run.seed,
            num_workers=plan.preparation.num_workers,
            sample_ratio=plan.preparation.sample_ratio,
            bin_size=plan.preparation.bin_size(config.run.phase),
        )
    )


def preprocessing_command(
    corpus_flag: str,
    source: Path,
    sink: Path,
    config: PretrainingConfig,
    *,
    num_shards: int,
    num_workers: int,
    sample_ratio: float,
    bin_size: int | None,
    seed: int,
    duplicate_factor: int = 1,
) -> list[str]:
    """Text to balanced shards that fit the phase: its length, vocabulary and masking."""
    command = [
        sys.executable,
        "-m",
        "data.preprocess_bert_pretrain",
        corpus_flag,
        str(source),
        "--sink",
        str(sink),
        "--vocab-file",
        str(config.data.vocab_file),
        "--target-seq-length",
        str(config.data.max_seq_length),
        "--num-shards",
        str(num_shards),
        "--local-n-workers",
        str(num_workers),
        "--sample-ratio",
        str(sample_ratio),
        "--seed",
        str(seed),
        "--duplicate-factor",
        str(duplicate_factor),
    ]
    if config.data.masking == "static":
        command += ["--masking", "--max-predictions-per-seq", str(config.data.max_predictions_per_seq)]
    if bin_size is not None:
        command += ["--bin-size", str(bin_size)]
    return command


class Steps:
    """Commands in order, not repeated once they ended well with the same words and their product is still there.

    What was made after a product that has to be made anew is made anew too, and a folder of shards is emptied for it.
    """

    def __init__(self, record_file: Path, run: Run) -> None:
        self._file, self._run = record_file, run

    def step(self, title: str, command: Sequence[str], product: Path) -> int:
        """Run the command unless the record has it; returns its exit code, 0 if it was not needed."""
        done = self._read()
        words = [word for word in command if word != sys.executable]
        if product.exists() and done.get(str(product)) == words:
            return 0
        print(title, flush=True)
        done = dict(itertools.takewhile(lambda made: made[0] != str(product), done.items()))
        if product.name == MANIFEST_NAME and product.parent.is_dir():
            shutil.rmtree(product.parent)
        code = self._run(command)
        if code == 0:
            if not product.exists():
                raise ValueError(f"{product} should exist after `{' '.join(words)}`, and does not; report this")
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(json.dumps({**done, str(product): words}, indent=2) + "\n", encoding="utf-8")
        return code

    def _read(self) -> dict[str, list[str]]:
        try:
            record = json.loads(self._file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return record if isinstance(record, dict) else {}


def _has_files(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())

"""Data of pre-training's quickstart: text found on this machine -> vocabulary -> shards, each step once."""

import contextlib
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert.files import lock
from bert.launching.preparation import Run, Steps, preprocessing_command
from bert.launching.process_runner import module_command
from bert.pretraining.config import PretrainingConfig
from bert.samples.manifest import MANIFEST_NAME

BIN_SIZES = {1: None, 2: 32}  # width in tokens of the bins of each phase's shards
NUM_SHARDS = 8
HELD_OUT_FRACTION = "0.08"
DUPLICATE_FACTOR = 5  # pairs of each sentence: with fewer, the model memorises the pairs
SEED = 42  # of the data, whatever the seed of the training, so that runs with different seeds share the shards


def prepare(config: PretrainingConfig, run: Run) -> int:
    """Make the missing data of one phase; exit code of the first command that failed, else 0."""
    steps = Steps(_home(config) / "prepared.json", run)
    for title, command, product in commands(config):
        if code := steps.step(title, command, product):
            return code
    return 0


@contextlib.contextmanager
def data_lock(config: PretrainingConfig) -> Iterator[None]:
    """Lock the data's folder while the data are made: a second start waits, and then finds them complete."""
    _home(config).mkdir(parents=True, exist_ok=True)
    with open(_home(config) / ".lock", "w") as file:
        try:
            lock(file)
        except BlockingIOError:
            print(f"waiting for another start that makes the data in {_home(config)}", flush=True)
            lock(file, math.inf)
        yield


def commands(config: PretrainingConfig) -> list[tuple[str, Sequence[str], Path]]:
    """(title, command, product) in order. The vocabulary and the training shards never see the held-out text."""
    corpus, vocabulary, phase = _home(config) / "corpus", config.data.vocab_file, config.run.phase
    assert config.data.eval_dir is not None
    collect = module_command(
        "data.examples.documentation", output_dir=corpus, sources="docstrings", held_out_fraction=HELD_OUT_FRACTION
    )
    train_vocabulary = module_command(
        "data.train_vocabulary", input=corpus / "train/source", vocab_size=config.model.vocab_size, output=vocabulary
    )
    steps: list[tuple[str, Sequence[str], Path]] = [
        ("collecting text from this machine", collect, corpus / "report.json"),
        ("training the vocabulary", train_vocabulary, vocabulary),
    ]
    parts = (
        ("train", config.data.input_dir, NUM_SHARDS, BIN_SIZES[phase], DUPLICATE_FACTOR),
        ("held_out", config.data.eval_dir, 1, None, 1),
    )
    for part, sink, num_shards, bin_size, duplicate_factor in parts:
        command = preprocessing_command(
            config,
            text=corpus / part / "source",
            sink=sink,
            num_shards=num_shards,
            local_n_workers=os.cpu_count() or 1,
            sample_ratio=1.0,
            seed=SEED,
            duplicate_factor=duplicate_factor,
            bin_size=bin_size,
        )
        steps.append((f"making the shards of phase {phase}, {part}", command, sink / MANIFEST_NAME))
    return steps


def _home(config: PretrainingConfig) -> Path:
    """Folder of the data, which runs with another --output-dir share."""
    return config.data.vocab_file.parent

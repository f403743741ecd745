"""Data of the quickstart: text found on this machine -> vocabulary -> shards, each step once."""

import contextlib
import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from bert.files import lock
from bert.launching.preparation import Run, Steps, preprocessing_command
from bert.pretraining.config import PretrainingConfig
from bert.samples.manifest import MANIFEST_NAME

BIN_SIZES = {1: None, 2: 32}  # tokens a bin of each phase's shards spans
NUM_SHARDS = 8
HELD_OUT_FRACTION = "0.08"
DUPLICATE_FACTOR = 5  # pairs of each sentence: the next-sentence task is learned from many, not by heart
SEED = 42  # of the data, whatever the seed of the training: runs that differ in it share the shards


def prepare(config: PretrainingConfig, run: Run) -> int:
    """Make what is missing for one phase; exit code of the first command that failed, else 0."""
    steps = Steps(_home(config) / "prepared.json", run)
    for title, command, product in commands(config):
        if code := steps.step(title, command, product):
            return code
    return 0


@contextlib.contextmanager
def data_lock(config: PretrainingConfig) -> Iterator[None]:
    """Hold the data's folder while it is made: a second start waits, and then finds it made."""
    _home(config).mkdir(parents=True, exist_ok=True)
    with open(_home(config) / ".lock", "w") as file:
        try:
            lock(file)
        except BlockingIOError:
            print(f"waiting for another start that makes the data in {_home(config)}", flush=True)
            lock(file, math.inf)
        yield


def commands(config: PretrainingConfig) -> list[tuple[str, Sequence[str], Path]]:
    """(title, command, product) in order. The held-out text is never seen by the vocabulary or the training shards."""
    corpus, vocabulary, phase = _home(config) / "corpus", config.data.vocab_file, config.run.phase
    assert config.data.eval_dir is not None
    python, texts = [sys.executable, "-m"], corpus / "train/source"
    steps: list[tuple[str, Sequence[str], Path]] = [
        (
            "collecting text from this machine",
            [
                *python,
                "data.examples.sample_corpus",
                "--output-dir",
                str(corpus),
                "--held-out-fraction",
                HELD_OUT_FRACTION,
            ],
            corpus / "report.json",
        ),
        (
            "training the vocabulary",
            [
                *python,
                "data.train_vocabulary",
                "--input",
                str(texts),
                "--vocab-size",
                str(config.model.vocab_size),
                "--output",
                str(vocabulary),
            ],
            vocabulary,
        ),
    ]
    parts = (
        ("train", config.data.input_dir, NUM_SHARDS, BIN_SIZES[phase], DUPLICATE_FACTOR),
        ("held_out", config.data.eval_dir, 1, None, 1),
    )
    for part, sink, num_shards, bin_size, duplicate_factor in parts:
        command = preprocessing_command(
            "--text",
            corpus / part / "source",
            sink,
            config,
            num_shards=num_shards,
            num_workers=os.cpu_count() or 1,
            sample_ratio=1.0,
            bin_size=bin_size,
            seed=SEED,
            duplicate_factor=duplicate_factor,
        )
        steps.append((f"making the shards of phase {phase}, {part}", command, sink / MANIFEST_NAME))
    return steps


def _home(config: PretrainingConfig) -> Path:
    """Folder of the data; runs with another --output-dir use the same."""
    return config.data.vocab_file.parent

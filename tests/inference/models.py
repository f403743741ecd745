"""Makes tiny models of every head, with all files that our models have."""

import json
from pathlib import Path

import numpy as np
import pytest

import run_export
from bert.checkpoints import directories as checkpoint_files
from bert.conversion.usage import Usage, usage_texts
from bert.tokenization.normalization import Normalization
from tests.conversion.test_round_trips import TASKS, native
from tests.support import foreign
from tests.support.disk_cache import made_once

LABELS = {"sequence-classification": ("cat", "dog", "fox"), "token-classification": ("O", "B-PER", "I-PER")}


def model(folder: Path, task: str, usage: Usage | None = None, lowercase: bool = True, **changes) -> Path:
    """Make a checkpoint of `task` (a key of test_round_trips.TASKS)."""
    native(folder, TASKS[task], **changes)
    texts = usage_texts(usage or Usage(task, foreign.POSITIONS), Normalization(lowercase), LABELS.get(task))
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / checkpoint_files.MANIFEST).unlink()
    checkpoint_files.write_manifest(folder, step=7)
    return folder


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, Path]:
    """Make a checkpoint of each task; no test changes them."""
    tasks = ("pretraining", "encoder", "question-answering", "sequence-classification", "token-classification")

    def make(root: Path) -> None:
        for task in tasks:
            model(root / task, task)

    root = made_once(tmp_path_factory, "models", make)
    return {task: root / task for task in tasks}


def export(source: Path, target: Path, *arguments: object) -> Path:
    """Return the folder that run_export.py makes."""
    words = ("--checkpoint", source, "--to", target, *arguments)
    assert run_export.main([str(word) for word in words]) == 0
    return target


def records(text: str) -> list[dict]:
    return [json.loads(line) for line in text.splitlines()]


def feed_of(*rows: list[int], first: int | None = None) -> dict[str, np.ndarray]:
    """Return unpadded sequences of one length; tokens from `first` on have type 1."""
    ids = np.array(rows, "int64")
    types = np.zeros_like(ids) if first is None else (np.arange(ids.shape[1]) >= first) * np.ones_like(ids)
    return {"input_ids": ids, "token_type_ids": types.astype("int64"), "attention_mask": np.ones_like(ids)}

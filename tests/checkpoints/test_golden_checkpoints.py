"""Checkpoints of earlier versions (tests/golden/checkpoints) load, and their trainings continue as they did then.

`--write-golden` adds the checkpoint of the format of now; those of other formats stay as they are.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bert import REPOSITORY
from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints import state as checkpoint
from bert.config.training_settings import derive
from tests.support import runs, tiny

GOLDEN = REPOSITORY / "tests" / "golden" / "checkpoints"
MODEL = tiny.MODEL.model_copy(
    update={
        "hidden_size": 4,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "intermediate_size": 5,
        "max_position_embeddings": 8,
        "hidden_dropout_prob": 0.1,
    }
)
SETTINGS = {
    "lamb_float16_2_passes": {
        "amp": True,
        "scale_loss": 1024.0,
        "loss_scale_growth_interval": 4,
        "gradient_merge_steps": 2,
    },
    "adamw_float32": {"optimizer": "AdamW"},
}
SAVED, END = 3, 6


def config_of(folder: Path, name: str, **changes):
    folder.mkdir(parents=True, exist_ok=True)
    return tiny.pretraining_config(folder, model=MODEL, max_seq_length=8, **SETTINGS[name], **changes)


def overflow_in_step_1(step: int, feeds: list[dict]) -> list[dict]:
    return [tiny.overflowing(feeds[0]), *feeds[1:]] if step == 1 else feeds


def write(name: str, folder: Path) -> None:
    """Write a checkpoint after three updates, one of them skipped, and the parameters after six."""
    config = config_of(folder, name)
    runs.run(config, SAVED, change=overflow_in_step_1)
    target = GOLDEN / f"format{checkpoint_files.FORMAT_VERSION}" / name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(config.checkpoint_dir() / str(SAVED), target / str(SAVED))
    whole = runs.run(config_of(folder / "whole", name), END, change=overflow_in_step_1)
    np.savez_compressed(target / "end.npz", **whole.parameters)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_format_of_now_has_its_golden_checkpoint(name, tmp_path, write_golden):
    if write_golden:
        write(name, tmp_path)
    assert (GOLDEN / f"format{checkpoint_files.FORMAT_VERSION}" / name / str(SAVED)).is_dir(), "--write-golden"
    size = sum(path.stat().st_size for path in GOLDEN.rglob("*") if path.is_file())
    assert size < 100_000, f"{size} bytes of golden checkpoints"


@pytest.mark.parametrize("folder", sorted(GOLDEN.glob("format*/*")), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_an_older_checkpoint_loads_exactly_and_goes_on_as_it_did(folder, tmp_path):
    parameters, optimizer, progress = checkpoint.load(folder / str(SAVED))
    assert (progress.step, progress.counters["skipped_updates"], progress.stage) == (SAVED, 1, "phase1")
    config = derive(config_of(tmp_path, folder.name), from_checkpoint=folder)
    loaded = runs.run(config, SAVED, train=False)
    tiny.assert_identical(loaded.parameters, parameters)
    tiny.assert_identical(loaded.optimizer_state, optimizer)
    resumed = runs.run(config, END, change=overflow_in_step_1)
    with np.load(folder / "end.npz") as expected:  # made on another processor, perhaps: to rounding
        assert tiny.relative_difference(resumed.parameters, dict(expected)) < 1e-4
    saved = json.loads((config.checkpoint_dir() / str(END) / "bert_paddle_progress.json").read_text())
    assert saved["counters"]["applied_updates"] == END - 1
    if folder.name == "lamb_float16_2_passes":
        assert (progress.loss_scale, saved["loss_scale"]) == (512.0, 1024.0)

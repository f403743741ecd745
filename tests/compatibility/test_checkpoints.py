"""Starting from checkpoints of NVIDIA's Paddle trainer, and from steps named as in its README."""

from unittest import mock

import numpy as np
import pytest

from bert.checkpoints.state import CheckpointError
from bert.commands import fine_tuning
from bert.config.training_settings import derive
from tests.conversion.test_formats import nvidia_file, nvidia_names
from tests.support import foreign, runs, tiny
from tests.support.launching import LAUNCHERS


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """Return a folder with bert_paddle.pdparams of the tiny model, the same with fused matrices, and our tensors."""
    tmp_path = tmp_path_factory.mktemp("nvidia")
    ours = runs.run(tiny.pretraining_config(tmp_path), 1, train=False).parameters
    with mock.patch.multiple(
        foreign,
        LAYERS=tiny.MODEL.num_hidden_layers,
        HIDDEN=tiny.MODEL.hidden_size,
        HEADS=tiny.MODEL.num_attention_heads,
    ):
        folder = nvidia_file(tmp_path / "theirs", nvidia_names(ours))
        (folder / "bert_config.json").write_text(tiny.MODEL.to_json())
        (tmp_path / "fused").mkdir()
        fused = nvidia_file(tmp_path / "fused", nvidia_names(ours, "blocks"))
    return folder, fused, ours


@pytest.mark.parametrize(
    ("flag", "named"),
    [
        ("from_pretrained_params", "theirs"),
        ("from_phase1_final_params", "theirs"),
        ("from_phase1_final_params", "theirs/bert_paddle"),
        ("from_phase1_final_params", "theirs/bert_paddle.pdparams"),
        ("from_phase1_final_params", "phase1"),
    ],
)
def test_their_weights_start_a_run(tmp_path, theirs, flag, named):
    (tmp_path / "phase1").mkdir()
    (tmp_path / "phase1/600").symlink_to(theirs[0])
    (tmp_path / "theirs").symlink_to(theirs[0])
    folder, ours = tmp_path / named, theirs[2]
    config = tiny.pretraining_config(tmp_path, output_dir=tmp_path / "new", phase=2, seed=9, **{flag: folder})
    started = runs.run(config, 1, train=False)
    padded = {name for name, value in ours.items() if started.parameters[name].shape != value.shape}
    assert not padded
    for name, value in ours.items():
        np.testing.assert_array_equal(started.parameters[name], value, err_msg=name)


@pytest.mark.parametrize("step", [None, "auto"])  # auto: as the 20th word of run_pretraining.sh
def test_their_checkpoint_cannot_be_continued_and_the_message_says_what_can(tmp_path, theirs, step):
    start = dict(from_checkpoint=theirs[0], last_step_of_checkpoint=step)
    config = tiny.pretraining_config(tmp_path, output_dir=tmp_path / "new", **start)
    with pytest.raises(CheckpointError, match="as NVIDIA's: .* pass --from-pretrained-params .*theirs"):
        runs.run(config, 1, train=False)


def test_fused_weights_name_the_command_that_converts_them(tmp_path, theirs):
    config = tiny.pretraining_config(tmp_path, output_dir=tmp_path / "new", from_pretrained_params=theirs[1])
    with pytest.raises(CheckpointError, match="run_convert.py --fused-qkv blocks"):
        runs.run(config, 1, train=False)


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    """A run with checkpoints at updates 2 and 4."""
    config = tiny.pretraining_config(tmp_path_factory.mktemp("ours"), max_steps=8, num_steps_per_checkpoint=2)
    runs.run(config, 4)
    return config


@pytest.mark.parametrize(("named", "number"), [("4", None), ("4", 4), ("", "auto")])
def test_a_step_is_named_as_in_their_readme(ours, named, number):
    start = dict(from_checkpoint=ours.checkpoint_dir() / named, last_step_of_checkpoint=number)
    resumed = runs.run(derive(ours, **start), 5, train=False)
    assert any(line.endswith("4 at step 4") for line in resumed.said)


def test_their_weights_are_the_first_word_of_run_squad(tmp_path, theirs):
    (tmp_path / "vocab.txt").write_text("".join(f"word{number}\n" for number in range(tiny.MODEL.vocab_size)))
    words = [str(theirs[0]), *"- - - - fp32 1 - squad".split(), str(tmp_path / "vocab.txt"), "out", "--device", "cpu"]
    words += ["--max-seq-length", "16", "--max-query-length", "4"]
    (config,) = fine_tuning.planned_of(LAUNCHERS["squad"], words).plan.phases
    assert config.initialization.from_pretrained_params == theirs[0] and config.model.hidden_size == 32


def test_another_number_than_the_folders_is_refused(ours):
    wrong = derive(ours, from_checkpoint=ours.checkpoint_dir() / "4", last_step_of_checkpoint=2)
    with pytest.raises(CheckpointError, match="last_step_of_checkpoint=2 is not in"):
        runs.run(wrong, 5)


def test_a_run_of_another_model_in_the_output_folder_is_not_overlooked(ours):
    """The run was begun when the model's default was another one."""
    changes = dict(bert_model="bert-large-uncased", from_checkpoint=ours.run.output_dir, last_step_of_checkpoint="auto")
    with pytest.raises(CheckpointError, match="no checkpoint of bert_model=bert-large-uncased, but of bert-test; pass"):
        runs.run(derive(ours, **changes), 5)


def test_data_of_the_phase_in_the_output_folder_is_no_other_model(tmp_path):
    """The quickstart has such data: OUTPUT_DIR/data/phase1 holds shards."""
    config = tiny.pretraining_config(tmp_path, max_steps=8)
    (config.run.output_dir / "data/phase1/train").mkdir(parents=True)
    fresh = derive(config, from_checkpoint=config.run.output_dir, last_step_of_checkpoint="auto")
    assert runs.run(fresh, 1).outcome.step == 1

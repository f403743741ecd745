"""The weights that a folder stands for: the result of a run if it is valid, never a damaged or incomplete step."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.numpy import save_file

from bert.checkpoints.chosen_weights import chosen_weights, verified, weights_folder
from bert.checkpoints.directories import BEST, MANIFEST, CheckpointError, name_step, write_checkpoint
from bert.conversion.reading import read_pretrained
from bert.finetuning.model_files import named_weights
from bert.inference.model_folder import open_model
from tests.support import foreign
from tests.support.messages import messages

RUN = "bert-test/phase1"


def write_step(folder: Path) -> None:
    """Write a small model with the files that a pre-training keeps beside it."""
    save_file(foreign.parameters(), folder / "bert_paddle.safetensors", metadata={"format": "pd"})
    (folder / "bert_config.json").write_text(json.dumps(foreign.CONFIG))
    (folder / "bert_paddle_progress.json").write_text('{"step": 1}')


@pytest.fixture
def results(tmp_path) -> Path:
    """The output folder of a run with the steps 3, 5 and 9."""
    for step in (3, 5, 9):
        write_checkpoint(tmp_path / RUN, step, write_step)
    return tmp_path


def without_manifest(step: Path) -> None:
    (step / MANIFEST).unlink()


def with_damaged_weights(step: Path) -> None:
    content = bytearray((step / "bert_paddle.safetensors").read_bytes())
    content[-400:] = bytes(400)
    (step / "bert_paddle.safetensors").write_bytes(content)


def with_another_vocabulary(step: Path) -> None:
    (step / "vocab.txt").write_text("eht\n")


DAMAGES = (without_manifest, with_damaged_weights, with_another_vocabulary)
REASONS = {without_manifest: "it has no manifest.json", with_damaged_weights: "does not have the sha256"}
REASONS[with_another_vocabulary] = "has vocab.txt, which its manifest.json does not list"
PLACES = (".", "bert-test", RUN)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("place", PLACES)
def test_the_newest_valid_step_of_a_run_is_taken_and_the_refused_one_is_named(results, damage, place):
    damage(results / RUN / "9")
    with messages() as said:
        assert weights_folder(results / place) == results / RUN / "5"
        assert weights_folder(results / place) == results / RUN / "5"
    assert len(said) == 1 and f"{RUN}/9" in said[0] and REASONS[damage] in said[0], "it is said once"
    notes = chosen_weights(results / place).notes()
    assert notes == [*said, f"step 5 of {results / RUN} is taken; the folder has 3, 5, 9"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_step_that_is_named_is_used_or_refused(results, damage):
    step = results / RUN / "9"
    assert chosen_weights(step).checkpoint == verified(step)
    damage(step)
    with pytest.raises(CheckpointError, match=REASONS[damage]):
        weights_folder(step)


def test_a_run_without_a_valid_step_is_refused_whatever_its_steps_lack(results):
    for step, damage in zip((3, 5, 9), DAMAGES, strict=True):
        damage(results / RUN / str(step))
    for place in PLACES:
        with pytest.raises(CheckpointError, match=r"holds steps \[3, 5, 9\], none of them valid: .*/9 has vocab.txt"):
            weights_folder(results / place)


def test_a_run_of_steps_without_manifests_is_refused_not_read(results):
    for step in (3, 5, 9):
        without_manifest(results / RUN / str(step))
    for place in PLACES:
        with pytest.raises(CheckpointError, match=r"holds steps \[3, 5, 9\], none of them valid: .*no manifest"):
            weights_folder(results / place)


def test_a_phase_2_without_a_valid_step_does_not_fall_back_to_phase_1(results):
    write_checkpoint(results / "bert-test/phase2", 2, write_step)
    without_manifest(results / "bert-test/phase2/2")
    with pytest.raises(CheckpointError, match=r"phase2 holds steps \[2\], none of them valid"):
        weights_folder(results)


def test_the_best_step_is_the_result_if_it_is_valid_else_a_step_before_it(results):
    name_step(results / RUN, BEST, 5, {"is_final": True})
    assert weights_folder(results).name == "5"
    without_manifest(results / RUN / "5")
    with messages() as said:
        assert weights_folder(results).name == "3"
    assert len(said) == 1 and f"{RUN}/5" in said[0]
    with_damaged_weights(results / RUN / "3")
    with pytest.raises(CheckpointError, match=r"steps \[3, 5\], none of them valid.*name a later step .*/9$"):
        weights_folder(results)


def test_a_best_step_that_is_gone_and_a_damaged_best_json_are_named(results):
    best = results / RUN / BEST
    for content, line in (
        ('{"step": 4, "is_final": true}', "names step 4, the result of the run, which is not there"),
        ('{"step": 5, "is_fin', "names no step: damaged"),
    ):
        best.write_text(content)
        with messages() as said:
            assert weights_folder(results).name == "9"
        assert len(said) == 1 and line in said[0]
    best.write_text('{"step": 5, "is_final": false}')
    with messages() as said:
        assert weights_folder(results).name == "9" and said == []


def test_folders_of_other_programs_need_no_manifest(tmp_path):
    for name, files in {
        "20": ["model.safetensors", "config.json"],  # a number, as some name their checkpoints
        "30": ["bert_paddle.pdparams", "bert_paddle.pdopt", "bert_paddle_progress.json"],  # NVIDIA's
        "model": ["bert_paddle.safetensors", "bert_config.json"],
    }.items():
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_bytes(b"{}")
        assert chosen_weights(tmp_path / name).path == tmp_path / name
        assert chosen_weights(tmp_path / name).checkpoint is None


def test_files_that_changed_are_hashed_again(results):
    step = results / RUN / "9"
    assert verified(step) is verified(step)
    with_damaged_weights(step)
    with pytest.raises(CheckpointError, match="sha256"):
        verified(step)


# Every reader of a run's folder follows the rule

READERS: dict[str, Callable[[Path], Path]] = {
    "conversion, export, prediction, server": lambda path: read_pretrained(path).folder,
    "encoding, --compare": lambda path: open_model(path, "encoder", vocab_file=path / "vocab.txt").path,
    "--from-pretrained-params": lambda path: named_weights({"from_pretrained_params": path}),
    "--from-checkpoint": lambda path: named_weights({"from_checkpoint": path}),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_takes_the_same_step(results, reader):
    (results / "vocab.txt").write_text("\n".join(foreign.TOKENS) + "\n")
    assert READERS[reader](results) == results / RUN / "9"
    without_manifest(results / RUN / "9")
    assert READERS[reader](results) == results / RUN / "5"

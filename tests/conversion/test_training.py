"""Training starts from weights of other libraries, and its checkpoints convert to theirs."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import run_convert
from bert.checkpoints.directories import CheckpointError, list_steps, step_directory
from tests.support import runs, tiny


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """(its settings, the folder of its steps): one update of the tiny model, its vocabulary a real one."""
    folder = tmp_path_factory.mktemp("trained")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = special + [f"word{i}" for i in range(tiny.MODEL.vocab_size - len(special))]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    config = tiny.pretraining_config(folder)
    runs.run(config, 1)
    assert list_steps(config.checkpoint_dir()) == [1]
    return config, config.checkpoint_dir()


def settings(folder, **changes):
    folder.mkdir()
    return tiny.pretraining_config(folder, **changes)


def test_a_run_goes_out_and_another_starts_from_it(trained, tmp_path):
    _, steps = trained
    assert run_convert.main(["--from", str(steps), "--to", str(tmp_path / "hf"), "--to-format", "hf"]) == 0
    run = runs.run(settings(tmp_path / "next", from_pretrained_params=tmp_path / "hf"), 1, train=False)
    ours = load_file(step_directory(steps, 1) / "bert_paddle.safetensors")
    assert run.parameters.keys() == ours.keys()
    for name, array in ours.items():
        rows = tiny.MODEL.vocab_size if len(array) == tiny.MODEL.padded_vocab_size() else len(array)
        assert run.parameters[name][:rows].tobytes() == array[:rows].tobytes(), name
    padded = run.parameters["cls.predictions.bias"][tiny.MODEL.vocab_size :]
    assert (padded == -100).all() and len(padded) == 5
    told = "vocabulary padded: cls.predictions.bias from 99 to 104 rows, filled with -100"
    assert any(told in line for line in run.said)


def test_an_encoder_alone_starts_a_run_and_its_missing_heads_are_logged(trained, tmp_path):
    arguments = ["--from", str(trained[1]), "--to", str(tmp_path / "pn"), "--to-format", "paddlenlp"]
    assert run_convert.main([*arguments, "--task", "encoder"]) == 0
    run = runs.run(settings(tmp_path / "next", from_pretrained_params=tmp_path / "pn"), 1)
    told = [line for line in run.said if "starts from its random initialisation" in line]
    assert len(told) == 2 and ": no masked-LM head in the weights" in told[0] and "no next-sentence head" in told[1]
    assert sum(line.count("cls.") for line in told) == 7
    assert np.isfinite(run.outcome.metrics["loss"])


def test_another_number_of_attention_heads_is_refused_though_every_shape_fits(trained, tmp_path):
    save_file(
        load_file(step_directory(trained[1], 1) / "bert_paddle.safetensors"),
        tmp_path / "m.safetensors",
        metadata={"format": "pd"},
    )
    sizes = json.loads(trained[0].model.to_json())
    (tmp_path / "bert_config.json").write_text(json.dumps({**sizes, "num_attention_heads": 8}))
    config = settings(tmp_path / "next", from_pretrained_params=tmp_path / "m.safetensors")
    with pytest.raises(CheckpointError, match="trained with 8 attention heads, this run has num_attention_heads=4"):
        runs.run(config, 1, train=False)

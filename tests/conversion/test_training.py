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
    """Train the tiny model for one update with a real vocabulary; return its settings and the folder of its steps."""
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


def test_words_at_the_end_of_the_vocabulary_begin_with_the_means_of_their_pieces(trained, tmp_path):
    """Old ids keep their rows."""
    convert = ["--from", str(trained[1]), "--to", str(tmp_path / "hf"), "--to-format", "hf"]
    assert run_convert.main(convert) == 0
    (tmp_path / "hf/tokenizer.json").unlink()
    tokens = (tmp_path / "hf/vocab.txt").read_text().split()
    car, pet, plural = 10, 11, 12
    tokens[car:13] = ["car", "##pet", "##s"]
    (tmp_path / "hf/vocab.txt").write_text("\n".join(tokens) + "\n")
    model = tiny.MODEL.model_copy(update={"vocab_size": 101})
    config = settings(tmp_path / "next", from_pretrained_params=tmp_path / "hf", model=model)
    words = tmp_path / "next/vocab.txt"
    words.write_text("\n".join([*tokens, "carpet", "carpets"]) + "\n")
    ours = load_file(step_directory(trained[1], 1) / "bert_paddle.safetensors")
    run = runs.run(config, 1, train=False)
    assert any("2 words are added, each with the mean of its pieces" in line for line in run.said)
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        begun, old = run.parameters[name], ours[name]
        assert begun[:99].tobytes() == old[:99].tobytes()
        np.testing.assert_allclose(begun[99], old[[car, pet]].mean(0), rtol=1e-6)
        np.testing.assert_allclose(begun[100], old[[car, pet, plural]].mean(0), rtol=1e-6)
    assert (run.parameters["cls.predictions.bias"][101:] == -100).all()
    words.write_text("\n".join([*tokens[:20], "other", *tokens[21:], "carpet", "carpets"]) + "\n")
    with pytest.raises(ValueError, match=r"must begin with the tokens of .*, whose ids keep their meaning"):
        runs.run(settings(tmp_path / "third", from_pretrained_params=tmp_path / "hf", model=model, vocab_file=words), 1)

"""Fixtures of the commands."""

import pytest


@pytest.fixture
def weights(tmp_path):
    """Write a folder as Hugging Face does, without the weights themselves."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 77}'
    )
    (folder / "vocab.txt").write_text("[PAD]\n")
    return folder

"""RoBERTa in Hugging Face's files: outputs of transformers, there and back, and what is refused.

What transformers computed is recorded by tests.interop.record.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import run_convert
import run_export
from bert.checkpoints import directories
from bert.config.architecture import BertConfig
from bert.conversion.model_description import read_description
from bert.conversion.reading import read_pretrained
from bert.inference.predictor import Predictor
from tests.conversion import recorded_outputs, test_modernbert
from tests.conversion.test_modernbert import (
    TASKS,
    check_outputs,
    check_refusal,
    check_way_back,
    our_outputs,
    random_feed,
)
from tests.support import foreign, tokenizer_files
from tests.support.commands import refused

CONFIG = BertConfig(
    model_type="roberta",
    vocab_size=380,
    hidden_size=foreign.HIDDEN,
    num_hidden_layers=foreign.LAYERS,
    num_attention_heads=foreign.HEADS,
    intermediate_size=foreign.INNER,
    max_position_embeddings=16,
    layer_norm_eps=1e-5,
    pad_token_id=1,
)


def native(folder: Path, task: str, config: BertConfig = CONFIG) -> Path:
    """A checkpoint of ours with a byte-level BPE."""
    test_modernbert.native(folder, task, config)
    for name in ("vocab.txt", directories.MANIFEST):
        (folder / name).unlink()
    tokenizer_files.write(folder, "roberta")
    directories.write_manifest(folder, step=7)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    """Our checkpoints in Hugging Face's format, by task."""
    folder = tmp_path_factory.mktemp("roberta")
    return recorded_outputs.write_models({t: native(folder / "own" / t, t) for t in TASKS}, "transformers", folder)


@pytest.mark.parametrize("task", TASKS)
def test_outputs_are_those_of_transformers(models, task):
    check_outputs(models[task], task, "roberta")


@pytest.mark.parametrize("task", TASKS)
def test_there_and_back_is_bit_for_bit(models, task, tmp_path):
    pretrained = read_pretrained(models[task])
    assert (pretrained.task, pretrained.config) == (task, CONFIG)
    check_way_back(models[task], task, tmp_path / "back")
    for folder in (models[task], tmp_path / "back"):
        assert (folder / "tokenizer.json").read_bytes() == tokenizer_files.content("roberta")
        assert not (folder / "vocab.txt").exists()


def test_positions_begin_after_the_padding(models):
    table = load_file(models["masked-lm"] / "model.safetensors")["roberta.embeddings.position_embeddings.weight"]
    assert len(table) == 18 == json.loads((models["masked-lm"] / "config.json").read_text())["max_position_embeddings"]
    assert not table[:2].any() and table[2:].all()


def test_other_names_of_the_network_are_read(models, tmp_path):
    values = json.loads((models["masked-lm"] / "config.json").read_text())
    for name, kind in (("xlm-roberta", "XLMRobertaForMaskedLM"), ("camembert", "CamembertForMaskedLM")):
        (tmp_path / "config.json").write_text(json.dumps(values | {"model_type": name, "architectures": [kind]}))
        assert read_description(tmp_path / "config.json")[:2] == (CONFIG, "masked-lm")
        assert BertConfig.from_json_file(tmp_path / "config.json") == CONFIG


def test_another_network_is_refused(models, tmp_path):
    for change, rule in (
        ({"type_vocab_size": 2}, "type_vocab_size=2 in .* must be 1 for model_type=roberta"),
        ({"max_position_embeddings": 2}, "max_position_embeddings=2 in .* must be more than pad_token_id=1"),
        ({"max_position_embeddings": 20}, r"position_embeddings.weight is \[16, 8\], must be \[18, 8\]"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key' in .* must be"),
    ):
        check_refusal(models["masked-lm"], change, rule, tmp_path)


def test_an_untied_decoder_and_paddlenlp_are_refused(models, tmp_path):
    with refused("PaddleNLP 2.8 has other names and positions of a RoBERTa; use --to-format hf"):
        run_convert.main(["--from", str(models["encoder"]), "--to", str(tmp_path / "x"), "--to-format", "paddlenlp"])
    tensors = load_file(models["masked-lm"] / "model.safetensors")
    tensors["lm_head.decoder.weight"] = tensors["roberta.embeddings.word_embeddings.weight"] + 1
    (tmp_path / "config.json").write_bytes((models["masked-lm"] / "config.json").read_bytes())
    save_file(tensors, tmp_path / "model.safetensors")
    with refused("lm_head.decoder.weight must equal bert.embeddings.word_embeddings.weight"):
        run_convert.main(["--from", str(tmp_path), "--to", str(tmp_path / "x"), "--to-format", "native"])


def test_an_unused_pooler_is_left_out(models, tmp_path):
    tensors = load_file(models["sequence-classification"] / "model.safetensors")
    for part in ("weight", "bias"):
        tensors[f"roberta.pooler.dense.{part}"] = tensors[f"classifier.dense.{part}"] + 1
    (tmp_path / "config.json").write_bytes((models["sequence-classification"] / "config.json").read_bytes())
    save_file(tensors, tmp_path / "model.safetensors")
    read = read_pretrained(tmp_path)
    expected = read_pretrained(models["sequence-classification"]).parameters
    assert read.parameters.keys() == expected.keys()
    assert all(np.array_equal(read.parameters[name], expected[name]) for name in expected)
    assert "left out: roberta.pooler.dense.weight, which this classifier does not use" in read.notes


def test_a_vocabulary_with_another_padding_is_refused(models, tmp_path):
    words = ["--from", str(models["masked-lm"]), "--to", str(tmp_path / "x"), "--to-format", "native"]
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    with refused("vocab.txt has the padding 0, the model pad_token_id=1"):
        run_convert.main([*words, "--vocab-file", str(tmp_path / "vocab.txt")])


def test_onnx_serves_it_without_token_types(models, tmp_path):
    pytest.importorskip("onnxruntime")
    words = ["--checkpoint", str(models["sequence-classification"]), "--to", str(tmp_path / "x"), "--format", "onnx"]
    assert run_export.main(words) == 0
    served = Predictor(tmp_path / "x")
    assert served.inputs == ["input_ids", "attention_mask"]
    assert served.tokenize(["a </s> b"])["input_ids"][0].tolist().count(2) == 1, "in a text it is plain text"
    expected = our_outputs(models["sequence-classification"], "sequence-classification")
    np.testing.assert_allclose(served.run(random_feed())["logits"], expected["logits"], atol=1e-5)

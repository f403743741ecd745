"""ModernBERT and RoBERTa in Hugging Face's files: outputs equal transformers', round trips, and refusals.

What transformers computed is recorded by tests.interop.record.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from transformers import AutoTokenizer

import run_convert
import run_export
from bert.checkpoints import directories
from bert.config.architecture import BertConfig
from bert.conversion.model_description import read_description
from bert.conversion.reading import read_pretrained
from bert.conversion.usage import Usage, usage_texts
from bert.inference.model_folder import open_model
from bert.inference.paddle_program import Network, objective_of
from bert.inference.predictor import Predictor
from bert.runtime.paddle_api import static, unique_name
from bert.tokenization.normalization import UNCASED
from tests.conversion import recorded_outputs
from tests.support import foreign, tokenizer_files
from tests.support.commands import refused

MODERNBERT = BertConfig(
    model_type="modernbert",
    vocab_size=foreign.VOCAB,
    hidden_size=foreign.HIDDEN,
    num_hidden_layers=5,
    num_attention_heads=foreign.HEADS,
    intermediate_size=foreign.INNER,
    max_position_embeddings=16,
    local_attention=4,
    layer_norm_eps=1e-5,
    hidden_dropout_prob=0.0,
    classifier_pooling="cls",
)
MEAN = MODERNBERT.model_copy(update={"classifier_pooling": "mean"})
ROBERTA = BertConfig(
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
CONFIGS = {"modernbert": MODERNBERT, "modernbert_mean": MEAN, "roberta": ROBERTA}
_TASKS = ("masked-lm", "question-answering", "sequence-classification", "token-classification", "encoder")
TASKS = {name: _TASKS if config is not MEAN else ("sequence-classification",) for name, config in CONFIGS.items()}
CASES = [(name, task) for name, tasks in TASKS.items() for task in tasks]
TENSORS = "bert_paddle.safetensors"


def native(folder: Path, task: str, config: BertConfig = MODERNBERT) -> Path:
    """Write a checkpoint of ours with values that the tensors' names seed; padded rows are filled as by an import.

    A larger vocabulary is a byte-level BPE.
    """
    main = static.Program()
    with static.program_guard(main, static.Program()), unique_name.guard():
        objective = objective_of(task, config, 3)
        objective.outputs(objective.inputs(with_labels=False), objective.network())
    tensors = {p.name: foreign.value(p.name, tuple(p.shape)) for p in main.all_parameters()}
    for name, value in (("bert.embeddings.word_embeddings.weight", 0.0), ("cls.predictions.bias", -100.0)):
        if name in tensors:
            tensors[name][config.vocab_size :] = value
    folder.mkdir(parents=True)
    save_file(tensors, folder / TENSORS, metadata={"format": "pd"})
    (folder / "bert_config.json").write_text(config.to_json())
    if config.vocab_size == foreign.VOCAB:
        (folder / "vocab.txt").write_text("\n".join(foreign.TOKENS) + "\n")
    else:
        tokenizer_files.write(folder, "roberta")
    name = "ner" if task == "token-classification" else None  # which says that the classifier is of tokens
    for file, text in usage_texts(Usage(name), UNCASED).items():
        (folder / file).write_text(text)
    directories.write_manifest(folder, step=7)
    return folder


def random_feed() -> dict[str, np.ndarray]:
    """Return sequences of 13, 2 and 7 tokens, longer than the window."""
    mask = (np.arange(13) < np.array([[13], [2], [7]])).astype("int64")
    ids = np.random.RandomState(11).randint(5, foreign.VOCAB, mask.shape) * mask
    return {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": mask}


def our_outputs(folder: Path, task: str) -> dict[str, np.ndarray]:
    feed, pretrained = random_feed(), read_pretrained(folder)
    if task == "masked-lm":
        feed["masked_lm_positions"] = np.arange(feed["input_ids"].size)
    outputs = Network(pretrained.parameters, pretrained.config).run(task, feed)
    if task == "masked-lm":  # without the rows of padding
        logits = outputs["masked_lm_logits"][:, : pretrained.config.vocab_size]
        return {"logits": logits.reshape(*feed["input_ids"].shape, -1)}
    return outputs


def check_refusal(folder: Path, change: dict, rule: str, target: Path) -> None:
    """Check that the weights of a model are refused with a description of another network."""
    values = json.loads((folder / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(values | change))
    (target / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with refused(rule):
        run_convert.main(["--from", str(target), "--to", str(target / "x"), "--to-format", "native"])


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, dict[str, Path]]:
    """Write our checkpoints in Hugging Face's format, by network and task."""
    found = {}
    for name, config in CONFIGS.items():
        folder = tmp_path_factory.mktemp(name)
        own = {task: native(folder / "own" / task, task, config) for task in TASKS[name]}
        found[name] = recorded_outputs.write_models(own, "transformers", folder)
    return found


@pytest.fixture
def modernbert(models) -> dict[str, Path]:
    return models["modernbert"]


@pytest.fixture
def roberta(models) -> dict[str, Path]:
    return models["roberta"]


@pytest.mark.parametrize(("name", "task"), CASES)
def test_outputs_are_those_that_transformers_computed_from_the_same_files(models, name, task):
    files = json.loads((recorded_outputs.GOLDEN / f"{name}_files.json").read_text())
    assert recorded_outputs.checksums({task: models[name][task]}).items() <= files.items(), "other files: record again"
    real = random_feed()["attention_mask"] > 0
    with np.load(recorded_outputs.GOLDEN / f"{name}_outputs.npz") as arrays:
        for output, ours in our_outputs(models[name][task], task).items():
            theirs = arrays[f"{task}/{output}"]
            places = real if ours.shape[:2] == real.shape else slice(None)
            assert np.abs(theirs[places]).max() > 0.1
            np.testing.assert_allclose(ours[places], theirs[places], rtol=0, atol=1e-4)


@pytest.mark.parametrize(("name", "task"), CASES)
def test_there_and_back_is_bit_for_bit(models, name, task, tmp_path):
    folder, back = models[name][task], tmp_path / "back"
    pretrained = read_pretrained(folder)
    assert (pretrained.task, pretrained.config) == (task, CONFIGS[name])
    assert name == "roberta" or pretrained.format == "modernbert"
    assert run_convert.main(["--from", str(folder), "--to", str(back), "--to-format", "native"]) == 0
    before, after = load_file(folder.parent / "own" / task / TENSORS), load_file(back / TENSORS)
    assert before.keys() == after.keys()
    assert all(before[tensor].tobytes() == after[tensor].tobytes() for tensor in before)
    assert read_pretrained(back).task == task
    for place in (folder, back) if name == "roberta" else ():
        assert (place / "tokenizer.json").read_bytes() == tokenizer_files.content("roberta")
        assert not (place / "vocab.txt").exists()


@pytest.mark.parametrize(("name", "keys"), [("modernbert", "bos eos cls sep pad"), ("roberta", "bos eos pad")])
def test_a_configuration_names_the_special_tokens_of_its_own_vocabulary(models, name, keys):
    """Without these names, transformers takes 50281 for the [CLS] of any ModernBERT, even with 29 tokens."""
    folder = models[name]["masked-lm"]
    values, tokenizer = json.loads((folder / "config.json").read_text()), AutoTokenizer.from_pretrained(folder)
    tokens = {"bos": tokenizer.cls_token_id, "eos": tokenizer.sep_token_id, "cls": tokenizer.cls_token_id}
    tokens |= {"sep": tokenizer.sep_token_id, "pad": tokenizer.pad_token_id}
    expected = {f"{key}_token_id": tokens[key] for key in keys.split()}
    assert {key: value for key, value in values.items() if key.endswith("_token_id")} == expected


def test_another_network_is_refused(models, tmp_path):
    for name, change, rule in (
        ("modernbert", {"attention_bias": True}, "attention_bias=True in .* must be false"),
        ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling=max must be one of cls, mean"),
        ("modernbert", {"classifier_activation": "silu"}, "classifier_activation=.silu. in .* must be 'gelu'"),
        ("modernbert", {"rope_parameters": {}}, "are of transformers 5; write the keys of transformers 4"),
        ("modernbert", {"model_type": "bert"}, "the weights are of a ModernBERT, model_type is bert"),
        (
            "modernbert",
            {"model_type": "neobert"},
            "model_type='neobert' in .* must be one of bert, modernbert, roberta",
        ),
        ("modernbert", {"num_hidden_layers": 4}, "5 layers, num_hidden_layers is 4"),
        ("roberta", {"type_vocab_size": 2}, "type_vocab_size=2 in .* must be 1 for model_type=roberta"),
        ("roberta", {"max_position_embeddings": 2}, "max_position_embeddings=2 in .* must be more than pad_token_id=1"),
        ("roberta", {"max_position_embeddings": 20}, r"position_embeddings.weight is \[16, 8\], must be \[18, 8\]"),
        (
            "roberta",
            {"position_embedding_type": "relative_key"},
            "position_embedding_type='relative_key' in .* must be",
        ),
    ):
        check_refusal(models[name]["masked-lm"], change, rule, tmp_path)


@pytest.mark.long
def test_paddle_inference_serves_a_modernbert_but_not_in_int8(modernbert, tmp_path):
    words = ["--checkpoint", str(modernbert["sequence-classification"]), "--to", str(tmp_path / "x"), "--format"]
    assert run_export.main([*words, "paddle-inference"]) == 0
    served, feed = Predictor(tmp_path / "x"), random_feed()
    assert served.inputs == ["input_ids", "attention_mask"]
    expected = our_outputs(modernbert["sequence-classification"], "sequence-classification")
    np.testing.assert_allclose(served.run(feed)["logits"], expected["logits"], atol=1e-5)
    more = ["paddle-inference", "--precision", "int8", "--calibration", __file__]
    with refused("quantises no product without a bias.*use --output-format onnx --precision int8"):
        run_export.main([*words[:2], "--to", str(tmp_path / "y"), "--format", *more])


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "task"),
    [("modernbert", "question-answering"), ("modernbert", "encoder"), ("modernbert_mean", "sequence-classification")],
)
def test_onnx_computes_what_transformers_computed_of_a_modernbert(models, name, task, tmp_path):
    pytest.importorskip("onnxruntime")
    words = ["--checkpoint", str(models[name][task]), "--to", str(tmp_path / "x"), "--format", "onnx"]
    assert run_export.main(words) == 0
    real, outputs = random_feed()["attention_mask"] > 0, Predictor(tmp_path / "x").run(random_feed())
    with np.load(recorded_outputs.GOLDEN / f"{name}_outputs.npz") as arrays:
        for output, found in outputs.items():
            places = real if found.shape[:2] == real.shape else slice(None)
            np.testing.assert_allclose(found[places], arrays[f"{task}/{output}"][places], rtol=0, atol=1e-4)


@pytest.mark.long
def test_layers_without_a_bias_are_quantised(modernbert, tmp_path):
    """Random weights of eight units show that quantisation runs, not how much INT8 loses."""
    pytest.importorskip("nncf")
    texts, source = tmp_path / "texts.txt", str(modernbert["token-classification"])
    texts.write_text("word1 word2\nword3\n")
    for to_format, *more in (["onnx"], ["onnx", "--calibration"], ["openvino", "--calibration"]):
        words = ["--checkpoint", source, "--to", str(tmp_path / f"{to_format}{len(more)}"), "--format", to_format]
        words += ["--precision", "int8", "--tolerance", "1", *more, *[str(texts)] * len(more)]
        assert run_export.main(words) == 0


def test_paddlenlp_has_no_modernbert_and_a_tokenizer_without_special_tokens_are_refused(modernbert, tmp_path):
    with refused("PaddleNLP 2.8 has no ModernBERT; use the format hf"):
        run_convert.main(
            ["--from", str(modernbert["encoder"]), "--to", str(tmp_path / "x"), "--to-format", "paddlenlp"]
        )
    folder = tmp_path / "byte-level"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((modernbert["encoder"] / name).read_bytes())
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}))
    with pytest.raises(ValueError, match=r"none of its 1 tokens is \[PAD\] or <pad>"):
        open_model(folder)


def test_positions_of_a_roberta_begin_after_the_padding(roberta):
    table = load_file(roberta["masked-lm"] / "model.safetensors")["roberta.embeddings.position_embeddings.weight"]
    assert len(table) == 18 == json.loads((roberta["masked-lm"] / "config.json").read_text())["max_position_embeddings"]
    assert not table[:2].any() and table[2:].all()


def test_other_names_of_a_roberta_are_read(roberta, tmp_path):
    values = json.loads((roberta["masked-lm"] / "config.json").read_text())
    for name, kind in (("xlm-roberta", "XLMRobertaForMaskedLM"), ("camembert", "CamembertForMaskedLM")):
        (tmp_path / "config.json").write_text(json.dumps(values | {"model_type": name, "architectures": [kind]}))
        assert read_description(tmp_path / "config.json")[:2] == (ROBERTA, "masked-lm")
        assert BertConfig.from_json_file(tmp_path / "config.json") == ROBERTA


def test_an_untied_decoder_and_a_roberta_for_paddlenlp_are_refused(roberta, tmp_path):
    with refused("PaddleNLP 2.8 has other names and positions of a RoBERTa; use the format hf"):
        run_convert.main(["--from", str(roberta["encoder"]), "--to", str(tmp_path / "x"), "--to-format", "paddlenlp"])
    tensors = load_file(roberta["masked-lm"] / "model.safetensors")
    tensors["lm_head.decoder.weight"] = tensors["roberta.embeddings.word_embeddings.weight"] + 1
    (tmp_path / "config.json").write_bytes((roberta["masked-lm"] / "config.json").read_bytes())
    save_file(tensors, tmp_path / "model.safetensors")
    with refused("lm_head.decoder.weight must equal bert.embeddings.word_embeddings.weight"):
        run_convert.main(["--from", str(tmp_path), "--to", str(tmp_path / "x"), "--to-format", "native"])


def test_an_unused_pooler_of_a_roberta_is_left_out(roberta, tmp_path):
    tensors = load_file(roberta["sequence-classification"] / "model.safetensors")
    for part in ("weight", "bias"):
        tensors[f"roberta.pooler.dense.{part}"] = tensors[f"classifier.dense.{part}"] + 1
    (tmp_path / "config.json").write_bytes((roberta["sequence-classification"] / "config.json").read_bytes())
    save_file(tensors, tmp_path / "model.safetensors")
    read = read_pretrained(tmp_path)
    expected = read_pretrained(roberta["sequence-classification"]).parameters
    assert read.parameters.keys() == expected.keys()
    assert all(np.array_equal(read.parameters[name], expected[name]) for name in expected)
    assert "left out: roberta.pooler.dense.weight, which this classifier does not use" in read.notes


def test_a_vocabulary_with_another_padding_is_refused(roberta, tmp_path):
    words = ["--from", str(roberta["masked-lm"]), "--to", str(tmp_path / "x"), "--to-format", "native"]
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n")
    with refused("vocab.txt has the padding 0, the model pad_token_id=1"):
        run_convert.main([*words, "--vocab-file", str(tmp_path / "vocab.txt")])


def test_onnx_serves_a_roberta_without_token_types(roberta, tmp_path):
    pytest.importorskip("onnxruntime")
    words = ["--checkpoint", str(roberta["sequence-classification"]), "--to", str(tmp_path / "x"), "--format", "onnx"]
    assert run_export.main(words) == 0
    served = Predictor(tmp_path / "x")
    assert served.inputs == ["input_ids", "attention_mask"]
    assert served.tokenize(["a </s> b"])["input_ids"][0].tolist().count(2) == 1, "in a text it is plain text"
    expected = our_outputs(roberta["sequence-classification"], "sequence-classification")
    np.testing.assert_allclose(served.run(random_feed())["logits"], expected["logits"], atol=1e-5)

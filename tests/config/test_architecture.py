"""Sizes of the networks, and their descriptions in other libraries' keys, compared with values written by hand."""

import json
import re

import pytest

from bert.config.architecture import BUILT_IN_MODELS, BertConfig, network_of, our_values

TINY = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 37,
    "max_position_embeddings": 64,
}


def test_parameters_are_those_of_the_published_model():
    """Hugging Face's BertForPreTraining of bert-base-uncased has 110,106,428; our vocabulary has six more rows."""
    assert BUILT_IN_MODELS["bert-base-uncased"].num_parameters() == 110_106_428 + 6 * 768 + 6


def test_parameters_of_a_roberta_and_a_modernbert_counted_by_hand():
    tables, norm, dense = (104 + 64 + 1) * 32, 2 * 32, 32 * 32 + 32
    layer = 4 * dense + 2 * norm + 32 * 37 + 37 + 37 * 32 + 32
    pooler, head = dense, dense + norm + 104
    assert BertConfig(**TINY, model_type="roberta").num_parameters() == tables + norm + 3 * layer + pooler + head
    matrices = 3 * 32 * 32 + 32 * 32 + 32 * 2 * 37 + 37 * 32
    norms = [32] * (1 + 5 + 1 + 1)  # embeddings; two of each layer, but not before the first attention; end; head
    modern = 104 * 32 + 3 * matrices + sum(norms) + 32 * 32 + 104
    assert BertConfig(**TINY, model_type="modernbert").num_parameters() == modern


@pytest.mark.parametrize(("vocabulary", "rows"), [(96, 96), (97, 104), (103, 104), (104, 104)])
def test_the_vocabulary_is_padded_to_a_multiple_of_eight(vocabulary, rows):
    assert BertConfig(vocab_size=vocabulary).padded_vocab_size() == rows


@pytest.mark.parametrize(
    ("model_type", "positions", "local"),
    [("modernbert", 66, [1, 2, 4, 5]), ("modernbert", 65, []), ("bert", 512, []), ("roberta", 512, [])],
)
def test_only_layers_between_every_third_of_a_modernbert_attend_to_near_tokens(model_type, positions, local):
    """A window of 128 sees 64 tokens on each side: at most 65 tokens are all near."""
    sizes = {**TINY, "num_hidden_layers": 6, "max_position_embeddings": positions}
    model = BertConfig(**sizes, model_type=model_type)
    assert [layer for layer in range(6) if model.attends_locally(layer)] == local
    assert model.has_window() == bool(local)
    rotary = [layer for layer in range(6) if model.uses_local_positions(layer)]
    assert rotary == ([1, 2, 4, 5] if model_type == "modernbert" else [])


@pytest.mark.parametrize("model_type", ["bert", "roberta", "modernbert"])
def test_a_written_description_is_read_back(tmp_path, model_type):
    (path := tmp_path / "model.json").write_text("{}")
    model = BertConfig(**TINY, model_type=model_type, hidden_act="gelu_tanh", pad_token_id=5, hidden_dropout_prob=0.2)
    path.write_text(model.to_json())
    assert BertConfig.from_json_file(path) == model
    written = json.loads(path.read_text())
    activation = "hidden_activation" if model_type == "modernbert" else "hidden_act"
    assert written[activation] == "gelu_new"
    if model_type == "modernbert":
        assert (written["attention_bias"], written["decoder_bias"], written["mlp_dropout"]) == (False, True, 0.2)
        assert "type_vocab_size" not in written and "hidden_act" not in written
    else:
        assert "local_attention" not in written and "classifier_pooling" not in written
        sizes = (written["type_vocab_size"], written["max_position_embeddings"])
        assert sizes == ((2, 64) if model_type == "bert" else (1, 70))  # positions up to padding's are unused


def test_the_positions_of_a_roberta_begin_after_padding():
    for name in ("roberta", "xlm-roberta", "camembert"):
        values = {"model_type": name, "pad_token_id": 1, "max_position_embeddings": 514, "type_vocab_size": 1}
        expected = {"model_type": "roberta", "pad_token_id": 1, "max_position_embeddings": 512}
        assert our_values(values, "a.json") == expected
        assert our_values({"model_type": name}, "a.json") == {**expected, "max_position_embeddings": 510}
    smallest = {"model_type": "roberta", "pad_token_id": 4, "max_position_embeddings": 6}
    assert our_values(smallest, "a.json")["max_position_embeddings"] == 1


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"model_type": "roberta", "type_vocab_size": 2}, "type_vocab_size=2 in a.json must be 1"),
        (
            {"model_type": "roberta", "pad_token_id": 4, "max_position_embeddings": 5},
            "must be more than pad_token_id=4",
        ),
        ({"model_type": "roberta", "pad_token_id": "1"}, "must be more than pad_token_id='1' + 1"),
        ({"model_type": "roberta", "max_position_embeddings": 9.5}, "max_position_embeddings=9.5 in a.json must be"),
        ({"model_type": "modernbert", "norm_bias": True}, "norm_bias=True in a.json must be false"),
        ({"model_type": "modernbert", "decoder_bias": False}, "decoder_bias=False in a.json must be true"),
        (
            {"model_type": "modernbert", "rope_parameters": {}},
            "are of transformers 5; write the keys of transformers 4",
        ),
        ({"model_type": "modernbert", "layer_types": []}, "are of transformers 5; write the keys of transformers 4"),
        (
            {"model_type": "modernbert", "hidden_activation": "gelu", "classifier_activation": "relu"},
            "must be 'gelu', as",
        ),
        ({"model_type": "modernbert", "pad_token_id": 99, "vocab_size": 99}, "pad_token_id=99 must be below"),
        ({"model_type": "t5"}, "model_type='t5' in a.json must be one of bert, modernbert, roberta"),
        ({"is_decoder": True}, "is_decoder=True in a.json must be false"),
        ({"hidden_size": 30, "num_attention_heads": 4}, "hidden_size=30 must be a multiple of num_attention_heads=4"),
        (
            {"model_type": "modernbert", "hidden_size": 36, "num_attention_heads": 4},
            "36 / num_attention_heads=4 must be even",
        ),
        ({"vocab_size": 99, "pad_token_id": 99}, "pad_token_id=99 must be below vocab_size=99"),
    ],
)
def test_a_network_that_is_not_built_here_is_refused(values, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        network_of(values, "a.json")


def test_a_network_at_the_edge_of_what_is_built_is_read():
    for values in (
        {"hidden_size": 36, "num_attention_heads": 4},  # an odd head without rotary positions
        {"model_type": "modernbert", "hidden_size": 32, "num_attention_heads": 16},
        {"vocab_size": 99, "pad_token_id": 98},
        {"is_decoder": False, "position_embedding_type": "absolute", "hidden_size": None},
    ):
        network, others = network_of({**values}, "a.json")
        assert not others and all(
            getattr(network, key) == value for key, value in values.items() if key in TINY and value
        )


def test_keys_of_a_modernbert_are_translated():
    values = {
        "model_type": "modernbert",
        "hidden_activation": "gelu_new",
        "norm_eps": 1e-6,
        "embedding_dropout": 0.0,
        "mlp_dropout": 0.3,  # of the two dropouts of hidden states the first counts
        "attention_dropout": 0.2,
        "local_rope_theta": None,
        "global_rope_theta": 80_000.0,
        "reference_compile": True,
        "classifier_bias": False,
        "cls_token_id": 7,
    }
    network, others = network_of(values, "a.json")
    assert others == {"cls_token_id": 7}
    assert (network.hidden_act, network.layer_norm_eps) == ("gelu_tanh", 1e-6)
    assert (network.hidden_dropout_prob, network.attention_probs_dropout_prob) == (0.0, 0.2)
    assert network.local_rope_theta == network.global_rope_theta == 80_000.0
    without = network_of({"model_type": "modernbert", "local_rope_theta": None}, "a.json")[0]
    assert without.local_rope_theta == 160_000.0


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("vocab_size", (8, 99), (7,)),
        *((name, (1,), (0,)) for name in ("num_hidden_layers", "num_attention_heads", "intermediate_size")),
        ("hidden_size", (12,), (0,)),
        ("hidden_dropout_prob", (0.0, 0.99), (-0.01, 1.0)),
        ("attention_probs_dropout_prob", (0.0, 0.99), (-0.01, 1.0)),
        ("max_position_embeddings", (1,), (0,)),
        ("type_vocab_size", (2,), (1,)),
        ("initializer_range", (1e-9,), (0.0,)),
        ("layer_norm_eps", (1e-12, 1e-3), (0.0, 1.1e-3)),
        ("pad_token_id", (0,), (-1,)),
        ("global_attn_every_n_layers", (1,), (0,)),
        ("local_attention", (2,), (1,)),
        ("global_rope_theta", (1.1,), (1.0,)),
        ("local_rope_theta", (1.1,), (1.0,)),
    ],
)
def test_a_size_out_of_its_range_is_refused(name, allowed, refused):
    for value in allowed:
        assert getattr(BertConfig(**{name: value}), name) == value
    for value in refused:
        with pytest.raises(ValueError, match=f"{name}\n"):
            BertConfig(**{name: value})

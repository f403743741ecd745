"""A tiny BERT in the names and layouts of other libraries; each tensor's values are seeded by its name.

In an environment with torch and transformers, or with TensorFlow, it makes the files of tests/golden/foreign with those
libraries' own writers:

    python tests/support/foreign.py torch tests/golden/foreign
    python tests/support/foreign.py tensorflow tests/golden/foreign
"""

import json
import sys
import zlib
from pathlib import Path

import numpy as np

VOCAB, HIDDEN, LAYERS, HEADS, INNER, POSITIONS = 29, 8, 2, 2, 13, 12
PADDED = 32
CONFIG = {"vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS}
CONFIG |= {"intermediate_size": INNER, "max_position_embeddings": POSITIONS, "type_vocab_size": 2}
CONFIG |= {"hidden_act": "gelu", "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
CONFIG |= {"initializer_range": 0.02}
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(VOCAB - 5))]
PRETRAINING = ("pooler", "cls")


def shapes(heads: tuple[str, ...] = PRETRAINING, num_labels: int = 3) -> dict[str, tuple[int, ...]]:
    """Map our names to shapes, [in, out] for matrices, without padding."""
    found: dict[str, tuple[int, ...]] = {}

    def linear(name: str, num_in: int, num_out: int) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = (num_in, num_out), (num_out,)

    def norm(name: str) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = (HIDDEN,), (HIDDEN,)

    for kind, rows in (("word", VOCAB), ("position", POSITIONS), ("token_type", 2)):
        found[f"bert.embeddings.{kind}_embeddings.weight"] = (rows, HIDDEN)
    norm("bert.embeddings.LayerNorm")
    for index in range(LAYERS):
        layer = f"bert.encoder.layer.{index}"
        for part in ("query", "key", "value"):
            linear(f"{layer}.attention.self.{part}", HIDDEN, HIDDEN)
        linear(f"{layer}.attention.output.dense", HIDDEN, HIDDEN)
        norm(f"{layer}.attention.output.LayerNorm")
        linear(f"{layer}.intermediate.dense", HIDDEN, INNER)
        linear(f"{layer}.output.dense", INNER, HIDDEN)
        norm(f"{layer}.output.LayerNorm")
    if "pooler" in heads:
        linear("bert.pooler.dense", HIDDEN, HIDDEN)
    if "cls" in heads:
        linear("cls.predictions.transform.dense", HIDDEN, HIDDEN)
        norm("cls.predictions.transform.LayerNorm")
        found["cls.predictions.bias"] = (VOCAB,)
        linear("cls.seq_relationship", HIDDEN, 2)
    if "qa" in heads:
        linear("qa_outputs", HIDDEN, 2)
    if "classifier" in heads:
        linear("classifier", HIDDEN, num_labels)
    return found


def value(name: str, shape: tuple[int, ...]) -> np.ndarray:
    return (np.random.RandomState(zlib.crc32(name.encode())).randn(*shape) * 0.3).astype("float32")


def parameters(heads: tuple[str, ...] = PRETRAINING, num_labels: int = 3) -> dict[str, np.ndarray]:
    return {name: value(name, shape) for name, shape in shapes(heads, num_labels).items()}


def is_matrix(name: str) -> bool:
    return name.endswith(".weight") and "embeddings" not in name and "LayerNorm" not in name


def hugging_face(ours: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: np.ascontiguousarray(array.T) if is_matrix(name) else array for name, array in ours.items()}


PADDLENLP_NAMES = (  # parts of our names -> parts of PaddleNLP's
    ("attention.self.query", "self_attn.q_proj"),
    ("attention.self.key", "self_attn.k_proj"),
    ("attention.self.value", "self_attn.v_proj"),
    ("encoder.layer.", "encoder.layers."),
    ("attention.output.dense", "self_attn.out_proj"),
    ("intermediate.dense", "linear1"),
    ("attention.output.LayerNorm", "norm1"),
    ("output.LayerNorm", "norm2"),
    ("output.dense", "linear2"),
    ("embeddings.LayerNorm", "embeddings.layer_norm"),
    ("transform.dense", "transform"),
    ("transform.LayerNorm", "layer_norm"),
    ("predictions.bias", "predictions.decoder_bias"),
    ("qa_outputs", "classifier"),
)


def paddlenlp_name(name: str) -> str:
    for ours, theirs in PADDLENLP_NAMES:
        name = name.replace(ours, theirs)
    return name


def paddlenlp(ours: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {paddlenlp_name(name): array for name, array in ours.items()}


def tensorflow(ours: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    heads = {
        "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
        "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
        "cls.predictions.bias": "cls/predictions/output_bias",
    }
    renamed = {}
    for name, array in ours.items():
        there = heads.get(name)
        if there is None:
            there = name.replace("layer.", "layer_").replace("LayerNorm.weight", "LayerNorm.gamma")
            there = there.replace("LayerNorm.bias", "LayerNorm.beta").replace("embeddings.weight", "embeddings")
            there = there.replace(".weight", ".kernel").replace(".", "/")
        renamed[there] = array.T if there.endswith("output_weights") else array
    return renamed


def write_torch(folder: Path) -> None:
    import torch
    from transformers import BertConfig, BertForPreTraining

    model = BertForPreTraining(BertConfig(**CONFIG))
    theirs = {name: torch.from_numpy(array) for name, array in hugging_face(parameters()).items()}
    assert not model.load_state_dict(theirs, strict=False).unexpected_keys
    model.tie_weights()
    model.save_pretrained(folder / "torch", safe_serialization=False)
    state = model.state_dict()
    torch.save(state, folder / "torch_legacy.bin", _use_new_zipfile_serialization=False)
    nested = {"model": {f"module.{name}": tensor.to(torch.bfloat16) for name, tensor in state.items()}, "epoch": 3}
    torch.save(nested, folder / "torch_training.pt")


def write_tensorflow(folder: Path) -> None:
    import tensorflow

    tf = tensorflow.compat.v1
    tf.disable_eager_execution()
    for name, array in tensorflow_variables().items():
        tf.get_variable(name, initializer=np.ascontiguousarray(array))
    (folder / "tensorflow").mkdir(parents=True, exist_ok=True)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        saver = tf.train.Saver()
        saver.save(session, str(folder / "tensorflow" / "bert_model.ckpt"), write_meta_graph=False, write_state=False)
    google = {**CONFIG, "directionality": "bidi", "pooler_type": "first_token_transform"}
    (folder / "tensorflow" / "bert_config.json").write_text(json.dumps(google, indent=1) + "\n")


def tensorflow_variables() -> dict[str, np.ndarray]:
    """Return the parameters, and the other variables that training leaves beside them."""
    extra = {
        "global_step": np.int64(7),
        "bert/pooler/dense/bias/adam_m": np.zeros(HIDDEN, "float32"),
        "bert/pooler/dense/bias/adam_v": np.zeros(HIDDEN, "float32"),
    }
    return {**tensorflow(parameters()), **extra}


if __name__ == "__main__":
    {"torch": write_torch, "tensorflow": write_tensorflow}[sys.argv[1]](Path(sys.argv[2]))

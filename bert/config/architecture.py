"""The sizes of a BERT (Devlin et al., 2019) or ModernBERT (Warner et al., 2024) and the models known by name."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from bert.config.setting_errors import explain, suggest
from bert.config.settings_base import MayDiffer, ReadWith, Settings
from bert.files import json_of

# Other libraries' keys that do not change the network that is pre-trained here.
_IGNORED_JSON_KEYS = frozenset(
    "_name_or_path architectures attn_implementation bos_token_id classifier_dropout cls_token_id directionality "
    "dtype eos_token_id finetuning_task gradient_checkpointing id2label init_class label2id model_type "
    "num_labels output_all_encoded_layers output_past paddlenlp_version pooler_fc_size "
    "pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head pooler_type return_dict sep_token_id "
    "task_id tie_word_embeddings torch_dtype transformers_version use_cache use_task_id".split()
)
_ACTIVATION_FROM_JSON = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}
_ACTIVATION_TO_JSON = {"gelu_tanh": "gelu_new"}
# Settings that would change the network, with the only value that is built here.
_MUST_BE = {
    "position_embedding_type": "absolute",
    "is_decoder": False,
    "add_cross_attention": False,
    "fuse": False,
    "is_encoder_decoder": False,
    "pool_act": "tanh",
}
# Hugging Face's keys of a ModernBERT -> ours; the first of a name is written from it, and all must agree.
_MODERN_KEYS = {
    "hidden_activation": "hidden_act",
    "classifier_activation": "hidden_act",
    "norm_eps": "layer_norm_eps",
    "embedding_dropout": "hidden_dropout_prob",
    "mlp_dropout": "hidden_dropout_prob",
    "classifier_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
# Hugging Face's values of the keys that a description leaves out, by our names.
_MODERN_DEFAULTS: dict[str, Any] = {
    "vocab_size": 50_368,
    "hidden_size": 768,
    "num_hidden_layers": 22,
    "intermediate_size": 1_152,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 8_192,
    "layer_norm_eps": 1e-5,
    "pad_token_id": 50_283,
    "classifier_pooling": "cls",
}
# What else describes its network, with the only value that is built here.
_MODERN_CONSTANTS = {
    **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias"), False),
    "decoder_bias": True,
}
_MODERN_IGNORED = frozenset(
    "deterministic_flash_attn initializer_cutoff_factor position_embedding_type reference_compile "
    "repad_logits_with_grad sparse_pred_ignore_index sparse_prediction".split()
)


class BertConfig(Settings):
    """Architecture of the encoder and its two pre-training heads."""

    model_type: Literal["bert", "modernbert", "roberta"] = Field(
        "bert",
        description="the block: bert; roberta: without token types and next-sentence head; modernbert: also normalised "
        "before, rotary positions, GeGLU, local attention, no biases",
    )
    vocab_size: int = Field(30522, ge=8, description="tokens in the vocabulary (padded internally to a multiple of 8)")
    hidden_size: int = Field(768, ge=1, description="width of the encoder")
    num_hidden_layers: int = Field(12, ge=1, description="Transformer layers")
    num_attention_heads: int = Field(12, ge=1, description="attention heads; must divide the hidden size")
    intermediate_size: int = Field(3072, ge=1, description="width of the feed-forward block")
    hidden_act: Literal["gelu", "gelu_tanh", "relu"] = Field(
        "gelu", description="activation; gelu_tanh is the faster approximation of gelu"
    )
    hidden_dropout_prob: float = Field(0.1, ge=0, lt=1, description="dropout of embeddings and layer outputs")
    attention_probs_dropout_prob: float = Field(0.1, ge=0, lt=1, description="dropout of attention probabilities")
    max_position_embeddings: int = Field(512, ge=1, description="longest sequence the model can read, in tokens")
    type_vocab_size: int = Field(2, ge=2, description="segment types (pre-training on pairs needs 2)")
    initializer_range: float = Field(0.02, gt=0, description="standard deviation of the initial weights")
    # Paddle's kernels take at most 1e-3.
    layer_norm_eps: float = Field(1e-12, gt=0, le=1e-3, description="epsilon of layer normalisation")
    pad_token_id: int = Field(0, ge=0, description="id of [PAD]")
    global_attn_every_n_layers: Annotated[int, ReadWith("model_type", values=("modernbert",))] = Field(
        3, ge=1, description="modernbert: layers 0, n, 2n ... attend to all tokens, the others to near ones"
    )
    local_attention: Annotated[int, ReadWith("model_type", values=("modernbert",))] = Field(
        128, ge=2, description="modernbert: window of local attention in tokens, half of them on each side"
    )
    global_rope_theta: Annotated[float, ReadWith("model_type", values=("modernbert",))] = Field(
        160_000.0, gt=1, description="modernbert: base of the rotary positions of layers that attend to all tokens"
    )
    local_rope_theta: Annotated[float, ReadWith("model_type", values=("modernbert",))] = Field(
        10_000.0, gt=1, description="modernbert: base of the rotary positions of layers that attend to near ones"
    )
    classifier_pooling: MayDiffer[Literal["cls", "mean"]] = Field(  # older records lack it and mean cls
        "cls", description="modernbert: what classifiers of texts read: the first token, or the mean of all"
    )

    @model_validator(mode="after")
    def _consistent(self) -> "BertConfig":
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} must be a multiple of num_attention_heads="
                f"{self.num_attention_heads}; change one of them"
            )
        if self.is_modern() and self.head_size() % 2:
            raise ValueError(
                f"hidden_size={self.hidden_size} / num_attention_heads={self.num_attention_heads} must be even for "
                "rotary positions, which turn pairs; change one of them"
            )
        if self.pad_token_id >= self.vocab_size:
            raise ValueError(
                f"pad_token_id={self.pad_token_id} must be below vocab_size={self.vocab_size}; it is the line of "
                "[PAD] in the vocabulary, counted from 0"
            )
        return self

    @classmethod
    def from_json_file(cls, path: "str | Path") -> "BertConfig":
        """Read a model description with the key names of Google's and Hugging Face's `bert_config.json`."""
        try:
            values = json_of(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"config_file={path} must be readable JSON with the model's sizes: {error}") from None
        if not isinstance(values, dict):
            raise ValueError(f"config_file={path} must hold a JSON object, not a {type(values).__name__}")
        config, others = network_of(values, path)
        for key in sorted(others.keys() - _IGNORED_JSON_KEYS):
            hint = suggest(key, cls.model_fields, "remove it")
            raise ValueError(f"{key}={others[key]!r} in {path} is not a known key of a BERT model: {hint}")
        return config

    def to_json(self) -> str:
        """The same description with Hugging Face's key names; `from_json_file` reads it back."""
        values: dict[str, Any] = self.model_dump(exclude=set() if self.is_modern() else MODERN_ONLY)
        values["hidden_act"] = _ACTIVATION_TO_JSON.get(self.hidden_act, self.hidden_act)
        if self.is_modern():
            own = {"type_vocab_size", "classifier_pooling", *_MODERN_KEYS.values()}
            modern_values = {key: values[name] for key, name in _MODERN_KEYS.items()}
            last = {**_MODERN_CONSTANTS, "classifier_pooling": self.classifier_pooling}
            values = {key: value for key, value in values.items() if key not in own} | modern_values | last
        elif not self.has_token_types():
            positions = self.max_position_embeddings + self.unused_positions()
            values |= {"type_vocab_size": 1, "max_position_embeddings": positions}
        return json.dumps(values, indent=2) + "\n"

    def is_modern(self) -> bool:
        return self.model_type == "modernbert"

    def has_token_types(self) -> bool:
        """Whether the model distinguishes the two segments of a pair; only then it has a next-sentence head."""
        return self.model_type == "bert"

    def num_token_types(self) -> int:
        """Rows of the token-type embedding; RoBERTa's single row is added to every token."""
        return self.type_vocab_size if self.has_token_types() else 1

    def unused_positions(self) -> int:
        """Number of first position rows in other libraries' files that no token uses (RoBERTa's padding offset)."""
        return self.pad_token_id + 1 if self.model_type == "roberta" else 0

    def attends_locally(self, layer: int) -> bool:
        """Whether a layer, counted from 0, masks distant tokens; never if the window covers the whole sequence."""
        has_band = self.max_position_embeddings > self.local_attention // 2 + 1
        return has_band and self.uses_local_positions(layer)

    def has_window(self) -> bool:
        """Whether any layer uses local attention."""
        return any(map(self.attends_locally, range(self.num_hidden_layers)))

    def uses_local_positions(self, layer: int) -> bool:
        """Whether a layer, counted from 0, has the rotary positions of local attention, at any length."""
        return self.is_modern() and layer % self.global_attn_every_n_layers != 0

    def feed_forward_products(self) -> int:
        """Number of matrices of size hidden_size x intermediate_size in the feed-forward block."""
        return 3 if self.is_modern() else 2

    def padded_vocab_size(self) -> int:
        """Rows of the embedding matrix: the vocabulary rounded up to a multiple of 8, as tensor cores need."""
        return -(-self.vocab_size // 8) * 8

    def head_size(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def num_parameters(self) -> int:
        """Number of trainable parameters: encoder, pooler and both pre-training heads (the decoder is tied)."""
        vocab, hidden, inner = self.padded_vocab_size(), self.hidden_size, self.intermediate_size
        if self.is_modern():  # norms: two a layer but one in the first; of the embeddings, the end and the head
            layers = self.num_hidden_layers * (4 * hidden**2 + 3 * hidden * inner)
            return vocab * hidden + layers + (2 * self.num_hidden_layers + 2) * hidden + hidden**2 + vocab
        layer_norm = 2 * hidden
        dense = hidden * hidden + hidden
        embeddings = (vocab + self.max_position_embeddings + self.num_token_types()) * hidden + layer_norm
        feed_forward = (hidden * inner + inner) + (inner * hidden + hidden)
        layer = 4 * dense + feed_forward + 2 * layer_norm
        masked_lm_head = dense + layer_norm + vocab
        next_sentence_head = 2 * hidden + 2 if self.has_token_types() else 0
        return embeddings + self.num_hidden_layers * layer + dense + masked_lm_head + next_sentence_head


MODERN_ONLY = {
    "global_attn_every_n_layers",
    "local_attention",
    "global_rope_theta",
    "local_rope_theta",
    "classifier_pooling",
}


_ROBERTAS = ("roberta", "xlm-roberta", "camembert")  # names of one network
MODEL_TYPES = ("bert", "modernbert", *_ROBERTAS)  # of descriptions that are read


def our_values(values: dict[str, Any], path: "str | Path") -> dict[str, Any]:
    """Convert a RoBERTa or ModernBERT description from Hugging Face's keys to ours; others are left unchanged."""
    if values.get("model_type") in _ROBERTAS:
        return _roberta_values(values, path)
    if values.get("model_type") != "modernbert":
        return values
    known = {key: value for key, value in values.items() if key not in _MODERN_IGNORED}
    for key, value in _MODERN_CONSTANTS.items():
        if known.pop(key, value) != value:
            raise ValueError(f"{key}={values[key]!r} in {path} must be {json.dumps(value)}; no other is built here")
    if "rope_parameters" in known or "layer_types" in known:
        raise ValueError(
            f"rope_parameters and layer_types in {path} are of transformers 5; write the keys of transformers 4 "
            "instead: global_rope_theta, local_rope_theta, global_attn_every_n_layers"
        )
    if known.get("local_rope_theta", 0) is None:
        known["local_rope_theta"] = known.get("global_rope_theta", 160_000.0)
    for key, name in _MODERN_KEYS.items():
        if key not in known:
            continue
        value = known.pop(key)
        if name != "hidden_dropout_prob" and known.setdefault(name, value) != value:
            raise ValueError(f"{key}={value!r} in {path} must be {known[name]!r}, as {name} is; no other is built here")
        known.setdefault(name, value)
    complete = {**_MODERN_DEFAULTS, **known}
    if "pad_token_id" not in known and complete["vocab_size"] <= complete["pad_token_id"]:  # of a smaller vocabulary
        del complete["pad_token_id"]
    return complete


def _roberta_values(values: dict[str, Any], path: "str | Path") -> dict[str, Any]:
    """Count positions from the first token, as in a BERT; RoBERTa's begin after the id of padding."""
    pad, positions = values.get("pad_token_id", 1), values.get("max_position_embeddings", 512)
    if values.get("type_vocab_size", 1) != 1:
        raise ValueError(
            f"type_vocab_size={values['type_vocab_size']!r} in {path} must be 1 for model_type={values['model_type']}, "
            "whose tokenizers give one type; no other is built here"
        )
    if not isinstance(pad, int) or not isinstance(positions, int) or positions <= pad + 1:
        raise ValueError(
            f"max_position_embeddings={positions!r} in {path} must be more than pad_token_id={pad!r} + 1: the "
            "positions of a RoBERTa begin after the id of its padding"
        )
    known = {key: value for key, value in values.items() if key != "type_vocab_size"}
    return {**known, "model_type": "roberta", "pad_token_id": pad, "max_position_embeddings": positions - pad - 1}


def network_of(values: dict[str, Any], path: "str | Path") -> tuple[BertConfig, dict[str, Any]]:
    """The network that a description in any library's keys names, and its other settings; ValueError if unknown."""
    known = dict(our_values(values, path))
    if known.setdefault("model_type", "bert") not in MODEL_TYPES:
        raise ValueError(
            f"model_type={known['model_type']!r} in {path} must be one of {', '.join(MODEL_TYPES)}; no other network "
            "is built here"
        )
    for key, value in _MUST_BE.items():
        if known.pop(key, value) != value:
            raise ValueError(
                f"{key}={values[key]!r} in {path} must be {json.dumps(value)}; such a network is not built here"
            )
    own = {key: known.pop(key) for key in BertConfig.model_fields if key in known}
    activation = own.get("hidden_act")
    own["hidden_act"] = _ACTIVATION_FROM_JSON.get(str(activation), activation)
    try:
        return BertConfig(**{key: value for key, value in own.items() if value is not None}), known
    except ValidationError as error:
        raise ValueError(f"{path}: {'; '.join(explain(error, 'this file'))[:500]}") from None


@dataclass(frozen=True)
class FusedKernels:
    """Fused kernels that only Paddle's GPU wheel has; without them the same arithmetic runs as separate operators."""

    linear: bool = False  # x W + b in one kernel; the bias gradient is fused into the matrix product
    dropout_add: bool = False  # dropout and residual; keeps a seed for the backward pass, not a mask
    attention: bool = False  # stores no tensor of size s x s; needs half precision
    unpad: bool = False  # packs tokens as [T, hidden] without padding; not a kernel, and on CPU too


_LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
_CASED_VOCABULARY = 28996
_MODERN: dict[str, Any] = {
    "model_type": "modernbert",
    "max_position_embeddings": 8192,
    "layer_norm_eps": 1e-5,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_pooling": "mean",
}

# Learns something in minutes on two CPU cores, where dropout costs 16% of a step and the exact gelu is slower than its
# approximation.
_QUICKSTART: dict[str, Any] = {
    "vocab_size": 4096,
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "hidden_act": "gelu_tanh",
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "max_position_embeddings": 128,
    "initializer_range": 0.05,
}

# tiny, mini and small: Turc et al., 2019.
BUILT_IN_MODELS: dict[str, BertConfig] = {
    "bert-base-uncased": BertConfig(),
    "bert-base-cased": BertConfig(vocab_size=_CASED_VOCABULARY),
    "bert-large-uncased": BertConfig(**_LARGE),
    "bert-large-cased": BertConfig(vocab_size=_CASED_VOCABULARY, **_LARGE),
    "bert-tiny": BertConfig(hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512),
    "bert-mini": BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024),
    "bert-small": BertConfig(hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048),
    # With the vocabulary of a WordPiece; the published weights have 50,368 tokens of a byte-level BPE.
    "modernbert-base": BertConfig(num_hidden_layers=22, intermediate_size=1152, **_MODERN),
    "modernbert-large": BertConfig(**{**_LARGE, "num_hidden_layers": 28, "intermediate_size": 2624}, **_MODERN),
    "bert-quickstart": BertConfig(**_QUICKSTART),
    "bert-quickstart-deep": BertConfig(**{**_QUICKSTART, "num_hidden_layers": 4}),
}

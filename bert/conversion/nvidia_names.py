"""Maps the names in NVIDIA's Paddle checkpoints to ours: names that Paddle generates, such as `linear_7.w_0`.

Such a name gives a layer's kind and its number among its kind, nothing else. The network that wrote them creates its
layers in one order: three embeddings; in each encoder layer query, key, value (or one fused matrix), output projection,
two feed-forward matrices, with a normalisation after attention and one after feed-forward; pooler; then the heads. The
position gives the meaning. Every shape is checked against it, and what does not fit exactly is refused.
"""

import re

import numpy as np

from bert.conversion import tensor_names
from bert.conversion.raw_tensors import ConversionError, RawTensors
from bert.conversion.tensor_names import difference, expected_shape

IS_FLAT = re.compile(r"(embedding|linear|layer_norm)_(\d{1,6})\.([wb])_0")
_DECODER_BIAS = re.compile(r"(bert_lm_prediction_head|create_parameter)_\d+\.[wb]_0")
_TRAINING = re.compile(
    r".*_(moment[12]|beta[12]_pow_acc|fp32_master|velocity)_\d+(\.\w+)?|"
    r"learning_rate_\d+|loss_scaling_\d+|num_(good|bad)_steps_\d+|gradient_merge_\w+|.*@GradientMerge|"
    r"@LR_DECAY_COUNTER@"
)
_ATTENTION = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")


def structured(raw: RawTensors, fused_qkv: str | None, notes: list[str]) -> dict[str, np.ndarray]:
    """The parameters by our names.

    Args:
        fused_qkv: order of the columns of a fused matrix [hidden, 3 x hidden]: "blocks" (all of query, then key, then
            value) or "heads:NUMBER" (query, key and value of the first of NUMBER heads, then of the next).
    Raises:
        ConversionError: another structure, missing tensors, a fused matrix without the order of its columns.
    """
    kinds, bias, training = _by_kind(raw)
    layers, rest = divmod(len(kinds["layer_norm"]) - 1, 2)
    if len(kinds["embedding"]) != 3 or layers < 1:
        raise ConversionError(
            f"{raw.source}: {len(kinds['embedding'])} embeddings and {len(kinds['layer_norm'])} "
            "layer normalisations are not those of a BERT (3, and 1 + 2 a layer)"
        )
    hidden = kinds["embedding"][0]["w"].shape[-1]
    fused = kinds["linear"][0]["w"].shape == (hidden, 3 * hidden)
    places = _places(layers, fused, bool(rest), len(kinds["linear"]), raw)
    parameters: dict[str, np.ndarray] = {}
    for kind, names in places.items():
        for name, parts in zip(names, kinds[kind], strict=True):
            parameters[f"{name}.weight"] = parts["w"]
            if "b" in parts:
                parameters[f"{name}.bias"] = parts["b"]
    if rest:
        if bias is None:
            raise ConversionError(
                f"{raw.source} has the masked-LM head's normalisation but not its bias; the file is incomplete"
            )
        parameters[tensor_names.DECODER_BIAS] = bias
    if fused:
        _split_fused(parameters, layers, fused_qkv, raw)
    _check_shapes(parameters, raw)
    if training:
        notes.append(f"left out: {training} tensors of the optimizer")
    if "classifier.weight" in parameters and parameters["classifier.weight"].shape[1] == 2:
        parameters = tensor_names.with_question_answering_head(parameters)
        notes.append(
            "the classifier of two outputs is taken for the question-answering head, the only one that "
            "NVIDIA's Paddle BERT has"
        )
    return parameters


def _by_kind(raw: RawTensors) -> tuple[dict[str, list[dict[str, np.ndarray]]], np.ndarray | None, int]:
    """Layers of each kind in the order of their numbers; the decoder's bias; the number of tensors of the optimizer."""
    numbered: dict[str, dict[int, dict[str, np.ndarray]]] = {"embedding": {}, "linear": {}, "layer_norm": {}}
    bias, training, foreign = [], 0, []
    for name, array in raw.tensors.items():
        if match := IS_FLAT.fullmatch(name):
            kind, number, part = match.groups()
            numbered[kind].setdefault(int(number), {})[part] = array
        elif _DECODER_BIAS.fullmatch(name) and array.ndim == 1:
            bias.append(array)
        elif _TRAINING.fullmatch(name):
            training += 1
        else:
            foreign.append(name)
    if foreign or len(bias) > 1:
        raise ConversionError(
            f"{raw.source} holds tensors with no place in NVIDIA's BERT: "
            f"{', '.join(sorted(foreign)[:5]) or 'several biases of a decoder'}"
        )
    for kind, layers in numbered.items():
        for number, parts in layers.items():
            is_whole = "w" in parts and (kind == "embedding" or "b" in parts)
            if not is_whole or parts["w"].ndim != (1 if kind == "layer_norm" else 2):
                raise ConversionError(
                    f"{raw.source}: {kind}_{number} must have a weight and a bias; the file is incomplete"
                )
    kinds = {kind: [layers[number] for number in sorted(layers)] for kind, layers in numbered.items()}
    if not kinds["linear"]:
        raise ConversionError(f"{raw.source} holds no linear layers (linear_N.w_0); it is not a BERT")
    return kinds, (bias[0] if bias else None), training


def _places(layers: int, fused: bool, with_masked_lm: bool, num_linear: int, raw: RawTensors) -> dict[str, list[str]]:
    """Our names (without `.weight`) of each kind of layer, in the order in which the network creates them."""
    linear, norms = [], ["bert.embeddings.LayerNorm"]
    for index in range(layers):
        attention = ("attention.self.fused", "attention.output.dense") if fused else _ATTENTION
        linear += [f"bert.encoder.layer.{index}.{part}" for part in (*attention, "intermediate.dense", "output.dense")]
        norms += [f"bert.encoder.layer.{index}.{part}.LayerNorm" for part in ("attention.output", "output")]
    linear.append("bert.pooler.dense")
    heads = ["cls.predictions.transform.dense", "cls.seq_relationship"] if with_masked_lm else ["classifier"]
    if with_masked_lm:
        norms.append("cls.predictions.transform.LayerNorm")
    if with_masked_lm or num_linear == len(linear) + len(heads):
        linear += heads
    if num_linear != len(linear):
        raise ConversionError(
            f"{raw.source}: {num_linear} linear layers do not make a BERT of {layers} layers "
            f"(expected {len(linear)}); its structure is not the known one"
        )
    kinds = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    return {"embedding": [f"bert.embeddings.{kind}" for kind in kinds], "linear": linear, "layer_norm": norms}


def _split_fused(parameters: dict[str, np.ndarray], layers: int, layout: str | None, raw: RawTensors) -> None:
    """Replace each fused matrix by the three of which it was made."""
    if layout is None:
        raise ConversionError(
            f"{raw.source} was trained with fused attention (--fuse-mha): query, key and value are "
            "one matrix, and the file does not say in which order its columns lie. Name it: "
            "--fused-qkv blocks, or --fused-qkv heads:NUMBER with the number of attention heads"
        )
    match = re.fullmatch(r"blocks|heads:([1-9]\d{0,4})", layout)
    if not match:
        raise ConversionError(f"fused_qkv={layout} must be blocks or heads:NUMBER")
    num_heads = int(match.group(1) or 1)
    for index in range(layers):
        prefix = f"bert.encoder.layer.{index}.attention.self."
        for kind in ("weight", "bias"):
            fused = parameters.pop(f"{prefix}fused.{kind}")
            if fused.shape[-1] % (3 * num_heads):
                raise ConversionError(
                    f"fused_qkv={layout}: {num_heads} heads must divide the width of the model, {fused.shape[-1] // 3}"
                )
            parts = fused.reshape(*fused.shape[:-1], num_heads, 3, -1)
            for turn, part in enumerate(("query", "key", "value")):
                parameters[f"{prefix}{part}.{kind}"] = parts[..., turn, :].reshape(*fused.shape[:-1], -1)


def _check_shapes(parameters: dict[str, np.ndarray], raw: RawTensors) -> None:
    vocab, hidden = parameters[tensor_names.WORD_EMBEDDINGS].shape
    inner = parameters["bert.encoder.layer.0.intermediate.dense.weight"].shape[-1]
    for name, array in parameters.items():
        if problem := difference(array, expected_shape(name, vocab, hidden, inner)):
            raise ConversionError(
                f"{raw.source}: what should be {name} has shape {problem}; its layers are not in the known order"
            )

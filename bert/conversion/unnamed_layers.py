"""Infers tensors from names that hold only a kind and a number, as in NVIDIA's Paddle checkpoints.

Paddle generates names such as `linear_7.w_0`: a layer's kind and its number among its kind, nothing else. The network
that wrote them creates its layers in one order: three embeddings; in each encoder layer query, key, value (or one fused
matrix), output projection, two feed-forward matrices, with a normalisation after attention and one after feed-forward;
pooler; then the heads. The position gives the meaning. Every shape is checked against it, and what does not fit exactly
is refused.
"""

import re

import numpy as np

from bert.conversion import tensor_names
from bert.conversion.raw_tensors import RawTensors
from bert.conversion.untrusted_files import ConversionError
from bert.model.head_specs import DECODER_BIAS

LAYER_NAME = re.compile(r"(embedding|linear|layer_norm)_(\d{1,6})\.([wb])_0$")
_DECODER_BIAS = re.compile(r"(bert_lm_prediction_head|create_parameter)_\d+\.[wb]_0")
_TRAINING = re.compile(
    r".*_(moment[12]|beta[12]_pow_acc|fp32_master|velocity)_\d+(\.\w+)?|"
    r"learning_rate_\d+|loss_scaling_\d+|num_(good|bad)_steps_\d+|gradient_merge_\w+|.*@GradientMerge|"
    r"@LR_DECAY_COUNTER@"
)
_ATTENTION = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")


def parameters_of_layers(raw: RawTensors, fused_qkv: str | None, notes: list[str]) -> dict[str, np.ndarray]:
    """The parameters by our names, in the file's dtypes.

    Args:
        raw: tensors with NVIDIA's generated names.
        fused_qkv: order of the columns of a fused matrix [hidden, 3 x hidden]: "blocks" (all of query, then key, then
            value) or "heads:NUMBER" (query, key and value of the first of NUMBER heads, then of the next).
        notes: gets a line for what is left out or inferred.

    Raises:
        ConversionError: the layers are not a BERT's, or the order of a fused matrix is not given.
    """
    kinds, bias, training = _by_kind(raw)
    embeddings, linear, norms = (kinds.get(kind, []) for kind in ("embedding", "linear", "layer_norm"))
    layers, with_masked_lm = divmod(len(norms) - 1, 2)
    if len(embeddings) != 3 or layers < 1 or not linear:
        raise ConversionError(
            f"{raw.source}: {len(embeddings)} embeddings, {len(norms)} layer normalisations and {len(linear)} linear "
            "layers do not make a BERT (3, 1 + 2 a layer, and at least 5 a layer)"
        )
    hidden = embeddings[0]["weight"].shape[-1]
    is_fused = linear[0]["weight"].shape == (hidden, 3 * hidden)
    names = _names(layers, is_fused, bool(with_masked_lm), len(linear), raw)
    parameters = {
        f"{name}.{part}": array
        for name, parts in zip(names, [*embeddings, *linear, *norms], strict=True)
        for part, array in parts.items()
    }
    if bias is not None and with_masked_lm:
        parameters[DECODER_BIAS] = bias
    if is_fused:
        _split_fused(parameters, layers, fused_qkv, raw)
    tensor_names.check_parameters(parameters, f"{raw.source}: its layers are not in the known order")
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
    """Layers of each kind by their numbers; also the decoder's bias and the number of optimizer tensors."""
    layers: dict[tuple[str, int], dict[str, np.ndarray]] = {}
    biases, training, foreign = [], 0, []
    for name, array in raw.tensors.items():
        if (match := LAYER_NAME.match(name)) and array.ndim in (1, 2):
            kind, number, part = match.groups()
            layers.setdefault((kind, int(number)), {})["weight" if part == "w" else "bias"] = array
        elif _DECODER_BIAS.fullmatch(name) and array.ndim == 1:
            biases.append(array)
        elif _TRAINING.fullmatch(name):
            training += 1
        else:
            foreign.append(name)
    if foreign or len(biases) > 1:
        raise ConversionError(
            f"{raw.source} holds tensors with no place in NVIDIA's BERT: "
            f"{', '.join(sorted(foreign)[:5]) or 'several biases of a decoder'}"
        )
    kinds: dict[str, list[dict[str, np.ndarray]]] = {}
    for (kind, number), parts in sorted(layers.items()):
        if "weight" not in parts:
            raise ConversionError(f"{raw.source}: {kind}_{number} has no weight; the file is incomplete")
        kinds.setdefault(kind, []).append(parts)
    return kinds, biases[0] if biases else None, training


def _names(layers: int, is_fused: bool, with_masked_lm: bool, num_linear: int, raw: RawTensors) -> list[str]:
    """Our names (without `.weight`) of embeddings, linear layers and normalisations, each in creation order."""
    embeddings = ("embeddings.word_embeddings", "embeddings.position_embeddings", "embeddings.token_type_embeddings")
    linear, norms = [], ["bert.embeddings.LayerNorm"]
    for index in range(layers):
        attention = ("attention.self.fused", "attention.output.dense") if is_fused else _ATTENTION
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
    return [*(f"bert.{name}" for name in embeddings), *linear, *norms]


def _split_fused(parameters: dict[str, np.ndarray], layers: int, layout: str | None, raw: RawTensors) -> None:
    """Split each fused query-key-value matrix into three."""
    if layout is None:
        raise ConversionError(
            f"{raw.source} was trained with fused attention (--fuse-mha): query, key and value are "
            "one matrix, and the file does not say in which order its columns lie. Name it: "
            "run_convert.py --fused-qkv blocks, or --fused-qkv heads:NUMBER with the number of attention heads, and "
            "use what it writes"
        )
    match = re.fullmatch(r"blocks|heads:([1-9]\d{0,4})", layout)
    if not match:
        raise ConversionError(f"fused_qkv={layout} must be blocks or heads:NUMBER")
    num_heads = int(match.group(1) or 1)
    for index in range(layers):
        prefix = f"bert.encoder.layer.{index}.attention.self."
        for kind in ("weight", "bias"):
            fused = parameters.pop(f"{prefix}fused.{kind}", None)
            if fused is None:
                continue  # `check_parameters` names what is missing
            if fused.shape[-1] % (3 * num_heads):
                raise ConversionError(
                    f"fused_qkv={layout}: {num_heads} heads must divide the width of the model, {fused.shape[-1] // 3}"
                )
            parts = fused.reshape(*fused.shape[:-1], num_heads, 3, -1)
            for turn, part in enumerate(("query", "key", "value")):
                parameters[f"{prefix}{part}.{kind}"] = parts[..., turn, :].reshape(*fused.shape[:-1], -1)

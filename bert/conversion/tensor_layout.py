"""Maps foreign tensors to our names, orientation and dtype; drops tied duplicates; pads the vocabulary.

NVIDIA's Paddle checkpoints have names that Paddle generates, such as `linear_7.w_0`: a layer's kind and its number
among its kind, nothing else. The network that wrote them creates its layers in one order: three embeddings; in each
encoder layer query, key, value (or one fused matrix), output projection, two feed-forward matrices, with a
normalisation after attention and one after feed-forward; pooler; then the heads. The position gives the meaning. Every
shape is checked against it, and what does not fit exactly is refused.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bert.config.architecture import BertConfig
from bert.conversion import tensor_names
from bert.conversion.raw_tensors import BFLOAT16, ConversionError, RawTensors
from bert.conversion.tensor_names import POSITION_EMBEDDINGS, WORD_EMBEDDINGS
from bert.model.head_specs import DECODER_BIAS, TOKEN_WEIGHTS

# A padded token has a row of zeros, and this bias in the masked-LM head. exp(-100) adds nothing to a softmax, so the
# losses are those of the unpadded model, and no gradient moves the row.
PADDED_BIAS = -100.0
_SHOWN = 20  # unknown tensors listed in the error


_MARKS = (  # a pattern in the names of a dialect's tensors
    ("nvidia-paddle", re.compile(r"(embedding|linear|layer_norm)_(\d{1,6})\.([wb])_0$")),
    ("tensorflow", re.compile(r".*(/kernel|/LayerNorm/gamma)")),
    ("paddlenlp", re.compile(r".*\.self_attn\.q_proj\.")),
    ("roberta", re.compile(r"roberta\.")),
    ("huggingface", re.compile(r".*attention\.self\.query\.weight")),
    ("modernbert", re.compile(r".*\.attn\.Wqkv\.weight")),
)
_WRAPPERS = ("module.", "_orig_mod.", "module.")  # of data-parallel training and torch.compile, in either order
_PARTS = {"attn.Wqkv.weight": 3, "mlp.Wi.weight": 2}  # of ModernBERT's: endings of matrices that are several of ours
_FEED_FORWARD = ("layer.0.intermediate.dense.weight", "layer.0.intermediate.dense_act.weight")


def recognise_dialect(raw: RawTensors) -> str:
    """The library whose names the tensors have."""
    for dialect, mark in _MARKS:
        if any(mark.match(name) for name in raw.tensors):
            return "native" if dialect == "huggingface" and _lies_as_ours(raw) else dialect
    names = ", ".join(sorted(raw.tensors)[:3]) or "nothing"
    raise ConversionError(
        f"{raw.source} holds no BERT encoder that is known here (its tensors: {names}, ...); known "
        "are this project's, Hugging Face's, PaddleNLP's, NVIDIA's and Google's names of BERT"
    )


def _lies_as_ours(raw: RawTensors) -> bool:
    """Whether matrices are [in, out], inferred from the feed-forward block, or from the metadata if it is square."""
    inner = next((array for name, array in raw.tensors.items() if name.endswith(_FEED_FORWARD)), None)
    query = next(array for name, array in raw.tensors.items() if name.endswith("attention.self.query.weight"))
    if inner is not None and inner.ndim == query.ndim == 2:
        hidden, (rows, columns) = len(query), inner.shape
        if rows != columns and hidden in (rows, columns):
            return rows == hidden
    library = raw.metadata.get("format")
    if library not in ("pd", "np", "pt"):
        raise ConversionError(
            f"{raw.source}: its feed-forward block is square and the file does not say which library "
            "wrote it, so [in, out] and [out, in] cannot be distinguished; save it with the metadata "
            "format=pt (PyTorch) or format=pd (Paddle)"
        )
    return library != "pt"


def to_ours(
    raw: RawTensors, notes: list[str], *, fused_qkv: str | None, allow_unknown: bool
) -> tuple[str, dict[str, np.ndarray]]:
    """(dialect, parameters by our names in our layout, float32), with a note for each change.

    `fused_qkv` is as of `structured`; `allow_unknown` leaves out tensors that no BERT has, instead of refusing them.
    """
    for prefix in _WRAPPERS:
        if raw.tensors and all(name.startswith(prefix) for name in raw.tensors):
            raw = replace(raw, tensors={name.removeprefix(prefix): array for name, array in raw.tensors.items()})
            notes.append(f"removed the prefix `{prefix}` from all names")
    dialect = recognise_dialect(raw)
    shapes = [array.shape for array in raw.tensors.values() if array.ndim == 2]
    if fused_qkv is not None and not any(width == 3 * hidden for hidden, width in shapes):
        notes.append("--fused-qkv was not needed: query, key and value are not one matrix here")
    if dialect == "nvidia-paddle":
        return dialect, _as_float32(structured(raw, fused_qkv, notes), raw, notes)
    if dialect == "modernbert":
        raw = replace(raw, tensors=split_parts(raw.tensors))
    if dialect == "roberta" and "classifier.dense.weight" in raw.tensors:  # which is the pooler of a classifier
        unused = [name for name in raw.tensors if name.startswith("roberta.pooler.")]
        notes += [f"left out: {name}, which this classifier does not use" for name in unused]
        raw = replace(raw, tensors={name: array for name, array in raw.tensors.items() if name not in unused})
    modern = dialect == "modernbert" or any(name.endswith(".intermediate.gate.weight") for name in raw.tensors)
    dictionary = tensor_names.dictionary(dialect, tensor_names.count_layers(raw.tensors), modern)
    parameters: dict[str, np.ndarray] = {}
    unknown, tied = [], []
    for name, array in raw.tensors.items():
        if name in dictionary:
            ours, is_transposed = dictionary[name]
            if ours in parameters:
                raise ConversionError(
                    f"{raw.source} holds {ours} twice, under two spellings ({name} is one); remove one of them"
                )
            parameters[ours] = array.T if is_transposed and array.ndim == 2 else array
        elif tensor_names.BUFFERS.fullmatch(name):
            notes.append(f"left out: {name}, a constant")
        elif name.removeprefix("bert.") in tensor_names.TIED:
            tied.append(name)
        else:
            unknown.append(f"{name} {list(array.shape)}")
    _check_tied(raw, tied, parameters, notes)
    parameters = _as_float32(parameters, raw, notes)
    if unknown and not allow_unknown:
        more = [f"... and {len(unknown) - _SHOWN} more"] if len(unknown) > _SHOWN else []
        raise ConversionError(
            f"{raw.source} holds tensors that have no place in a BERT (allow_unknown, --allow-unknown on the command "
            "line, leaves them out):\n  "
            + "\n  ".join([*(f"unknown: {name}" for name in sorted(unknown)[:_SHOWN]), *more])
        )
    notes += [f"left out: {name}, unknown" for name in sorted(unknown)]
    return dialect, parameters


def split_parts(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """ModernBERT's matrices [n x out, in] that are several of ours as NAME.0, NAME.1 ...; the others as they are."""
    result: dict[str, np.ndarray] = {}
    for name, array in tensors.items():
        number = next((number for ending, number in _PARTS.items() if name.endswith(ending)), 1)
        if number > 1 and array.ndim == 2 and len(array) % number == 0:
            result |= {f"{name}.{index}": part for index, part in enumerate(np.split(array, number))}
        else:
            result[name] = array
    return result


def join_parts(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The inverse of `split_parts`."""
    result = dict(tensors)
    for first in [name for name in tensors if name.endswith(".weight.0")]:
        name = first.removesuffix(".0")
        parts = [result.pop(f"{name}.{index}") for index in range(next(_PARTS[e] for e in _PARTS if name.endswith(e)))]
        result[name] = np.concatenate(parts)
    return result


def _check_tied(raw: RawTensors, tied: list[str], parameters: dict[str, np.ndarray], notes: list[str]) -> None:
    for name in tied:
        original = tensor_names.TIED[name.removeprefix("bert.")]
        array, kept = raw.tensors[name], parameters.get(original)
        if kept is None and original == DECODER_BIAS:
            parameters[original] = array
        elif kept is None or array.shape != kept.shape or array.tobytes() != kept.tobytes():
            raise ConversionError(
                f"{raw.source}: {name} must equal {original}, to which this network ties it, and "
                "does not; an untied decoder cannot be represented here"
            )
        else:
            notes.append(f"left out: {name}, equal to {original}")


def _as_float32(parameters: Mapping[str, np.ndarray], raw: RawTensors, notes: list[str]) -> dict[str, np.ndarray]:
    """Contiguous float32 copies. Other floats are converted and counted, anything else is refused."""
    result, converted = {}, Counter[str]()
    for name, array in parameters.items():
        dtype = "bfloat16" if array.dtype == BFLOAT16 else str(array.dtype)
        if dtype == "bfloat16":  # the upper half of float32
            array = (array["bfloat16"].astype(np.uint32) << 16).view(np.float32)
        if array.dtype.kind != "f":
            raise ConversionError(
                f"{raw.source}: {name} is {array.dtype}, must be a float; this is not a parameter of a BERT"
            )
        if array.ndim == 0:
            raise ConversionError(f"{raw.source}: {name} is a single number, must be an array; the file is damaged")
        converted[dtype] += dtype != "float32"
        with np.errstate(over="ignore"):
            result[name] = np.ascontiguousarray(array, dtype=np.float32)
        if not np.isfinite(result[name]).all():
            raise ConversionError(
                f"{raw.source}: {name} holds NaN or infinity; the training that wrote it had "
                "diverged, or the file is damaged: use an earlier checkpoint"
            )
    notes += [f"{count} tensors in {dtype}, converted to float32" for dtype, count in converted.items() if count]
    return result


def without_unused_positions(
    parameters: dict[str, np.ndarray], config: BertConfig, notes: list[str]
) -> dict[str, np.ndarray]:
    """The parameters without the first rows of a RoBERTa's positions, which other libraries' files have."""
    unused = config.unused_positions()
    if not unused or POSITION_EMBEDDINGS not in parameters:
        return parameters
    notes.append(f"left out: the first {unused} rows of {POSITION_EMBEDDINGS}, which no token has")
    return {**parameters, POSITION_EMBEDDINGS: parameters[POSITION_EMBEDDINGS][unused:]}


# ---- the padded vocabulary ----------------------------------------------------------------------------------------


def pad_vocabulary(
    parameters: Mapping[str, np.ndarray], vocab_size: int, padded_size: int, notes: list[str]
) -> dict[str, np.ndarray]:
    """Add rows up to `padded_size`, if there are none yet."""
    result = dict(parameters)
    for name, value in ((WORD_EMBEDDINGS, 0.0), (DECODER_BIAS, PADDED_BIAS), (TOKEN_WEIGHTS, 0.0)):
        if name not in result:
            continue
        rows = len(result[name])
        if rows not in (vocab_size, padded_size):
            raise ConversionError(
                f"{name} has {rows} rows, must have {vocab_size} (vocab_size) or {padded_size} (that "
                "rounded up to a multiple of 8); the weights and the model description do not belong "
                "together"
            )
        if rows < padded_size:
            widths = ((0, padded_size - rows),) + ((0, 0),) * (result[name].ndim - 1)
            result[name] = np.pad(result[name], widths, constant_values=np.float32(value))
            notes.append(f"vocabulary padded: {name} from {rows} to {padded_size} rows, filled with {value:g}")
    return result


def strip_vocabulary(parameters: Mapping[str, np.ndarray], vocab_size: int, notes: list[str]) -> dict[str, np.ndarray]:
    """The parameters without the rows that only pad the vocabulary."""
    result = dict(parameters)
    for name in (WORD_EMBEDDINGS, DECODER_BIAS, TOKEN_WEIGHTS):
        if name in result and len(result[name]) > vocab_size:
            notes.append(f"padding of the vocabulary removed: {name} from {len(result[name])} to {vocab_size} rows")
            result[name] = result[name][:vocab_size]
    return result


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
    """
    kinds, bias, training = _by_kind(raw)
    embeddings, linear, norms = (kinds.get(kind, []) for kind in ("embedding", "linear", "layer_norm"))
    layers, with_masked_lm = divmod(len(norms) - 1, 2)
    if len(embeddings) != 3 or layers < 1 or not linear:
        raise ConversionError(
            f"{raw.source}: {len(embeddings)} embeddings, {len(norms)} layer normalisations and {len(linear)} linear "
            "layers are not those of a BERT (3, 1 + 2 a layer, and at least 5 a layer)"
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
    """Layers of each kind in the order of their numbers; the decoder's bias; the number of tensors of the optimizer."""
    layers: dict[tuple[str, int], dict[str, np.ndarray]] = {}
    biases, training, foreign = [], 0, []
    for name, array in raw.tensors.items():
        if (match := _MARKS[0][1].match(name)) and array.ndim in (1, 2):
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
    """Our names (without `.weight`) of embeddings, linear layers and normalisations, each in the order of creation."""
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
    """Replace each fused matrix by the three of which it was made."""
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

"""Converts foreign tensors to our names, orientation and dtype, and drops tied duplicates."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bert.config.architecture import BertConfig
from bert.conversion import tensor_names
from bert.conversion.raw_tensors import BFLOAT16, RawTensors
from bert.conversion.tensor_names import POSITION_EMBEDDINGS
from bert.conversion.unnamed_layers import LAYER_NAME, parameters_of_layers
from bert.conversion.untrusted_files import ConversionError
from bert.model.head_specs import DECODER_BIAS

_SHOWN = 20  # unknown tensors listed in the error


_DIALECT_PATTERNS = (  # a pattern in the names of a dialect's tensors
    ("nvidia-paddle", LAYER_NAME),
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
    """The library whose tensor names these are."""
    for dialect, mark in _DIALECT_PATTERNS:
        if any(mark.match(name) for name in raw.tensors):
            return "native" if dialect == "huggingface" and _lies_as_ours(raw) else dialect
    names = ", ".join(sorted(raw.tensors)[:3]) or "nothing"
    raise ConversionError(
        f"{raw.source} holds no BERT encoder that is known here (its tensors: {names}, ...); known "
        "are this project's, Hugging Face's, PaddleNLP's, NVIDIA's and Google's names of BERT"
    )


def _lies_as_ours(raw: RawTensors) -> bool:
    """Whether matrices are [in, out]: inferred from the feed-forward block, or from metadata if it is square."""
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
    """Convert tensors to our names and layout in float32; returns (dialect, parameters), and notes each change.

    Args:
        fused_qkv: as of `unnamed_layers.parameters_of_layers`.
        allow_unknown: leave out tensors that no BERT has, instead of refusing them.
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
        return dialect, _as_float32(parameters_of_layers(raw, fused_qkv, notes), raw, notes)
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
            our_name, is_transposed = dictionary[name]
            if our_name in parameters:
                raise ConversionError(
                    f"{raw.source} holds {our_name} twice, under two spellings ({name} is one); remove one of them"
                )
            parameters[our_name] = array.T if is_transposed and array.ndim == 2 else array
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
    """Split ModernBERT's joined matrices [n x out, in] into NAME.0, NAME.1 ...; other tensors stay."""
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
        array, tied_to = raw.tensors[name], parameters.get(original)
        if tied_to is None and original == DECODER_BIAS:
            parameters[original] = array
        elif tied_to is None or array.shape != tied_to.shape or array.tobytes() != tied_to.tobytes():
            raise ConversionError(
                f"{raw.source}: {name} must equal {original}, to which this network ties it, and "
                "does not; an untied decoder cannot be represented here"
            )
        else:
            notes.append(f"left out: {name}, equal to {original}")


def _as_float32(parameters: Mapping[str, np.ndarray], raw: RawTensors, notes: list[str]) -> dict[str, np.ndarray]:
    """Contiguous float32 copies of tensors. Other float types are converted and counted; any other type is refused."""
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
    """Remove the first position rows that no token uses (RoBERTa's, in other libraries' files)."""
    unused = config.unused_positions()
    if not unused or POSITION_EMBEDDINGS not in parameters:
        return parameters
    notes.append(f"left out: the first {unused} rows of {POSITION_EMBEDDINGS}, which no token has")
    return {**parameters, POSITION_EMBEDDINGS: parameters[POSITION_EMBEDDINGS][unused:]}

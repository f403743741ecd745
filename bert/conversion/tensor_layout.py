"""Maps foreign tensors to our names, orientation and dtype; drops tied duplicates; pads the vocabulary."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bert.conversion import nvidia_names, tensor_names
from bert.conversion.raw_tensors import BFLOAT16, ConversionError, RawTensors, widen_bfloat16
from bert.conversion.tensor_names import DECODER_BIAS, WORD_EMBEDDINGS

# A padded token has a row of zeros, and this bias in the masked-LM head. exp(-100) adds nothing to a softmax, so the
# losses are those of the unpadded model, and no gradient moves the row.
PADDED_BIAS = -100.0
_SHOWN = 20  # unknown tensors listed in the error


def recognise_dialect(raw: RawTensors) -> str:
    """The library whose names the tensors have.

    Raises:
        ConversionError: names of no known BERT, or matrices whose orientation is ambiguous.
    """
    names = raw.tensors.keys()
    if any(nvidia_names.IS_FLAT.fullmatch(name) for name in names):
        return "nvidia-paddle"
    if any("/kernel" in name or "/LayerNorm/gamma" in name for name in names):
        return "tensorflow"
    if any(".self_attn.q_proj." in name for name in names):
        return "paddlenlp"
    if any("attention.self.query.weight" in name for name in names):
        return "native" if _lies_as_ours(raw) else "huggingface"
    some = ", ".join(sorted(names)[:3]) or "nothing"
    raise ConversionError(
        f"{raw.source} holds no BERT encoder that is known here (its tensors: {some}, ...); known "
        "are this project's, Hugging Face's, PaddleNLP's, NVIDIA's and Google's names of BERT"
    )


_FEED_FORWARD = ("layer.0.intermediate.dense.weight", "layer.0.intermediate.dense_act.weight")


def _lies_as_ours(raw: RawTensors) -> bool:
    """Whether matrices are [in, out], inferred from the feed-forward block, or from the metadata if it is square."""
    name = next((n for n in raw.tensors if n.endswith(_FEED_FORWARD)), None)
    query = next(n for n in raw.tensors if n.endswith("attention.self.query.weight"))
    if name is not None and raw.tensors[name].ndim == 2 and raw.tensors[query].ndim == 2:
        hidden = raw.tensors[query].shape[0]
        rows, columns = raw.tensors[name].shape
        if rows != columns and hidden in (rows, columns):
            return rows == hidden
    by_metadata = {"pd": True, "np": True, "pt": False}.get(raw.metadata.get("format", ""))
    if by_metadata is None:
        raise ConversionError(
            f"{raw.source}: its feed-forward block is square and the file does not say which library "
            "wrote it, so [in, out] and [out, in] cannot be distinguished; save it with the metadata "
            "format=pt (PyTorch) or format=pd (Paddle)"
        )
    return by_metadata


def to_ours(
    raw: RawTensors, notes: list[str], *, fused_qkv: str | None, allow_unknown: bool
) -> tuple[str, dict[str, np.ndarray]]:
    """(dialect, parameters by our names in our layout, float32), with a note for each change.

    Args:
        fused_qkv: order of columns in a fused query-key-value matrix ("blocks" or "heads:NUMBER"), see nvidia_names.
        allow_unknown: leave out tensors that no BERT has, instead of refusing them.
    Raises:
        ConversionError: not a BERT, a decoder that is not tied, NaN or infinity among the values.
    """
    if raw.tensors and all(name.startswith("module.") for name in raw.tensors):  # of data-parallel training
        raw = replace(raw, tensors={name.removeprefix("module."): array for name, array in raw.tensors.items()})
        notes.append("removed the prefix `module.` from all names")
    dialect = recognise_dialect(raw)
    if dialect == "nvidia-paddle":
        return dialect, _as_float32(nvidia_names.structured(raw, fused_qkv, notes), raw, notes)
    dictionary = tensor_names.dictionary(dialect, tensor_names.count_layers(raw.tensors))
    parameters: dict[str, np.ndarray] = {}
    unknown, training, tied = [], 0, []
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
        elif dialect == "tensorflow" and tensor_names.TENSORFLOW_TRAINING.fullmatch(name):
            training += 1
        else:
            unknown.append(f"{name} {list(array.shape)}")
    if training:
        notes.append(f"left out: {training} tensors of the optimizer and its step")
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
    converted: Counter[str] = Counter()
    result = {}
    for name, array in parameters.items():
        if array.dtype == BFLOAT16:
            array = widen_bfloat16(array)
            converted["bfloat16"] += 1
        if array.dtype.kind != "f":
            raise ConversionError(
                f"{raw.source}: {name} is {array.dtype}, must be a float; this is not a parameter of a BERT"
            )
        if array.ndim == 0:
            raise ConversionError(f"{raw.source}: {name} is a single number, must be an array; the file is damaged")
        if array.dtype != np.float32:
            converted[str(array.dtype)] += 1
        with np.errstate(over="ignore"):
            result[name] = np.ascontiguousarray(array, dtype=np.float32)
        if not np.isfinite(result[name]).all():
            raise ConversionError(
                f"{raw.source}: {name} holds NaN or infinity; the training that wrote it had "
                "diverged, or the file is damaged: use an earlier checkpoint"
            )
    notes += [f"{count} tensors in {dtype}, converted to float32" for dtype, count in converted.items()]
    return result


# ---- the padded vocabulary ----------------------------------------------------------------------------------------


def pad_vocabulary(
    parameters: Mapping[str, np.ndarray], vocab_size: int, padded_size: int, notes: list[str]
) -> dict[str, np.ndarray]:
    """Add rows up to `padded_size`, if there are none yet.

    Raises:
        ConversionError: rows for neither `vocab_size` nor `padded_size` tokens.
    """
    result = dict(parameters)
    for name, value in ((WORD_EMBEDDINGS, 0.0), (DECODER_BIAS, PADDED_BIAS)):
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
    for name in (WORD_EMBEDDINGS, DECODER_BIAS):
        if name in result and len(result[name]) > vocab_size:
            notes.append(f"padding of the vocabulary removed: {name} from {len(result[name])} to {vocab_size} rows")
            result[name] = result[name][:vocab_size]
    return result

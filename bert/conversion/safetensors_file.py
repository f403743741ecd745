"""Tensors of .safetensors files, whole or in shards named by an index."""

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, deserialize

from bert.conversion.raw import BFLOAT16, ConversionError, RawTensors, regular_file

_DTYPES: dict[str, str | np.dtype] = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": BFLOAT16,
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}
_LARGEST_INDEX = 64 << 20


def read_safetensors(path: Path) -> RawTensors:
    """All tensors of one file.

    Raises:
        ConversionError: not a whole safetensors file, or a dtype that no BERT has.
    """
    regular_file(path)
    data = path.read_bytes()
    try:
        entries = deserialize(data)
    except (SafetensorError, ValueError, OverflowError) as error:
        raise ConversionError(f"{path} is not a whole safetensors file ({error}); fetch or make it again") from None
    tensors = {}
    for name, entry in entries:
        if entry["dtype"] not in _DTYPES:
            raise ConversionError(
                f"{path}: {name} has dtype {entry['dtype']}; float32, float16 and bfloat16 are read: "
                "save the model in one of them"
            )
        tensors[name] = np.frombuffer(entry["data"], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return RawTensors(tensors, path, "safetensors", _metadata(data))


def _metadata(data: bytes) -> dict[str, str]:
    """`__metadata__` of a file that `deserialize` has accepted."""
    length = int.from_bytes(data[:8], "little")
    return dict(json.loads(data[8 : 8 + length]).get("__metadata__") or {})


def shards_of(index: Path) -> list[Path]:
    """The files that an index (`model.safetensors.index.json`) names, all in its own folder.

    Raises:
        ConversionError: not such an index, a file name that leads out of the folder, a file that is missing.
    """
    if regular_file(index) > _LARGEST_INDEX:
        raise ConversionError(f"{index} is larger than any index of a BERT; check the file")
    try:
        names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConversionError(
            f"{index} is not an index of shards ({type(error).__name__}: {error}); it must hold a weight_map"
        ) from None
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or name in ("", ".", ".."):
            raise ConversionError(f"{index} names the shard {name!r}; shards must lie beside their index")
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise ConversionError(f"{index} names {', '.join(missing)}, which {index.parent} does not hold; fetch them")
    return [index.parent / name for name in names]


def merge(parts: list[RawTensors], index: Path) -> RawTensors:
    """Shards as one; a tensor that two of them hold is refused."""
    tensors: dict[str, np.ndarray] = {}
    for part in parts:
        if twice := sorted(tensors.keys() & part.tensors.keys()):
            raise ConversionError(
                f"{part.source} holds {twice[0]} again, which an earlier shard has; fetch the shards anew"
            )
        tensors.update(part.tensors)
    notes = tuple(note for part in parts for note in part.notes)
    return RawTensors(tensors, index, parts[0].container, parts[0].metadata, notes)

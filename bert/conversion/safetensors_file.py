"""Reads the tensors of one .safetensors file."""

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, deserialize

from bert.conversion.raw_tensors import BFLOAT16, ConversionError, RawTensors, regular_file

_FLOATS: dict[str, str | np.dtype] = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": BFLOAT16}
_INTEGERS = {"I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "|i1", "U8": "|u1", "BOOL": "|b1"}
_DTYPES = {**_FLOATS, **_INTEGERS}


def read_safetensors(path: Path) -> RawTensors:
    """All tensors of one file.

    Raises:
        ConversionError: not a complete safetensors file, or a dtype that no BERT has.
    """
    regular_file(path)
    data = path.read_bytes()
    try:
        entries = deserialize(data)
    except (SafetensorError, ValueError, OverflowError) as error:
        raise ConversionError(f"{path} is not a complete safetensors file ({error}); fetch or make it again") from None
    tensors = {}
    for name, entry in entries:
        if entry["dtype"] not in _DTYPES:
            raise ConversionError(
                f"{path}: {name} has dtype {entry['dtype']}; only float32, float16 and bfloat16 are read: "
                "save the model in one of them"
            )
        tensors[name] = np.frombuffer(entry["data"], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
    length = int.from_bytes(data[:8], "little")  # length of the header, which `deserialize` has checked
    metadata = json.loads(data[8 : 8 + length]).get("__metadata__")
    return RawTensors(tensors, path, "safetensors", dict(metadata or {}))

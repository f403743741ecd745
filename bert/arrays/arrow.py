"""NumPy arrays as Arrow's and back. PyArrow's own functions import pandas where it is, a fifth of a second."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def arrow_array(values: np.ndarray) -> pa.Array:
    """Numbers [n] as a view, or bool [n] as Arrow's bits."""
    if values.dtype == bool:
        bits = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def numpy_array(values: pa.Array, column: str) -> np.ndarray:
    """The integers [n] as a view, or Arrow's bits as bool [n]; ValueError if some are missing or of another type."""
    if values.null_count:
        raise ValueError(
            f"column {column!r}: {values.null_count} of {len(values)} values are missing, none may be; "
            "the shard is damaged: make it again"
        )
    if not (pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)):
        raise ValueError(
            f"column {column!r} holds values of type {values.type}, not integers; the shard is damaged or "
            "of another program: make it again"
        )
    start, stop = values.offset, values.offset + len(values)
    data = values.buffers()[1] or b""
    if pa.types.is_boolean(values.type):
        return np.unpackbits(np.frombuffer(data, np.uint8), count=stop, bitorder="little")[start:].view(bool)
    return np.frombuffer(data, np.dtype(str(values.type)))[start:stop]

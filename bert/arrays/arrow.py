"""Converts NumPy arrays to Arrow and back, without PyArrow's functions: they import pandas if installed (0.2 s)."""

import numpy as np
import pyarrow as pa


def arrow_array(values: np.ndarray) -> pa.Array:
    """The Arrow array of `values` [n]: numbers become a view, bools are packed into bits."""
    if values.dtype == bool:
        bits = np.packbits(values, bitorder="little")
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(bits)])
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [None, pa.py_buffer(values)])


def numpy_array(values: pa.Array, column: str) -> np.ndarray:
    """The NumPy array [n]: integers as a view, bits as bool; ValueError if values are missing or of another type."""
    if values.null_count:
        raise ValueError(
            f"column {column!r}: {values.null_count} of {len(values)} values are missing, which is not allowed; "
            "the shard is damaged: make it again"
        )
    if not (pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)):
        raise ValueError(
            f"column {column!r} holds values of type {values.type}, not integers; the shard is damaged or "
            "written by another program: make it again"
        )
    start, stop = values.offset, values.offset + len(values)
    data = values.buffers()[1] or b""
    if pa.types.is_boolean(values.type):
        return np.unpackbits(np.frombuffer(data, np.uint8), count=stop, bitorder="little")[start:].view(bool)
    return np.frombuffer(data, np.dtype(str(values.type)))[start:stop]

"""The tensors of a file, as every format's reader returns them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bert.conversion.untrusted_files import ConversionError

# How readers mark bfloat16, which numpy lacks. Parameters are widened later.
BFLOAT16 = np.dtype([("bfloat16", "<u2")])


@dataclass(frozen=True)
class RawTensors:
    """Tensors with the file's own names and layout. Arrays may be read-only views of a mapped file."""

    tensors: dict[str, np.ndarray]
    source: Path
    metadata: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def check_volume(tensors: Mapping[str, np.ndarray], path: Path, file_bytes: int) -> None:
    """Refuse tensors that overlap so much that copies of them would fill the memory; two views of one are allowed."""
    total = sum(array.nbytes for array in tensors.values())
    if total > 3 * file_bytes:
        raise ConversionError(
            f"{path} has {file_bytes} bytes and tensors of {total}: they overlap, which no "
            "checkpoint needs; it is damaged or hostile"
        )

"""Tensors as a file has them: under its own names, in its own layout."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bert.checkpoints.files import CheckpointError


class ConversionError(CheckpointError):
    """A source that cannot be read as a BERT; the text names the file, the rule and the remedy."""


# How readers mark bfloat16, which numpy does not know; widened when it is known to be a parameter.
BFLOAT16 = np.dtype([("bfloat16", "<u2")])


@dataclass(frozen=True)
class RawTensors:
    """What a reader found. Arrays may be views of a mapped file: copy before writing to them."""

    tensors: Mapping[str, np.ndarray]
    source: Path
    container: str  # "safetensors", "torch", "paddle" or "tensorflow"
    metadata: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def regular_file(path: Path) -> int:
    """The size of a file in bytes; pipes, devices and the like are refused before they are opened."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise ConversionError(f"{path} cannot be read ({error.strerror}); check the path") from None
    if not stat.S_ISREG(status.st_mode):
        raise ConversionError(f"{path} must be an ordinary file, not a folder, pipe or device; name the file itself")
    if status.st_size == 0:
        raise ConversionError(f"{path} is empty; fetch it again")
    return status.st_size


def widen_bfloat16(raw: np.ndarray) -> np.ndarray:
    """BFLOAT16 -> the same numbers as float32, of which bfloat16 is the upper half."""
    return (raw["bfloat16"].astype(np.uint32) << 16).view(np.float32)


def check_volume(tensors: Mapping[str, np.ndarray], path: Path, file_bytes: int) -> None:
    """Refuse tensors that share their numbers so often that unpacking them would fill the memory.

    A tied decoder is there twice in honest files.
    """
    total = sum(array.nbytes for array in tensors.values())
    if total > 3 * file_bytes:
        raise ConversionError(
            f"{path} has {file_bytes} bytes and tensors of {total}: they overlap, as in no "
            "checkpoint; it is damaged or hostile"
        )

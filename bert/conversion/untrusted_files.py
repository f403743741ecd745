"""Reads untrusted files safely, and defines the error for a file that cannot be used."""

import json
import math
import mmap
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bert.checkpoints.directories import CheckpointError
from bert.printable import printable


class ConversionError(CheckpointError):
    """The source cannot be read as a BERT; the text names the file, the rule and the remedy."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text, indented_lines=True))


def regular_file(path: Path) -> int:
    """Size of a file in bytes. Refuses pipes, devices and other special files before they are opened."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise ConversionError(f"{path} cannot be read ({error.strerror}); check the path") from None
    if not stat.S_ISREG(status.st_mode):
        raise ConversionError(f"{path} must be an ordinary file, not a folder, pipe or device; name the file itself")
    if status.st_size == 0:
        raise ConversionError(f"{path} is empty; fetch it again")
    return status.st_size


def map_file(path: Path) -> mmap.mmap:
    """Memory-map a regular file read-only. Arrays made from the map keep it open."""
    regular_file(path)
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def read_json(path: Path, content: str, largest: int = 8 << 20) -> Any:
    """The value in a JSON file of at most `largest` bytes."""
    if regular_file(path) > largest:
        raise ConversionError(f"{path} must be JSON with {content}, of at most {largest >> 20} MB; check the file")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConversionError(
            f"{path} must be JSON with {content} ({type(error).__name__}: {str(error)[:100]}); fetch or make it again"
        ) from None


def read_json_value(path: Path, *keys: str) -> Any:
    """The value below `keys` in a JSON file of settings; None if the file or a key is missing."""
    value = read_json(path, "settings") if path.is_file() else None
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def excerpt(value: Any) -> str:
    """A value of an untrusted file, shortened for a message; for values other than text only the type."""
    return repr(value[:80]) if isinstance(value, str) else f"a {type(value).__name__}"


def count_elements(shape: Any) -> int:
    """Number of elements of an untrusted shape, in Python integers, which cannot overflow."""
    if not isinstance(shape, tuple) or len(shape) > 8 or any(type(size) is not int or size < 0 for size in shape):
        raise ConversionError("an array whose shape is not a tuple of at most 8 sizes")
    return math.prod(shape)

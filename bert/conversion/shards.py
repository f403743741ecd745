"""Reads a checkpoint in shards: files named by an index such as model.safetensors.index.json."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from bert.conversion.raw_tensors import ConversionError, RawTensors, read_json


def read_shards(index: Path, read: Callable[[Path], RawTensors]) -> RawTensors:
    """The tensors of all shards together. Refuses a tensor that two of them hold."""
    tensors: dict[str, np.ndarray] = {}
    notes: list[str] = []
    for part in map(read, _shards_of(index)):
        if twice := sorted(tensors.keys() & part.tensors.keys()):
            raise ConversionError(
                f"{part.source} holds {twice[0]} again, which an earlier shard has; fetch the shards again"
            )
        tensors.update(part.tensors)
        notes += part.notes
    return RawTensors(tensors, index, part.container, part.metadata, tuple(notes))


def _shards_of(index: Path) -> list[Path]:
    """The files that an index names, all in its own folder.

    Raises:
        ConversionError: not such an index, a file name that leads out of the folder, a file that is missing.
    """
    content = read_json(index, "a weight_map of shards", 64 << 20)
    weight_map = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(weight_map, dict) or not weight_map or not all(isinstance(n, str) for n in weight_map.values()):
        raise ConversionError(f"{index} must be JSON with a weight_map: the shard of each tensor; fetch it again")
    names = sorted(set(weight_map.values()))
    for name in names:
        if Path(name).name != name or name in ("", ".", ".."):
            raise ConversionError(f"{index} names the shard {name!r}; shards must be in the folder of their index")
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise ConversionError(f"{index} names {', '.join(missing)}, which {index.parent} does not hold; fetch them")
    return [index.parent / name for name in names]

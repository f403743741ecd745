"""Tensors of a TensorFlow checkpoint (PREFIX.index with PREFIX.data-00000-of-0000N), without TensorFlow.

The index maps a tensor's name to a protocol buffer: dtype, shape, which data file, where in it, how long, checksum.
"""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bert.conversion.crc32c import crc32c, unmask
from bert.conversion.mapping import map_file
from bert.conversion.numpy_pickles import count_elements
from bert.conversion.our_names import TENSORFLOW_TRAINING
from bert.conversion.raw import BFLOAT16, ConversionError, RawTensors, check_volume, regular_file
from bert.conversion.sorted_table import read_table, read_varint

_DTYPES: dict[int, np.dtype] = {
    1: np.dtype("<f4"),
    2: np.dtype("<f8"),
    3: np.dtype("<i4"),
    9: np.dtype("<i8"),
    14: BFLOAT16,
    19: np.dtype("<f2"),
}
_LARGEST_INDEX = 256 << 20
_KERAS = "_CHECKPOINTABLE_OBJECT_GRAPH"


@dataclass
class Entry:
    """BundleEntryProto: where a tensor lies."""

    dtype: int = 0
    shape: list[int] = field(default_factory=list)
    shard: int = 0
    offset: int = 0
    size: int = 0
    checksum: int = 0
    sliced: bool = False


def read_tensorflow(index: Path) -> RawTensors:
    """All tensors of a checkpoint but those of its optimizer, each held against its checksum.

    Raises:
        ConversionError: not a checkpoint of this kind, not whole, or damaged.
    """
    if regular_file(index) > _LARGEST_INDEX:
        raise ConversionError(f"{index} is larger than the index of any BERT")
    try:
        entries = {key.decode("utf-8"): value for key, value in read_table(index.read_bytes())}
        num_shards = _header(entries.pop("", b""))
        parsed = {name: _entry(value) for name, value in entries.items() if name != _KERAS}
    except (ConversionError, IndexError, ValueError) as error:
        raise ConversionError(f"{index}: {error}; fetch it again") from None
    if _KERAS in entries:
        raise ConversionError(
            f"{index} is a checkpoint of TensorFlow 2's objects, whose tensors have no names of a "
            "BERT; export it with tf.compat.v1.train.Saver, or to Hugging Face's format first"
        )
    wanted = {name: entry for name, entry in parsed.items() if not TENSORFLOW_TRAINING.fullmatch(name)}
    shards = _open_shards(index, num_shards, {entry.shard for entry in wanted.values()})
    tensors = {}
    for name, entry in wanted.items():
        try:
            tensors[name] = _read(entry, shards[entry.shard])
        except ConversionError as error:
            raise ConversionError(f"{index}: {name[:80]}: {error}; fetch the checkpoint again") from None
    check_volume(tensors, index, sum(len(shard) for shard in shards.values()))
    skipped = len(parsed) - len(wanted)
    notes = (f"left out: {skipped} tensors of the optimizer and its step",) if skipped else ()
    return RawTensors(tensors, index, "tensorflow", {}, notes)


def _open_shards(index: Path, count: int, used: set[int]) -> dict[int, memoryview]:
    prefix = index.name.removesuffix(".index")
    if not 1 <= count <= 99999 or any(not 0 <= shard < count for shard in used):
        raise ConversionError(f"{index} speaks of {count} data files and uses others; it is damaged")
    names = {shard: f"{prefix}.data-{shard:05}-of-{count:05}" for shard in used}
    if missing := [name for name in names.values() if not (index.parent / name).is_file()]:
        raise ConversionError(f"{index} needs {', '.join(sorted(missing))} beside it; fetch the whole checkpoint")
    return {shard: memoryview(map_file(index.parent / name)) for shard, name in names.items()}


def _read(entry: Entry, shard: memoryview) -> np.ndarray:
    if entry.sliced:
        raise ConversionError("it is kept in slices, as by partitioned variables, which are not read")
    if entry.dtype not in _DTYPES:
        raise ConversionError(f"its dtype (number {entry.dtype} of TensorFlow) is not one of numbers that are read")
    dtype, shape = _DTYPES[entry.dtype], tuple(entry.shape)
    if count_elements(shape) * dtype.itemsize != entry.size:
        raise ConversionError(f"shape {list(shape)} does not take {entry.size} bytes")
    if entry.offset + entry.size > len(shard):
        raise ConversionError("it reaches beyond the end of its data file: truncated")
    data = shard[entry.offset : entry.offset + entry.size]
    if crc32c(data) != unmask(entry.checksum):
        raise ConversionError("it does not have the checksum it was written with: damaged")
    return np.frombuffer(data, dtype).reshape(shape)


# ---- protocol buffers ---------------------------------------------------------------------------------------------


def _fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """(field number, value) in their order: varints and fixed numbers as int, the rest as bytes."""
    fields: list[tuple[int, int | bytes]] = []
    position = 0
    while position < len(data):
        key, position = read_varint(data, position)
        kind = key & 7
        if kind == 0:
            value, position = read_varint(data, position)
            fields.append((key >> 3, value))
            continue
        length = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            length, position = read_varint(data, position)
        if length is None or position + length > len(data):
            raise ConversionError("a damaged entry")
        raw = data[position : position + length]
        fields.append((key >> 3, raw if kind == 2 else int.from_bytes(raw, "little")))
        position += length
    return fields


def _header(data: bytes) -> int:
    """Number of data files, of BundleHeaderProto."""
    found = dict(_fields(data))
    if found.get(2, 0) != 0:
        raise ConversionError("it was written on a big-endian machine, which is not read")
    shards = found.get(1, 0)
    if not isinstance(shards, int):
        raise ConversionError("a damaged header")
    return shards


def _entry(data: bytes) -> Entry:
    entry = Entry()
    names = {1: "dtype", 3: "shard", 4: "offset", 5: "size", 6: "checksum"}
    for number, value in _fields(data):
        if number == 2 and isinstance(value, bytes):
            entry.shape = _shape(value)
        elif number == 7:
            entry.sliced = True
        elif number in names and isinstance(value, int):
            setattr(entry, names[number], value)
    return entry


def _shape(data: bytes) -> list[int]:
    """TensorShapeProto: dimensions, each with its size (left out when 0)."""
    sizes = []
    for number, dimension in _fields(data):
        if number == 2 and isinstance(dimension, bytes):
            size = dict(_fields(dimension)).get(1, 0)
            if not isinstance(size, int):
                raise ConversionError("a damaged shape")
            sizes.append(size)
    return sizes

"""Reads the tensors of a TensorFlow checkpoint (PREFIX.index with PREFIX.data-00000-of-0000N) without TensorFlow.

The index maps a tensor's name to a protocol buffer: dtype, shape, data file, offset, size, checksum. It is a sorted
table of LevelDB: keys and values in blocks.

blocks ... | metaindex block | index block | footer of 48 bytes
block:  entries | restart points (uint32 each) | their number | 0 (no compression) | masked CRC-32C (4)
entry:  shared, unshared, value length (varints) | the key's unshared end | value
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from bert.conversion import raw_tensors, untrusted_files
from bert.conversion.raw_tensors import BFLOAT16, RawTensors
from bert.conversion.untrusted_files import ConversionError, count_elements
from bert.samples.formats.tfrecord import masked_crc32c, message_classes

_DTYPES = {number: np.dtype(name) for number, name in ((1, "<f4"), (2, "<f8"), (3, "<i4"), (9, "<i8"), (19, "<f2"))}
_DTYPES[14] = BFLOAT16
_TRAINING = re.compile(
    r"(.*/(adam|lamb)_[mv](_\d+)?|global_step|.*/Adam(_\d+)?|.*/LAMB(_\d+)?|"
    r"beta[12]_power|loss_scale|good_steps|signal_early_stopping/.*)"
)
_LARGEST_INDEX = 256 << 20
_KERAS = "_CHECKPOINTABLE_OBJECT_GRAPH"
# The fields that are read of TensorFlow's messages. Enums are read as numbers.
_SCHEMA = """
name: "checkpoint" syntax: "proto3"
message_type {
  name: "BundleHeader"
  field { name: "num_shards" number: 1 type: TYPE_INT32 }
  field { name: "endianness" number: 2 type: TYPE_INT32 }
}
message_type {
  name: "BundleEntry"
  field { name: "dtype" number: 1 type: TYPE_INT32 }
  field { name: "shape" number: 2 type: TYPE_MESSAGE type_name: ".TensorShape" }
  field { name: "shard_id" number: 3 type: TYPE_INT32 }
  field { name: "offset" number: 4 type: TYPE_INT64 }
  field { name: "size" number: 5 type: TYPE_INT64 }
  field { name: "crc32c" number: 6 type: TYPE_FIXED32 }
  field { name: "slices" number: 7 type: TYPE_BYTES label: LABEL_REPEATED }
}
message_type {
  name: "TensorShape"
  field { name: "dim" number: 2 type: TYPE_MESSAGE type_name: ".Dimension" label: LABEL_REPEATED }
}
message_type { name: "Dimension" field { name: "size" number: 1 type: TYPE_INT64 } }
"""
BundleHeader, BundleEntry = message_classes(_SCHEMA, "BundleHeader", "BundleEntry")


def read_tensorflow(index: Path) -> RawTensors:
    """All tensors of a checkpoint except the optimizer's, each verified by its checksum."""
    if untrusted_files.regular_file(index) > _LARGEST_INDEX:
        raise ConversionError(f"{index} is larger than the index of any BERT; check the file")
    try:
        entries = {key.decode("utf-8"): value for key, value in read_table(index.read_bytes())}
        header = BundleHeader.FromString(entries.pop("", b""))
        if header.endianness != 0:
            raise ConversionError("it was written on a big-endian machine, which is not read")
        parsed = {name: BundleEntry.FromString(value) for name, value in entries.items() if name != _KERAS}
    except (ConversionError, DecodeError, UnicodeDecodeError) as error:
        raise ConversionError(f"{index}: {error}; fetch it again") from None
    if _KERAS in entries:
        raise ConversionError(
            f"{index} is a checkpoint of TensorFlow 2's objects, whose tensors are not named as in a "
            "BERT; export it with tf.compat.v1.train.Saver, or to Hugging Face's format first"
        )
    weights = {name: entry for name, entry in parsed.items() if not _TRAINING.fullmatch(name)}
    shards = _open_shards(index, header.num_shards, {entry.shard_id for entry in weights.values()})
    tensors = {}
    for name, entry in weights.items():
        try:
            tensors[name] = read_tensor(entry, shards[entry.shard_id])
        except ValueError as error:
            raise ConversionError(f"{index}: {name[:80]}: {error}; fetch the checkpoint again") from None
    raw_tensors.check_volume(tensors, index, sum(len(shard) for shard in shards.values()))
    skipped = len(parsed) - len(weights)
    notes = (f"left out: {skipped} tensors of the optimizer and its step",) if skipped else ()
    return RawTensors(tensors, index, {}, notes)


def _open_shards(index: Path, count: int, used: set[int]) -> dict[int, memoryview]:
    prefix = index.name.removesuffix(".index")
    if not 1 <= count <= 99999 or any(not 0 <= shard < count for shard in used):
        raise ConversionError(f"{index} names {count} data files and uses others; it is damaged: fetch it again")
    names = {shard: f"{prefix}.data-{shard:05}-of-{count:05}" for shard in used}
    if missing := [name for name in names.values() if not (index.parent / name).is_file()]:
        raise ConversionError(f"{index} needs {', '.join(sorted(missing))} beside it; fetch the whole checkpoint")
    return {shard: memoryview(untrusted_files.map_file(index.parent / name)) for shard, name in names.items()}


def read_tensor(entry: Any, shard: memoryview) -> np.ndarray:
    """The tensor of a BundleEntry, as a view of its data file."""
    if entry.slices:
        raise ConversionError("it is kept in slices, as by partitioned variables, which are not read")
    if entry.dtype not in _DTYPES:
        raise ConversionError(f"its dtype (TensorFlow's number {entry.dtype}) is not supported")
    dtype, shape = _DTYPES[entry.dtype], tuple(dimension.size for dimension in entry.shape.dim)
    if count_elements(shape) * dtype.itemsize != entry.size:
        raise ConversionError(f"shape {list(shape)} does not take {entry.size} bytes")
    if entry.offset < 0 or entry.offset + entry.size > len(shard):
        raise ConversionError("it reaches beyond the end of its data file: truncated")
    data = shard[entry.offset : entry.offset + entry.size]
    if masked_crc32c(data) != entry.crc32c:
        raise ConversionError("it does not have the checksum it was written with: damaged")
    return np.frombuffer(data, dtype).reshape(shape)


_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_LARGEST_BLOCK = 64 << 20
_LONGEST_NAME = 2000
_MOST_OF_NAMES = 8  # times the file: names share their beginnings, so a small file could hold a great many


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of an SSTable, in their order."""
    if len(data) < _FOOTER or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise ConversionError("it does not end with the footer of TensorFlow's index: truncated, or not such a file")
    try:
        _, _, index, size = _read_numbers(data, len(data) - _FOOTER, 4)[0]
        names_left = _MOST_OF_NAMES * len(data)
        for _, place in _entries(_read_block(data, index, size)):
            for key, value in _entries(_read_block(data, *_read_numbers(place, 0, 2)[0])):
                names_left -= len(key)
                if names_left < 0:
                    raise ConversionError(f"its names are {_MOST_OF_NAMES} times as long as the file: damaged")
                yield key, value
    except IndexError:
        raise ConversionError("a number reaches beyond its end: truncated or damaged") from None


def _read_numbers(data: bytes, position: int, count: int) -> tuple[list[int], int]:
    """Read base-128 numbers; returns (numbers, position after them). IndexError beyond the end."""
    numbers = []
    for _ in range(count):
        value = shift = 0
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 63:
                raise ConversionError("its table is damaged: a number of more than 64 bits")
        numbers.append(value)
    return numbers, position


def _read_block(data: bytes, offset: int, size: int) -> bytes:
    if offset + size + 5 > len(data) - _FOOTER or size > _LARGEST_BLOCK:
        raise ConversionError(f"a block of {size} bytes at {offset} lies beyond its end: truncated or damaged")
    block, compression = data[offset : offset + size], data[offset + size]
    stored = int.from_bytes(data[offset + size + 1 : offset + size + 5], "little")
    if masked_crc32c(data[offset : offset + size + 1]) != stored:
        raise ConversionError(f"the block at byte {offset} does not have the checksum it was written with: damaged")
    if compression != 0:  # TensorFlow compresses none since version 1.2, which is older than BERT
        raise ConversionError(f"the block at byte {offset} is compressed, which is not read")
    return block


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    num_restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * num_restarts
    if end < 0:
        raise ConversionError("a block has more restart points than bytes: damaged")
    position, key = 0, b""
    while position < end:
        (shared, unshared, length), position = _read_numbers(block, position, 3)
        if shared > len(key) or position + unshared + length > end or shared + unshared > _LONGEST_NAME:
            raise ConversionError("an entry reaches out of its block, or has a name of thousands of letters: damaged")
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + length]
        position += length

"""Reads TFRecord shards of NVIDIA's and Google's TensorFlow trainers: tf.train.Example records with static masks.

record: length (uint64) | its masked CRC-32C (uint32) | protocol buffer | its masked CRC-32C (uint32)
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from crc32c import crc32c

from bert.samples.formats.hdf5 import DATASETS, WIDTHS, table_of
from bert.samples.formats.shard_writer import REMEDY, ShardDescription
from bert.samples.sample_table import SampleTable
from bert.tokenization.token_strings import TokenStrings

_HEADER = struct.Struct("<QI")
_FOOTER_BYTES = 4
# The fields that are read of TensorFlow's messages; a map is a repeated entry of key and value.
_SCHEMA = """
name: "example" syntax: "proto3"
message_type { name: "Example" field { name: "features" number: 1 type: TYPE_MESSAGE type_name: ".Features" } }
message_type {
  name: "Features"
  field { name: "feature" number: 1 type: TYPE_MESSAGE type_name: ".Entry" label: LABEL_REPEATED }
}
message_type {
  name: "Entry"
  field { name: "key" number: 1 type: TYPE_STRING }
  field { name: "value" number: 2 type: TYPE_MESSAGE type_name: ".Feature" }
}
message_type { name: "Feature" field { name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: ".Int64List" } }
message_type {
  name: "Int64List"
  field { name: "value" number: 1 type: TYPE_INT64 label: LABEL_REPEATED }
}
"""


def describe(path: Path) -> ShardDescription:
    """Number of samples, counted by the lengths of the records."""
    with path.open("rb") as file:
        size, end, num_samples = path.stat().st_size, 0, 0
        while end < size:
            end += _length(file.read(_HEADER.size), num_samples) + _HEADER.size + _FOOTER_BYTES
            file.seek(end)
            num_samples += 1
    if end != size:
        raise ValueError(f"record {num_samples - 1}: the file ends inside of it; copy it again")
    return ShardDescription(num_samples, 0, masked=True)


def read(data: bytes, strings: TokenStrings) -> SampleTable:
    """Decode a shard; ValueError names the first record that is damaged, or the first value that breaks a rule."""
    from google.protobuf.message import DecodeError

    rows: dict[str, list[np.ndarray]] = {name: [] for name in DATASETS}
    (example,) = message_classes(_SCHEMA, "Example")
    for number, record in enumerate(_records(data)):
        try:
            entries = example.FromString(record).features.feature
        except DecodeError as error:
            raise ValueError(f"record {number}: not a tf.train.Example ({error}); {REMEDY}") from error
        features = {entry.key: entry.value.int64_list.value for entry in entries}
        for name, values in rows.items():
            if name not in features:
                raise ValueError(f"record {number}: has no {name!r} (it has {', '.join(features)}); {REMEDY}")
            values.append(np.array(features[name], np.int64))
            if len(values[-1]) != len(values[0]):
                raise ValueError(
                    f"record {number}: {name} has {len(values[-1])} values, those before {len(values[0])}; {REMEDY}"
                )
    matrices = {name: np.stack(values) for name, values in rows.items()}
    widths = {name: matrix.shape[1] for name, matrix in matrices.items()}
    for names, width in WIDTHS.items():
        wanted = width or widths[names[0]]
        for name in names:
            if widths[name] != wanted:
                raise ValueError(f"record 0: {name} has {widths[name]} values, it must have {wanted}; {REMEDY}")
    return table_of(matrices, strings)


def _records(data: bytes) -> Iterator[bytes]:
    start, number = 0, 0
    while start < len(data):
        length = _length(data[start : start + _HEADER.size], number)
        start += _HEADER.size
        record, footer = data[start : start + length], data[start + length : start + length + _FOOTER_BYTES]
        if len(footer) < _FOOTER_BYTES or masked_crc32c(record) != int.from_bytes(footer, "little"):
            raise ValueError(f"record {number}: its checksum is wrong; the file is damaged: copy it again")
        yield record
        start, number = start + length + _FOOTER_BYTES, number + 1


def _length(header: bytes, number: int) -> int:
    if header[:2] == b"\x1f\x8b":
        raise ValueError("is compressed with gzip; decompress it (gunzip)")
    length, checksum = _HEADER.unpack(header) if len(header) == _HEADER.size else (0, 0)
    if len(header) < _HEADER.size or masked_crc32c(header[:8]) != checksum:
        raise ValueError(f"record {number}: the checksum of its length is wrong; it is no TFRecord file or damaged")
    return length


def masked_crc32c(data: bytes | memoryview) -> int:
    """CRC-32C masked as TensorFlow stores it."""
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def message_classes(schema: str, *names: str) -> list[Any]:
    """Classes of protocol buffers, made from the text of their schema."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format  # slow to import

    pool = descriptor_pool.DescriptorPool()  # of our own, so that it does not conflict with an imported TensorFlow
    pool.Add(text_format.Parse(schema, descriptor_pb2.FileDescriptorProto()))
    return [message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in names]

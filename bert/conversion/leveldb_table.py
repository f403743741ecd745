"""Reads LevelDB's sorted table, in which TensorFlow keeps the index of a checkpoint: keys and values in blocks.

blocks ... | metaindex block | index block | footer of 48 bytes
block:  entries | restart points (uint32 each) | their number | compression (1 byte) | masked CRC-32C (4)
entry:  shared, unshared, value length (varints) | the key's unshared end | value
"""

from collections.abc import Iterator

import pyarrow
from crc32c import crc32c

from bert.conversion.raw_tensors import ConversionError

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_LARGEST_BLOCK = 64 << 20


def masked_crc32c(data: bytes | memoryview) -> int:
    """The checksum of `data` as TensorFlow stores it: rotated by 15 bits, plus a constant."""
    checksum = crc32c(data)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values in their order.

    Raises:
        ConversionError: not such a table, or damaged.
    """
    if len(data) < _FOOTER or int.from_bytes(data[-8:], "little") != _MAGIC:
        raise ConversionError("it does not end with the footer of TensorFlow's index: truncated, or not such a file")
    try:
        _, position = _read_handle(data, len(data) - _FOOTER)
        index, _ = _read_handle(data, position)
        for _, value in _entries(_read_block(data, index)):
            handle, _ = _read_handle(value, 0)
            yield from _entries(_read_block(data, handle))
    except (IndexError, ValueError, OverflowError) as error:
        if isinstance(error, ConversionError):
            raise
        raise ConversionError(f"its table is damaged ({error})") from None


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    """(value, position after it) of a base-128 number; IndexError beyond the end, ValueError beyond 64 bits."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _read_handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = _read_varint(data, position)
    size, position = _read_varint(data, position)
    return (offset, size), position


def _read_block(data: bytes, handle: tuple[int, int]) -> bytes:
    offset, size = handle
    if offset + size + 5 > len(data) - _FOOTER or size > _LARGEST_BLOCK:
        raise ConversionError(f"a block of {size} bytes at {offset} lies beyond its end: truncated or damaged")
    block, compression = data[offset : offset + size], data[offset + size]
    stored = int.from_bytes(data[offset + size + 1 : offset + size + 5], "little")
    if masked_crc32c(data[offset : offset + size + 1]) != stored:
        raise ConversionError(f"the block at byte {offset} does not have the checksum it was written with: damaged")
    if compression == 0:
        return block
    if compression != 1:
        raise ConversionError(f"a block has the unknown compression type {compression}")
    unpacked, _ = _read_varint(block, 0)  # Snappy begins with the length that it unpacks to
    if unpacked > _LARGEST_BLOCK:
        raise ConversionError(f"a block would unpack to {unpacked} bytes: damaged or hostile")
    try:
        return pyarrow.Codec("snappy").decompress(block, unpacked, asbytes=True)
    except (pyarrow.ArrowException, OSError) as error:
        raise ConversionError(f"a block cannot be unpacked ({error})") from None


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    num_restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 - 4 * num_restarts
    if end < 0:
        raise ConversionError("a block has more restart points than bytes: damaged")
    position, key = 0, b""
    while position < end:
        shared, position = _read_varint(block, position)
        unshared, position = _read_varint(block, position)
        length, position = _read_varint(block, position)
        if shared > len(key) or position + unshared + length > end:
            raise ConversionError("an entry reaches out of its block: damaged")
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + length]
        position += length

"""CRC-32C (Castagnoli), which TensorFlow keeps of every tensor and block; numpy does the work, a lane per stretch."""

from functools import cache

import numpy as np

_POLYNOMIAL = 0x82F63B78
_LANES = 8192


@cache
def _table() -> np.ndarray:
    """uint32 [256]: the remainder of each byte."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ np.uint32(_POLYNOMIAL), table >> 1)
    return table


def crc32c(data: bytes | memoryview) -> int:
    """The checksum of `data`.

    Long data is cut into lanes of equal length whose remainders run side by side, started at 0; a remainder is linear
    in its data, so lanes join by carrying the earlier one over the length of the later and adding (exclusive or).
    """
    numbers = np.frombuffer(data, np.uint8)
    length = len(numbers) // _LANES
    if length < 64:
        return _serial(numbers, 0xFFFFFFFF) ^ 0xFFFFFFFF
    table = _table()
    lanes = np.ascontiguousarray(numbers[: length * _LANES].reshape(_LANES, length).T)  # [length, lanes]
    remainders = np.zeros(_LANES, np.uint32)
    for row in lanes:
        remainders = table[(remainders ^ row) & 0xFF] ^ (remainders >> 8)
    carry = _carry_tables(length)
    state = 0xFFFFFFFF
    for remainder in remainders.tolist():
        state = carry[0][state & 255] ^ carry[1][state >> 8 & 255] ^ carry[2][state >> 16 & 255] ^ carry[3][state >> 24]
        state ^= remainder
    return _serial(numbers[length * _LANES :], state) ^ 0xFFFFFFFF


def unmask(stored: int) -> int:
    """TensorFlow stores checksums rotated by 15 bits, plus a constant."""
    rotated = (stored - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


def _serial(numbers: np.ndarray, state: int) -> int:
    table = _table().tolist()
    for byte in numbers.tolist():
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state


def _carry_tables(length: int) -> list[list[int]]:
    """For each of the four bytes of a remainder, what its 256 values become after `length` zero bytes."""
    power = _byte_step()
    result = [1 << bit for bit in range(32)]  # images of the 32 bits; starts as the identity
    while length:
        if length & 1:
            result = [_apply(power, image) for image in result]
        power = [_apply(power, image) for image in power]
        length >>= 1
    return [[_apply(result, value << 8 * byte) for value in range(256)] for byte in range(4)]


def _byte_step() -> list[int]:
    table = _table().tolist()
    return [table[(1 << bit) & 0xFF] ^ (1 << bit) >> 8 for bit in range(32)]


def _apply(images: list[int], value: int) -> int:
    result = 0
    while value:
        lowest = value & -value
        result ^= images[lowest.bit_length() - 1]
        value ^= lowest
    return result

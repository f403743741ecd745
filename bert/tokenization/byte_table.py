"""A hash table of byte strings for compiled loops: the tokens of a vocabulary, or the words of texts."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert.arrays.compiled import HASH_START, SPARE_BYTES, compiled, hash_of, inner, same_bytes, slot_of
from bert.arrays.ragged import offsets_of

_ROW_BITS = np.uint64(32)


class ByteTable(NamedTuple):
    """A hash table of distinct byte strings, one per row; text and offsets have spare room at their ends.

    Attributes:
        slots: uint64 [a power of two, at least twice as many as rows], open addressing: half of a string's hash and in
            the low 32 bits its row + 1, or 0.
        text: uint8, the strings, one after the other; offsets: int64, the start of each.
    """

    slots: np.ndarray
    text: np.ndarray
    offsets: np.ndarray


def byte_table(strings: Sequence[bytes]) -> ByteTable:
    """Build a table of distinct strings, with SPARE_BYTES after their text."""
    text = np.frombuffer(b"".join([*strings, bytes(SPARE_BYTES)]), np.uint8)
    slots = np.zeros(1 << (2 * len(strings)).bit_length(), np.uint64)
    table = ByteTable(slots, text, offsets_of([len(string) for string in strings]))
    enter_rows(table, len(strings))
    return table


@compiled
def enter_rows(table: ByteTable, num_rows: int) -> None:
    """Enter the first rows into the empty slots."""
    mask = len(table.slots) - 1
    for row in range(num_rows):
        state = hash_of(HASH_START, table.text, table.offsets[row], table.offsets[row + 1])
        slot = slot_of(state, mask)
        while table.slots[slot] != 0:
            slot = (slot + 1) & mask
        table.slots[slot] = entry_of(state, row)


@inner
def entry_of(state: np.uint64, row: int) -> np.uint64:
    """The content of a slot, for a string with this hash."""
    return ((state >> _ROW_BITS) << _ROW_BITS) | np.uint64(row + 1)


@inner
def find_row(table: ByteTable, state: np.uint64, data: np.ndarray, start: int, stop: int) -> tuple[int, int]:
    """(slot, row) of the string data[start:stop] with this hash; if it is missing, an empty slot and -1."""
    mask, length = len(table.slots) - 1, stop - start
    slot = slot_of(state, mask)
    entry = table.slots[slot]
    while entry != 0:
        if (entry ^ state) >> _ROW_BITS == 0:
            row = int(np.int64(entry & np.uint64(0xFFFFFFFF))) - 1
            begin = table.offsets[row]
            if table.offsets[row + 1] - begin == length and same_bytes(table.text, begin, data, start, length):
                return slot, row
        slot = (slot + 1) & mask
        entry = table.slots[slot]
    return slot, -1

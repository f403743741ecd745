"""The tokens of a vocabulary as bytes, found by their bytes: a hash table for compiled loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert.samples.table import offsets_of
from bert.text.compiled import HASH_START, SPARE_BYTES, compiled, hash_of, same_bytes, slot_of

_SHARP = np.uint8(ord("#"))


class TokenTable(NamedTuple):
    """V tokens.

    Attributes:
        text: uint8, the bytes of all tokens, one after the other, and SPARE_BYTES more.
        offsets: int64 [V + 1], where each starts.
        slots: int32 [a power of two], open addressing: the id of a token, or -1.
        longest: bytes of the longest token.
    """

    text: np.ndarray
    offsets: np.ndarray
    slots: np.ndarray
    longest: int


def token_table(tokens: Sequence[str]) -> TokenTable:
    """The table of a vocabulary's tokens, all different; a token's id is its place."""
    encoded = [token.encode() for token in tokens]
    text = np.frombuffer(b"".join([*encoded, bytes(SPARE_BYTES)]), np.uint8)
    offsets = offsets_of([len(token) for token in encoded])
    slots = np.full(1 << (4 * len(tokens)).bit_length(), -1, np.int32)
    _fill(text, offsets, slots)
    return TokenTable(text, offsets, slots, max(map(len, encoded)))


@compiled
def _fill(text: np.ndarray, offsets: np.ndarray, slots: np.ndarray) -> None:
    mask = len(slots) - 1
    for token in range(len(offsets) - 1):
        slot = slot_of(hash_of(HASH_START, text, offsets[token], offsets[token + 1]), mask)
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = token


@compiled
def find_token(table: TokenTable, state: np.uint64, continues: bool, data: np.ndarray, start: int, stop: int) -> int:
    """The id of the token data[start:stop], or of "##" and these bytes if it `continues` a word; -1 if there is none.

    `state` is the hash of the whole token.
    """
    mask = len(table.slots) - 1
    slot = slot_of(state, mask)
    length = stop - start
    while table.slots[slot] >= 0:
        token = table.slots[slot]
        begin, end = table.offsets[token], table.offsets[token + 1]
        if continues and end - begin > 2 and table.text[begin] == _SHARP and table.text[begin + 1] == _SHARP:
            begin += 2
        elif continues:
            end = begin  # not this one: what is looked for has a byte at least
        if end - begin == length and same_bytes(table.text, begin, data, start, length):
            return token
        slot = (slot + 1) & mask
    return -1

"""Hash table of a vocabulary's tokens, for compiled loops."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bert.arrays.compiled import HASH_START, SPARE_BYTES, compiled, hash_of, inner, same_bytes, slot_of
from bert.arrays.ragged import offsets_of

_SHARP = np.uint8(ord("#"))
_ONE, _EIGHT, _ALL = np.uint64(1), np.uint64(8), np.uint64(0xFFFFFFFFFFFFFFFF)
_HASH_FACTOR = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio: multiplicative hashing


class TokenTable(NamedTuple):
    """A hash table of V tokens.

    Attributes:
        text: uint8, the bytes of all tokens, one after the other, and SPARE_BYTES more.
        offsets: int64 [V + 1], the start of each token.
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


@inner
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
            end = begin  # no match: the token sought has at least one byte
        if end - begin == length and same_bytes(table.text, begin, data, start, length):
            return token
        slot = (slot + 1) & mask
    return -1


class ShortTokens(NamedTuple):
    """The tokens of at most 8 bytes, which are most of any text, found by an integer key without a loop over bytes.

    Attributes:
        keys: uint64 [a power of two], open addressing: a token's bytes, the first lowest, then zeros; 0: empty.
        ids: int32 [as many], the token's id.
        shift: 64 less the exponent of that power.
    """

    keys: np.ndarray
    ids: np.ndarray
    shift: np.uint64


def short_tokens(table: TokenTable) -> ShortTokens:
    size = len(table.slots) // 2
    short = ShortTokens(np.zeros(size, np.uint64), np.full(size, -1, np.int32), np.uint64(65 - size.bit_length()))
    _enter_short(table, short)
    return short


@compiled
def _enter_short(table: TokenTable, short: ShortTokens) -> None:
    for token in range(len(table.offsets) - 1):
        begin, end = table.offsets[token], table.offsets[token + 1]
        if 0 < end - begin <= 8:
            key = eight_bytes(table.text, begin) & (_ALL >> np.uint64(8 * (8 - (end - begin))))
            slot = (key * _HASH_FACTOR) >> short.shift
            while short.ids[slot] >= 0:
                slot = (slot + _ONE) & np.uint64(len(short.ids) - 1)
            short.keys[slot], short.ids[slot] = key, token


@inner
def eight_bytes(data: np.ndarray, place: int) -> np.uint64:
    """data[place:place + 8] as a number, the first byte lowest."""
    value, start = np.uint64(0), np.uint64(place)
    for byte in range(np.uint64(8)):
        value |= np.uint64(data[start + byte]) << (byte * _EIGHT)
    return value


@inner
def find_short_token(table: TokenTable, short: ShortTokens, key: np.uint64, length: int) -> int:
    """The id of the token of `length` bytes, at most 8, with this key; -1 if there is none."""
    slot = (key * _HASH_FACTOR) >> short.shift
    while short.ids[slot] >= 0:
        if short.keys[slot] == key:
            token = short.ids[slot]  # a text with a zero byte has the key of a shorter token
            return token if table.offsets[token + 1] - table.offsets[token] == length else -1
        slot = (slot + _ONE) & np.uint64(len(short.ids) - 1)
    return -1

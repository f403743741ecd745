"""Compiled loops of `bert.tokenization.wordpiece`: find the words of a text, and the tokens of words.

A word ends at ASCII white space. Each ASCII punctuation mark, each Chinese character, and each common typographic or
Chinese mark is a word by itself: BERT's tokenisation never combines these with their neighbours.
"""

from typing import NamedTuple

import numpy as np

from bert.arrays.compiled import HASH_PRIME, HASH_START, compiled, copied, hash_of, inner
from bert.tokenization.byte_table import ByteTable, enter_rows, entry_of, find_row

MAX_WORD_CHARACTERS = 100
_WHITE_SPACE, _LETTER, _PUNCTUATION, _LONE = 0, 1, 2, 3  # _LONE may start a character that is a word
_CLASSES = np.full(256, _LETTER, np.uint8)  # of bytes
_CLASSES[list(b" \t\n\r")] = _WHITE_SPACE
for _first, _last in ((33, 47), (58, 64), (91, 96), (123, 126)):
    _CLASSES[_first : _last + 1] = _PUNCTUATION
for _first, _last in ((0xE2, 0xE9), (0xEF, 0xEF)):
    _CLASSES[_first : _last + 1] = _LONE


class Pieces(NamedTuple):
    """Tokens of words: row i has [starts[i]:starts[i] + lengths[i]]. The arrays have spare room.

    Attributes:
        ids: of the vocabulary's id dtype.
        spans: int32 [as many, 2], the first character of each token in its word, and one past its last.
        starts, lengths: int64; length -1 for a row that is not ASCII, until its tokens are known.
    """

    ids: np.ndarray
    spans: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


class TokenTables(NamedTuple):
    """Hash tables of a vocabulary: all tokens, and the continuations without ##; bytes of the longest token."""

    all: ByteTable
    inside: ByteTable
    inside_ids: np.ndarray
    longest: int


@inner
def is_lone(text: np.ndarray, place: int, stop: int) -> bool:
    """Whether the three bytes at `place` are a character that forms its own word."""
    if stop - place < 3:
        return False
    first, second, third = np.int64(text[place]), np.int64(text[place + 1]), np.int64(text[place + 2])
    code = int(((first & 15) << 12) | ((second & 63) << 6) | (third & 63))
    if code < 0x3400:  # dashes, quotation marks, ellipsis, bullets; the Chinese comma and full stop
        return 0x2010 <= code <= 0x2027 or 0x2030 <= code <= 0x203E or code == 0x3001 or code == 0x3002
    return (
        code <= 0x4DBF
        or 0x4E00 <= code <= 0x9FFF
        or code == 0xFF01
        or code == 0xFF0C
        or code == 0xFF1A
        or code == 0xFF1B
        or code == 0xFF1F
    )


@compiled
def look_up(
    text: np.ndarray,
    boundaries: np.ndarray,
    words: ByteTable,
    num_rows: int,
    rows: np.ndarray,
    places: np.ndarray,
    first_words: np.ndarray,
) -> tuple[ByteTable, int, int]:
    """Find the row of each word of a text; new words are added after the first `num_rows`.

    Args:
        text: uint8 [n]; boundaries: int64 [m + 1] of its segments.
        rows, places: int32, int64 [at least the number of words], filled: the row of each word, and where it begins.
        first_words: int64 [m + 1], filled: the first word of each segment.
    Returns:
        (words with room for the new ones, num_rows, number of words in the text).
    """
    num_words = 0
    for segment in range(len(boundaries) - 1):
        place, stop = boundaries[segment], boundaries[segment + 1]
        first_words[segment] = num_words
        while place < stop:
            if _CLASSES[text[place]] == _WHITE_SPACE:
                place += 1
                continue
            end, state = _word(text, place, stop)
            slot, row = find_row(words, state, text, place, end)
            if row < 0:
                start = words.offsets[num_rows]
                if num_rows + 2 > len(words.offsets) or start + end - place > len(words.text):
                    words = _grow(words, num_rows, len(text) - place)
                    continue
                row = num_rows
                num_rows += 1
                words.offsets[num_rows] = copied(words.text, start, text, place, end)
                words.slots[slot] = entry_of(state, row)
            rows[num_words], places[num_words] = row, place
            num_words += 1
            place = end
    first_words[len(boundaries) - 1] = num_words
    return words, num_rows, num_words


@inner
def _grow(words: ByteTable, num_rows: int, num_bytes: int) -> ByteTable:
    """The table of words with twice the rows and `num_bytes` more bytes of text; half of the slots are free."""
    size, used = 2 * len(words.offsets), words.offsets[num_rows]
    offsets, slots = np.zeros(size, np.int64), np.zeros(2 * size, np.uint64)
    offsets[: num_rows + 1] = words.offsets[: num_rows + 1]
    text = np.zeros(max(len(words.text), 2 * used, used + num_bytes), np.uint8)
    text[:used] = words.text[:used]
    grown = ByteTable(slots, text, offsets)
    enter_rows(grown, num_rows)
    return grown


@inner
def _word(text: np.ndarray, place: int, stop: int) -> tuple[int, np.uint64]:
    """(end, hash) of the word at `place`."""
    kind = _CLASSES[text[place]]
    end = place + 1
    state = (HASH_START ^ np.uint64(text[place])) * HASH_PRIME
    if kind == _PUNCTUATION:
        return end, state
    if kind == _LONE and is_lone(text, place, stop):
        return place + 3, hash_of(state, text, end, place + 3)
    for following in range(np.uint64(end), np.uint64(stop)):
        byte = text[following]
        kind = _CLASSES[byte]
        if kind != _LETTER and (kind != _LONE or is_lone(text, np.int64(following), stop)):
            return int(np.int64(following)), state
        state = (state ^ np.uint64(byte)) * HASH_PRIME
    return stop, state


@compiled
def word_pieces(
    words: ByteTable, first_row: int, num_rows: int, tables: TokenTables, unknown: int, pieces: Pieces, num_pieces: int
) -> int:
    """Greedy longest-match-first WordPiece of printable ASCII rows from first_row on.

    Args:
        unknown: id of [UNK], for words with unknown parts and words of over 100 characters.
        pieces: filled, its tokens from num_pieces on, with room for one per byte; rows not in ASCII get length -1.
    Returns:
        the new num_pieces.
    """
    for row in range(first_row, num_rows):
        start, stop = words.offsets[row], words.offsets[row + 1]
        pieces.starts[row] = num_pieces
        if not _is_plain(words.text, start, stop):
            pieces.lengths[row] = -1
            continue
        place = start
        while place < stop and stop - start <= MAX_WORD_CHARACTERS:
            token, end = _longest_token(tables, words.text, start, place, stop)
            if token < 0:
                break
            _add(pieces, num_pieces, token, place - start, end - start)
            num_pieces += 1
            place = end
        if place < stop:
            num_pieces = pieces.starts[row] + 1
            _add(pieces, num_pieces - 1, unknown, 0, stop - start)
        pieces.lengths[row] = num_pieces - pieces.starts[row]
    return num_pieces


@inner
def _add(pieces: Pieces, place: int, token: int, first: int, last: int) -> None:
    pieces.ids[place], pieces.spans[place, 0], pieces.spans[place, 1] = token, first, last


@inner
def _is_plain(text: np.ndarray, start: int, stop: int) -> bool:
    for place in range(start, stop):
        if text[place] < 33 or text[place] > 126:
            return False
    return True


@inner
def _longest_token(tables: TokenTables, text: np.ndarray, start: int, place: int, stop: int) -> tuple[int, int]:
    """(id, end) of the longest token at `place` of a word that starts at `start`; (-1, place) if there is none."""
    longest, end, state = -1, place, HASH_START
    table = tables.all if place == start else tables.inside
    for byte in range(place, min(stop, place + tables.longest)):
        state = (state ^ np.uint64(text[byte])) * HASH_PRIME
        _, row = find_row(table, state, text, place, byte + 1)
        if row >= 0:
            longest, end = row, byte + 1
    return longest if place == start or longest < 0 else tables.inside_ids[longest], end


@compiled
def spell_out(rows: np.ndarray, first_words: np.ndarray, pieces: Pieces, ids: np.ndarray, offsets: np.ndarray) -> None:
    """Fill `ids` with the tokens of all words, and `offsets` with the start of each segment's tokens."""
    end = np.int64(0)
    for segment in range(len(first_words) - 1):
        offsets[segment] = end
        for word in range(first_words[segment], first_words[segment + 1]):
            start = pieces.starts[rows[word]]
            end = copied(ids, end, pieces.ids, start, start + pieces.lengths[rows[word]])
    offsets[len(first_words) - 1] = end

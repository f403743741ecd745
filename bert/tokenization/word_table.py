"""Hash table of distinct words and their tokens: compiled loops of `bert.tokenization.fast_tokenizer.FastTokenizer`.

A word ends at ASCII white space. Each ASCII punctuation mark, each Chinese character, and each common typographic or
Chinese mark is a word by itself: BERT's tokenisation never combines these with their neighbours.
"""

from typing import NamedTuple

import numpy as np

from bert.arrays.compiled import HASH_PRIME, HASH_START, compiled, copied, hash_of, inner, slot_of
from bert.tokenization.token_table import TokenTable, find_token

MAX_WORD_CHARACTERS = 100
_ROW_BITS = np.uint64(32)
WHITE_SPACE, LETTER, PUNCTUATION, LONE = 0, 1, 2, 3  # classes of bytes; LONE may start a character that is a word
_CONTINUED = HASH_START
with np.errstate(over="ignore"):
    for _byte in b"##":
        _CONTINUED = (_CONTINUED ^ np.uint64(_byte)) * HASH_PRIME


class Words(NamedTuple):
    """The distinct words found so far, one per row; the arrays have spare room at their ends.

    Attributes:
        slots: uint64 [a power of two, twice as many as rows], open addressing: half a word's hash and in the low 32
            bits its row + 1, or 0.
        text: uint8, the words' bytes; offsets: int64, the start of each.
    """

    slots: np.ndarray
    text: np.ndarray
    offsets: np.ndarray


class Pieces(NamedTuple):
    """The tokens of the words, those of row i at ids[starts[i]:starts[i] + lengths[i]]; arrays have spare room.

    Attributes:
        ids: of the vocabulary's id dtype.
        starts, lengths: int64; length -1 for a row that is not ASCII, until its tokens are known.
    """

    ids: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray


def byte_classes() -> np.ndarray:
    """uint8 [256]: WHITE_SPACE, LETTER, PUNCTUATION of ASCII, or LONE."""
    classes = np.full(256, LETTER, np.uint8)
    classes[list(b" \t\n\r")] = WHITE_SPACE
    for first, last in ((33, 47), (58, 64), (91, 96), (123, 126)):
        classes[first : last + 1] = PUNCTUATION
    for first, last in ((0xE2, 0xE9), (0xEF, 0xEF)):
        classes[first : last + 1] = LONE
    return classes


@inner
def is_lone(text: np.ndarray, place: int, stop: int) -> bool:
    """Whether the three bytes at `place` are a character that is a word by itself."""
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
    lower: np.ndarray,
    classes: np.ndarray,
    words: Words,
    num_rows: int,
    rows: np.ndarray,
    first_words: np.ndarray,
) -> tuple[Words, int, int]:
    """Find the row of each word of a text; new words are added to the first `num_rows`.

    Args:
        text: uint8 [n]; boundaries: int64 [m + 1] of its segments.
        lower: uint8 [256], what each byte is compared as.
        rows: int32 [at least the number of words], filled: the row of each word.
        first_words: int64 [m + 1], filled: the first word of each segment.
    Returns:
        (words with room for the new ones, num_rows, number of words in the text).
    """
    num_words = 0
    for segment in range(len(boundaries) - 1):
        place, stop = boundaries[segment], boundaries[segment + 1]
        first_words[segment] = num_words
        while place < stop:
            if classes[text[place]] == WHITE_SPACE:
                place += 1
                continue
            end, state = _word(text, place, stop, classes, lower)
            slot, row = _find(words, state, text, place, end, lower)
            if row < 0:
                start = words.offsets[num_rows]
                if num_rows + 2 > len(words.offsets) or start + end - place > len(words.text):
                    words = _grown(words, num_rows, len(text) - place)
                    continue
                row = num_rows
                for byte in range(end - place):
                    words.text[start + byte] = lower[text[place + byte]]
                num_rows += 1
                words.offsets[num_rows] = start + end - place
                words.slots[slot] = _entry(state, row)
            rows[num_words] = row
            num_words += 1
            place = end
    first_words[len(boundaries) - 1] = num_words
    return words, num_rows, num_words


@inner
def _find(
    words: Words, state: np.uint64, text: np.ndarray, start: int, stop: int, lower: np.ndarray
) -> tuple[int, int]:
    """(slot, row) of the word text[start:stop] with this hash; row -1 if it is new."""
    mask = len(words.slots) - 1
    slot = slot_of(state, mask)
    entry = words.slots[slot]
    while entry != 0 and not (
        (entry ^ state) >> _ROW_BITS == 0 and _is_word(words, _row_of(entry), text, start, stop, lower)
    ):
        slot = (slot + 1) & mask
        entry = words.slots[slot]
    return slot, _row_of(entry)


@inner
def _grown(words: Words, num_rows: int, num_bytes: int) -> Words:
    """The words with room for twice as many, and for `num_bytes` more bytes of text; half of the slots are free."""
    size, used = 2 * len(words.offsets), words.offsets[num_rows]
    offsets, slots = np.zeros(size, np.int64), np.zeros(2 * size, np.uint64)
    offsets[: num_rows + 1] = words.offsets[: num_rows + 1]
    text = np.zeros(max(len(words.text), 2 * used, used + num_bytes), np.uint8)
    text[:used] = words.text[:used]
    mask = len(slots) - 1
    for row in range(num_rows):
        state = hash_of(HASH_START, text, offsets[row], offsets[row + 1])
        slot = slot_of(state, mask)
        while slots[slot] != 0:
            slot = (slot + 1) & mask
        slots[slot] = _entry(state, row)
    return Words(slots, text, offsets)


@inner
def _word(text: np.ndarray, place: int, stop: int, classes: np.ndarray, lower: np.ndarray) -> tuple[int, np.uint64]:
    """(end, hash) of the word at `place`."""
    kind = classes[text[place]]
    end = place + 1
    state = (HASH_START ^ np.uint64(lower[text[place]])) * HASH_PRIME
    if kind == PUNCTUATION:
        return end, state
    if kind == LONE and is_lone(text, place, stop):
        return place + 3, hash_of(state, text, end, place + 3)
    for following in range(np.uint64(end), np.uint64(stop)):
        byte = text[following]
        kind = classes[byte]
        if kind != LETTER and (kind != LONE or is_lone(text, np.int64(following), stop)):
            return int(np.int64(following)), state
        state = (state ^ np.uint64(lower[byte])) * HASH_PRIME
    return stop, state


@inner
def _entry(state: np.uint64, row: int) -> np.uint64:
    return ((state >> _ROW_BITS) << _ROW_BITS) | np.uint64(row + 1)


@inner
def _row_of(entry: np.uint64) -> int:
    return int(np.int64(entry & np.uint64(0xFFFFFFFF))) - 1


@inner
def _is_word(words: Words, row: int, text: np.ndarray, start: int, stop: int, lower: np.ndarray) -> bool:
    begin = words.offsets[row]
    if words.offsets[row + 1] - begin != stop - start:
        return False
    known, other = np.uint64(begin), np.uint64(start)
    for place in range(np.uint64(stop - start)):
        if words.text[known + place] != lower[text[other + place]]:
            return False
    return True


@compiled
def word_pieces(
    words: Words, first_row: int, num_rows: int, table: TokenTable, unknown: int, pieces: Pieces, num_pieces: int
) -> int:
    """Greedy longest-match-first WordPiece of the rows from first_row on that are printable ASCII.

    Args:
        unknown: id of [UNK], for words with unknown parts and words of over 100 characters.
        pieces: filled, its ids from num_pieces on, with room for a piece per byte; rows not in ASCII get length -1.
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
            token, place = _longest_token(table, words.text, start, place, stop)
            if token < 0:
                break
            pieces.ids[num_pieces] = token
            num_pieces += 1
        if place < stop:
            num_pieces = pieces.starts[row] + 1
            pieces.ids[num_pieces - 1] = unknown
        pieces.lengths[row] = num_pieces - pieces.starts[row]
    return num_pieces


@inner
def _is_plain(text: np.ndarray, start: int, stop: int) -> bool:
    for place in range(start, stop):
        if text[place] < 33 or text[place] > 126:
            return False
    return True


@inner
def _longest_token(table: TokenTable, text: np.ndarray, start: int, place: int, stop: int) -> tuple[int, int]:
    """(id, end) of the longest token at `place` of a word that starts at `start`; (-1, place) if there is none."""
    longest, end = -1, place
    continues = place > start
    state = _CONTINUED if continues else HASH_START
    for byte in range(place, min(stop, place + table.longest)):
        state = (state ^ np.uint64(text[byte])) * HASH_PRIME
        token = find_token(table, state, continues, text, place, byte + 1)
        if token >= 0:
            longest, end = token, byte + 1
    return longest, end


@compiled
def spell_out(rows: np.ndarray, first_words: np.ndarray, pieces: Pieces, ids: np.ndarray, offsets: np.ndarray) -> None:
    """Fill ids with the tokens of all words, and offsets with the start of each segment's tokens."""
    end = np.int64(0)
    for segment in range(len(first_words) - 1):
        offsets[segment] = end
        for word in range(first_words[segment], first_words[segment + 1]):
            start = pieces.starts[rows[word]]
            end = copied(ids, end, pieces.ids, start, start + pieces.lengths[rows[word]])
    offsets[len(first_words) - 1] = end

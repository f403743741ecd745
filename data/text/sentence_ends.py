"""Finds English sentence boundaries: sentencex decides once for each distinct word before a full stop.

Whether a mark ends a sentence depends on the word before it (an abbreviation? an initial?) and on what follows, and the
same few thousand words precede nearly all marks. A compiled loop finds the marks and their words; sentencex is called
once per word. It is not called on the text itself, because it ends no sentence between two quotation marks or brackets:
one unpaired mark joins pages into one sentence. In 42 MB, 27,118 instead of 22,979 sentences were then too long for
half a sample. Speed is not the reason: the whole preprocessing takes 3.0 CPU seconds with sentencex, 2.6 with this.
"""

from functools import lru_cache

import numpy as np
import sentencex

from bert.arrays.compiled import HASH_PRIME, HASH_START, compiled, hash_of, inner

_LOWER, _DIGIT, _OTHER, _BEYOND_ASCII = 0, 1, 2, 3
_NEUTRAL = ("then", "3", "Lee")  # a following word of each kind that does not affect the decision
_SURE_LETTERS = 7  # no abbreviation ends in this many small letters
_MAX_WORD_BYTES = 40
_MAX_MARK_BYTES = 8
_SPACE, _DOT = 32, 46
_BEFORE, _AFTER = "They saw ", " ended there."


def sentence_ends(text: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """Find the ends of sentences in English documents.

    Args:
        text: uint8 [n], valid UTF-8.
        documents: int64 [D + 1], ascending from 0 to n: document i is text[documents[i]:documents[i + 1]].
    Returns:
        int64 [m], ascending: the start of each sentence but the first of its document; white space belongs to the
        sentence before it.
    """
    room = len(text) // 2 + 1
    ends, hashes, marks = np.empty(room, np.int64), np.empty(room, np.uint64), np.empty((room, 5), np.int64)
    number = _find_marks(text, documents, ends, hashes, marks)
    ends, marks, is_end = ends[:number], marks[:number], np.ones(number, bool)
    asked = np.flatnonzero(marks[:, 0] >= 0)
    _, first, which = np.unique(hashes[asked], return_index=True, return_inverse=True)
    verdicts = [_ends(text[word:stop].tobytes(), kind) for word, stop, kind, _, _ in marks[asked[first]].tolist()]
    is_end[asked] = np.array(verdicts, bool)[which]
    for mark in np.flatnonzero(~is_end).tolist():
        word, stop, kind, place, limit = marks[mark].tolist()
        is_end[mark] = _ends_before(text[word:stop].tobytes(), text[place:limit].tobytes(), kind)
    return ends[is_end]


def _ends_before(word: bytes, after: bytes, kind: int) -> bool:
    """Whether an ambiguous word ends a sentence when this text follows."""
    following = after.decode("utf-8", "ignore").split(None, 1)
    if kind == _LOWER or kind == _DIGIT or not following:
        return False
    first = following[0][0]
    if kind == _BEYOND_ASCII and (first.islower() or first.isdigit()):
        return _ends(word, _LOWER if first.islower() else _DIGIT)
    return _verdict(word, following[0])


@lru_cache(maxsize=1 << 18)
def _ends(word: bytes, kind: int) -> bool:
    """Whether a word with its marks ends a sentence when a word of that kind follows."""
    return kind != _BEYOND_ASCII and _verdict(word, _NEUTRAL[kind])


@lru_cache(maxsize=1 << 16)
def _verdict(word: bytes, following: str) -> bool:
    before = _BEFORE + "".join(word.decode("utf-8", "ignore").split()[-1:]) + " "
    place = 0
    for sentence in segmented("en", before + following + _AFTER) or ():
        place += len(sentence)
        if place == len(before):
            return True
    return False


def segmented(language: str, text: str) -> list[str] | None:
    """The sentences that sentencex finds; None if it fails, as 1.0.32 does at a capital, no-break space, full stop."""
    try:
        return sentencex.segment(language, text)
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # Rust's panic, which is not an Exception
            raise
        return None


@compiled
def _find_marks(
    text: np.ndarray, documents: np.ndarray, ends: np.ndarray, hashes: np.ndarray, marks: np.ndarray
) -> int:
    """Find the marks that may end a sentence and are followed by text; returns their number.

    Args:
        ends: filled with the start of the next sentence.
        marks: filled with start and stop of the word before the mark, including the mark (start -1: a sentence
            certainly ends here); the kind of the word that follows after quotation marks and brackets, its start, and
            the latest possible end of it.
        hashes: filled with 64-bit hashes of the word before the mark, the mark and the kind.
    """
    found, closing, opening = 0, np.bool_(True), np.bool_(False)
    for document in range(len(documents) - 1):
        start, end = documents[document], documents[document + 1]
        place = start
        while place < end:
            size = _mark(text, place, end)
            if size == 0:
                place += 1
                continue
            stop, is_chinese = place, False
            while size != 0:
                stop += abs(size)
                is_chinese |= size < 0
                if end - stop > 1 and text[stop - 1] == _DOT and text[stop] == _SPACE and text[stop + 1] == _DOT:
                    stop += 1  # . . .
                size = _mark(text, stop, end)
            behind = _behind_notes(text, _behind_quotes(text, stop, end, closing), end)
            after, size = behind, _white_space(text, behind, end)
            while size != 0:
                after += size
                size = _white_space(text, after, end)
            following = _behind_quotes(text, after, end, opening)
            if following < end and (is_chinese or after > behind):
                kind = _kind(text[following])
                goes_on = kind == _LOWER or kind == _DIGIT
                if goes_on and not is_chinese and (behind > stop or (stop - place > 1 and text[stop - 1] == _DOT)):
                    place = after  # "Where?" she asked. Well... then he came.
                    continue
                word = -1 if is_chinese else _word_before(text, start, place)
                stop = min(stop, place + _MAX_MARK_BYTES)
                ends[found] = after
                marks[found, 0], marks[found, 1], marks[found, 2] = word, stop, kind
                marks[found, 3], marks[found, 4] = following, min(end, following + _MAX_WORD_BYTES)
                if word >= 0:
                    hashes[found] = hash_of((HASH_START ^ np.uint64(kind)) * HASH_PRIME, text, word, stop)
                found += 1
            place = after
    return found


@inner
def _behind_quotes(text: np.ndarray, place: int, end: int, closing: bool) -> int:
    """The end of the closing, or opening, quotation marks and brackets at `place`."""
    size = _quote(text, place, end, closing)
    while size != 0:
        place += size
        size = _quote(text, place, end, closing)
    return place


@inner
def _behind_notes(text: np.ndarray, place: int, end: int) -> int:
    """The end of the numbers in brackets at `place`, such as [1][23]."""
    while place < end and text[place] == 91:
        stop = place + 1
        while stop < end and text[stop] >= 48 and text[stop] <= 57:
            stop += 1
        if stop == place + 1 or stop >= end or text[stop] != 93:
            return place
        place = stop + 1
    return place


@inner
def _white_space(text: np.ndarray, place: int, end: int) -> int:
    """Number of bytes of the white space at `place`; 0 if there is none."""
    if place >= end:
        return 0
    byte = text[place]
    if byte <= _SPACE:
        return 1
    if byte == 0xC2:
        return 2 * int(end - place > 1 and text[place + 1] == 0xA0)
    if (byte != 0xE2 and byte != 0xE3) or end - place < 3 or text[place + 1] != 0x80:
        return 0
    third = text[place + 2]
    if byte == 0xE3:  # the ideographic space
        return 3 * int(third == 0x80)
    return 3 * int((third >= 0x80 and third <= 0x8A) or third == 0xAF)


@inner
def _mark(text: np.ndarray, place: int, end: int) -> int:
    """Number of bytes of the mark at `place`; 0 if there is none, negative for a mark that needs no space after it."""
    if place >= end:
        return 0
    byte = text[place]
    if byte == 46 or byte == 33 or byte == 63:  # . ! ?
        return 1
    if byte < 0xE3 or end - place < 3:
        return 0
    second, third = text[place + 1], text[place + 2]
    if byte == 0xE3 and second == 0x80 and third == 0x82:  # the Chinese full stop
        return -3
    if byte == 0xEF and second == 0xBC and (third == 0x81 or third == 0x9F):  # wide ! and ?
        return -3
    return 0


@inner
def _quote(text: np.ndarray, place: int, end: int, closing: bool) -> int:
    """Number of bytes of the closing, or opening, quotation mark or bracket at `place`; 0 if there is none."""
    if place >= end:
        return 0
    byte = text[place]
    if byte == 34 or byte == 39:  # " '
        return 1
    if byte < 128:
        if closing:
            return int(byte == 41 or byte == 93 or byte == 125)  # ) ] }
        return int(byte == 40 or byte == 91 or byte == 123)  # ( [ {
    if end - place < 3:
        return 0
    second, third = text[place + 1], text[place + 2]
    if byte == 0xC2:  # guillemets
        return 2 * int(second == 0xBB if closing else second == 0xAB)
    if byte == 0xE2 and second == 0x80:  # curved quotation marks
        return 3 * int(third >= 0x98 and third <= 0x9D)
    if byte == 0xE3 and second == 0x80 and closing:  # Chinese ones
        return 3 * int(third == 0x8D or third == 0x8F)
    return 0


@inner
def _word_before(text: np.ndarray, start: int, place: int) -> int:
    """The start of the word that ends at `place`; -1 if it certainly ends a sentence: no word, or a long one."""
    word = place
    while word > start and text[word - 1] >= 97 and text[word - 1] <= 122:
        word -= 1
    if place - word >= _SURE_LETTERS:
        return -1
    while word > start:
        byte = text[word - 1]
        if byte <= _SPACE or byte == 34 or byte == 40 or byte == 41 or byte == 91 or byte == 93:
            break
        if byte == 39 and (word - 1 == start or not _is_letter(text[word - 2])):  # not the apostrophe of can't
            break
        word -= 1
        if place - word > _MAX_WORD_BYTES:
            return -1
    return word if word < place else -1


@inner
def _is_letter(byte: int) -> bool:
    return byte >= 128 or (byte | 32) >= 97 and (byte | 32) <= 122


@inner
def _kind(byte: int) -> int:
    if byte >= 0x80:
        return _BEYOND_ASCII
    if byte >= 97 and byte <= 122:
        return _LOWER
    return _DIGIT if byte >= 48 and byte <= 57 else _OTHER

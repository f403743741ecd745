"""Finds English sentence boundaries; sentencex decides once for each distinct word before a full stop.

Whether a mark ends a sentence depends on the word before it (an abbreviation? an initial?) and on what follows, and the
same few thousand words precede nearly all marks. A compiled loop finds the marks and their words; sentencex is called
once per word. The marks of SCRIPT_MARKS end a sentence in every language.

The libraries were tried on the text itself, on the 20 cases of tests/data/text/test_sentences.py and on 10 MB of
documentation (2,360 documents). sentencex ends sentences inside of dotted names (paddle.optimizer.SGD). Between two
quotation marks or brackets it ends none, so that one unpaired mark joins pages. ICU ends sentences after "Dr.", and
none before a small letter.

| | cases | sentences | over 1,000 bytes | CPU seconds |
|---|---|---|---|---|
| this | 20 | 88,466 | 288 | 0.2 |
| sentencex 1.0.32, a page at a time | 16 | 86,777 | 648 | 0.5 |
| sentencex 1.0.32, whole documents | 16 | 60,496 | 861 | 6.4 |
| ICU of icu4py 1.2, en@ss=standard | 14 | 67,868 | 498 | 0.9 |
"""

from functools import lru_cache

import numpy as np
import sentencex

from bert.arrays.compiled import HASH_PRIME, HASH_START, compiled, hash_of, inner

SCRIPT_MARKS = {  # that end a sentence in every language, without a space behind them
    "Chinese, Japanese": "\u3002\uff01\uff1f\uff61",
    "Devanagari and its neighbours": "\u0964\u0965",
    "Arabic, Urdu": "\u061f\u06d4",
    "Armenian": "\u0589",
    "Ethiopic": "\u1362\u1367\u1368",
    "Khmer": "\u17d4\u17d5",
    "Burmese": "\u104b",
    "Tibetan": "\u0f0d\u0f0e",
    "Mongolian": "\u1803\u1809",
    "Javanese": "\ua9c9",
}
CLOSING = "\"')]}\u00bb\u2018\u2019\u201a\u201b\u201c\u201d\u300d\u300f"

_LOWER, _DIGIT, _OTHER, _BEYOND_ASCII = 0, 1, 2, 3
_NEUTRAL = ("then", "3", "Lee")  # a following word of each kind that does not affect the decision
_SURE_LETTERS = 7  # no abbreviation ends in this many small letters
_MAX_WORD_BYTES = 40
_MAX_MARK_BYTES = 8
_SPACE, _DOT = 32, 46
_BEFORE, _AFTER = "They saw ", " ended there."

_KINDS = np.full(256, _OTHER)  # of words, by their first byte
_KINDS[48:58], _KINDS[97:123], _KINDS[128:] = _DIGIT, _LOWER, _BEYOND_ASCII
_IS_LETTER = np.zeros(256, bool)  # of bytes
_IS_LETTER[65:91] = _IS_LETTER[97:123] = _IS_LETTER[128:] = True
_MARK, _WIDE_MARK, _CLOSING, _OPENING, _WHITE = 1, 2, 4, 8, 16  # bits: a wide mark needs no space after it
_CLASSES = np.zeros(1 << 16, np.uint8)  # of characters
_CLASSES[: _SPACE + 1] = _WHITE
for _bit, _characters in (
    (_MARK, ".!?"),
    (_WIDE_MARK, "".join(SCRIPT_MARKS.values())),
    (_CLOSING, CLOSING),
    (_OPENING, "\"'([{\u00ab\u2018\u2019\u201a\u201b\u201c\u201d"),
    (_WHITE, "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u3000"),
):
    _CLASSES[[ord(_character) for _character in _characters]] |= _bit


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
    unsure = np.flatnonzero(marks[:, 0] >= 0)
    _, first, which = np.unique(hashes[unsure], return_index=True, return_inverse=True)
    verdicts = [_ends(text[word:stop].tobytes(), kind) for word, stop, kind, _, _ in marks[unsure[first]].tolist()]
    is_end[unsure] = np.array(verdicts, bool)[which]
    for mark in np.flatnonzero(~is_end).tolist():
        word, stop, kind, place, limit = marks[mark].tolist()
        is_end[mark] = _ends_before(text[word:stop].tobytes(), text[place:limit].tobytes(), kind)
    return ends[is_end]


def _ends_before(word: bytes, after: bytes, kind: int) -> bool:
    """Whether an ambiguous word ends a sentence before this text."""
    following = after.decode("utf-8", "ignore").split(None, 1)
    if kind == _LOWER or kind == _DIGIT or not following:
        return False
    first = following[0][0]
    if kind == _BEYOND_ASCII and (first.islower() or first.isdigit()):
        return _ends(word, _LOWER if first.islower() else _DIGIT)
    return _verdict(word, following[0])


@lru_cache(maxsize=1 << 18)
def _ends(word: bytes, kind: int) -> bool:
    """Whether a word with its marks ends a sentence before a word of that kind."""
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
    """Sentences by sentencex; None if it fails, as 1.0.32 does at a capital, no-break space, full stop."""
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
    """Find marks that may end a sentence and are followed by text; returns their number.

    Args:
        ends: filled with the start of the next sentence.
        marks: filled with start and stop of the word before the mark, including the mark (start -1: a sentence
            certainly ends here); the kind of the word that follows after quotation marks and brackets, its start, and
            the latest possible end of it.
        hashes: filled with 64-bit hashes of the word before the mark, the mark and the kind.
    """
    number = 0
    for document in range(len(documents) - 1):
        start, end = documents[document], documents[document + 1]
        place = start
        while place < end:
            classes, size = _character(text, place, end)
            if not classes & (_MARK | _WIDE_MARK):
                place += size
                continue
            stop, is_wide = place, False
            while classes & (_MARK | _WIDE_MARK):
                stop += size
                is_wide |= classes & _WIDE_MARK != 0
                if end - stop > 1 and text[stop - 1] == _DOT and text[stop] == _SPACE and text[stop + 1] == _DOT:
                    stop += 1  # . . .
                classes, size = _character(text, stop, end)
            behind = _behind_notes(text, _behind(text, stop, end, _CLOSING), end)
            after = _behind(text, behind, end, _WHITE)
            following = _behind(text, after, end, _OPENING)
            if following < end and (is_wide or after > behind):
                kind = _KINDS[text[following]]
                goes_on = kind == _LOWER or kind == _DIGIT
                if goes_on and not is_wide and (behind > stop or (stop - place > 1 and text[stop - 1] == _DOT)):
                    place = after  # "Where?" she asked. Well... then he came.
                    continue
                word = -1 if is_wide else _word_before(text, start, place)
                stop = min(stop, place + _MAX_MARK_BYTES)
                ends[number] = after
                marks[number, 0], marks[number, 1], marks[number, 2] = word, stop, kind
                marks[number, 3], marks[number, 4] = following, min(end, following + _MAX_WORD_BYTES)
                if word >= 0:
                    hashes[number] = hash_of((HASH_START ^ np.uint64(kind)) * HASH_PRIME, text, word, stop)
                number += 1
            place = after
    return number


@inner
def _character(text: np.ndarray, place: int, end: int) -> tuple[int, int]:
    """(classes, number of bytes) of the character at `place`; (0, 1) at the end."""
    if place >= end:
        return 0, 1
    byte = int(text[place])
    if byte < 0x80:
        return int(_CLASSES[byte]), 1
    if byte < 0xE0:
        classes = int(_CLASSES[(byte & 0x1F) << 6 | text[place + 1] & 0x3F])
        return classes if end - place > 2 else classes & _WHITE, 2  # a guillemet at the very end quotes nothing
    if byte < 0xF0:
        return int(_CLASSES[(byte & 0xF) << 12 | (text[place + 1] & 0x3F) << 6 | text[place + 2] & 0x3F]), 3
    return 0, 4


@inner
def _behind(text: np.ndarray, place: int, end: int, kinds: int) -> int:
    """End of the characters of these classes at `place`."""
    classes, size = _character(text, place, end)
    while classes & kinds:
        place += size
        classes, size = _character(text, place, end)
    return place


@inner
def _behind_notes(text: np.ndarray, place: int, end: int) -> int:
    """End of numbers in brackets at `place`, such as [1][23]."""
    while place < end and text[place] == 91:
        stop = place + 1
        while stop < end and text[stop] >= 48 and text[stop] <= 57:
            stop += 1
        if stop == place + 1 or stop >= end or text[stop] != 93:
            return place
        place = stop + 1
    return place


@inner
def _word_before(text: np.ndarray, start: int, place: int) -> int:
    """Start of the word that ends at `place`; -1 if it certainly ends a sentence (no word, or a long one)."""
    word = place
    while word > start and text[word - 1] >= 97 and text[word - 1] <= 122:
        word -= 1
    if place - word >= _SURE_LETTERS:
        return -1
    while word > start:
        byte = text[word - 1]
        if byte <= _SPACE or byte == 34 or byte == 40 or byte == 41 or byte == 91 or byte == 93:
            break
        if byte == 39 and (word - 1 == start or not _IS_LETTER[text[word - 2]]):  # not the apostrophe of can't
            break
        word -= 1
        if place - word > _MAX_WORD_BYTES:
            return -1
    return word if word < place else -1

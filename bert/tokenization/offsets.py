"""WordPiece tokenisation with character offsets, so that an answer can be cut out of the original text.

BERT's tokenisation never looks across ASCII white space or ASCII punctuation. So each distinct word of a text is
tokenised once by the `tokenizers` library, which gives the characters of each piece; the rest is array indexing.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bert.arrays.ragged import offsets_of, ragged_indices
from bert.tokenization.fast_tokenizer import reference_tokenizer, tokenize_words, utf8
from bert.tokenization.vocabulary import Vocabulary
from bert.tokenization.word_table import LETTER, LONE, PUNCTUATION, WHITE_SPACE, byte_classes

_BLOCK_CHARACTERS = 4 << 20  # text tokenised at a time: bounds the memory that does not depend on its size
_WORDS_AT_ONCE = 4096


@dataclass(frozen=True)
class TokenizedTexts:
    """Tokens of n texts, T in all; text i has the tokens offsets[i]:offsets[i + 1].

    Attributes:
        ids: vocabulary.id_dtype() [T].
        starts: int32 [T], index in the text of each token's first character (code point).
        ends: int32 [T], index one past its last character.
        offsets: int64 [n + 1].
    """

    ids: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    offsets: np.ndarray

    def lengths(self) -> np.ndarray:
        """int64 [n]: tokens of each text."""
        return np.diff(self.offsets)


class OffsetTokenizer:
    """Tokenises texts to flat ids and character spans; caches the tokens of every distinct word."""

    def __init__(self, vocabulary: Vocabulary, lowercase: bool = True) -> None:
        self.vocabulary = vocabulary
        self._tokenizer = reference_tokenizer(vocabulary, lowercase)
        self._classes = byte_classes()
        self._classes[self._classes == LONE] = LETTER  # the library splits these words
        self._lower = np.arange(256, dtype=np.uint8)
        if lowercase:
            self._lower[65:91] += 32
        self._rows: dict[bytes, int] = {}
        # Word i has the pieces first[i]:first[i + 1]; characters of a piece are counted from the start of its word.
        self._first = np.zeros(1, np.int64)
        self._pieces = np.zeros((0, 3), np.int32)  # id, first character, one past its last

    def encode_with_offsets(self, texts: Sequence[str]) -> TokenizedTexts:
        """The tokens of each text without special tokens; the texts must be valid UTF-8 (no lone surrogates)."""
        blocks = [self._encode_block(texts[start:stop]) for start, stop in _blocks(texts)]
        ids, starts, ends, lengths = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
        return TokenizedTexts(ids, starts, ends, offsets_of(lengths))

    def _encode_block(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(ids, starts, ends) as of `TokenizedTexts` and the number of tokens of each text."""
        text, boundaries = utf8(texts, b" ")
        starts = self._word_starts(text, boundaries)
        first_word = np.searchsorted(starts, boundaries)
        words = pa.LargeBinaryArray.from_buffers(
            pa.large_binary(), len(starts) - 1, [None, pa.py_buffer(starts), pa.py_buffer(self._lower[text])]
        ).dictionary_encode()
        rows = self._rows_of(words.dictionary.to_pylist())[words.indices.to_numpy()]
        counts = self._first[rows + 1] - self._first[rows]
        pieces = self._pieces[ragged_indices(self._first[rows], counts)]
        shift = np.repeat(_characters_before(text, boundaries, starts[:-1], first_word), counts)
        ids = pieces[:, 0].astype(self.vocabulary.id_dtype())
        return ids, pieces[:, 1] + shift, pieces[:, 2] + shift, np.diff(offsets_of(counts)[first_word])

    def _word_starts(self, text: np.ndarray, boundaries: np.ndarray) -> np.ndarray:
        """int64: byte positions at which words start, and the end of the last text, which another byte follows.

        White space belongs to the word before it and has no token.
        """
        classes = self._classes[text]
        starts = np.empty(len(text), bool)
        starts[0] = True
        np.not_equal(classes[1:], classes[:-1], out=starts[1:])
        starts |= classes == PUNCTUATION
        starts &= classes != WHITE_SPACE
        starts[boundaries] = True
        return np.flatnonzero(starts)

    def _rows_of(self, words: list[bytes]) -> np.ndarray:
        """int64: the row of each distinct word; new ones are tokenised and added."""
        bare = [word.rstrip(b" \t\n\r") for word in words]
        new = list(dict.fromkeys(word for word in bare if word not in self._rows))
        for start in range(0, len(new), _WORDS_AT_ONCE):
            self._add(new[start : start + _WORDS_AT_ONCE])
        return np.fromiter((self._rows[word] for word in bare), np.int64, len(bare))

    def _add(self, words: list[bytes]) -> None:
        ids, spans, firsts = tokenize_words(self._tokenizer, [word.decode() for word in words])
        self._rows |= {word: row for row, word in enumerate(words, start=len(self._first) - 1)}
        self._first = np.concatenate([self._first, len(self._pieces) + firsts[1:]])
        self._pieces = np.concatenate([self._pieces, np.column_stack([ids, spans]).astype(np.int32)])


def _characters_before(
    text: np.ndarray, boundaries: np.ndarray, starts: np.ndarray, first_word: np.ndarray
) -> np.ndarray:
    """int32 [words]: number of characters before each word in its text."""
    text_starts = np.repeat(boundaries[:-1], np.diff(first_word))
    if text.max() >= 128:
        characters = offsets_of((text & 0xC0) != 0x80)  # every byte of UTF-8 but the continuations starts one
        return (characters[starts] - characters[text_starts]).astype(np.int32)
    return (starts - text_starts).astype(np.int32)


def _blocks(texts: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Ranges of texts of about _BLOCK_CHARACTERS each; at least one."""
    ends, start = offsets_of([len(text) for text in texts]), 0
    while True:
        stop = int(np.searchsorted(ends, ends[start] + _BLOCK_CHARACTERS, side="right")) - 1
        stop = min(len(texts), max(start + 1, stop))
        yield start, stop
        start = stop
        if start == len(texts):
            return

"""Tokens with the characters they came from, so that an answer can be cut out of the text as it was written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from bert.samples import offsets_of, ragged_indices
from bert.tokenization import FastTokenizer

_BLOCK_BYTES = 4 << 20  # text tokenised at a time: bounds the memory that does not depend on its size


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


class OffsetTokenizer(FastTokenizer):
    """A FastTokenizer that also tells where each token stands in its text."""

    def _forget(self) -> None:
        super()._forget()
        self._spans = np.zeros((1 << 14, 2), np.int32)  # characters of each piece, counted from the start of its word
        self._new_spans: list[tuple[int, int]] = []

    def _pieces_of(self, word: bytes) -> list[int]:
        if not word:
            self._new_spans = []
            return []
        if word.translate(None, self._plain):
            encoded = self._tokenizer.encode(word.decode("utf-8"), add_special_tokens=False)
            self._new_spans = encoded.offsets
            return encoded.ids
        pieces = self._model.tokenize(word.decode("ascii"))
        self._new_spans = [piece.offsets for piece in pieces]
        return [piece.id for piece in pieces]

    def _add_row(self, pieces: list[int]) -> int:
        start, end = self._num_pieces, self._num_pieces + len(pieces)
        while end > len(self._spans):
            self._spans = np.concatenate([self._spans, np.zeros_like(self._spans)])
        if pieces:
            self._spans[start:end] = self._new_spans
        return super()._add_row(pieces)

    def encode_with_offsets(self, texts: Sequence[str]) -> TokenizedTexts:
        """The tokens of each text, none special; the texts must be encodable as UTF-8 (no lone surrogates)."""
        blocks = [self._encode_block(texts[start:stop]) for start, stop in _blocks(texts)]
        if len(blocks) == 1:
            return blocks[0]
        if not blocks:
            nothing = np.zeros(0, np.int32)
            return TokenizedTexts(np.zeros(0, self.vocabulary.id_dtype()), nothing, nothing, np.zeros(1, np.int64))
        return TokenizedTexts(np.concatenate([block.ids for block in blocks]),
                              np.concatenate([block.starts for block in blocks]),
                              np.concatenate([block.ends for block in blocks]),
                              offsets_of(np.concatenate([block.lengths() for block in blocks])))

    def _encode_block(self, texts: Sequence[str]) -> TokenizedTexts:
        array = pa.array(texts, pa.large_string())
        boundaries = np.frombuffer(array.buffers()[1], np.int64)[:len(texts) + 1]
        data = array.buffers()[2]
        text = np.frombuffer(data, np.uint8)[:boundaries[-1]] if data is not None else np.zeros(0, np.uint8)
        if len(text) == 0:
            nothing = np.zeros(0, np.int32)
            return TokenizedTexts(np.zeros(0, self.vocabulary.id_dtype()), nothing, nothing,
                                  np.zeros(len(texts) + 1, np.int64))
        words, first_word = self._split(text, boundaries)
        encoded = words.dictionary_encode()
        rows = self._rows_of(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]
        lengths = self._lengths[rows]
        token_offsets = offsets_of(lengths)
        pieces = ragged_indices(self._starts[rows], lengths)
        word_bytes = np.frombuffer(words.buffers()[1], np.int64)[:len(words)]
        word_starts = _characters_before(text, boundaries, word_bytes, first_word)
        spans = self._spans[pieces] + np.repeat(word_starts, lengths)[:, None]
        return TokenizedTexts(self._pieces[pieces], np.ascontiguousarray(spans[:, 0]),
                              np.ascontiguousarray(spans[:, 1]), token_offsets[first_word])


def _characters_before(text: np.ndarray, boundaries: np.ndarray, word_bytes: np.ndarray,
                       first_word: np.ndarray) -> np.ndarray:
    """int32 [words]: characters of the word's own text before it."""
    text_starts = np.repeat(boundaries[:-1], np.diff(first_word))
    if text.max() >= 128:
        characters = offsets_of((text & 0xC0) != 0x80)  # every byte of UTF-8 but the continuations starts one
        return (characters[word_bytes] - characters[text_starts]).astype(np.int32)
    return (word_bytes - text_starts).astype(np.int32)


def _blocks(texts: Sequence[str]) -> list[tuple[int, int]]:
    """Ranges of texts of about _BLOCK_BYTES each."""
    ends = offsets_of([len(text) for text in texts])
    blocks, start = [], 0
    while start < len(texts):
        stop = int(np.searchsorted(ends, ends[start] + _BLOCK_BYTES, side="right")) - 1
        stop = max(start + 1, stop)
        blocks.append((start, stop))
        start = stop
    return blocks

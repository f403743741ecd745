"""BERT's basic and WordPiece tokenisation, optionally with the characters of each token.

`reference_tokenizer` is the plain pipeline of the `tokenizers` library. `WordPieceTokenizer` gives the same tokens for
whole blocks of text: BERT's tokenisation never looks across ASCII white space or ASCII punctuation, so each distinct
word is tokenised once and the rest is array indexing. The whole preprocessing of 42 MB of documentation in which no
paragraph repeats takes 2.6 CPU seconds with it, 17.8 with the library. Special tokens in text have no meaning: "[MASK]"
in a document is three words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, pairwise

import numpy as np
from tokenizers import Tokenizer, normalizers
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import BertPreTokenizer

from bert.arrays.ragged import offsets_of, ragged_indices
from bert.tokenization.byte_table import ByteTable, byte_table
from bert.tokenization.equal_letters import may_have_forms, struck, with_marks, without_forms, written_characters
from bert.tokenization.normalization import UNCASED, Normalization
from bert.tokenization.segmentation import ZERO_WIDTH_SPACE, cutter
from bert.tokenization.vocabulary import CONTINUATION_PREFIX, Vocabulary
from bert.tokenization.wordpiece_loops import MAX_WORD_CHARACTERS, Pieces, TokenTables, look_up, spell_out, word_pieces


@dataclass(frozen=True)
class MemoryLimits:
    """Limits of a tokenizer's cache and batch; they change no token.

    Attributes:
        cached_words, cached_bytes: the cache is cleared when it holds more distinct words, or room for more of their
            text.
        words_at_once: words outside of ASCII that the library gets as one text.
        texts_at_once: texts whose tokens are found together with their characters.
    """

    cached_words: int = 1_000_000
    cached_bytes: int = 64 << 20
    words_at_once: int = 512
    texts_at_once: int = 4096


USUAL_LIMITS = MemoryLimits()


def reference_tokenizer(vocabulary: Vocabulary, normalization: Normalization = UNCASED) -> Tokenizer:
    """The `tokenizers` pipeline of BERT: clean, lower-case and strip accents, split punctuation, WordPiece.

    It cuts no scripts without spaces, but U+200B, the mark between their words, separates words.
    """
    model = WordPiece(
        {token: index for index, token in enumerate(vocabulary.tokens)},
        unk_token="[UNK]",
        max_input_chars_per_word=MAX_WORD_CHARACTERS,
    )
    tokenizer = Tokenizer(model)
    separator = normalizers.Replace(ZERO_WIDTH_SPACE, " ")
    tokenizer.normalizer = normalizers.Sequence([separator, normalization.normalizer()])
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer


def utf8(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Texts as UTF-8, uint8 [n], and the start of each, int64 [len(texts) + 1]."""
    encoded = [text.encode() for text in texts]
    return np.frombuffer(b"".join(encoded), np.uint8), offsets_of([len(text) for text in encoded])


def chunks(texts: Sequence[str], size: int = USUAL_LIMITS.texts_at_once) -> Iterator[list[str]]:
    """Divide the texts into lists of `size`; one empty list if there are no texts."""
    for start in range(0, max(1, len(texts)), size):
        yield list(texts[start : start + size])


@dataclass(frozen=True)
class TokenizedTexts:
    """Tokens of n texts; text i has the tokens offsets[i]:offsets[i + 1] of T in all.

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
        """Number of tokens of each text, int64 [n]."""
        return np.diff(self.offsets)

    def in_written(self, texts: Sequence[str]) -> "TokenizedTexts":
        """The tokens with character positions in the original texts, not in `without_forms` of them."""
        starts, ends = self.starts.copy(), self.ends.copy()
        for text, (first, last) in zip(texts, pairwise(self.offsets.tolist()), strict=True):
            if without_forms(text) != text:
                places, begins, stops = written_characters(text), self.starts[first:last], self.ends[first:last]
                starts[first:last] = places[begins]
                ends[first:last] = np.where(stops > begins, places[stops - 1] + 1, places[begins])
        return replace(self, starts=starts, ends=ends)


class WordPieceTokenizer:
    """Tokenises blocks of text to flat ids; caches the tokens of every distinct word."""

    def __init__(
        self, vocabulary: Vocabulary, normalization: Normalization = UNCASED, limits: MemoryLimits = USUAL_LIMITS
    ) -> None:
        self.vocabulary, self.normalization, self._limits = vocabulary, normalization, limits
        self._parts = cutter(normalization.word_segmenter)
        tokens, prefix = [token.encode() for token in vocabulary.tokens], CONTINUATION_PREFIX.encode()
        inside = {number: token[2:] for number, token in enumerate(tokens) if token.startswith(prefix) and token[2:]}
        tables = byte_table(tokens), byte_table([*inside.values()])
        self._tables = TokenTables(*tables, np.array([*inside], np.int64), max(map(len, tokens)))
        self._forget()

    @cached_property
    def _library(self) -> Tokenizer:
        return reference_tokenizer(self.vocabulary, self.normalization)

    def _forget(self) -> None:
        self._words = ByteTable(np.zeros(1 << 12, np.uint64), np.zeros(1 << 14, np.uint8), np.zeros(1 << 11, np.int64))
        self._num_rows = self._num_pieces = 0
        ids, (starts, lengths) = np.zeros(1 << 12, self.vocabulary.id_dtype()), np.zeros((2, 1 << 12), np.int64)
        self._pieces = Pieces(ids, np.zeros((1 << 12, 2), np.int32), starts, lengths)

    def num_cached_words(self) -> int:
        """Number of distinct words in the cache."""
        return self._num_rows

    def encode(self, text: str) -> list[int]:
        """Token ids of one text, without special tokens."""
        return self.encode_texts([text])[0].tolist()

    def encode_masked(self, text: str) -> list[int]:
        """Token ids of a text in which [MASK] stands for words."""
        first_part, *parts = text.split("[MASK]")
        ids = self.encode(first_part)
        for part in parts:
            ids += [self.vocabulary.id_of("[MASK]"), *self.encode(part)]
        return ids

    def encode_words(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `encode_texts`, for words between spaces of a text."""
        return self.encode_texts(words)

    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Token ids of many texts: (ids [T], offsets int64 [len(texts) + 1])."""
        return self.encode_bytes(*utf8(texts))

    def encode_bytes(self, text: np.ndarray, boundaries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tokenise segments of a block of valid UTF-8.

        Args:
            text: uint8 [n].
            boundaries: int64 [m + 1], rising from 0 to n; segment i is text[boundaries[i]:boundaries[i + 1]].
        Returns:
            (ids of dtype vocabulary.id_dtype() [T], offsets int64 [m + 1] of the segments' tokens).
        """
        if self.normalization.equal_letters and may_have_forms(text):
            segments = (text[start:stop].tobytes().decode() for start, stop in pairwise(boundaries.tolist()))
            text, boundaries = utf8([without_forms(segment) for segment in segments])
        rows, _, first_words = self._words_of(self._struck(text), boundaries)
        ids = np.empty(int(self._pieces.lengths[rows].sum()), self.vocabulary.id_dtype())
        offsets = np.empty(len(boundaries), np.int64)
        spell_out(rows, first_words, self._pieces, ids, offsets)
        return ids, offsets

    def encode_with_offsets(self, texts: Sequence[str]) -> TokenizedTexts:
        """Tokens of each text with their characters; texts must be valid UTF-8 (no lone surrogates)."""
        folds_forms, written = self.normalization.equal_letters, texts
        texts = [*map(without_forms, texts)] if folds_forms else texts
        parts = [self._with_offsets(*utf8(chunk)) for chunk in chunks(texts, self._limits.texts_at_once)]
        ids, spans, lengths = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        tokenized = TokenizedTexts(ids, spans[:, 0], spans[:, 1], offsets_of(lengths))
        return tokenized.in_written(written) if folds_forms else tokenized

    def _with_offsets(self, text: np.ndarray, boundaries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(ids [T], first and last characters int32 [T, 2], number of tokens of each text)."""
        written, text = text, self._struck(text)
        rows, places, first_words = self._words_of(text, boundaries)
        counts = self._pieces.lengths[rows]
        tokens = ragged_indices(self._pieces.starts[rows], counts)
        before = np.repeat(boundaries[:-1], np.diff(first_words))  # where the text of each word begins
        if len(text) and text.max() >= 128:
            characters = offsets_of((text & 0xC0) != 0x80)  # every byte of UTF-8 but the continuations starts one
            places, before = characters[places], characters[before]
        spans = self._pieces.spans[tokens] + np.repeat(places, counts)[:, None]  # in the characters of all texts
        before = np.repeat(before, counts)
        numbers = np.diff(offsets_of(counts)[first_words])
        if written is not text:
            first_bytes = np.append(np.flatnonzero((text & 0xC0) != 0x80), len(text))
            of_bytes = offsets_of((written & 0xC0) != 0x80)
            spans, before = of_bytes[first_bytes[spans]], of_bytes[first_bytes[before]]
        return self._pieces.ids[tokens], (spans - before[:, None]).astype(np.int32), numbers

    def _struck(self, text: np.ndarray) -> np.ndarray:
        return struck(text) if self.normalization.equal_letters else text

    def _words_of(self, text: np.ndarray, boundaries: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Row and first byte of each word, and the first word of each segment, int64 [m + 1].

        New words are tokenised and added.
        """
        if self._num_rows > self._limits.cached_words or len(self._words.text) > self._limits.cached_bytes:
            self._forget()
        if self.normalization.lowercase:
            text = np.frombuffer(text.tobytes().lower(), np.uint8)  # of ASCII letters
        boundaries, known = np.ascontiguousarray(boundaries, np.int64), self._num_rows
        rows, places = np.empty(len(text), np.int32), np.empty(len(text), np.int64)
        first_words = np.empty(len(boundaries), np.int64)
        try:
            arguments = text, boundaries, self._words, known, rows, places, first_words
            self._words, self._num_rows, num_words = look_up(*arguments)
            self._tokenize_rows(known)
        except BaseException:
            self._forget()  # after Ctrl-C or MemoryError, words may be in the cache without their tokens
            raise
        return rows[:num_words], places[:num_words], first_words

    def _tokenize_rows(self, first: int) -> None:
        """Tokenise all rows from `first` on."""
        words, num_rows, unknown = self._words, self._num_rows, self.vocabulary.id_of("[UNK]")
        self._make_room(int(words.offsets[num_rows] - words.offsets[first]))
        starts, lengths = (_with_room(array, num_rows) for array in self._pieces[2:])
        self._pieces = self._pieces._replace(starts=starts, lengths=lengths)
        self._num_pieces = word_pieces(words, first, num_rows, self._tables, unknown, self._pieces, self._num_pieces)
        uncached = first + np.flatnonzero(lengths[first:num_rows] < 0)
        for start in range(0, len(uncached), self._limits.words_at_once):
            self._tokenize_by_library(uncached[start : start + self._limits.words_at_once])

    def _tokenize_by_library(self, rows: np.ndarray) -> None:
        """Tokenise parts of words as one text; characters show which part a token is from."""
        bounds = zip(self._words.offsets[rows], self._words.offsets[rows + 1], strict=True)
        words = [self._words.text[start:stop].tobytes().decode() for start, stop in bounds]
        cut = [self._parts(word) for word in words]
        parts = [*chain.from_iterable(cut)]
        encoding = self._library.encode(" ".join(parts), add_special_tokens=False)
        begins, counts = offsets_of([len(part) + 1 for part in parts]), np.array([*map(len, cut)])
        spans = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        if self.normalization.equal_letters:
            spans = with_marks(" ".join(parts), spans)
        part_of = np.searchsorted(begins, spans[:, 0], "right") - 1
        firsts = np.searchsorted(part_of, offsets_of(counts))  # the first token of each word
        places = begins[:-1] - np.arange(len(parts))  # of the parts among all characters of the words
        places -= np.repeat(places[offsets_of(counts)[:-1]], counts)
        self._make_room(len(spans))
        added = slice(self._num_pieces, self._num_pieces + len(spans))
        self._pieces.ids[added] = encoding.ids
        self._pieces.spans[added] = spans + (places - begins[:-1])[part_of][:, None]
        self._pieces.starts[rows], self._pieces.lengths[rows] = self._num_pieces + firsts[:-1], np.diff(firsts)
        self._num_pieces += len(spans)

    def _make_room(self, num_pieces: int) -> None:
        ids, spans = (_with_room(array, self._num_pieces + num_pieces) for array in self._pieces[:2])
        self._pieces = self._pieces._replace(ids=ids, spans=spans)


def _with_room(array: np.ndarray, size: int) -> np.ndarray:
    """The array with room for at least `size` rows; it doubles when it grows."""
    if size <= len(array):
        return array
    room = np.zeros((max(size, 2 * len(array)) - len(array), *array.shape[1:]), array.dtype)
    return np.concatenate([array, room])

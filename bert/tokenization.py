"""BERT's vocabulary file and its basic + WordPiece tokenisation.

`reference_tokenizer` is the plain pipeline of the `tokenizers` library. `FastTokenizer` gives the same ids for whole
blocks of text: BERT's tokenisation never looks across ASCII white space or ASCII punctuation, so each distinct word
is tokenised once and the rest is array indexing. Text is never read as a special token: "[MASK]" in a document is
three words.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Sequence, Tuple, Union

import numpy as np
import pyarrow as pa
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from bert.text.token_table import token_table
from bert.text.word_table import (
    MAX_WORD_CHARACTERS,
    Words,
    byte_classes,
    count_tokens,
    enter_all,
    look_up,
    spell_out,
    word_pieces,
)

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION_PREFIX = "##"
_MAX_CACHED_BYTES = 64 << 20
_WORDS_AT_ONCE = 512
_WHITE_SPACE_IN_TOKEN = re.compile(r"[ \t\n\r]")


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a vocab.txt, their line numbers minus one being their ids; checked when it is made."""

    tokens: Tuple[str, ...]
    source: str = "vocabulary"

    def __post_init__(self) -> None:
        first_line = {token: line for line, token in enumerate(self.tokens, start=1)}
        if (len(first_line) != len(self.tokens) or "" in first_line
                or _WHITE_SPACE_IN_TOKEN.search("".join(self.tokens))):
            self._find_bad_line()
        missing = [token for token in SPECIAL_TOKENS if token not in first_line]
        if missing:
            raise ValueError(f"{self.source}: none of its {len(self.tokens)} lines (1 to {len(self.tokens)}) is "
                             f"{' or '.join(missing)}; BERT needs {' '.join(SPECIAL_TOKENS)}: "
                             "use the vocabulary that the model was made with")
        object.__setattr__(self, "_ids", {token: line - 1 for token, line in first_line.items()})

    def _find_bad_line(self) -> None:
        """Raise the error of the first line that is none of a vocabulary."""
        first_line: Dict[str, int] = {}
        for line, token in enumerate(self.tokens, start=1):
            _check_token(token, line, self.source)
            if token in first_line:
                raise ValueError(f"{self.source}:{line}: {token!r} stands on line {first_line[token]} already; "
                                 "a token has one id: remove one of the two lines")
            first_line[token] = line

    @classmethod
    def from_file(cls, path: Union[str, Path]) -> "Vocabulary":
        """Read vocab.txt: UTF-8, one token per line.

        Raises:
            FileNotFoundError: no such file.
            ValueError: blank line, CR LF, white space in a token, duplicate, not UTF-8 (each with its line number),
                or a special token missing.
        """
        lines = Path(path).read_bytes().split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
        tokens = []
        for line, raw in enumerate(lines, start=1):
            try:
                tokens.append(raw.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise ValueError(f"{path}:{line}: {raw!r} is not UTF-8 ({error.reason}); save the file as UTF-8") \
                    from error
        return cls(tuple(tokens), str(path))

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: str) -> bool:
        return token in self._ids  # type: ignore[attr-defined]

    def id_of(self, token: str) -> int:
        """The id of a token; KeyError if it has none."""
        return self._ids[token]  # type: ignore[attr-defined]

    @property
    def sha256(self) -> str:
        """Of the tokens joined by line feeds, as they stand in the file."""
        return hashlib.sha256("".join(token + "\n" for token in self.tokens).encode()).hexdigest()

    def id_dtype(self) -> np.dtype:
        """The smallest dtype, uint16 or int32, that holds every id."""
        return np.dtype(np.uint16 if len(self) <= 1 << 16 else np.int32)

    def check_model_size(self, vocab_size: int) -> None:
        """Refuse a model whose vocab_size is neither the number of tokens nor that rounded up to a multiple of 8."""
        rounded = -(-len(self) // 8) * 8
        if vocab_size not in (len(self), rounded):
            raise ValueError(f"{self.source}:{len(self)}: the last line gives {len(self)} tokens, but the model's "
                             f"vocab_size is {vocab_size}; it must be {len(self)} or {rounded} (a multiple of 8): "
                             "use the vocabulary that belongs to the model, or set vocab_size")

    def continuations(self) -> np.ndarray:
        """bool [vocabulary size]: the tokens that continue a word (##...)."""
        return np.array([token.startswith(CONTINUATION_PREFIX) for token in self.tokens], bool)

    def replacement_ids(self) -> np.ndarray:
        """int64: ids that may stand in for a masked token, i.e. all but special and [unused...] tokens."""
        ids = [index for index, token in enumerate(self.tokens)
               if token not in SPECIAL_TOKENS and not token.startswith("[unused")]
        if not ids:
            raise ValueError(f"{self.source}: its {len(self)} lines are all special or [unused] tokens; "
                             "words are needed: train a vocabulary with data.train_vocabulary")
        return np.array(ids, np.int64)


def _check_token(token: str, line: int, source: str) -> None:
    if not token:
        raise ValueError(f"{source}:{line}: blank line; every line is a token, and a blank one shifts all ids after "
                         "it: remove it")
    if token.endswith("\r"):
        raise ValueError(f"{source}:{line}: {token!r} ends in CR LF; lines must end in LF alone: convert the file, "
                         "e.g. with dos2unix")
    if any(character in token for character in " \t\r\n"):
        raise ValueError(f"{source}:{line}: {token!r} holds white space; WordPiece tokens have none: one token per "
                         "line, without counts or columns")


def reference_tokenizer(vocabulary: Vocabulary, lowercase: bool = True) -> Tokenizer:
    """The `tokenizers` pipeline: clean, lower-case and strip accents, split at punctuation, WordPiece."""
    model = WordPiece({token: index for index, token in enumerate(vocabulary.tokens)}, unk_token="[UNK]",
                      max_input_chars_per_word=MAX_WORD_CHARACTERS)
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    return tokenizer


class FastTokenizer:
    """Tokenises blocks of text to flat ids; remembers the words it has met.

    Args:
        vocabulary: WordPiece vocabulary.
        lowercase: lower-case and strip accents (uncased models).
        max_cached_words: the memory is emptied when it holds more distinct words than this, or more than 64 MB.
    """

    def __init__(self, vocabulary: Vocabulary, lowercase: bool = True, max_cached_words: int = 1_000_000) -> None:
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self._tokenizer = reference_tokenizer(vocabulary, lowercase)
        self._table = token_table(vocabulary.tokens)
        self._classes = byte_classes()
        self._lower = np.arange(256, dtype=np.uint8)
        if lowercase:
            self._lower[65:91] += 32
        self._max_cached_words = max_cached_words
        self._forget()

    def _forget(self) -> None:
        self._words = Words(np.zeros(1 << 12, np.uint64), np.zeros(1 << 12, np.uint64), np.zeros(1 << 14, np.uint8),
                            np.zeros(1 << 12, np.int64))
        self._num_rows = self._num_pieces = 0
        self._pieces = np.zeros(1 << 12, self.vocabulary.id_dtype())
        self._starts, self._lengths = np.zeros(1 << 12, np.int64), np.zeros(1 << 12, np.int64)

    def encode(self, text: str) -> List[int]:
        """Token ids of one text, without special tokens."""
        ids, _ = self.encode_texts([text])
        return ids.tolist()

    def encode_texts(self, texts: Sequence[str]) -> Tuple[np.ndarray, np.ndarray]:
        """Token ids of many texts: (ids [T], offsets int64 [len(texts) + 1])."""
        array = pa.array(texts, pa.large_string())
        offsets = np.frombuffer(array.buffers()[1], np.int64)[:len(texts) + 1]
        data = array.buffers()[2]
        flat = np.frombuffer(data, np.uint8)[:offsets[-1]] if data is not None else np.zeros(0, np.uint8)
        return self.encode_bytes(flat, offsets)

    def encode_bytes(self, text: np.ndarray, boundaries: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """Tokenise segments of a block of valid UTF-8.

        Args:
            text: uint8 [n].
            boundaries: int64 [m + 1], rising from 0 to n; segment i is text[boundaries[i]:boundaries[i + 1]].
        Returns:
            (ids of dtype vocabulary.id_dtype() [T], offsets int64 [m + 1] of the segments' tokens).
        """
        if self._num_rows > self._max_cached_words or len(self._words.text) > _MAX_CACHED_BYTES:
            self._forget()
        boundaries = np.ascontiguousarray(boundaries, np.int64)
        try:
            rows, first_words = self._rows_of(text, boundaries)
        except BaseException:
            self._forget()  # words may have been added whose tokens were not: a Ctrl-C, no memory
            raise
        ids = np.empty(count_tokens(rows, self._lengths), self.vocabulary.id_dtype())
        offsets = np.empty(len(boundaries), np.int64)
        spell_out(rows, first_words, self._pieces, self._starts, self._lengths, ids, offsets)
        return ids, offsets

    def _rows_of(self, text: np.ndarray, boundaries: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
        """(the row of each word, int64 [m + 1] the first word of each segment); new words are tokenised and added."""
        rows, first_words = np.empty(len(text), np.int32), np.empty(len(boundaries), np.int64)
        known = self._num_rows
        place = segment = num_words = 0
        while True:
            self._num_rows, place, segment, num_words = look_up(text, boundaries, self._lower, self._classes,
                                                                self._words, self._num_rows, place, segment, num_words,
                                                                rows, first_words)
            if segment == len(boundaries) - 1:
                break
            self._make_room(len(text) - place)
        self._tokenize_rows(known)
        return rows[:num_words], first_words

    def _make_room(self, num_bytes: int) -> None:
        """For twice as many words, and for text of so many more bytes."""
        words, size = self._words, 2 * len(self._words.slots)
        offsets, keys = _extended(words.offsets, size), _extended(words.keys, size)
        used = int(offsets[self._num_rows])
        text = _extended(words.text, max(2 * used, used + num_bytes))
        self._words = Words(np.zeros(size, np.uint64), keys, text, offsets)
        enter_all(self._words, self._num_rows)

    def _tokenize_rows(self, first: int) -> None:
        """Fill in the tokens of all rows from `first` on."""
        words, num_rows = self._words, self._num_rows
        self._starts, self._lengths = (_extended(array, num_rows) for array in (self._starts, self._lengths))
        self._pieces = _extended(self._pieces, self._num_pieces + int(words.offsets[num_rows] - words.offsets[first]))
        self._num_pieces = word_pieces(words, first, num_rows, self._table, self.vocabulary.id_of("[UNK]"),
                                       self._pieces, self._num_pieces, self._starts, self._lengths)
        others = first + np.flatnonzero(self._lengths[first:num_rows] < 0)
        for start in range(0, len(others), _WORDS_AT_ONCE):
            self._tokenize_by_library(others[start:start + _WORDS_AT_ONCE])

    def _tokenize_by_library(self, rows: np.ndarray) -> None:
        """Fill in the tokens of some rows: as one text, whose tokens say where in it they come from."""
        found = [self._words.text[self._words.offsets[row]:self._words.offsets[row + 1]].tobytes().decode("utf-8")
                 for row in rows.tolist()]
        encoding = self._tokenizer.encode(" ".join(found), add_special_tokens=False)
        ends = np.cumsum([len(word) + 1 for word in found])
        places = np.array([start for start, _ in encoding.offsets], np.int64)
        bounds = np.append(0, np.searchsorted(places, ends))
        start = self._num_pieces
        self._num_pieces += len(encoding.ids)
        self._pieces = _extended(self._pieces, self._num_pieces)
        self._pieces[start:self._num_pieces] = encoding.ids
        self._starts[rows], self._lengths[rows] = start + bounds[:-1], np.diff(bounds)


def _extended(array: np.ndarray, size: int) -> np.ndarray:
    """The array with room for `size` elements at least, doubled if it has to grow."""
    if size <= len(array):
        return array
    return np.concatenate([array, np.zeros(max(size, 2 * len(array)) - len(array), array.dtype)])

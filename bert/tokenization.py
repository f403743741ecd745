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

from bert.samples import offsets_of, ragged_indices

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION_PREFIX = "##"
MAX_WORD_CHARACTERS = 100
_WHITE_SPACE = b" \t\n\r"
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


def _byte_classes() -> np.ndarray:
    """uint8 [256]: 0 white space, 1 part of a word, 2 ASCII punctuation (a word by itself)."""
    classes = np.ones(256, np.uint8)
    classes[list(_WHITE_SPACE)] = 0
    for first, last in ((33, 47), (58, 64), (91, 96), (123, 126)):
        classes[first:last + 1] = 2
    return classes


def _plain_bytes() -> bytes:
    """The bytes which the normaliser at most lower-cases: printable ASCII."""
    return bytes(range(33, 127))


class FastTokenizer:
    """Tokenises blocks of text to flat ids; remembers the words it has met.

    Args:
        vocabulary: WordPiece vocabulary.
        lowercase: lower-case and strip accents (uncased models).
        max_cached_words: the memory is emptied when it holds more distinct words than this.
    """

    def __init__(self, vocabulary: Vocabulary, lowercase: bool = True, max_cached_words: int = 1_000_000) -> None:
        self.vocabulary = vocabulary
        self.lowercase = lowercase
        self._tokenizer = reference_tokenizer(vocabulary, lowercase)
        self._model = self._tokenizer.model
        self._classes = _byte_classes()
        self._lower = np.arange(256, dtype=np.uint8)
        self._lower[65:91] += 32
        self._plain = _plain_bytes()
        self._max_cached_words = max_cached_words
        self._forget()

    def _forget(self) -> None:
        self._rows: Dict[bytes, int] = {}
        self._num_rows = 0
        self._lengths = np.zeros(1 << 12, np.int64)
        self._starts = np.zeros(1 << 12, np.int64)
        self._firsts = np.zeros(1 << 12, self.vocabulary.id_dtype())
        self._pieces = np.zeros(1 << 14, self.vocabulary.id_dtype())
        self._num_pieces = 0

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
        if len(text) == 0:
            return np.zeros(0, self.vocabulary.id_dtype()), np.zeros(len(boundaries), np.int64)
        words, first_word = self._split(text, boundaries)
        encoded = words.dictionary_encode()
        rows = self._rows_of(encoded.dictionary.to_pylist())[encoded.indices.to_numpy()]
        lengths = self._lengths[rows]
        token_offsets = offsets_of(lengths)
        # Most words are one piece: repeat each word's first piece, then put in the others where there are more.
        ids = np.repeat(self._firsts[rows], lengths)
        several = np.flatnonzero(lengths > 1)
        others = lengths[several] - 1
        ids[ragged_indices(token_offsets[several] + 1, others)] = self._pieces[
            ragged_indices(self._starts[rows[several]] + 1, others)]
        return ids, token_offsets[first_word]

    def _split(self, text: np.ndarray, boundaries: np.ndarray) -> Tuple[pa.Array, np.ndarray]:
        """The words, each with the white space that follows it, and the index of each segment's first word."""
        classes = self._classes[text]
        starts = np.empty(len(text), bool)
        starts[0] = True
        np.not_equal(classes[1:], classes[:-1], out=starts[1:])
        starts |= classes == 2
        starts &= classes != 0
        starts[boundaries[boundaries < len(text)]] = True
        positions = np.flatnonzero(starts)
        first_word = np.searchsorted(positions, boundaries)
        offsets = np.append(positions, len(text))
        data = self._lower[text] if self.lowercase else np.ascontiguousarray(text)
        words = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(positions),
                                                 [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        return words, first_word

    def _rows_of(self, words: List[bytes]) -> np.ndarray:
        """int64: the row of the piece table for each distinct word; unknown ones are tokenised and added."""
        if len(self._rows) > self._max_cached_words:
            self._forget()
        known = self._rows
        rows = [known.get(word, -1) for word in words]
        result = np.array(rows, np.int64)
        for index in np.flatnonzero(result < 0).tolist():
            word = words[index]
            bare = word.strip(_WHITE_SPACE)
            row = known.get(bare)
            if row is None:
                row = known[bare] = self._add_row(self._pieces_of(bare))
            known[word] = result[index] = row
        return result

    def _pieces_of(self, word: bytes) -> List[int]:
        if not word:
            return []
        if word.translate(None, self._plain):
            return self._tokenizer.encode(word.decode("utf-8"), add_special_tokens=False).ids
        return [piece.id for piece in self._model.tokenize(word.decode("ascii"))]

    def _add_row(self, pieces: List[int]) -> int:
        row, start, end = self._num_rows, self._num_pieces, self._num_pieces + len(pieces)
        if row == len(self._lengths):
            self._lengths, self._starts = _doubled(self._lengths), _doubled(self._starts)
            self._firsts = _doubled(self._firsts)
        while end > len(self._pieces):
            self._pieces = _doubled(self._pieces)
        self._lengths[row], self._starts[row] = len(pieces), start
        self._firsts[row] = pieces[0] if pieces else 0
        self._pieces[start:end] = pieces
        self._num_rows, self._num_pieces = row + 1, end
        return row


def _doubled(array: np.ndarray) -> np.ndarray:
    return np.concatenate([array, np.zeros_like(array)])

"""Tokenisers of any tokenizer.json, run by the `tokenizers` library: byte-level BPE, Unigram, other WordPieces.

A tokenizer.json with BERT's own rules is read as a plain `Vocabulary`, whose tokenizer is faster.
"""

import json
import re
import string
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from bert.arrays.ragged import offsets_of
from bert.tokenization.equal_letters import without_forms
from bert.tokenization.normalization import UNCASED, Normalization
from bert.tokenization.text_process import RARE, TextProcess
from bert.tokenization.vocabulary import Vocabulary
from bert.tokenization.wordpiece import TokenizedTexts, WordPieceTokenizer, chunks

# BERT's name of each special token -> the names by which a file may have it.
_SPECIAL_NAMES = {
    "[PAD]": ("[PAD]", "<pad>"),
    "[UNK]": ("[UNK]", "<unk>"),
    "[CLS]": ("[CLS]", "<s>"),
    "[SEP]": ("[SEP]", "</s>"),
    "[MASK]": ("[MASK]", "<mask>"),
}
_WORD_MARKS = ("\u0120", "\u2581")  # what byte-level BPE and SentencePiece write for the space before a word
_BYTE_LEVEL_SPACES = "\u0120\u010a\u0109\u010d"  # space, line feed, tab and carriage return of byte-level BPE
# Kana and Chinese characters, whose texts have no spaces between words; each begins a word, as in BERT's WordPieces.
_WITHOUT_SPACES = re.compile("[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_ROUNDING = 128  # published embeddings are rounded up to a multiple of at most this
_process = lru_cache(maxsize=2)(TextProcess)  # one for all who read the same file
_CONTROLS = re.compile(r"[\x00-\x20\x7f]")


@dataclass(frozen=True)
class LibraryVocabulary(Vocabulary):
    """Tokens of a tokenizer.json by id; white space and controls in them are written as \\u0020, for shards.

    `id_of` takes BERT's names of special tokens too, whatever their names in the file. Without a token for the unknown
    (byte-level BPE needs none) "[UNK]" is the mask.
    """

    content: bytes = b""

    @classmethod
    def read(cls, path: str | Path, content: bytes) -> "LibraryVocabulary":
        """Read a tokenizer.json; ValueError if the library cannot, or if a special token is missing."""
        ids = _process(content, str(path)).facts["ids"]
        tokens = sorted(ids, key=ids.__getitem__)
        for entry in json.loads(content).get("added_tokens") or ():
            if (library_id := ids.get(entry["content"], entry["id"])) != entry["id"]:
                raise ValueError(
                    f"{path}: it says that {entry['content']!r} has the id {entry['id']}, the library makes it "
                    f"{library_id}; use the tokenizer that the model was made with, or give its tokens ids without gaps"
                )
        if [ids[token] for token in tokens] != list(range(len(tokens))):
            raise ValueError(
                f"{path}: the ids of its {len(tokens)} tokens do not run from 0 without gaps, as rows of embeddings "
                "do; use the tokenizer that the model was made with"
            )
        tokens = [_CONTROLS.sub(lambda m: f"\\u{ord(m[0]):04x}", token) for token in tokens]
        return cls(tuple(tokens), str(path), content=content)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.pair_separators()  # a tokenizer that frames its texts otherwise is refused before anything slow
        if not self._facts["knows rare"]:
            raise ValueError(
                f"{self.source}: it has no token for unknown characters ({RARE}), so that a text with one has no "
                "tokens; name one in its model (unk_token, unk_id), or use another tokenizer"
            )

    def _special_ids(self, ids: dict[str, int]) -> dict[str, int]:
        id_of_role = {role: next((ids[n] for n in names if n in ids), None) for role, names in _SPECIAL_NAMES.items()}
        if missing := [role for role, index in id_of_role.items() if index is None and role != "[UNK]"]:
            names = ", ".join(" or ".join(_SPECIAL_NAMES[role]) for role in missing)
            raise ValueError(
                f"{self.source}: none of its {len(self)} tokens is {names}; BERT needs {' '.join(_SPECIAL_NAMES)}, "
                "also as <pad> <unk> <s> </s> <mask>: use the tokenizer that the model was made with"
            )
        id_of_role["[UNK]"] = id_of_role["[MASK]"] if id_of_role["[UNK]"] is None else id_of_role["[UNK]"]
        return {role: index for role, index in id_of_role.items() if index is not None}

    def process(self) -> TextProcess:
        """The process that runs the tokenizer's rules."""
        return _process(self.content, self.source)

    @property
    def _facts(self) -> dict[str, Any]:
        return self.process().facts

    def library_tokenizer(self) -> Tokenizer:
        """The tokenizer in this process, for writing its file; texts could crash it."""
        tokenizer = Tokenizer.from_buffer(self.content)
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    def is_wordpiece(self) -> bool:
        return False

    def file_name(self) -> str:
        return "tokenizer.json"

    def file_content(self) -> bytes:
        return self.content

    def check_model_size(self, vocab_size: int) -> None:
        least, most = len(self), -(-len(self) // _ROUNDING) * _ROUNDING
        if not least <= vocab_size <= most:
            raise ValueError(
                f"{self.source} has {least} tokens, but the model's vocab_size is {vocab_size}; it must be from "
                f"{least} to {most} (a multiple of {_ROUNDING}): use the tokenizer that belongs to the model, or set "
                "vocab_size"
            )

    def normalization(self, lowercase: bool | None = None, strip_accents: bool | None = None) -> Normalization:
        lower, strips = self._facts["lowercase"], self._facts["strips"]
        for requested, does, rule, words in (
            (lowercase, lower, "lower-casing", ("keeps capitals", "lower-cases")),
            (strip_accents, strips, "strip_accents", ("keeps accents", "strips accents")),
        ):
            if requested not in (None, does):
                raise ValueError(
                    f"{rule}={str(requested).lower()} contradicts {self.source}, which itself {words[does]}; omit "
                    "the flag"
                )
        return Normalization(lower, None if strips == lower else strips)

    @cached_property
    def _word_mark(self) -> str | None:
        words = self._facts["a b"]
        return next((mark for mark in _WORD_MARKS if any(token.startswith(mark) for token in words)), None)

    def check_extendable(self) -> None:
        raise ValueError(f"add_words: {self.source} is not a WordPiece, whose words stand alone; leave --add-words out")

    def knows_words(self) -> bool:
        return bool(self._facts["prefix"] or self._word_mark)

    def continuations(self) -> np.ndarray:
        return self._continues

    @cached_property
    def _continues(self) -> np.ndarray:
        """Whether each token continues a word; punctuation and Chinese characters are words."""
        if self._facts["prefix"]:
            return np.array([token.startswith(self._facts["prefix"]) for token in self.tokens], bool)
        continues = np.zeros(len(self), bool)
        if self._word_mark:
            starts = (self._word_mark, "\\u", *_BYTE_LEVEL_SPACES)
            inner = [i for i in self.replacement_ids().tolist() if not self.tokens[i].startswith(starts)]
            for index, text in zip(inner, self.process().decode(inner), strict=True):
                text = text or self.tokens[index]
                is_mark = all(letter in string.punctuation or unicodedata.category(letter)[0] == "P" for letter in text)
                continues[index] = not _WITHOUT_SPACES.match(text) and not is_mark
        return continues

    def replacement_ids(self) -> np.ndarray:
        special = {*self._facts["special"], *(self.id_of(role) for role in _SPECIAL_NAMES)}
        words = [i for i, token in enumerate(self.tokens) if i not in special and not token.startswith("[unused")]
        return np.array(words, np.int64)

    def shown(self, index: int) -> str:
        text = self.process().decode([int(index)])[0].strip().removeprefix(self._facts["prefix"])
        text = text or _WORD_MARKS[1]  # a space alone
        return f" {text}" if self.knows_words() and not self._continues[index] else text

    def insert(self, before: str, shown: str) -> str:
        joins = self.knows_words() and not shown.startswith(" ")
        return before.rstrip() + shown if joins else before + shown.lstrip()

    def pair_separators(self) -> int:
        cls_id, sep_id = self.id_of("[CLS]"), self.id_of("[SEP]")
        ids = self._facts["pair"]
        if not self._facts["frames"]:
            return 1
        number = ids.count(sep_id) - 1
        if ids[0] != cls_id or ids[-1] != sep_id or ids.count(cls_id) != 1 or number not in (1, 2):
            raise ValueError(
                f"{self.source}: it frames a pair of texts as {' '.join(self.tokens[i] for i in ids)} (a, b), must as "
                "[CLS] a [SEP] b [SEP] or with a second [SEP] between them; no other model is built here"
            )
        return number

    def second_type(self) -> int:
        return self._facts["pair types"][-1] if self._facts["frames"] else 1


class LibraryTokenizer:
    """Tokenizer for a `LibraryVocabulary`, with the methods of `WordPieceTokenizer`."""

    def __init__(self, vocabulary: LibraryVocabulary) -> None:
        self.vocabulary = vocabulary
        self._process = vocabulary.process()
        self._folds_forms = self._process.facts["equal letters"]
        # The model of a Unigram takes special tokens in a text for tokens, whatever the tokenizer is told.
        self._of_text = np.arange(len(vocabulary)).astype(vocabulary.id_dtype())
        self._of_text[[vocabulary.id_of(role) for role in _SPECIAL_NAMES]] = vocabulary.id_of("[UNK]")

    def encode(self, text: str) -> list[int]:
        """Token ids of one text, without special tokens."""
        return self.encode_texts([text])[0].tolist()

    def encode_masked(self, text: str) -> list[int]:
        """Token ids of a text in which [MASK] stands for words; other special tokens are kept too."""
        (text,) = self._without_forms([text])
        masked = text.replace("[MASK]", self.vocabulary.name_of("[MASK]"))
        return self._process.encode([masked], special=True)[0]

    def encode_texts(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Token ids of many texts: (ids [T], offsets int64 [len(texts) + 1])."""
        parts, lengths = [np.zeros(0, self.vocabulary.id_dtype())], list[int]()
        for chunk in chunks(texts):
            rows = self._process.encode(self._without_forms(chunk))
            parts.append(self._of_text[np.array([*chain.from_iterable(rows)], np.int64)])
            lengths += map(len, rows)
        return np.concatenate(parts), offsets_of(lengths)

    def encode_words(self, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """As `encode_texts`, for words between spaces of a text."""
        return self.encode_texts([f" {word}" for word in words])

    def encode_bytes(self, text: np.ndarray, boundaries: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `WordPieceTokenizer.encode_bytes`; white space ending a segment moves to the next segment."""
        segments = [text[start:stop].tobytes().decode() for start, stop in pairwise(boundaries.tolist())]
        before = ["", *segments[:-1]]
        spaced = [
            " " * (last[-1:].isspace() and not segment[:1].isspace()) + segment.rstrip()
            for last, segment in zip(before, segments, strict=False)
        ]
        return self.encode_texts(spaced)

    def encode_with_offsets(self, texts: Sequence[str]) -> TokenizedTexts:
        """Tokens of each text with their characters, excluding white space at a token's start."""
        columns = [np.zeros((0, 3), np.int64)]
        for written in chunks(texts):
            chunk = self._without_forms(written)
            columns += map(_spans, chunk, self._process.encode(chunk, offsets=True))
        lengths = [len(column) for column in columns[1:]]
        ids, starts, ends = np.concatenate(columns).T
        spans = starts.astype(np.int32), ends.astype(np.int32)
        tokenized = TokenizedTexts(self._of_text[ids], *spans, offsets_of(lengths))
        return tokenized.in_written(texts) if self._folds_forms else tokenized

    def _without_forms(self, texts: Sequence[str]) -> list[str]:
        return [*map(without_forms, texts)] if self._folds_forms else list(texts)


def _spans(text: str, row: tuple[list[int], list[tuple[int, int]]]) -> np.ndarray:
    """Id, first character that is not white space, and end (exclusive) of each token: int64 [tokens, 3]."""
    rows = []
    for index, (start, end) in zip(*row, strict=True):
        while start < end - 1 and text[start].isspace():
            start += 1
        rows.append((index, start, end))
    return np.array(rows, np.int64).reshape(-1, 3)


TextTokenizer = WordPieceTokenizer | LibraryTokenizer


def text_tokenizer(vocabulary: Vocabulary, normalization: Normalization = UNCASED) -> TextTokenizer:
    """The tokenizer of a vocabulary; a tokenizer.json's own rules decide case, accents and words."""
    if isinstance(vocabulary, LibraryVocabulary):
        return LibraryTokenizer(vocabulary)
    return WordPieceTokenizer(vocabulary, normalization)

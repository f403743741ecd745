"""BERT's vocabulary file: one token per line, checked when it is read; or a tokenizer.json of Hugging Face's."""

import hashlib
import json
import os
import re
import stat
from codecs import BOM_UTF8
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert.files import unset_variable

if TYPE_CHECKING:  # the settings load pydantic, which the commands of data/ do not need
    from bert.config.architecture import BertConfig


def check_vocabulary_file(vocab_file: Path, model: "BertConfig") -> None:
    """Refuse a vocabulary that is missing or does not fit the model."""
    if not vocab_file.is_file():
        raise ValueError(
            f"vocab_file={vocab_file} must be an existing vocabulary; pass --vocab-file{unset_variable(vocab_file)}"
        )
    pad, place = model.pad_token_id, "[PAD] in line {}"
    if _is_json(vocab_file):
        vocabulary = Vocabulary.from_tokenizer_json(vocab_file)
        size, is_pad = len(vocabulary), vocabulary.id_of("[PAD]") == pad
        if not vocabulary.is_wordpiece():
            place = f"{vocabulary.name_of('[PAD]')} as its token {{}}, counted from 1"
    else:  # the rest of it is checked when it is read
        lines = _bytes_of(vocab_file).splitlines()
        size, is_pad = len(lines), lines[pad : pad + 1] == [b"[PAD]"]
    if not is_pad:
        raise ValueError(
            f"vocab_file={vocab_file} must have {place.format(pad + 1)}, as pad_token_id={pad} says; "
            "pass --pad-token-id, or the vocabulary of this model"
        )
    most = model.padded_vocab_size()
    if size > most:
        raise ValueError(
            f"vocab_file={vocab_file} has {size} tokens and must have at most {most}, that is "
            f"vocab_size={model.vocab_size} rounded up to a multiple of 8; pass the vocabulary of "
            "this model, or --vocab-size"
        )


SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION_PREFIX = "##"
VOCABULARY_FILES = ("vocab.txt", "tokenizer.json")  # beside a model's weights, the first that is there
_LARGEST_TOKENIZER = 256 << 20  # bytes
_WHITE_SPACE = re.compile(r"[ \t\n\r]")


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a vocab.txt, checked when it is made; a token's id is its line number minus one.

    `bert.tokenization.library` has the one of any other tokenizer.
    """

    tokens: tuple[str, ...]
    source: str = "vocabulary"

    def __post_init__(self) -> None:
        first_line: dict[str, int] = {}
        for line, token in enumerate(self.tokens, start=1):
            if not token or _WHITE_SPACE.search(token):
                _check_token(token, line, self.source)
            if first_line.setdefault(token, line) != line:
                raise ValueError(
                    f"{self.source}:{line}: {token[:80]!r} is on line {first_line[token]} already; "
                    "a token has one id: remove one of the two lines"
                )
        ids = {token: line - 1 for token, line in first_line.items()}
        object.__setattr__(self, "_ids", ids | self._special_ids(ids))

    def _special_ids(self, ids: dict[str, int]) -> dict[str, int]:
        """The ids of SPECIAL_TOKENS; ValueError if one is missing."""
        missing = [token for token in SPECIAL_TOKENS if token not in ids]
        if missing:
            raise ValueError(
                f"{self.source}: none of its {len(self.tokens)} lines (1 to {len(self.tokens)}) is "
                f"{' or '.join(missing)}; BERT needs {' '.join(SPECIAL_TOKENS)}: "
                "use the vocabulary that the model was made with"
            )
        return {token: ids[token] for token in SPECIAL_TOKENS}

    @classmethod
    def from_file(cls, path: str | Path) -> "Vocabulary":
        """Read vocab.txt: UTF-8, one token per line; or a tokenizer.json (any name that ends in .json)."""
        if _is_json(path):
            return cls.from_tokenizer_json(path)
        content = _bytes_of(path)
        if content.startswith(BOM_UTF8):
            raise ValueError(f"{path}:1: begins with a byte order mark, part of the first token; save it without")
        try:
            tokens = content.decode("utf-8").split("\n")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raw = content.split(b"\n")[line - 1]
            raise ValueError(
                f"{path}:{line}: {raw[:80]!r} is not UTF-8 ({error.reason}); save the file as UTF-8"
            ) from error
        return cls(tuple(tokens if tokens[-1] else tokens[:-1]), str(path))

    @classmethod
    def from_tokenizer_json(cls, path: str | Path) -> "Vocabulary":
        """Read a tokenizer.json, which Hugging Face's tokenizers save: as a vocab.txt if its rules are BERT's."""
        if (size := os.stat(path).st_size) > _LARGEST_TOKENIZER:
            raise ValueError(f"{path} has {size >> 20} MB, too many for a tokenizer; pass a vocab.txt")
        content = _bytes_of(path)
        try:
            by_token = _tokens_of_bert(json.loads(content))
            tokens = sorted(by_token or (), key=(by_token or {}).__getitem__)
            "".join(tokens).encode()  # half of a surrogate pair is no text
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(
                f"{path} is not a tokenizer.json that can be read ({type(error).__name__}: {str(error)[:200]}); save "
                "it again with Hugging Face's tokenizers, or pass a vocab.txt"
            ) from None
        if by_token is None:
            from bert.tokenization.library import LibraryVocabulary  # which is one of these

            return LibraryVocabulary.read(path, content)
        if [by_token[token] for token in tokens] != list(range(len(tokens))):
            raise ValueError(f"{path}: the ids of its tokens do not run from 0 without gaps; pass a vocab.txt")
        return cls(tuple(tokens), str(path))

    def __len__(self) -> int:
        return len(self.tokens)

    def __contains__(self, token: str) -> bool:
        return token in self._ids  # type: ignore[attr-defined]

    def id_of(self, token: str) -> int:
        """The id of a token; KeyError if it has none."""
        return self._ids[token]  # type: ignore[attr-defined]

    def name_of(self, special: str) -> str:
        """The name here of one of SPECIAL_TOKENS."""
        return self.tokens[self.id_of(special)]

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.file_content()).hexdigest()

    def file_name(self) -> str:
        """The name under which checkpoints and exports keep it."""
        return "vocab.txt"

    def file_content(self) -> bytes:
        """The content of a vocab.txt with these tokens."""
        return "".join(token + "\n" for token in self.tokens).encode()

    def id_dtype(self) -> np.dtype:
        """The smallest dtype, uint16 or int32, that holds every id."""
        return np.dtype(np.uint16 if len(self) <= 1 << 16 else np.int32)

    def check_model_size(self, vocab_size: int) -> None:
        """Refuse a model whose vocab_size is neither the number of tokens nor that rounded up to a multiple of 8."""
        rounded = -(-len(self) // 8) * 8
        if vocab_size not in (len(self), rounded):
            raise ValueError(
                f"{self.source}:{len(self)}: the last line gives {len(self)} tokens, but the model's "
                f"vocab_size is {vocab_size}; it must be {len(self)} or {rounded} (a multiple of 8): "
                "use the vocabulary that belongs to the model, or set vocab_size"
            )

    def is_lowercase(self, stated: bool | None = None) -> bool:
        """Whether text is lower-cased: as stated, else inferred from the words.

        Raises:
            ValueError: a tokenizer.json lower-cases by itself, and not as stated.
        """
        return not is_cased(self.tokens) if stated is None else stated

    def is_wordpiece(self) -> bool:
        """Whether it is BERT's, so that a vocab.txt says all of it."""
        return True

    def check_extendable(self) -> None:
        """ValueError unless words can be added at the end."""

    def knows_words(self) -> bool:
        """Whether tokens tell where words begin."""
        return True

    def continuations(self) -> np.ndarray:
        """bool [size]: tokens that continue the word of the one before."""
        return np.array([token.startswith(CONTINUATION_PREFIX) for token in self.tokens], bool)

    def shown(self, index: int) -> str:
        """A token for readers: a word, or with a mark in front the end of one."""
        return self.tokens[index]

    def insert(self, before: str, shown: str) -> str:
        """A text with a token, as `shown`, after it."""
        continues = shown.startswith(CONTINUATION_PREFIX)
        return (before.rstrip() if continues else before) + shown.removeprefix(CONTINUATION_PREFIX).lstrip()

    def pair_separators(self) -> int:
        """[SEP] between the two texts of a pair."""
        return 1

    def second_type(self) -> int:
        """The token type of the second text of a pair."""
        return 1

    def replacement_ids(self) -> np.ndarray:
        """int64: ids that may replace a masked token, i.e. all but special and [unused...] tokens."""
        words = [token for token in self.tokens if token not in SPECIAL_TOKENS and not token.startswith("[unused")]
        if not words:
            raise ValueError(
                f"{self.source}: its {len(self)} lines are all special or [unused] tokens; "
                "words are needed: train a vocabulary with data.train_vocabulary"
            )
        return np.array([self.id_of(word) for word in words], np.int64)


def vocabulary_copy(path: str | Path) -> tuple[str, bytes]:
    """(name, content) for a copy of a vocabulary; a tokenizer.json with BERT's rules becomes a vocab.txt."""
    if not _is_json(path):
        return "vocab.txt", _bytes_of(path)
    vocabulary = Vocabulary.from_tokenizer_json(path)
    return vocabulary.file_name(), vocabulary.file_content()


def vocabulary_beside(folder: Path) -> Path | None:
    """The vocab.txt of a folder, otherwise its tokenizer.json; None without either."""
    return next((folder / name for name in VOCABULARY_FILES if (folder / name).is_file()), None)


def _tokens_of_bert(spec: dict[str, Any]) -> dict[str, int] | None:
    """Token -> id of a tokenizer.json whose rules are those of `WordPieceTokenizer`; None for any other tokenizer, and
    for one whose case is not that of its words, which a vocab.txt could not tell."""
    model, added = spec["model"], spec.get("added_tokens", [])
    normalizer, splitter = spec.get("normalizer", {}), spec.get("pre_tokenizer", {})
    if model.get("type", "WordPiece") != "WordPiece" or normalizer is None or splitter is None:
        return None
    lowercase = normalizer.get("lowercase", True)
    rules = (
        (model, "continuing_subword_prefix", (CONTINUATION_PREFIX,)),
        (model, "unk_token", ("[UNK]",)),
        (model, "max_input_chars_per_word", (100,)),
        (normalizer, "type", ("BertNormalizer",)),
        (normalizer, "clean_text", (True,)),
        (normalizer, "handle_chinese_chars", (True,)),
        (normalizer, "strip_accents", (None, lowercase)),
        (splitter, "type", ("BertPreTokenizer",)),
    )
    is_bert = all(values.get(key, allowed[0]) in allowed for values, key, allowed in rules)
    vocabulary = model["vocab"]
    is_bert = is_bert and all(token["content"] in SPECIAL_TOKENS and token["content"] in vocabulary for token in added)
    return vocabulary if is_bert and normalizer.get("lowercase") in (None, not is_cased(vocabulary)) else None


def _bytes_of(path: str | Path) -> bytes:
    if stat.S_IFMT(os.stat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        raise ValueError(f"{path} must be an ordinary file, not a pipe or device; name the vocabulary itself")
    return Path(path).read_bytes()


def _is_json(path: str | Path) -> bool:
    return Path(path).suffix.lower() == ".json"


def _check_token(token: str, line: int, source: str) -> None:
    """Raise the error of a token that is empty or has white space."""
    rule = f"{token[:80]!r} contains white space; WordPiece tokens have none: one token per line, without counts"
    if not token:
        rule = "blank line; every line is a token, and a blank one shifts all ids after it: remove it"
    elif token.endswith("\r"):
        rule = f"{token[:80]!r} ends in CR LF; lines must end in LF alone: convert the file, e.g. with dos2unix"
    raise ValueError(f"{source}:{line}: {rule}")


def is_cased(tokens: Iterable[str]) -> bool:
    """Whether a vocabulary is of text that was not lower-cased, as far as its words tell.

    Some word has an ASCII capital; or lower-casing, which also strips accents and takes Korean syllables apart, would
    change one word in a thousand: then they would never be found.
    """
    from tokenizers.normalizers import BertNormalizer

    words = [token for token in tokens if token not in SPECIAL_TOKENS and not token.startswith("[")]
    if any("A" <= letter <= "Z" for token in words for letter in token):
        return True
    lower = BertNormalizer(lowercase=True, clean_text=False, handle_chinese_chars=False)
    never_found = sum(lower.normalize_str(token) != token for token in words if not token.isascii())
    return never_found > len(words) / 1000

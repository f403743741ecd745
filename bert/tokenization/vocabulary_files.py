"""Reads vocabulary files: a vocab.txt, one token per line, or a tokenizer.json of Hugging Face's."""

import json
import os
import stat
from codecs import BOM_UTF8
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert.files import unset_variable
from bert.tokenization.normalization import UNCASED, Normalization
from bert.tokenization.vocabulary import CONTINUATION_PREFIX, SPECIAL_TOKENS, Vocabulary

if TYPE_CHECKING:  # the settings load pydantic, which the commands of data/ do not need
    from bert.config.architecture import BertConfig

VOCABULARY_FILES = ("vocab.txt", "tokenizer.json")  # beside a model's weights, the first that is there
_LARGEST_TOKENIZER = 256 << 20  # bytes


def read_vocabulary(path: str | Path) -> Vocabulary:
    """Read a vocab.txt (UTF-8, one token per line) or a tokenizer.json (any name that ends in .json)."""
    if _is_json(path):
        return _read_tokenizer_json(path)
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
    return Vocabulary(tuple(tokens if tokens[-1] else tokens[:-1]), str(path))


def _read_tokenizer_json(path: str | Path) -> Vocabulary:
    """Read a Hugging Face tokenizer.json, as a plain vocabulary if its rules are BERT's."""
    if (size := os.stat(path).st_size) > _LARGEST_TOKENIZER:
        raise ValueError(f"{path} has {size >> 20} MB, too many for a tokenizer; pass a vocab.txt")
    content = _bytes_of(path)
    try:
        spec = json.loads(content)
        by_token = _tokens_of_bert(spec)
        tokens = sorted(by_token or (), key=(by_token or {}).__getitem__)
        "".join(tokens).encode()  # half of a surrogate pair is no text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{path} is not a tokenizer.json that can be read ({type(error).__name__}: {str(error)[:200]}); save "
            "it again with Hugging Face's tokenizers, or pass a vocab.txt"
        ) from None
    from bert.tokenization.library import LibraryVocabulary  # loads the library

    if by_token is None:
        return LibraryVocabulary.read(path, content)
    if [by_token[token] for token in tokens] != list(range(len(tokens))):
        raise ValueError(f"{path}: the ids of its tokens do not run from 0 without gaps; pass a vocab.txt")
    vocabulary = Vocabulary(tuple(tokens), str(path))
    case = spec.get("normalizer", {}).get("lowercase")
    if case not in (None, vocabulary.normalization() == UNCASED):
        return LibraryVocabulary.read(path, content)
    return vocabulary if case is None else replace(vocabulary, stated=Normalization(case))


def check_vocabulary_file(vocab_file: Path, model: "BertConfig") -> None:
    """Refuse a vocabulary that is missing or does not fit the model."""
    if not vocab_file.is_file():
        raise ValueError(
            f"vocab_file={vocab_file} must be an existing vocabulary; pass --vocab-file{unset_variable(vocab_file)}"
        )
    pad, place = model.pad_token_id, "[PAD] in line {}"
    if _is_json(vocab_file):
        vocabulary = _read_tokenizer_json(vocab_file)
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


def vocabulary_copy(path: str | Path) -> tuple[str, bytes]:
    """(name, content) of a copy of a vocabulary; a tokenizer.json with BERT's rules becomes a vocab.txt."""
    if not _is_json(path):
        return "vocab.txt", _bytes_of(path)
    vocabulary = _read_tokenizer_json(path)
    return vocabulary.file_name(), vocabulary.file_content()


def vocabulary_beside(folder: Path) -> Path | None:
    """The vocab.txt in a folder, otherwise its tokenizer.json; None without either."""
    return next((folder / name for name in VOCABULARY_FILES if (folder / name).is_file()), None)


def _tokens_of_bert(spec: dict[str, Any]) -> dict[str, int] | None:
    """Ids by token of a tokenizer.json with the rules of `WordPieceTokenizer`; otherwise None."""
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
    return vocabulary if is_bert else None


def _bytes_of(path: str | Path) -> bytes:
    if stat.S_IFMT(os.stat(path).st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
        raise ValueError(f"{path} must be an ordinary file, not a pipe or device; name the vocabulary itself")
    return Path(path).read_bytes()


def _is_json(path: str | Path) -> bool:
    return Path(path).suffix.lower() == ".json"

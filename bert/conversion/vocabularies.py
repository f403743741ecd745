"""vocab.txt and the tokenizer's settings, from what lies beside the weights, for what others expect beside theirs."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers.decoders import WordPiece
from tokenizers.processors import BertProcessing

from bert.conversion.raw import ConversionError, regular_file
from bert.tokenization.fast_tokenizer import reference_tokenizer
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

READER_FILE = "question_answering.json"  # what our fine-tuning for questions leaves beside the weights
_LARGEST = 256 << 20


@dataclass(frozen=True)
class Tokens:
    """A model's vocabulary and whether its text is lower-cased."""

    vocabulary: Vocabulary
    lowercase: bool


def find_tokens(folder: Path, vocab_file: Path | None, lowercase: bool | None, notes: list[str]) -> Tokens | None:
    """The vocabulary named, or beside the weights as vocab.txt or within tokenizer.json; None without any.

    `lowercase` None: as tokenizer_config.json says, else lower-cased unless some word of the vocabulary has capitals.

    Raises:
        ConversionError, ValueError: a vocabulary that is none, with the line.
    """
    if vocab_file is not None:
        vocabulary = Vocabulary.from_file(vocab_file)
    elif (folder / "tokenizer.json").is_file():
        vocabulary = _from_tokenizer_json(folder / "tokenizer.json")
        notes.append("vocab.txt is made from tokenizer.json")
    else:
        notes.append(
            f"no vocabulary: {folder} has no vocab.txt, and none was named (--vocab-file); the result has none"
        )
        return None
    if lowercase is None:
        lowercase = _said_lowercase(folder)
    if lowercase is None:
        words = (token for token in vocabulary.tokens if token not in SPECIAL_TOKENS and not token.startswith("["))
        lowercase = not any("A" <= letter <= "Z" for token in words for letter in token)
        kind = "has no" if lowercase else "has"
        notes.append(
            f"do_lower_case={str(lowercase).lower()}: nothing says it, but the vocabulary {kind} capitals; "
            "--do-lower-case and --no-do-lower-case say otherwise"
        )
    return Tokens(vocabulary, lowercase)


def _read_json(path: Path) -> Any:
    if regular_file(path) > _LARGEST:
        raise ConversionError(f"{path} is larger than any vocabulary of a BERT; check the file")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ConversionError(f"{path} must be JSON ({type(error).__name__}: {str(error)[:100]})") from None


def read_reader_settings(folder: Path) -> dict[str, str]:
    """The settings of a reader of paragraphs as a file to write again: name -> text; nothing where there are none."""
    path = folder / READER_FILE
    return {READER_FILE: json.dumps(_read_json(path), indent=1) + "\n"} if path.is_file() else {}


def _from_tokenizer_json(path: Path) -> Vocabulary:
    try:
        by_token = _read_json(path)["model"]["vocab"]
        tokens = sorted(by_token, key=by_token.__getitem__)
        if [by_token[token] for token in tokens] != list(range(len(tokens))):
            raise ConversionError(f"{path}: the ids of its tokens do not run from 0 without gaps; bring a vocab.txt")
    except (KeyError, TypeError, AttributeError) as error:
        raise ConversionError(f"{path} is no WordPiece tokenizer ({type(error).__name__}); bring a vocab.txt") from None
    return Vocabulary(tuple(tokens), str(path))


def _said_lowercase(folder: Path) -> bool | None:
    """do_lower_case of tokenizer_config.json, or of the run that left the checkpoint; None when nothing says it."""
    settings = []
    if (folder / "tokenizer_config.json").is_file():
        settings.append(_read_json(folder / "tokenizer_config.json"))
    for path in sorted(folder.glob("*_progress.json"))[:1]:
        progress = _read_json(path)
        for section in ("settings", "data"):
            progress = progress.get(section) if isinstance(progress, dict) else None
        settings.append(progress)
    if (folder / READER_FILE).is_file():
        reader = _read_json(folder / READER_FILE)
        windows = reader.get("windows") if isinstance(reader, dict) else None
        settings.append({"do_lower_case": windows.get("lowercase")} if isinstance(windows, dict) else {})
    said = [values.get("do_lower_case") for values in settings if isinstance(values, dict)]
    return next((value for value in said if isinstance(value, bool)), None)


def check_ids(tokens: Tokens, vocab_size: int, notes: list[str]) -> None:
    """Every id of the vocabulary must have its row in the embeddings; fewer tokens than rows are noted."""
    count = len(tokens.vocabulary)
    if count > vocab_size:
        raise ConversionError(
            f"{tokens.vocabulary.source} has {count} tokens, the model {vocab_size}; it is not the "
            "vocabulary that the model was trained with"
        )
    if count < vocab_size:
        notes.append(f"the model has {vocab_size} rows for {count} tokens")


def write_vocabulary(folder: Path, tokens: Tokens) -> None:
    source = Path(tokens.vocabulary.source)
    if source.name == "vocab.txt" and source.is_file():
        shutil.copyfile(source, folder / "vocab.txt")
    else:
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens.vocabulary.tokens), encoding="utf-8")


def write_tokenizer(folder: Path, tokens: Tokens, max_length: int) -> None:
    """vocab.txt, tokenizer.json, tokenizer_config.json and special_tokens_map.json, as AutoTokenizer wants them."""
    write_vocabulary(folder, tokens)
    vocabulary = tokens.vocabulary
    tokenizer = reference_tokenizer(vocabulary, tokens.lowercase)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    sep, cls = (("[SEP]", vocabulary.id_of("[SEP]")), ("[CLS]", vocabulary.id_of("[CLS]")))
    tokenizer.post_processor = BertProcessing(sep, cls)
    tokenizer.decoder = WordPiece(prefix="##")
    tokenizer.save(str(folder / "tokenizer.json"))
    special = {f"{token[1:-1].lower()}_token": token for token in SPECIAL_TOKENS}
    settings = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": tokens.lowercase,
        "strip_accents": None,
        "tokenize_chinese_chars": True,
        "model_max_length": max_length,
        **special,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n")
    (folder / "special_tokens_map.json").write_text(json.dumps(special, indent=2) + "\n")

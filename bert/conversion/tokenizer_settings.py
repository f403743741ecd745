"""Reads the tokenizer settings beside a model's weights: tokenizer_config.json and tokenizer.json.

do_lower_case and strip_accents are Hugging Face's names; word_segmenter and equal_letters are ours.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

from bert.conversion.untrusted_files import ConversionError, read_json_value
from bert.conversion.usage import TOKENIZER_FILE

_TOKENIZER_JSON = "tokenizer.json"


def stated_normalization(folder: Path) -> dict[str, Any]:
    """Fields of `Normalization` that the tokenizer files state; strip_accents is also read from tokenizer.json."""
    stated: dict[str, Any] = {}
    lowercase = read_json_value(folder / TOKENIZER_FILE, "do_lower_case")
    if isinstance(lowercase, bool):
        stated["lowercase"] = lowercase
    strip_accents = read_json_value(folder / TOKENIZER_FILE, "strip_accents")
    if not isinstance(strip_accents, bool):
        strip_accents = _normalizer_setting(folder, "strip_accents")
    if isinstance(strip_accents, bool):
        stated["strip_accents"] = strip_accents
    equal_letters = read_json_value(folder / TOKENIZER_FILE, "equal_letters")
    if isinstance(equal_letters, bool):
        stated["equal_letters"] = equal_letters
    word_segmenter = read_json_value(folder / TOKENIZER_FILE, "word_segmenter")
    if isinstance(word_segmenter, str):
        stated["word_segmenter"] = word_segmenter
    return stated


def tokenizer_warnings(folder: Path) -> list[str]:
    """A warning if the Hugging Face tokenizer does not split Chinese characters, as BERT's code does."""
    if not (folder / "vocab.txt").is_file():
        return []  # the rules are followed that the tokenizer.json states
    splits_chinese = read_json_value(folder / TOKENIZER_FILE, "tokenize_chinese_chars")
    if splits_chinese is None:
        splits_chinese = _normalizer_setting(folder, "handle_chinese_chars")
    if splits_chinese is not False:
        return []
    return [
        f"tokenize_chinese_chars=false of the tokenizer in {folder} is not followed and not kept: Chinese characters "
        "are always split here, so they get other tokens than in the training of the model; pass its tokenizer.json as "
        "--vocab-file, whose rules are followed"
    ]


def _normalizer_setting(folder: Path, name: str) -> Any:
    """A setting of the normalizer in a tokenizer.json beside a vocab.txt; None if it is not stated.

    A damaged file is ignored, as only its vocabulary may be needed, and not even that.
    """
    if not (folder / "vocab.txt").is_file():
        return None
    with suppress(ConversionError):
        return read_json_value(folder / _TOKENIZER_JSON, "normalizer", name)
    return None

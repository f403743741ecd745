"""Reads and writes vocabularies and tokenizer settings of all libraries, and initialises weights of added tokens."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers.decoders import WordPiece
from tokenizers.processors import BertProcessing, Sequence

from bert.config.architecture import BertConfig
from bert.conversion.reading import PretrainedWeights
from bert.conversion.tensor_names import WORD_EMBEDDINGS
from bert.conversion.tokenizer_settings import stated_normalization, tokenizer_warnings
from bert.conversion.untrusted_files import ConversionError, write_json
from bert.conversion.vocabulary_padding import pad_vocabulary
from bert.model.head_specs import DECODER_BIAS
from bert.tokenization.library import LibraryVocabulary
from bert.tokenization.normalization import Normalization
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from bert.tokenization.vocabulary_files import read_vocabulary, vocabulary_beside
from bert.tokenization.wordpiece import reference_tokenizer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tokens:
    """A model's vocabulary, and how text is normalised before it."""

    vocabulary: Vocabulary
    normalization: Normalization


def find_tokens(
    folder: Path,
    vocab_file: Path | None,
    notes: list[str],
    *,
    lowercase: bool | None = None,
    strip_accents: bool | None = None,
) -> Tokens | None:
    """The vocabulary in `vocab_file`, else beside the weights, and its normalisation; None without a vocabulary."""
    file = vocab_file or vocabulary_beside(folder)
    if file is None:
        notes.append(
            f"no vocabulary: {folder} has no vocab.txt or tokenizer.json, and none was named (--vocab-file); the "
            "result has none"
        )
        return None
    vocabulary = read_vocabulary(file)
    if isinstance(vocabulary, LibraryVocabulary):
        return Tokens(vocabulary, vocabulary.normalization(lowercase, strip_accents))
    if file.name == "tokenizer.json":
        notes.append("vocab.txt is made from tokenizer.json")
    stated = stated_normalization(folder)
    lower_case = stated.get("lowercase") if lowercase is None else lowercase
    accents = stated.get("strip_accents") if strip_accents is None else strip_accents
    normalization = Normalization(bool(lower_case), accents)
    if lowercase is not None or lower_case is None:
        normalization = vocabulary.normalization(lower_case, accents)
    others = {name: stated[name] for name in ("word_segmenter", "equal_letters") if name in stated}
    normalization = replace(normalization, **others)
    if lower_case is None:
        lower = str(normalization.lowercase).lower()
        notes.append(
            f"do_lower_case={lower}: inferred, because the vocabulary looks {normalization}; "
            "override it with --lowercase or --no-lowercase, and --strip-accents or --no-strip-accents"
        )
    for warning in tokenizer_warnings(folder):
        logger.warning(warning)
        notes.append(f"warning: {warning}")
    return Tokens(vocabulary, normalization)


def check_ids(tokens: Tokens, config: BertConfig, notes: list[str]) -> None:
    """Refuse a vocabulary that does not fit the embeddings, or a RoBERTa's padding id; note one with fewer tokens."""
    count, vocab_size, pad = len(tokens.vocabulary), config.vocab_size, tokens.vocabulary.id_of("[PAD]")
    if config.unused_positions() and pad != config.pad_token_id:
        raise ConversionError(
            f"{tokens.vocabulary.source} has the padding {pad}, the model pad_token_id={config.pad_token_id}; it is "
            "not the vocabulary that the model was trained with"
        )
    if count > vocab_size:
        raise ConversionError(
            f"{tokens.vocabulary.source} has {count} tokens, the model {vocab_size}; it is not the "
            "vocabulary that the model was trained with"
        )
    if count < vocab_size:
        notes.append(f"the model has {vocab_size} rows for {count} tokens")


def write_vocabulary(folder: Path, tokens: Tokens) -> None:
    (folder / tokens.vocabulary.file_name()).write_bytes(tokens.vocabulary.file_content())


def write_tokenizer(folder: Path, tokens: Tokens, max_length: int, *, token_types: bool = True) -> None:
    """Write the vocabulary, tokenizer.json, tokenizer_config.json and special_tokens_map.json for AutoTokenizer.

    Without `token_types` it makes none, as a ModernBERT or a RoBERTa takes none.
    """
    write_vocabulary(folder, tokens)
    vocabulary = tokens.vocabulary
    frame = [(vocabulary.name_of(token), vocabulary.id_of(token)) for token in ("[SEP]", "[CLS]")]
    special = {f"{token[1:-1].lower()}_token": vocabulary.name_of(token) for token in SPECIAL_TOKENS}
    settings: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": max_length, **special}
    if isinstance(vocabulary, LibraryVocabulary):
        tokenizer = vocabulary.library_tokenizer()
    else:
        tokenizer = reference_tokenizer(vocabulary, tokens.normalization)
        tokenizer.normalizer = tokens.normalization.normalizer()  # as transformers makes it
        tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
        tokenizer.decoder = WordPiece(prefix="##")
        rules = {"strip_accents": None, "tokenize_chinese_chars": True} | tokens.normalization.settings()
        settings |= {"tokenizer_class": "BertTokenizer", **rules} if token_types else rules
    if not tokenizer.num_special_tokens_to_add(is_pair=True):
        own, framing = tokenizer.post_processor, BertProcessing(*frame)
        tokenizer.post_processor = framing if own is None else Sequence([own, framing])
        tokenizer.save(str(folder / "tokenizer.json"))
    if not token_types:
        settings["model_input_names"] = ["input_ids", "attention_mask"]
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "special_tokens_map.json", special)


def with_new_words(pretrained: PretrainedWeights, vocabulary: Vocabulary) -> Mapping[str, np.ndarray]:
    """The parameters with rows for added tokens, each the mean of the rows of the token's old word pieces.

    Raises:
        ConversionError: it does not begin with them, so that ids would change their meaning.
    """
    own = find_tokens(pretrained.folder, pretrained.vocab_file, [])
    if own is not None:
        own.vocabulary.check_extendable()
    if own is None or vocabulary.tokens[: len(own.vocabulary)] != own.vocabulary.tokens:
        raise ConversionError(
            f"{vocabulary.source} has {len(vocabulary)} tokens and must begin with the tokens of {pretrained.folder}, "
            "whose ids keep their meaning; add words by data.train_vocabulary --base"
        )
    number, tokenizer = len(own.vocabulary), reference_tokenizer(own.vocabulary, own.normalization)
    pieces = [tokenizer.encode(token, add_special_tokens=False).ids for token in vocabulary.tokens[number:]]
    result = dict(pretrained.parameters)
    for name in (WORD_EMBEDDINGS, DECODER_BIAS):
        if name in result and pieces:
            means = [result[name][ids].mean(0) for ids in pieces]
            result[name] = np.concatenate([result[name][:number], np.stack(means).astype("float32")])
    size = len(vocabulary)
    return pad_vocabulary(result, size, -(-size // 8) * 8, [])

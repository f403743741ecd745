"""Compares a vocabulary file with the sizes of a model before a run begins."""

from pathlib import Path

from bert.config.training_settings import BertConfig, unset_variable
from bert.tokenization.vocabulary import vocabulary_content


def check_vocabulary_file(vocab_file: Path, model: BertConfig) -> None:
    """Refuse a vocabulary that is missing or does not fit the model."""
    if not vocab_file.is_file():
        raise ValueError(
            f"vocab_file={vocab_file} must be an existing vocabulary; pass --vocab-file{unset_variable(vocab_file)}"
        )
    tokens, pad = vocabulary_content(vocab_file).splitlines(), model.pad_token_id
    if tokens[pad : pad + 1] != [b"[PAD]"]:
        raise ValueError(
            f"vocab_file={vocab_file} must have [PAD] in line {pad + 1}, as pad_token_id={pad} says; "
            "pass --pad-token-id, or the vocabulary of this model"
        )
    most = model.padded_vocab_size()
    if len(tokens) > most:
        raise ValueError(
            f"vocab_file={vocab_file} has {len(tokens)} tokens and must have at most {most}, that is "
            f"vocab_size={model.vocab_size} rounded up to a multiple of 8; pass the vocabulary of "
            "this model, or --vocab-size"
        )

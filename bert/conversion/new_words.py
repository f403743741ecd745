"""Weights for a vocabulary with further tokens at its end: their rows are the means of those of their pieces."""

from collections.abc import Mapping

import numpy as np

from bert.conversion.raw_tensors import ConversionError
from bert.conversion.reading import PretrainedWeights
from bert.conversion.tensor_layout import pad_vocabulary
from bert.conversion.tensor_names import DECODER_BIAS, WORD_EMBEDDINGS
from bert.conversion.vocabularies import find_tokens
from bert.tokenization.fast_tokenizer import reference_tokenizer
from bert.tokenization.vocabulary import Vocabulary


def with_new_words(pretrained: PretrainedWeights, vocabulary: Vocabulary) -> Mapping[str, np.ndarray]:
    """The parameters, with rows for the tokens that `vocabulary` has after those of the weights' own.

    Raises:
        ConversionError: it does not begin with them, so that ids would change their meaning.
    """
    own = find_tokens(pretrained.folder, pretrained.vocab_file, None, [])
    if own is not None:
        own.vocabulary.check_extendable()
    if own is None or vocabulary.tokens[: len(own.vocabulary)] != own.vocabulary.tokens:
        raise ConversionError(
            f"{vocabulary.source} has {len(vocabulary)} tokens and must begin with those of {pretrained.folder}, whose "
            "ids keep their meaning; add words by data.train_vocabulary --base"
        )
    number, tokenizer = len(own.vocabulary), reference_tokenizer(own.vocabulary, own.lowercase)
    pieces = [tokenizer.encode(token, add_special_tokens=False).ids for token in vocabulary.tokens[number:]]
    result = dict(pretrained.parameters)
    for name in (WORD_EMBEDDINGS, DECODER_BIAS):
        if name in result and pieces:
            means = [result[name][ids].mean(0) for ids in pieces]
            result[name] = np.concatenate([result[name][:number], np.stack(means).astype("float32")])
    size = len(vocabulary)
    return pad_vocabulary(result, size, -(-size // 8) * 8, [])

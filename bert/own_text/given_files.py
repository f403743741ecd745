"""Reads the files that the user names beside --text: weights, vocabulary, documentation."""

from pathlib import Path
from typing import Any

from bert.conversion.locating import resolve
from bert.conversion.reading import read_pretrained
from bert.conversion.tensor_names import heads_of
from bert.conversion.tokenizer_settings import tokenizer_warnings
from bert.conversion.vocabularies import Tokens, find_tokens
from bert.own_text.facts import Weights
from bert.own_text.request import TextRequest


def with_given_files(request: TextRequest) -> TextRequest:
    """The request, completed by facts about the files that it names."""
    contents: dict[str, Any] = {}
    if request.pretrained is not None:
        contents["tokens"], contents["weights"] = _pretrained(request.pretrained)
    elif (file := request.vocab_file) is not None:
        if not file.is_file():
            raise ValueError(f"vocab_file={file} must be an existing vocabulary; correct it, or drop it to train one")
        contents["tokens"] = find_tokens(file.parent, file, [])
    return request.model_copy(update=contents)


def _pretrained(source: str) -> tuple[Tokens, Weights]:
    """Vocabulary and facts of the initial weights: a path, or a published model, which is fetched."""
    pretrained = read_pretrained(resolve(source))
    tokens = find_tokens(pretrained.folder, pretrained.vocab_file, [])
    if pretrained.config is None or tokens is None:
        missing = "vocab.txt or tokenizer.json" if pretrained.config else "config.json with the model's sizes"
        raise ValueError(f"from_pretrained_params={source} must come with a {missing}; add it beside the weights")
    heads = tuple(heads_of(pretrained.parameters))
    ignored = tuple(tokenizer_warnings(pretrained.folder))
    return tokens, Weights(Path(source), pretrained.config, tokens.normalization, heads, ignored)

"""Checks the shapes of a BERT's parameters against each other and against the model description."""

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from bert.config.architecture import BertConfig
from bert.conversion import tensor_names
from bert.conversion.raw_tensors import ConversionError

Shape = tuple[int | None, ...]  # None: any size


def expected_shape(name: str, vocab: int, hidden: int, inner: int) -> Shape:
    """Shape of one of our parameters; None where any size will do."""
    if name == tensor_names.DECODER_BIAS:
        return (vocab,)
    if name == tensor_names.WORD_EMBEDDINGS:
        return (vocab, hidden)
    if name.endswith("_embeddings.weight"):
        return (None, hidden)
    if name.startswith(("qa_outputs.", "classifier.", "cls.seq_relationship.")):
        outputs = None if name.startswith("classifier.") else 2
        return (hidden, outputs) if name.endswith(".weight") else (outputs,)
    if "intermediate" in name:
        return (hidden, inner) if name.endswith(".weight") else (inner,)
    if tensor_names.is_linear(name):
        return (inner, hidden) if re.search(r"layer\.\d+\.output\.dense", name) else (hidden, hidden)
    return (hidden,)


def shown(shape: Shape) -> str:
    return str([size or "any" for size in shape])


def difference(array: np.ndarray, wanted: Shape) -> str | None:
    """`[2, 3], must be [2, any]`; None for an array of the wanted shape."""
    have = array.shape
    if len(wanted) == len(have) and all(want in (None, size) for want, size in zip(wanted, have, strict=True)):
        return None
    return f"{list(have)}, must be {shown(wanted)}"


def check_sizes(parameters: Mapping[str, np.ndarray], num_layers: int, config: BertConfig, source: Path) -> None:
    """Check every shape against the description; `tensor_layout.pad_vocabulary` checks the number of tokens.

    Raises:
        ConversionError: with each difference in a line.
    """
    wrong = []
    if num_layers != config.num_hidden_layers:
        wrong.append(f"{num_layers} layers, num_hidden_layers is {config.num_hidden_layers}")
    vocab = len(parameters[tensor_names.WORD_EMBEDDINGS])
    rows = {
        "bert.embeddings.position_embeddings.weight": config.max_position_embeddings,
        "bert.embeddings.token_type_embeddings.weight": config.type_vocab_size,
    }
    for name, array in parameters.items():
        wanted = expected_shape(name, vocab, config.hidden_size, config.intermediate_size)
        if problem := difference(array, (rows[name], config.hidden_size) if name in rows else wanted):
            wrong.append(f"{name} is {problem}")
    if wrong:
        raise ConversionError(
            f"{source} and its model description do not belong together:\n  " + "\n  ".join(wrong[:20])
        )


def heads_of(parameters: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """The heads that are there, keys of tensor_names.HEADS."""
    return tuple(head for head, names in tensor_names.HEADS.items() if any(name in parameters for name in names))


def check_complete(parameters: Mapping[str, np.ndarray], num_layers: int) -> None:
    """Refuse an incomplete encoder or head.

    Raises:
        ConversionError: with each missing tensor in a line.
    """
    heads = [name for head in heads_of(parameters) for name in tensor_names.HEADS[head]]
    needed = [*tensor_names.encoder_names(num_layers), *heads]
    if lacking := [name for name in needed if name not in parameters]:
        raise ConversionError("the model is incomplete:\n  " + "\n  ".join(_missing(lacking, parameters)))


def _missing(names: list[str], parameters: Mapping[str, np.ndarray]) -> list[str]:
    """A line for each, with the shape it should have where that follows from the others."""
    words = parameters.get(tensor_names.WORD_EMBEDDINGS)
    inner = next((value for name, value in parameters.items() if "intermediate.dense.weight" in name), None)
    if words is None or inner is None or words.ndim != 2 or inner.ndim != 2:
        return [f"missing: {name}" for name in names]
    (vocab, hidden), width = words.shape, inner.shape[1]
    return [f"missing: {name} {shown(expected_shape(name, vocab, hidden, width))}" for name in names]

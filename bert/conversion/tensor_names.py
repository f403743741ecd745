"""Maps the names of a BERT's tensors in other libraries to ours, and back; checks their shapes.

Ours are Hugging Face's with the `bert.` prefix. A dialect gives another library's spellings of each name. Reading
builds the dictionary for the number of layers found, so a foreign name has one meaning or is unknown.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bert.config.architecture import BertConfig
from bert.conversion.raw_tensors import ConversionError

EMBEDDINGS = (
    "word_embeddings.weight",
    "position_embeddings.weight",
    "token_type_embeddings.weight",
    "LayerNorm.weight",
    "LayerNorm.bias",
)
_LAYER_PARTS = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "attention.output.LayerNorm",
    "intermediate.dense",
    "output.dense",
    "output.LayerNorm",
)
WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
DECODER_BIAS = "cls.predictions.bias"

# The heads on the encoder and their tensors, by the names used in messages.
HEADS: dict[str, tuple[str, ...]] = {
    "pooler": ("bert.pooler.dense.weight", "bert.pooler.dense.bias"),
    "masked-LM head": (
        "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.dense.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "cls.predictions.transform.LayerNorm.bias",
        DECODER_BIAS,
    ),
    "next-sentence head": ("cls.seq_relationship.weight", "cls.seq_relationship.bias"),
    "question-answering head": ("qa_outputs.weight", "qa_outputs.bias"),
    "classifier": ("classifier.weight", "classifier.bias"),
}

# Duplicates of another tensor, dropped on reading once they are seen to be equal.
TIED = {
    "cls.predictions.decoder.weight": WORD_EMBEDDINGS,
    "cls.predictions.decoder_weight": WORD_EMBEDDINGS,
    "cls.predictions.decoder.bias": DECODER_BIAS,
    "cls.predictions.decoder_bias": DECODER_BIAS,
}
BUFFERS = re.compile(r"(bert\.)?embeddings\.(position_ids|token_type_ids)")
TENSORFLOW_TRAINING = re.compile(
    r"(.*/(adam|lamb)_[mv](_\d+)?|global_step|.*/Adam(_\d+)?|.*/LAMB(_\d+)?|"
    r"beta[12]_power|loss_scale|good_steps|signal_early_stopping/.*)"
)


def encoder_names(num_layers: int) -> Iterator[str]:
    """Every tensor of embeddings and encoder, by our names."""
    for part in EMBEDDINGS:
        yield f"bert.embeddings.{part}"
    for index in range(num_layers):
        for part in _LAYER_PARTS:
            yield f"bert.encoder.layer.{index}.{part}.weight"
            yield f"bert.encoder.layer.{index}.{part}.bias"


def is_linear(name: str) -> bool:
    """Whether one of our names is the matrix of a linear layer: [in, out] here, [out, in] in PyTorch."""
    return name.endswith(".weight") and "embeddings" not in name and "LayerNorm" not in name


# ---- dialects -----------------------------------------------------------------------------------------------------


class Dialect(NamedTuple):
    """How another library spells our names."""

    spellings: tuple[tuple[tuple[str, str], ...], ...]  # each of (pattern, replacement), applied in this order
    is_transposed: Callable[[str], bool] = lambda name: False  # whether one of our tensors is [out, in] there

    def names(self, name: str) -> Iterator[str]:
        """Spellings in the whole model and in the bare encoder."""
        for spelling in self.spellings:
            theirs = name
            for pattern, replacement in spelling:
                theirs = re.sub(pattern, replacement, theirs)
            yield theirs
            yield theirs.removeprefix("bert.")


_GAMMA_AND_BETA = ((r"LayerNorm\.weight$", "LayerNorm.gamma"), (r"LayerNorm\.bias$", "LayerNorm.beta"))
_HUGGING_FACE = (
    (),
    _GAMMA_AND_BETA,  # the library's first versions
    ((r"\.(intermediate|transform|pooler)\.dense\.", r".\1.dense_act."),),  # NVIDIA's PyTorch BERT
)
DIALECTS = {
    "native": Dialect(_HUGGING_FACE),
    "huggingface": Dialect(_HUGGING_FACE, is_linear),
    "paddlenlp": Dialect(
        (
            (
                (r"\.attention\.self\.(q|k|v)(uery|ey|alue)\.", r".self_attn.\1_proj."),
                (r"\.attention\.output\.dense\.", ".self_attn.out_proj."),
                (r"\.attention\.output\.LayerNorm\.", ".norm1."),
                (r"\.intermediate\.dense\.", ".linear1."),
                (r"\.output\.dense\.", ".linear2."),
                (r"\.output\.LayerNorm\.", ".norm2."),
                (r"\.encoder\.layer\.", ".encoder.layers."),
                (r"embeddings\.LayerNorm\.", "embeddings.layer_norm."),
                (r"transform\.LayerNorm\.", "layer_norm."),
                (r"transform\.dense\.", "transform."),
                (r"^cls\.predictions\.bias$", "cls.predictions.decoder_bias"),
                (r"^qa_outputs\.", "classifier."),  # like the other heads; `reading` distinguishes them
            ),
        )
    ),
    "tensorflow": Dialect(
        (
            (
                *_GAMMA_AND_BETA,
                (r"^classifier\.", "output_"),
                (r"^qa_outputs\.", "cls.squad.output_"),
                (r"^cls\.(seq_relationship|predictions)\.(weight|bias)$", r"cls.\1.output_\2"),
                (r"output_weight$", "output_weights"),
                (r"\.layer\.(\d+)\.", r".layer_\1."),
                (r"_embeddings\.weight$", "_embeddings"),
                (r"\.weight$", ".kernel"),
                (r"\.", "/"),
            ),
        ),
        lambda name: name in ("cls.seq_relationship.weight", "qa_outputs.weight", "classifier.weight"),
    ),
}


def dictionary(dialect: str, num_layers: int) -> dict[str, tuple[str, bool]]:
    """Foreign name -> (our name, whether its values are transposed), for a model of `num_layers`.

    A `classifier` of PaddleNLP's is taken for that and not for the question-answering head.
    """
    names = [*encoder_names(num_layers), *(name for head in HEADS.values() for name in head)]
    rules = DIALECTS[dialect]
    return {theirs: (name, rules.is_transposed(name)) for name in names for theirs in rules.names(name)}


def with_question_answering_head(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with a classifier, if they have one, as the question-answering head."""
    return {re.sub(r"^classifier\.", "qa_outputs.", name): array for name, array in parameters.items()}


_LAYER_NUMBER = re.compile(r"encoder[./]layers?[._](\d+)[./]")


def count_layers(names: Iterable[str]) -> int:
    """Number of layers in the names: one more than the largest index, but not more than there are indices."""
    numbers = {int(match.group(1)[:6]) for name in names if (match := _LAYER_NUMBER.search(name))}
    return min(max(numbers, default=0) + 1, len(numbers))


# ---- shapes -------------------------------------------------------------------------------------------------------

Shape = tuple[int | None, ...]  # None: any size


def expected_shape(name: str, vocab: int, hidden: int, inner: int) -> Shape:
    """Shape of one of our parameters; None where any size will do."""
    if name == DECODER_BIAS:
        return (vocab,)
    if name == WORD_EMBEDDINGS:
        return (vocab, hidden)
    if name.endswith("_embeddings.weight"):
        return (None, hidden)
    if name.startswith(("qa_outputs.", "classifier.", "cls.seq_relationship.")):
        outputs = None if name.startswith("classifier.") else 2
        return (hidden, outputs) if name.endswith(".weight") else (outputs,)
    if "intermediate" in name:
        return (hidden, inner) if name.endswith(".weight") else (inner,)
    if is_linear(name):
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
    """Check every shape against the description; `tensor_layout.pad_vocabulary` checks the number of tokens."""
    wrong = []
    if num_layers != config.num_hidden_layers:
        wrong.append(f"{num_layers} layers, num_hidden_layers is {config.num_hidden_layers}")
    vocab = len(parameters[WORD_EMBEDDINGS])
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
    """The heads that are there, keys of HEADS."""
    return tuple(head for head, names in HEADS.items() if any(name in parameters for name in names))


def check_complete(parameters: Mapping[str, np.ndarray], num_layers: int) -> None:
    """Refuse an incomplete encoder or head."""
    heads = [name for head in heads_of(parameters) for name in HEADS[head]]
    needed = [*encoder_names(num_layers), *heads]
    if lacking := [name for name in needed if name not in parameters]:
        raise ConversionError("the model is incomplete:\n  " + "\n  ".join(_missing(lacking, parameters)))


def _missing(names: list[str], parameters: Mapping[str, np.ndarray]) -> list[str]:
    """A line for each, with the shape it should have where that follows from the others."""
    words = parameters.get(WORD_EMBEDDINGS)
    inner = next((value for name, value in parameters.items() if "intermediate.dense.weight" in name), None)
    if words is None or inner is None or words.ndim != 2 or inner.ndim != 2:
        return [f"missing: {name}" for name in names]
    (vocab, hidden), width = words.shape, inner.shape[1]
    return [f"missing: {name} {shown(expected_shape(name, vocab, hidden, width))}" for name in names]

"""Maps the names of a BERT's tensors in other libraries to ours, and back.

Ours are Hugging Face's with the `bert.` prefix. A dialect gives another library's spellings of each name. Reading
builds the dictionary for the number of layers found, so a foreign name has one meaning or is unknown.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

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


def hugging_face_names(name: str) -> Iterator[str]:
    """Spellings of the whole model, of the bare encoder, and of the library's first versions (gamma, beta)."""
    spellings = [name]
    if ".LayerNorm." in name:
        spellings.append(_with_gamma_and_beta(name))
    if ".intermediate.dense." in name or ".transform.dense." in name or ".pooler.dense." in name:
        spellings.append(name.replace(".dense.", ".dense_act."))  # NVIDIA's PyTorch BERT
    for spelling in spellings:
        yield spelling
        if spelling.startswith("bert."):
            yield spelling.removeprefix("bert.")


def _with_gamma_and_beta(name: str) -> str:
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


_PADDLENLP = (
    (".attention.self.query.", ".self_attn.q_proj."),
    (".attention.self.key.", ".self_attn.k_proj."),
    (".attention.self.value.", ".self_attn.v_proj."),
    (".attention.output.dense.", ".self_attn.out_proj."),
    (".attention.output.LayerNorm.", ".norm1."),
    (".intermediate.dense.", ".linear1."),
    (".output.dense.", ".linear2."),
    (".output.LayerNorm.", ".norm2."),
    (".encoder.layer.", ".encoder.layers."),
    ("embeddings.LayerNorm.", "embeddings.layer_norm."),
    ("transform.LayerNorm.", "layer_norm."),
    ("transform.dense.", "transform."),
    ("qa_outputs.", "classifier."),
    ("cls.predictions.bias", "cls.predictions.decoder_bias"),
)


def paddlenlp_name(name: str) -> str:
    """PaddleNLP's name of one of ours. Its question-answering head is a `classifier` like the others."""
    for ours, theirs in _PADDLENLP:
        name = name.replace(ours, theirs)
    return name


def paddlenlp_names(name: str) -> Iterator[str]:
    if name.startswith("qa_outputs."):  # its name is `classifier` there; reading.py distinguishes the two
        return
    theirs = paddlenlp_name(name)
    yield theirs
    if theirs.startswith("bert."):
        yield theirs.removeprefix("bert.")


_TENSORFLOW_HEADS = {
    "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
    "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
    DECODER_BIAS: "cls/predictions/output_bias",
    "qa_outputs.weight": "cls/squad/output_weights",
    "qa_outputs.bias": "cls/squad/output_bias",
    "classifier.weight": "output_weights",
    "classifier.bias": "output_bias",
}


def tensorflow_names(name: str) -> Iterator[str]:
    """Google's names; layer normalisation by `gamma` and `beta`, matrices by `kernel`."""
    if name in _TENSORFLOW_HEADS:
        yield _TENSORFLOW_HEADS[name]
        return
    theirs = re.sub(r"\.layer\.(\d+)\.", r".layer_\1.", name)
    theirs = _with_gamma_and_beta(theirs).replace("_embeddings.weight", "_embeddings").replace(".weight", ".kernel")
    yield theirs.replace(".", "/")


# Dialect -> (spellings of one of our names, whether that tensor is [out, in] there).
_DIALECTS: dict[str, tuple[Callable[[str], Iterable[str]], Callable[[str], bool]]] = {
    "native": (hugging_face_names, lambda name: False),
    "huggingface": (hugging_face_names, is_linear),
    "paddlenlp": (paddlenlp_names, lambda name: False),
    "tensorflow": (tensorflow_names, lambda name: name in _TENSORFLOW_HEADS and is_linear(name)),
}


def dictionary(dialect: str, num_layers: int) -> dict[str, tuple[str, bool]]:
    """Foreign name -> (our name, whether its values are transposed), for a model of `num_layers`."""
    spell, is_transposed = _DIALECTS[dialect]
    names = [*encoder_names(num_layers), *(name for head in HEADS.values() for name in head)]
    return {theirs: (name, is_transposed(name)) for name in names for theirs in spell(name)}


def with_question_answering_head(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters with their classifier, if they have one, as the question-answering head."""
    return {re.sub(r"^classifier\.", "qa_outputs.", name): array for name, array in parameters.items()}


_LAYER_NUMBER = re.compile(r"encoder[./]layers?[._](\d+)[./]")


def count_layers(names: Iterable[str]) -> int:
    """Number of layers in the names: one more than the largest index, but not more than there are indices."""
    found = {int(match.group(1)[:6]) for name in names if (match := _LAYER_NUMBER.search(name))}
    return min(max(found) + 1, len(found)) if found else 0

"""Maps tensor names of BERT and ModernBERT in other libraries to ours and back; checks the shapes.

Ours are Hugging Face's with the `bert.` prefix. A dialect gives another library's spellings of each name. Reading
builds the dictionary for the number of layers found, so a foreign name has one meaning or is unknown.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from bert.config.architecture import BertConfig
from bert.conversion.untrusted_files import ConversionError
from bert.model.head_specs import DECODER_BIAS, HEAD_TENSORS, TOKEN_WEIGHTS

EMBEDDINGS = tuple(
    "word_embeddings.weight position_embeddings.weight token_type_embeddings.weight LayerNorm.weight "
    "LayerNorm.bias".split()
)
_LAYER_PARTS = tuple(
    "attention.self.query attention.self.key attention.self.value attention.output.dense attention.output.LayerNorm "
    "intermediate.dense output.dense output.LayerNorm".split()
)
_MODERN_PARTS = tuple(
    "attention.LayerNorm attention.self.query attention.self.key attention.self.value attention.output.dense "
    "intermediate.LayerNorm intermediate.dense intermediate.gate output.dense".split()
)
_FINAL_NORM = "bert.encoder.LayerNorm.weight"  # which no BERT has
WORD_EMBEDDINGS = "bert.embeddings.word_embeddings.weight"
POSITION_EMBEDDINGS = "bert.embeddings.position_embeddings.weight"

# Its prediction head, which pools in classifiers of texts, takes the place of a pooler.
_MODERN_HEADS = {
    "pooler": ("cls.predictions.transform.dense.weight", "cls.predictions.transform.LayerNorm.weight"),
    "masked-LM head": (DECODER_BIAS,),
    **{head: HEAD_TENSORS[head] for head in ("question-answering head", "classifier", "token weights")},
}

# Duplicates of another tensor, dropped on reading once they are seen to be equal.
TIED = {
    "cls.predictions.decoder.weight": WORD_EMBEDDINGS,
    "cls.predictions.decoder_weight": WORD_EMBEDDINGS,
    "cls.predictions.decoder.bias": DECODER_BIAS,
    "cls.predictions.decoder_bias": DECODER_BIAS,
    "decoder.weight": WORD_EMBEDDINGS,  # of a ModernBERT
    "lm_head.decoder.weight": WORD_EMBEDDINGS,  # of a RoBERTa
    "lm_head.decoder.bias": DECODER_BIAS,
}
BUFFERS = re.compile(r"((ro)?bert(a)?\.)?embeddings\.(position_ids|token_type_ids)")


def is_modern(names: Iterable[str]) -> bool:
    """Whether tensors with our names belong to a ModernBERT."""
    return _FINAL_NORM in names


def heads_by_name(modern: bool) -> dict[str, tuple[str, ...]]:
    """The heads of a BERT or a ModernBERT, and the tensors of each."""
    return _MODERN_HEADS if modern else HEAD_TENSORS


def encoder_names(num_layers: int, modern: bool = False) -> Iterator[str]:
    """Our names of all tensors of the embeddings and the encoder."""
    if modern:
        yield from (WORD_EMBEDDINGS, "bert.embeddings.LayerNorm.weight", _FINAL_NORM)
        for index in range(num_layers):  # the first attention has no norm
            yield from (f"bert.encoder.layer.{index}.{part}.weight" for part in _MODERN_PARTS[index == 0 :])
        return
    for part in EMBEDDINGS:
        yield f"bert.embeddings.{part}"
    for index in range(num_layers):
        for part in _LAYER_PARTS:
            yield f"bert.encoder.layer.{index}.{part}.weight"
            yield f"bert.encoder.layer.{index}.{part}.bias"


def is_linear(name: str) -> bool:
    """Whether a name is the matrix of a linear layer: [in, out] here, [out, in] in PyTorch."""
    is_table = "embeddings" in name or name == TOKEN_WEIGHTS
    return name.endswith(".weight") and not is_table and "LayerNorm" not in name


# ---- dialects -----------------------------------------------------------------------------------------------------


class Dialect(NamedTuple):
    """Tensor names of another library."""

    spellings: tuple[tuple[tuple[str, str], ...], ...]  # (pattern, replacement), applied to our names in order
    is_transposed: Callable[[str], bool] = lambda name: False  # whether the library stores this tensor as [out, in]
    prefix: str = "bert."  # prefix of the encoder's names in a model with a head

    def names(self, name: str) -> Iterator[str]:
        """The other library's names of one of our tensors, in a model with a head and in a bare encoder."""
        for spelling in self.spellings:
            spelled = name
            for pattern, replacement in spelling:
                spelled = re.sub(pattern, replacement, spelled)
            yield spelled
            yield spelled.removeprefix(self.prefix)


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
    "modernbert": Dialect(  # Hugging Face's; tensor_layout joins and splits the numbered parts
        (
            (
                (r"^bert\.encoder\.layer\.", "model.layers."),
                (r"^bert\.encoder\.LayerNorm\.", "model.final_norm."),
                (r"^bert\.embeddings\.LayerNorm\.", "model.embeddings.norm."),
                (r"^bert\.embeddings\.word_embeddings\.", "model.embeddings.tok_embeddings."),
                (r"\.attention\.LayerNorm\.", ".attn_norm."),
                (r"\.attention\.self\.query\.weight", ".attn.Wqkv.weight.0"),
                (r"\.attention\.self\.key\.weight", ".attn.Wqkv.weight.1"),
                (r"\.attention\.self\.value\.weight", ".attn.Wqkv.weight.2"),
                (r"\.attention\.output\.dense\.", ".attn.Wo."),
                (r"\.intermediate\.LayerNorm\.", ".mlp_norm."),
                (r"\.intermediate\.dense\.weight", ".mlp.Wi.weight.0"),
                (r"\.intermediate\.gate\.weight", ".mlp.Wi.weight.1"),
                (r"\.output\.dense\.", ".mlp.Wo."),
                (r"^cls\.predictions\.transform\.dense\.", "head.dense."),
                (r"^cls\.predictions\.transform\.LayerNorm\.", "head.norm."),
                (r"^cls\.predictions\.bias$", "decoder.bias"),
                (r"^qa_outputs\.", "classifier."),  # like the other heads; `reading` distinguishes them
            ),
        ),
        is_linear,
        "model.",
    ),
}


_ROBERTA = (
    (r"^bert\.", "roberta."),
    (r"^cls\.predictions\.transform\.dense\.", "lm_head.dense."),
    (r"^cls\.predictions\.transform\.LayerNorm\.", "lm_head.layer_norm."),
    (r"^cls\.predictions\.bias$", "lm_head.bias"),
)
# Its classifier of texts has the pooler inside.
_ROBERTA_CLASSIFIER = (
    (r"^roberta\.pooler\.", "classifier."),
    (r"^classifier\.(weight|bias)$", r"classifier.out_proj.\1"),
)
DIALECTS["roberta"] = Dialect((_ROBERTA, (*_ROBERTA, *_ROBERTA_CLASSIFIER)), is_linear, "roberta.")


def dictionary(dialect: str, num_layers: int, modern: bool = False) -> dict[str, tuple[str, bool]]:
    """Foreign name -> (our name, whether the values are transposed), for a model of `num_layers`.

    A `classifier` of PaddleNLP's or ModernBERT's is taken for that and not for the question-answering head.
    """
    heads = heads_by_name(modern).values()
    names = [*encoder_names(num_layers, modern), *(name for head in heads for name in head)]
    rules = DIALECTS[dialect]
    return {theirs: (name, rules.is_transposed(name)) for name in names for theirs in rules.names(name)}


def with_question_answering_head(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the classifier, if there is one, to the question-answering head."""
    return {re.sub(r"^classifier\.", "qa_outputs.", name): array for name, array in parameters.items()}


_LAYER_NUMBER = re.compile(r"(?:encoder[./]|^(?:model\.)?)layers?[._](\d+)[./]")


def count_layers(names: Iterable[str]) -> int:
    """Number of layers: one more than the largest index in the names, but at most as many as there are indices."""
    numbers = {int(match.group(1)[:6]) for name in names if (match := _LAYER_NUMBER.search(name))}
    return min(max(numbers, default=0) + 1, len(numbers))


# ---- shapes -------------------------------------------------------------------------------------------------------

Shape = tuple[int | None, ...]  # None: any size


def heads_of(parameters: Mapping[str, np.ndarray]) -> tuple[str, ...]:
    """The heads in the parameters, as keys of HEAD_TENSORS."""
    heads = heads_by_name(is_modern(parameters))
    return tuple(head for head, names in heads.items() if any(name in parameters for name in names))


def check_parameters(parameters: Mapping[str, np.ndarray], title: str, config: BertConfig | None = None) -> None:
    """Refuse an incomplete encoder or head, and shapes that contradict the description or each other.

    `title` stands above the differences. `vocabulary_padding.pad_vocabulary` checks the number of tokens.
    """
    num_layers, wrong = count_layers(parameters), []
    if config is not None and num_layers != config.num_hidden_layers:
        wrong.append(f"{num_layers} layers, num_hidden_layers is {config.num_hidden_layers}")
    modern = is_modern(parameters)
    if config is not None and config.is_modern() != modern:
        wrong.append(f"the weights are of a {'ModernBERT' if modern else 'BERT'}, model_type is {config.model_type}")
    expected = _expected_shapes(parameters, config)
    heads = [name for head in heads_of(parameters) for name in heads_by_name(modern)[head]]
    for name in [*encoder_names(num_layers, modern), *heads]:
        if name not in parameters:
            wrong.append(f"missing: {name} {_shape_text(expected(name))}")
    for name, array in parameters.items():
        shape = expected(name)
        if len(shape) != array.ndim or any(
            want not in (None, size) for want, size in zip(shape, array.shape, strict=True)
        ):
            wrong.append(f"{name} is {list(array.shape)}, must be {_shape_text(shape)}")
    if wrong:
        raise ConversionError("\n  ".join([f"{title}:", *wrong[:20]]))


def _shape_text(shape: Shape) -> str:
    return str([size or "any" for size in shape])


def _expected_shapes(parameters: Mapping[str, np.ndarray], config: BertConfig | None) -> Callable[[str], Shape]:
    """Function from our names to shapes: as the model's description says, or as inferred from two tensors."""
    words = parameters.get(WORD_EMBEDDINGS, np.empty([0])).shape
    inner = next((array.shape for name, array in parameters.items() if "intermediate.dense.weight" in name), (0,))
    vocab: int | None = words[0] or None
    hidden, width = (words[-1] or None, inner[-1] or None)
    positions = kinds = None
    if config is not None:
        hidden, width = config.hidden_size, config.intermediate_size
        positions, kinds = config.max_position_embeddings, config.num_token_types()
    matrices: list[tuple[str, Shape]] = [  # the first pattern that matches
        (r"bert\.embeddings\.word_embeddings\.", (vocab, hidden)),
        (r"bert\.embeddings\.position_embeddings\.", (positions, hidden)),
        (r"bert\.embeddings\.token_type_embeddings\.", (kinds, hidden)),
        (r"cls\.predictions\.bias", (None, vocab)),
        (re.escape(TOKEN_WEIGHTS), (vocab, None)),
        (r"classifier\.", (hidden, None)),
        (r"(qa_outputs|cls\.seq_relationship)\.", (hidden, 2)),
        (r".*\.intermediate\.(dense|gate)\.", (hidden, width)),
        (r".*layer\.\d+\.output\.dense\.", (width, hidden)),
        (r"", (hidden, hidden)),
    ]

    def expected(name: str) -> Shape:
        rows, columns = next(shape for pattern, shape in matrices if re.match(pattern, name))
        is_matrix = is_linear(name) or name.endswith("_embeddings.weight") or name == TOKEN_WEIGHTS
        return (rows, columns) if is_matrix else (columns,)

    return expected

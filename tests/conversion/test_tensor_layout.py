"""Single tensors of other libraries: dtype, orientation, fused parts, ties and padding, compared with plain slices."""

from pathlib import Path

import numpy as np
import pytest

from bert.config.architecture import BertConfig
from bert.conversion.raw_tensors import BFLOAT16, RawTensors
from bert.conversion.tensor_layout import join_parts, recognise_dialect, split_parts, to_ours, without_unused_positions
from bert.conversion.tensor_names import POSITION_EMBEDDINGS, WORD_EMBEDDINGS
from bert.conversion.unnamed_layers import _split_fused
from bert.conversion.untrusted_files import ConversionError
from bert.conversion.vocabulary_padding import pad_vocabulary, strip_vocabulary
from bert.model.head_specs import DECODER_BIAS

SOURCE = Path("weights")
RNG = np.random.RandomState(3)
QUERY, INNER = "bert.encoder.layer.0.attention.self.query.weight", "bert.encoder.layer.0.intermediate.dense.weight"


def raw(tensors, **metadata) -> RawTensors:
    return RawTensors(dict(tensors), SOURCE, metadata)


def numbers(*shape) -> np.ndarray:
    return RNG.randn(*shape).astype(np.float32)


def converted(tensors, allow_unknown=True, fused_qkv=None):
    """Convert tensors beside the two by which the dialect is recognised; return the converted tensors."""
    notes: list[str] = []
    base = {QUERY: numbers(4, 4), INNER: numbers(6, 4)}
    given = raw({**base, **tensors}, format="pt")
    dialect, parameters = to_ours(given, notes, fused_qkv=fused_qkv, allow_unknown=allow_unknown)
    return dialect, {name: array for name, array in parameters.items() if name not in base}, notes


def test_a_vocabulary_is_padded_with_tokens_that_cannot_be_predicted():
    words, bias, other = numbers(5, 4), numbers(5), numbers(5)
    notes: list[str] = []
    padded = pad_vocabulary({WORD_EMBEDDINGS: words, DECODER_BIAS: bias, "other": other}, 5, 8, notes)
    assert padded[WORD_EMBEDDINGS].tolist() == [*words.tolist(), *[[0.0] * 4] * 3]
    assert padded[DECODER_BIAS].tolist() == [*bias.tolist(), -100.0, -100.0, -100.0]
    assert padded["other"] is other and len(notes) == 2
    assert notes[0].endswith("from 5 to 8 rows, filled with 0") and notes[1].endswith("filled with -100")
    assert pad_vocabulary(padded, 5, 8, notes).keys() == padded.keys() and len(notes) == 2  # it is padded already
    stripped = strip_vocabulary(padded, 5, notes)
    assert (stripped[WORD_EMBEDDINGS] == words).all() and (stripped[DECODER_BIAS] == bias).all()
    assert [note.rpartition(" from ")[2] for note in notes[2:]] == ["8 to 5 rows"] * 2
    assert strip_vocabulary(stripped, 5, notes)[WORD_EMBEDDINGS] is stripped[WORD_EMBEDDINGS] and len(notes) == 4
    for rows in (4, 6, 9):
        with pytest.raises(ConversionError, match=f"has {rows} rows, must have 5 .vocab_size. or 8"):
            pad_vocabulary({WORD_EMBEDDINGS: numbers(rows, 4)}, 5, 8, [])
    assert pad_vocabulary({"other": other}, 5, 8, []) == {"other": other}


def test_the_first_positions_of_a_roberta_are_left_out():
    positions, notes = numbers(9, 4), list[str]()
    model = BertConfig(model_type="roberta", pad_token_id=1)
    left = without_unused_positions({POSITION_EMBEDDINGS: positions, "other": positions}, model, notes)
    assert (left[POSITION_EMBEDDINGS] == positions[2:]).all() and left["other"] is positions
    assert notes == [f"left out: the first 2 rows of {POSITION_EMBEDDINGS}, which no token has"]
    for parameters, config in (
        ({POSITION_EMBEDDINGS: positions}, BertConfig(pad_token_id=1)),
        ({"other": positions}, model),
    ):
        assert without_unused_positions(parameters, config, notes) is parameters and len(notes) == 1


def test_matrices_of_a_modernbert_are_cut_into_equal_parts():
    qkv, gate, odd = numbers(12, 4), numbers(10, 4), numbers(11, 4)
    given = {
        "a.attn.Wqkv.weight": qkv,
        "a.mlp.Wi.weight": gate,
        "b.attn.Wqkv.weight": odd,
        "c.mlp.Wi.weight": numbers(4),
    }
    parts = split_parts(given)
    assert [name for name in parts if name.startswith("a.attn")] == [f"a.attn.Wqkv.weight.{n}" for n in range(3)]
    for number in range(3):
        assert (parts[f"a.attn.Wqkv.weight.{number}"] == qkv[4 * number : 4 * number + 4]).all()
    assert (parts["a.mlp.Wi.weight.0"] == gate[:5]).all() and (parts["a.mlp.Wi.weight.1"] == gate[5:]).all()
    assert parts["b.attn.Wqkv.weight"] is odd and "c.mlp.Wi.weight" in parts  # `check_parameters` refuses them
    joined = join_parts(parts)
    assert joined.keys() == given.keys() and all((joined[name] == given[name]).all() for name in given)


@pytest.mark.parametrize(
    ("layout", "columns"),  # of query, then key, then value, of a width of 4
    [
        ("blocks", ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11])),
        ("heads:1", ([0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11])),
        ("heads:2", ([0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11])),
        ("heads:4", ([0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8, 11])),
    ],
)
def test_a_fused_matrix_is_cut_by_blocks_or_by_heads(layout, columns):
    prefix = "bert.encoder.layer.1.attention.self."
    weight, bias = numbers(4, 12), numbers(12)
    parameters = {f"{prefix}fused.weight": weight, f"{prefix}fused.bias": bias}
    _split_fused(parameters, 2, layout, raw({}))
    for part, chosen in zip(("query", "key", "value"), columns, strict=True):
        assert (parameters.pop(f"{prefix}{part}.weight") == weight[:, chosen]).all()
        assert (parameters.pop(f"{prefix}{part}.bias") == bias[chosen]).all()
    assert parameters == {}


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (None, "Name it: run_convert.py --fused-qkv blocks"),
        ("heads:3", "3 heads must divide the width of the model, 4"),
        *((layout, "must be blocks or heads:NUMBER") for layout in ("heads:0", "heads", "heads:100000", "blocks ")),
    ],
)
def test_a_layout_that_cuts_no_fused_matrix_is_refused(layout, text):
    parameters = {"bert.encoder.layer.0.attention.self.fused.weight": numbers(4, 12)}
    with pytest.raises(ConversionError, match=text):
        _split_fused(parameters, 1, layout, raw({}))


@pytest.mark.parametrize(
    ("inner", "metadata", "dialect"),
    [
        ((4, 6), {}, "native"),
        ((6, 4), {}, "huggingface"),
        ((4, 6), {"format": "pt"}, "native"),  # shapes decide before what is written
        ((6, 4), {"format": "pd"}, "huggingface"),
        ((4, 4), {"format": "pd"}, "native"),
        ((4, 4), {"format": "np"}, "native"),
        ((4, 4), {"format": "pt"}, "huggingface"),
        ((4, 4), {}, None),
        ((4, 4), {"format": "tf"}, None),
        ((5, 6), {"format": "pt"}, "huggingface"),  # no side is that of the model: a later check refuses it
        ((24,), {"format": "pd"}, "native"),
    ],
)
def test_our_matrices_are_told_from_hugging_faces_by_their_sides(inner, metadata, dialect):
    tensors = raw({QUERY: numbers(4, 4), INNER: numbers(*inner)}, **metadata)
    if dialect:
        assert recognise_dialect(tensors) == dialect
    else:
        with pytest.raises(ConversionError, match="its feed-forward block is square and the file does not say"):
            recognise_dialect(tensors)


@pytest.mark.parametrize(
    ("name", "dialect"),
    [
        ("embedding_0.w_0", "nvidia-paddle"),
        ("linear_123456.b_0", "nvidia-paddle"),
        ("linear_1234567.b_0", None),
        ("bert/encoder/layer_0/output/dense/kernel", "tensorflow"),
        ("bert/embeddings/LayerNorm/gamma", "tensorflow"),
        ("bert.encoder.layers.0.self_attn.q_proj.weight", "paddlenlp"),
        ("roberta.embeddings.word_embeddings.weight", "roberta"),
        ("layers.0.attn.Wqkv.weight", "modernbert"),
        ("model.decoder.weight", None),
    ],
)
def test_libraries_are_known_by_their_names(name, dialect):
    if dialect:
        assert recognise_dialect(raw({"zzz": numbers(1), name: numbers(2, 2)})) == dialect
    else:
        with pytest.raises(ConversionError, match=f"its tensors: {name}, zzz"):
            recognise_dialect(raw({"zzz": numbers(1), name: numbers(2, 2)}))


def test_matrices_are_turned_and_vectors_and_tables_are_not():
    words, bias = numbers(5, 4), numbers(4)
    dense = numbers(4, 4)
    tensors = {WORD_EMBEDDINGS: words, "bert.pooler.dense.weight": dense, "bert.pooler.dense.bias": bias}
    dialect, parameters, notes = converted(tensors)
    assert dialect == "huggingface" and notes == []
    assert (parameters["bert.pooler.dense.weight"] == dense.T).all() and (
        parameters["bert.pooler.dense.bias"] == bias
    ).all()
    assert (parameters[WORD_EMBEDDINGS] == words).all()
    assert all(array.flags.c_contiguous for array in parameters.values())


def test_prefixes_of_wrappers_are_removed_in_either_order():
    for prefixes in (("module.",), ("_orig_mod.",), ("module.", "_orig_mod."), ("_orig_mod.", "module.")):
        notes: list[str] = []
        tensors = {"".join(prefixes) + name: numbers(6, 4) for name in (QUERY, INNER)}
        assert to_ours(raw(tensors), notes, fused_qkv=None, allow_unknown=True)[1].keys() == {QUERY, INNER}
        assert notes == [f"removed the prefix `{prefix}` from all names" for prefix in prefixes]
    _, parameters, notes = converted({"module.extra": numbers(1)})
    assert parameters == {} and notes == ["left out: module.extra [1], unknown"]


def test_half_precision_is_widened_exactly_and_counted():
    bits = np.array([0x3FC0, 0xC000, 0x0000, 0x7F7F], np.uint16)  # 1.5, -2, 0, the largest
    bfloat16 = bits.view(BFLOAT16)
    tensors = {
        "bert.pooler.dense.bias": bfloat16,
        "bert.embeddings.LayerNorm.weight": np.array([1.5, 65504, 0, -1], np.float16),
        "bert.embeddings.LayerNorm.bias": np.array([0.1, 0, 0, 0], np.float64),
        "bert.encoder.layer.0.output.dense.bias": np.array([0.5, 0, 0, 0], np.float16),
    }
    _, parameters, notes = converted(tensors)
    assert parameters["bert.pooler.dense.bias"].tolist() == [1.5, -2.0, 0.0, (2 - 2**-7) * 2.0**127]
    assert parameters["bert.embeddings.LayerNorm.weight"].tolist() == [1.5, 65504, 0, -1]
    assert parameters["bert.embeddings.LayerNorm.bias"][0] == np.float32(0.1)
    assert {array.dtype for array in parameters.values()} == {np.dtype(np.float32)}
    assert sorted(notes) == [
        "1 tensors in bfloat16, converted to float32",
        "1 tensors in float64, converted to float32",
        "2 tensors in float16, converted to float32",
    ]


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.array([1, 2, 3, 4]), "is int64, must be a float"),
        (np.array(1.0, np.float32), "is a single number, must be an array"),
        (np.array([1, np.nan, 0, 0], np.float32), "holds NaN or infinity"),
        (np.array([1, -np.inf, 0, 0], np.float32), "holds NaN or infinity"),
        (np.array([1e39, 0, 0, 0]), "holds NaN or infinity"),  # of float64, beyond float32
    ],
)
def test_what_is_no_parameter_is_refused(array, text):
    with pytest.raises(ConversionError, match=f"weights: bert.pooler.dense.bias {text}"):
        converted({"bert.pooler.dense.bias": array})


def test_a_tied_decoder_must_equal_the_embeddings():
    words, bias = numbers(5, 4), numbers(5)
    given = {WORD_EMBEDDINGS: words, "cls.predictions.bias": bias}
    tied = {"cls.predictions.decoder.weight": words.copy(), "cls.predictions.decoder.bias": bias.copy()}
    _, parameters, notes = converted({**given, **tied, "bert.embeddings.position_ids": np.arange(3)})
    assert parameters.keys() == given.keys()
    assert notes == [
        "left out: bert.embeddings.position_ids, a constant",
        f"left out: cls.predictions.decoder.weight, equal to {WORD_EMBEDDINGS}",
        "left out: cls.predictions.decoder.bias, equal to cls.predictions.bias",
    ]
    _, parameters, _ = converted({WORD_EMBEDDINGS: words, "cls.predictions.decoder.bias": bias})
    assert (parameters["cls.predictions.bias"] == bias).all()  # it stands for the one that is missing
    changed = words.copy()
    changed[4, 3] += 1e-6
    for other in (changed, words[:4], words.astype(np.float64)):
        with pytest.raises(ConversionError, match="an untied decoder cannot be represented here"):
            converted({**given, "cls.predictions.decoder.weight": other})
    with pytest.raises(ConversionError, match="an untied decoder"):
        converted({"cls.predictions.decoder.weight": words})  # there are no embeddings


def test_unknown_tensors_are_listed_up_to_twenty():
    tensors = {f"extra.{number:02}": numbers(number + 1) for number in range(22)}
    with pytest.raises(ConversionError) as refusal:
        converted(tensors, allow_unknown=False)
    lines = str(refusal.value).splitlines()
    assert lines[1:] == [*(f"  unknown: extra.{n:02} [{n + 1}]" for n in range(20)), "  ... and 2 more"]
    few = dict(list(tensors.items())[:20])
    with pytest.raises(ConversionError) as refusal:
        converted(few, allow_unknown=False)
    assert len(str(refusal.value).splitlines()) == 21
    _, parameters, notes = converted(few)
    assert parameters == {} and notes == [f"left out: extra.{n:02} [{n + 1}], unknown" for n in range(20)]


def test_a_tensor_under_two_spellings_is_refused():
    spellings = {"bert.pooler.dense.bias": numbers(4), "pooler.dense.bias": numbers(4)}
    with pytest.raises(ConversionError, match="holds bert.pooler.dense.bias twice, under two spellings"):
        converted(spellings)


def test_an_order_of_columns_that_nothing_needs_is_noted():
    assert converted({}, fused_qkv="blocks")[2] == [
        "--fused-qkv was not needed: query, key and value are not one matrix here"
    ]
    assert converted({"bert.pooler.dense.weight": numbers(4, 12)}, fused_qkv="blocks")[2] == []

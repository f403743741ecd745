"""Conversion between token ids and texts of tokens joined by one space."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.arrays.ragged import numpy_array
from bert.tokenization.byte_table import byte_table
from bert.tokenization.token_strings import TokenStrings
from bert.tokenization.vocabulary import Vocabulary

_NAMES = [
    *"a b a\x00 ab abcdefg abcdefgh abcdefghi abcdefghijklmnop ##a ##abcdefgh , \x00 12345678".split(" "),
    *"\u6d77 \u6d77\u6d77 \u6d77\u6d77\u6d77 caf\u00e9 \U0001f41f\U0001f41f".split(" "),
]
STRINGS = TokenStrings(Vocabulary(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *_NAMES)))
_ROWS = st.lists(st.lists(st.sampled_from(_NAMES), max_size=12), max_size=6)


def split(texts: list[str]) -> list[list[str]]:
    ids, offsets = STRINGS.split(pa.array(texts, pa.string()), "A")
    tokens = STRINGS.vocabulary.tokens
    return [[tokens[token] for token in ids[low:high]] for low, high in zip(offsets[:-1], offsets[1:], strict=True)]


@settings(deadline=None)
@given(_ROWS)
def test_texts_are_split_at_spaces_and_joined_again(rows):
    texts = [" ".join(row) for row in rows]
    assert split(texts) == rows
    ids, offsets = STRINGS.split(pa.array(texts, pa.string()), "A")
    assert STRINGS.join(ids, offsets[:-1], offsets[1:]).to_pylist() == texts


@settings(deadline=None)
@given(
    _ROWS,
    st.sampled_from(
        ["abc", "b\x00", "\x00\x00", "\u6d77\x00", "", "abcdefgh\x00", "zzzzzzzz", "##", "##ab", "abcdefghij"]
    ),
    st.integers(0, 5),
    st.integers(0, 12),
)
def test_what_is_no_token_is_named(rows, stranger, row, place):
    rows = [*rows, ["a"]]
    broken = list(rows[row % len(rows)])
    broken.insert(place % (len(broken) + 1), stranger)
    text = " ".join(broken)
    if text == "":  # an empty text is one of no token
        return
    rows[row % len(rows)] = broken
    with pytest.raises(ValueError, match=f"sample {row % len(rows)}: token") as raised:
        split([" ".join(tokens) for tokens in rows])
    assert repr(stranger) in str(raised.value)


@pytest.mark.parametrize(
    "values",
    [
        np.arange(7, dtype=np.uint16),
        np.zeros(0, np.int64),
        np.arange(40) % 3 == 0,
        np.zeros(0, bool),
        np.arange(9, dtype=np.int32)[::2],
    ],
)
def test_arrow_arrays_are_numpys(values):
    array = pa.array(values)
    array.validate(full=True)
    assert array.to_pylist() == values.tolist()
    for start in (0, min(3, len(values))):
        found = numpy_array(array.slice(start), "A")
        assert found.tolist() == values[start:].tolist() and found.dtype == values.dtype
    with pytest.raises(ValueError, match="'A': 1 of 3 values are missing"):
        numpy_array(pa.array([1, None, 3]), "A")
    with pytest.raises(ValueError, match="'A' holds values of type float, not integers"):
        numpy_array(pa.array([1.0], pa.float32()), "A")


@pytest.mark.parametrize("number", [4_000, 8_191, 8_192])
def test_tables_are_half_empty_or_reading_shards_takes_four_times_as_long(number):
    table = byte_table([str(index).encode() for index in range(number)])
    assert (table.slots > 0).sum() == number <= len(table.slots) / 2

"""Packed tokens: every real token occurs once, and attention finds and returns it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bert.samples.packing import CONTEXT_ROWS, NO_TOKEN, Packing, pack

HEADS = 3
LENGTHS = ([1], [1, 1, 1], [6] * 4, [3, 6, 1, 5, 2])


def padded(lengths, width=7, seed=0):
    rng = np.random.RandomState(seed)
    mask = (np.arange(width) < np.array(lengths)[:, None]).astype("int64")
    return {
        "input_ids": rng.randint(5, 99, mask.shape) * mask,
        "token_type_ids": rng.randint(0, 2, mask.shape) * mask,
        "attention_mask": mask,
        "masked_lm_positions": np.array([np.flatnonzero(mask)[-1], 0]),
        "masked_lm_labels": np.array([8, 0]),
    }


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("num_groups", [0, 1, 2, 4])
def test_tokens_positions_and_places_are_those_of_the_padded_feed(lengths, num_groups):
    feed = padded(lengths)
    packed = pack(feed, Packing(HEADS, num_groups, per_token=True))
    total, real = sum(lengths), feed["attention_mask"] > 0
    for name in ("input_ids", "token_type_ids"):
        np.testing.assert_array_equal(packed[name][:total], feed[name][real])
    np.testing.assert_array_equal(packed["position_ids"][:total], np.concatenate([np.arange(n) for n in lengths]))
    np.testing.assert_array_equal(packed["input_ids"][packed["first_tokens"]], feed["input_ids"][:, 0])
    masked = packed["input_ids"][packed["masked_lm_positions"]]
    np.testing.assert_array_equal(masked, feed["input_ids"].reshape(-1)[feed["masked_lm_positions"]])
    places = packed["token_of_place"]
    assert ((places == NO_TOKEN) == ~real).all()
    np.testing.assert_array_equal(packed["input_ids"][places[real]], feed["input_ids"][real])
    np.testing.assert_array_equal(packed["masked_lm_labels"], feed["masked_lm_labels"])
    assert packed.keys() == {*Packing(HEADS, num_groups, True).inputs(), "masked_lm_positions", "masked_lm_labels"}


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("num_groups", [1, 2, 4])
def test_each_head_of_a_token_returns_from_the_place_to_which_its_group_took_it(lengths, num_groups):
    packed = pack(padded(lengths), Packing(HEADS, num_groups, per_token=False))
    assert "token_of_place" not in packed and len(packed["input_ids"]) == sum(lengths)
    rows = []
    for number in range(num_groups):
        tokens = packed[f"group_{number}"]
        assert tokens.size, "Paddle's operators take no empty array"
        rows.append((tokens[:, None] * HEADS + np.arange(HEADS)[None, :, None]).reshape(-1))
    every = np.arange(sum(lengths) * HEADS)
    np.testing.assert_array_equal(np.concatenate(rows)[packed[CONTEXT_ROWS]], every)


def test_groups_have_like_lengths():
    packed = pack(padded([3, 6, 1, 5, 2]), Packing(HEADS, 2, per_token=False))
    assert [packed[f"group_{number}"].shape for number in (0, 1)] == [(3, 6), (2, 2)]


@pytest.mark.parametrize("lengths", LENGTHS)
def test_a_gpu_gets_a_multiple_of_8_and_offsets_that_hold_all_tokens(lengths):
    packed = pack(padded(lengths), Packing(HEADS, 0, per_token=False))
    offsets, size = packed["sequence_offsets"], len(packed["input_ids"])
    assert size % 8 == 0 and offsets.dtype == np.int32
    np.testing.assert_array_equal(np.diff(offsets)[:-1], lengths)
    assert offsets[0] == 0 and offsets[-1] == size and 1 <= size - sum(lengths) <= 8
    assert packed["position_ids"].max() == max(lengths) - 1


def packed_lists(lengths, documents, num_groups, width):
    """Return (places of real tokens, positions, edges of sequences or documents, tokens of each group's places)."""
    places = [row * width + column for row, length in enumerate(lengths) for column in range(length)]
    edges, positions = [], []
    for row, length in enumerate(lengths):
        for column in range(length):
            if column == 0 or column in documents[row]:
                edges.append(len(positions))
            positions.append(len(positions) - edges[-1])
    sizes = np.diff([*edges, len(places)]).tolist()
    order, groups, start = sorted(range(len(sizes)), key=lambda part: -sizes[part]), [], 0
    for number in range(num_groups):  # as equal in number as can be, the first ones larger
        members = order[start : start + len(order) // num_groups + (number < len(order) % num_groups)]
        start += len(members)
        longest = max((sizes[part] for part in members), default=1)
        padded = [
            [*range(edges[part], edges[part] + sizes[part])] + [NO_TOKEN] * (longest - sizes[part]) for part in members
        ]
        groups.append(padded or [[NO_TOKEN]])
    return places, positions, edges, groups


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    st.lists(st.tuples(st.integers(1, 7), st.sets(st.integers(1, 6))), min_size=1, max_size=6),
    st.integers(0, 4),
    st.integers(1, 3),
    st.booleans(),
)
def test_packed_inputs_are_as_defined(rows, num_groups, heads, has_documents):
    """Documents in a row count as sequences for the attention."""
    lengths, documents = [length for length, _ in rows], [places if has_documents else () for _, places in rows]
    feed, packing = padded(lengths), Packing(heads, num_groups, per_token=True)
    if has_documents:
        begins = [[column == 0 or column in places for column in range(7)] for places in documents]
        latest = [[max(c for c in range(column + 1) if row[c]) for column in range(7)] for row in begins]
        feed["position_ids"] = np.arange(7) - np.array(latest)
    feed["next_sentence_labels"] = np.array([1, 0])
    places, positions, edges, groups = packed_lists(lengths, documents, num_groups, 7)
    packed, total = pack(feed, packing), sum(lengths)
    size = total if num_groups else (total // 8 + 1) * 8
    padding = [0] * (size - total)
    for name in ("input_ids", "token_type_ids"):
        assert packed[name].tolist() == feed[name].reshape(-1)[places].tolist() + padding
    assert packed["position_ids"].tolist() == positions + padding
    assert packed["first_tokens"].tolist() == [sum(lengths[:row]) for row in range(len(rows))]
    assert packed["token_of_place"].reshape(-1).tolist() == [
        places.index(place) if place in places else NO_TOKEN for place in range(7 * len(rows))
    ]
    assert packed["masked_lm_positions"].tolist() == [places.index(place) for place in feed["masked_lm_positions"]]
    assert packed["next_sentence_labels"].tolist() == [1, 0] and "attention_mask" not in packed
    types = {name: (value.ndim, str(value.dtype)) for name, value in packed.items()}
    assert all((len(shape), dtype) == types[name] for name, (shape, dtype) in packing.inputs().items())
    if num_groups == 0:
        assert packed["sequence_offsets"].tolist() == [*edges, total, size]
        return
    assert [packed[f"group_{number}"].tolist() for number in range(num_groups)] == groups
    context = [
        (token, head) for group in groups for row in group for head in range(heads) for token in row
    ]  # attention's output: [b, heads, s] of each group
    found = [context[row] for row in packed[CONTEXT_ROWS]]
    assert found == [(token, head) for token in range(total) for head in range(heads)]

"""Packed tokens: every real token once, and where attention finds and returns it."""

import numpy as np
import pytest

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

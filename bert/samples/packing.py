"""Packs the real tokens of a padded micro-batch, one sequence after the other."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from bert.arrays.ragged import offsets_of, positions_in_rows, ragged_indices

TOKENS_MULTIPLE = 8  # of the tokens that a GPU gets: sizes of matrix products that tensor cores take
NO_TOKEN = -1
CONTEXT_ROWS = "context_rows"
Feed = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Packing:
    """The inputs of a program that reads packed tokens.

    Attributes:
        num_groups: groups of sequences of like length, each padded by itself in attention; 0: attention reads offsets.
    """

    num_heads: int
    num_groups: int
    per_token: bool  # whether the final outputs are padded again, [b, s, ...]

    def inputs(self) -> dict[str, tuple[list[int], str]]:
        """Inputs of `pack` to the encoder: name -> (shape, dtype)."""
        names = ["input_ids", "token_type_ids", "position_ids", "first_tokens"]
        inputs = {name: ([-1], "int64") for name in names}
        if self.per_token:
            inputs["token_of_place"] = ([-1, -1], "int64")
        if self.num_groups == 0:
            return inputs | {"sequence_offsets": ([-1], "int32")}
        inputs[CONTEXT_ROWS] = ([-1], "int64")
        return inputs | {f"group_{number}": ([-1, -1], "int64") for number in range(self.num_groups)}


def pack(feed: Feed, packing: Packing) -> dict[str, np.ndarray]:
    """Turn a padded feed into the feed of a program that reads packed tokens.

    Args:
        feed: input_ids, token_type_ids, attention_mask, int [b, s], where real tokens come first in every sequence;
            with masked_lm_positions its entries at weight 0 are any positions; with position_ids, int64 [b, s], each 0
            begins a document that attention treats as a sequence. Other inputs stay as they are.
    Returns:
        input_ids, token_type_ids, position_ids: int64 [T]. Without groups T is a multiple of 8: the last 1 to 8 tokens
            are a sequence of their own that nothing reads.
        first_tokens: int64 [b].
        masked_lm_positions: int64 [n], indices into T.
        token_of_place: int64 [b, s], if per_token.
        sequence_offsets: int32 [b + 2], where sequences begin and the last one ends; more with documents in them.
        group_0, group_1 ...: int64 [b_g, s_g], the token of each place of a group, NO_TOKEN at padding.
        context_rows: int64 [T * num_heads], the row of each token's heads in the context of all groups.
    """
    mask = np.asarray(feed["attention_mask"])
    offsets = offsets_of(mask.sum(axis=1))
    places, total, first_tokens = np.flatnonzero(mask), int(offsets[-1]), offsets[:-1].copy()
    if "position_ids" in feed:
        offsets = np.append(np.flatnonzero(feed["position_ids"].reshape(-1)[places] == 0), total)
    size = total if packing.num_groups else (total // TOKENS_MULTIPLE + 1) * TOKENS_MULTIPLE

    def filled(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values, np.zeros(size - total, values.dtype)])

    replaced = {"input_ids", "token_type_ids", "attention_mask", "position_ids"}
    packed = {name: value for name, value in feed.items() if name not in replaced}
    packed |= {name: filled(feed[name].reshape(-1)[places]) for name in ("input_ids", "token_type_ids")}
    packed["position_ids"] = filled(positions_in_rows(offsets))
    packed["first_tokens"] = first_tokens
    token_of_place = np.full(mask.shape, NO_TOKEN, np.int64)
    token_of_place.reshape(-1)[places] = np.arange(total)
    if "masked_lm_positions" in feed:
        packed["masked_lm_positions"] = np.maximum(token_of_place.reshape(-1)[feed["masked_lm_positions"]], 0)
    if packing.per_token:
        packed["token_of_place"] = token_of_place
    if packing.num_groups == 0:
        return packed | {"sequence_offsets": np.append(offsets, size).astype(np.int32)}
    return packed | _groups(np.diff(offsets), offsets, packing)


def _groups(lengths: np.ndarray, offsets: np.ndarray, packing: Packing) -> dict[str, np.ndarray]:
    """Sequences sorted by length and divided into equal groups, so that little is padding."""
    heads, groups = packing.num_heads, {}
    first_rows, strides = np.zeros((2, len(lengths)), np.int64)  # of each sequence in the context of all groups
    num_places = 0
    for number, members in enumerate(np.array_split(np.argsort(-lengths, kind="stable"), packing.num_groups)):
        if not len(members):  # an operator cannot take an empty array
            groups[f"group_{number}"] = np.full((1, 1), NO_TOKEN, np.int64)
            num_places += 1
            continue
        columns = np.arange(lengths[members[0]])
        tokens = offsets[members][:, None] + columns
        groups[f"group_{number}"] = np.where(columns < lengths[members][:, None], tokens, NO_TOKEN)
        first_rows[members] = heads * (num_places + np.arange(len(members)) * len(columns))
        strides[members] = len(columns)
        num_places += tokens.size
    rows = ragged_indices(first_rows, lengths)[:, None] + np.repeat(strides, lengths)[:, None] * np.arange(heads)
    return groups | {CONTEXT_ROWS: rows.reshape(-1)}

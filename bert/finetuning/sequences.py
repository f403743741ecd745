"""Token sequences in flat arrays, with their special tokens."""

import numpy as np

from bert.arrays.ragged import offsets_of, ragged_indices


def single_sequences(ids: np.ndarray, lengths: np.ndarray, cls_id: int, sep_id: int) -> tuple[np.ndarray, np.ndarray]:
    """[CLS] A [SEP] for every row.

    Args:
        ids: [sum(lengths)], the tokens of all rows.
        lengths: int64 [n], tokens of each row.
    Returns:
        token ids [T] and offsets int64 [n + 1].
    """
    offsets = offsets_of(lengths + 2)
    joined = np.empty(offsets[-1], ids.dtype)
    joined[offsets[:-1]], joined[offsets[1:] - 1] = cls_id, sep_id
    joined[ragged_indices(offsets[:-1] + 1, lengths)] = ids
    return joined, offsets

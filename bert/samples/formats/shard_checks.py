"""Checks of decoded shards, and the description of a shard from its file's metadata."""

from dataclasses import dataclass

import numpy as np

MASK_COLUMNS = ("masked_lm_positions", "masked_lm_labels")
# Positions of the tokens that belong to the word of the one before, where a word segmenter found the words. LDDL's
# loader does not know the column and reads the others.
WORD_COLUMN = "word_continuations"


@dataclass(frozen=True)
class Description:
    """The facts of a shard that need no decoding: number of samples, longest sample, whether they are masked.

    has_words: whether they record the words that a word segmenter found.
    """

    num_samples: int
    max_num_tokens: int
    masked: bool
    has_words: bool = False


def check_mask_counts(offsets: np.ndarray, label_offsets: np.ndarray) -> None:
    wrong = np.flatnonzero(np.diff(offsets) != np.diff(label_offsets))
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"sample {row}: {np.diff(offsets)[row]} masked_lm_positions but "
            f"{np.diff(label_offsets)[row]} masked_lm_labels; they must be as many: make the shard again"
        )


def check_positions(positions: np.ndarray, offsets: np.ndarray, lengths: np.ndarray, kind: str = "masked") -> None:
    owners = np.repeat(np.arange(len(lengths)), np.diff(offsets))
    outside = np.flatnonzero((positions >= lengths[owners]) | (positions == 0))
    if len(outside):
        row = int(owners[outside[0]])
        raise ValueError(
            f"sample {row}: {kind} position {positions[outside[0]]} is not inside its {lengths[row]} "
            "tokens (0 is [CLS]); the shard is damaged: make it again"
        )

"""Vectors of one length, whose products are cosines."""

import numpy as np


def unit(vectors: np.ndarray, size: int | None = None) -> np.ndarray:
    """The vectors [..., width] with length 1; of the first `size` numbers of each, if given."""
    cut = vectors[..., :size]
    return cut / np.maximum(np.linalg.norm(cut, axis=-1, keepdims=True), 1e-12)

"""Vectors scaled to length 1, so that their dot products are cosines."""

import numpy as np


def unit(vectors: np.ndarray, size: int | None = None) -> np.ndarray:
    """Scale vectors [..., width] to length 1, after cutting each to its first `size` numbers if `size` is not None."""
    cut = vectors[..., :size]
    return cut / np.maximum(np.linalg.norm(cut, axis=-1, keepdims=True), 1e-12)

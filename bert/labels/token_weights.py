"""Weights of tokens for classes, which a classifier adds to its logits ("wide and deep"; Cheng et al., 2016).

Predictions use it too, without what `bert.labels.token_learning` needs to learn them.
"""

from base64 import b64decode, b64encode
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

TOKEN_WEIGHTS = "classifier.token_weights"  # their name in a network


def logits_of(weights: np.ndarray, input_ids: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """The part of the tokens in the logits of texts: float32 [n, classes].

    Args:
        weights: float [vocabulary, classes].
        input_ids, offsets: integers [T] and [n + 1], as of a `FeatureTable`.
    """
    return np.asarray(shares_of(input_ids, offsets, len(weights)) @ weights.astype(np.float32), np.float32)


def shares_of(input_ids: np.ndarray, offsets: np.ndarray, size: int) -> "csr_matrix":
    """float64 [n, size]: how often a text has a token, divided by the square root of the number of its tokens."""
    from scipy.sparse import csr_matrix  # here: an export does not need it

    lengths = np.diff(offsets)
    return csr_matrix((np.repeat(1 / np.sqrt(lengths), lengths), input_ids, offsets), (len(lengths), size))


def packed(weights: np.ndarray | None) -> str | None:
    """float16 [vocabulary, classes] as text for task.json."""
    return None if weights is None else b64encode(np.ascontiguousarray(weights, "<f2").data).decode()


def unpacked(text: str | None, classes: int) -> np.ndarray | None:
    """What `packed` made.

    Raises:
        ValueError: it is not of so many classes.
    """
    try:
        return None if text is None else np.frombuffer(b64decode(text, validate=True), "<f2").reshape(-1, classes)
    except ValueError as error:
        raise ValueError(f"token_weights in task.json are damaged or not of {classes} classes: {error}") from None

"""Weights of tokens for classes, which a classifier adds to its logits ("wide and deep"; Cheng et al., 2016).

Predictions use it too, without what `bert.labels.token_learning` needs to learn them.
"""

from base64 import b64decode, b64encode

import numpy as np
from scipy.sparse import csr_matrix

from bert.finetuning.loader import FeatureTable


def logits_of(weights: np.ndarray, table: FeatureTable) -> np.ndarray:
    """The part of the tokens in the logits of texts: float32 [n, classes], of weights float [vocabulary, classes]."""
    return np.asarray(shares_of(table, len(weights)) @ weights.astype(np.float32), np.float32)


def shares_of(table: FeatureTable, size: int) -> csr_matrix:
    """float64 [n, size]: how often a text has a token, divided by the square root of the number of its tokens."""
    each = np.repeat(1 / np.sqrt(table.lengths()), table.lengths())
    return csr_matrix((each, table.input_ids, table.offsets), (len(table), size))


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

"""Adds padding rows to a network's vocabulary, which no text uses, and removes them."""

from collections.abc import Mapping

import numpy as np

from bert.conversion.tensor_names import WORD_EMBEDDINGS
from bert.conversion.untrusted_files import ConversionError
from bert.model.head_specs import DECODER_BIAS, TOKEN_WEIGHTS

# A padded token has a row of zeros, and this bias in the masked-LM head. exp(-100) adds nothing to a softmax, so the
# losses equal the unpadded model's, and no gradient moves the row.
PADDED_BIAS = -100.0


def pad_vocabulary(
    parameters: Mapping[str, np.ndarray], vocab_size: int, padded_size: int, notes: list[str]
) -> dict[str, np.ndarray]:
    """Add padding rows up to `padded_size`, unless there are some."""
    result = dict(parameters)
    for name, value in ((WORD_EMBEDDINGS, 0.0), (DECODER_BIAS, PADDED_BIAS), (TOKEN_WEIGHTS, 0.0)):
        if name not in result:
            continue
        rows = len(result[name])
        if rows not in (vocab_size, padded_size):
            raise ConversionError(
                f"{name} has {rows} rows, must have {vocab_size} (vocab_size) or {padded_size} (that "
                "rounded up to a multiple of 8); the weights and the model description do not belong "
                "together"
            )
        if rows < padded_size:
            widths = ((0, padded_size - rows),) + ((0, 0),) * (result[name].ndim - 1)
            result[name] = np.pad(result[name], widths, constant_values=np.float32(value))
            notes.append(f"vocabulary padded: {name} from {rows} to {padded_size} rows, filled with {value:g}")
    return result


def strip_vocabulary(parameters: Mapping[str, np.ndarray], vocab_size: int, notes: list[str]) -> dict[str, np.ndarray]:
    """Remove the padding rows of the vocabulary from the parameters."""
    result = dict(parameters)
    for name in (WORD_EMBEDDINGS, DECODER_BIAS, TOKEN_WEIGHTS):
        if name in result and len(result[name]) > vocab_size:
            notes.append(f"padding of the vocabulary removed: {name} from {len(result[name])} to {vocab_size} rows")
            result[name] = result[name][:vocab_size]
    return result

"""Compares an export with our network in float32 before it is written."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion.raw_tensors import ConversionError
from bert.conversion.writing import Model
from bert.inference.paddle_program import Network
from bert.inference.predictor import Predictor
from bert.inference.samples import Sample
from bert.inference.serving import outputs_of

Outputs = Mapping[str, np.ndarray]
# Relative errors that are accepted by default. Measured on fine-tuned MiniLM models and random ones: 1e-6, 1e-3, 0.02
# and 0.03 to 0.17.
TOLERANCES = {"float32": 1e-4, "fp16": 0.02, "bfloat16": 0.1, "int8": 0.3}


def check_export(folder: Path, model: Model, sample: Sample, tolerance: float) -> dict[str, Any]:
    """The differences between an exported model and our network in float32, for serving.json.

    Returns:
        relative_error: root mean square of the differences over that of the outputs, of the worst output.
        max_difference: the largest difference of two numbers.
        same_decision: the share of texts (tokens, for a tagger) with the same class, or the same most likely start and
            end of an answer; None for vectors and numbers.
    Raises:
        ConversionError: relative_error is above the tolerance, or an output is not finite.
    """
    network, predictor = Network(model.parameters, model.config, with_pooler=True), Predictor(folder)
    pairs = [
        (network.run(model.task, feed), predictor.run(feed), feed["attention_mask"] > 0) for feed in sample.batches
    ]
    compared = {
        name: [
            (wanted[name][mask], found[name][mask]) if shape[0] == "s" else (wanted[name], found[name])
            for wanted, found, mask in pairs
        ]
        for name, shape in outputs_of(model.task, model.has_pooler()).items()
    }
    error = float(np.max([_relative_error(values) for values in compared.values()]))
    figures = {
        "sample": sample.source,
        "sequences": sample.sequences(),
        "tokens": sample.tokens(),
        "relative_error": error,
        "max_difference": max(
            float(np.abs(found - wanted).max()) for values in compared.values() for wanted, found in values
        ),
        "same_decision": _same_decision(model, pairs),
        "tolerance": tolerance,
    }
    if not error <= tolerance:  # also if it is NaN
        raise ConversionError(
            f"the export differs from the model: relative error {error:.3g} on "
            f"{sample.source}, above the tolerance {tolerance:g}; keep layers in float32 (--keep-float PATTERN), "
            "calibrate with typical texts, choose another --precision, or accept it with --tolerance"
        )
    return figures


def _relative_error(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """Root mean square of the differences over that of the outputs; NaN if one is not finite."""
    squares = sum(float(np.square(found.astype("float64") - wanted).sum()) for wanted, found in pairs)
    scale = sum(float(np.square(wanted.astype("float64")).sum()) for wanted, _ in pairs)
    return float(np.sqrt(squares / max(scale, 1e-30)))


def _same_decision(model: Model, pairs: Sequence[tuple[Outputs, Outputs, np.ndarray]]) -> float | None:
    if model.task == "encoder" or model.num_outputs() == 1:
        return None
    same: list[np.ndarray] = []
    for wanted, found, mask in pairs:
        if model.task == "question-answering":
            best = [[np.where(mask, o[n], -np.inf).argmax(-1) for n in wanted] for o in (wanted, found)]
            same.append(np.all(np.array(best[0]) == np.array(best[1]), axis=0))
            continue
        agree = wanted["logits"].argmax(-1) == found["logits"].argmax(-1)
        same.append(agree[mask] if agree.ndim == 2 else agree)
    return float(np.concatenate(same).mean())

"""Compares an export with our network in float32 before it is written."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion.converting import Model
from bert.conversion.raw_tensors import ConversionError
from bert.inference.export_files import outputs_of
from bert.inference.paddle_program import Network
from bert.inference.predictor import Predictor
from bert.inference.samples import Sample

Outputs = Mapping[str, np.ndarray]
# Relative errors that are accepted by default. Measured on fine-tuned MiniLM models and random ones: 1e-6, 1e-3, 0.02
# and 0.03 to 0.17.
TOLERANCES = {"float32": 1e-4, "fp16": 0.02, "bfloat16": 0.1, "int8": 0.3}


def check_export(
    folder: Path, model: Model, sample: Sample, precision: str, tolerance: float | None = None
) -> dict[str, Any]:
    """The differences between an exported model and our network in float32, for serving.json.

    Returns:
        relative_error: root mean square of the differences over that of the outputs, of the worst output.
        max_difference: the largest difference of two numbers.
        same_decision: the share of texts (tokens, for a tagger) with the same class, or the same most likely start and
            end of an answer; None for vectors and numbers.
    Raises:
        ConversionError: relative_error is above the tolerance, or an output is not finite.
    """
    tolerance = TOLERANCES[precision] if tolerance is None else tolerance
    network, predictor = Network(model.parameters, model.config, with_pooler=True), Predictor(folder)
    pairs = [
        (network.run(model.task, feed), predictor.run(feed), feed["attention_mask"] > 0) for feed in sample.batches()
    ]
    errors, largest = [], 0.0
    for name, shape in outputs_of(model.task, model.has_pooler()).items():
        squares = scale = 0.0
        for ours, exported, mask in pairs:
            places = mask if shape[0] == "s" else slice(None)
            expected = ours[name][places].astype("float64")
            difference = exported[name][places] - expected
            squares, scale = squares + float(np.square(difference).sum()), scale + float(np.square(expected).sum())
            largest = max(largest, float(np.abs(difference).max()))
        errors.append(float(np.sqrt(squares / max(scale, 1e-30))))
    error = float(np.max(errors))
    if not error <= tolerance:  # also if it is NaN
        raise ConversionError(
            f"the export differs from the model: relative error {error:.3g} on "
            f"{sample.source}, above the tolerance {tolerance:g}; keep layers in float32 (--keep-float PATTERN), "
            "calibrate with typical texts, choose another --precision, or accept it with --tolerance"
        )
    return {
        "sample": sample.source,
        "sequences": len(sample.table),
        "tokens": len(sample.table.input_ids),
        "relative_error": error,
        "max_difference": largest,
        "same_decision": _same_decision(model, pairs),
        "tolerance": tolerance,
    }


def _same_decision(model: Model, pairs: Sequence[tuple[Outputs, Outputs, np.ndarray]]) -> float | None:
    if model.task == "encoder" or model.num_outputs() == 1:
        return None
    same: list[np.ndarray] = []
    for ours, exported, mask in pairs:
        if model.task == "question-answering":
            starts_and_ends = [[np.where(mask, o[n], -np.inf).argmax(-1) for n in ours] for o in (ours, exported)]
            same.append(np.all(np.array(starts_and_ends[0]) == np.array(starts_and_ends[1]), axis=0))
        else:
            agree = ours["logits"].argmax(-1) == exported["logits"].argmax(-1)
            same.append(agree[mask] if agree.ndim == 2 else agree)
    return float(np.concatenate(same).mean())

"""Makes an ONNX file smaller and faster: INT8 or float16, with ONNX Runtime's tools.

INT8 quantises the weights of the linear layers, one scale for each column of a matrix. Dynamic: the
scale of the inputs of a layer is found while it runs. Static: it is found beforehand, from a sample; this needs a
typical sample and loses more, since a few activations of BERT are much larger than the others.
"""

from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion.raw_tensors import ConversionError

_OPERATORS = ("MatMul",)  # embeddings in INT8 too cost MiniLM 2 to 3 points
_HEADS = ("classifier", "qa_outputs")  # their few columns cost no time and decide the result


def to_float16(source: Path, target: Path) -> None:
    """Weights and arithmetic in float16; inputs and outputs stay as they are."""
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), target)


def to_int8(
    source: Path,
    target: Path,
    *,
    calibration: Sequence[dict[str, np.ndarray]] | None = None,
    keep_float: Sequence[str] = (),
    reduce_range: bool = False,
) -> list[str]:
    """Quantise the linear layers; returns the layers that stay in float32.

    Args:
        calibration: batches for static quantisation; None: dynamic.
        keep_float: patterns of layers that are left out: "*.output.dense", "bert.encoder.layer.0.*".
        reduce_range: weights of 7 bits, for processors without VNNI, whose sums of products of 8 bits saturate.
    Raises:
        ConversionError: a pattern that no layer matches.
    """
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.shape_inference import quant_pre_process

    layers, others = _nodes(source)
    excluded = _excluded(layers, keep_float)
    settings: dict[str, Any] = {
        "per_channel": True,
        "reduce_range": reduce_range,
        "weight_type": QuantType.QInt8,
        "nodes_to_exclude": [*excluded, *others],
        "op_types_to_quantize": list(_OPERATORS),
    }
    # The preparation that ONNX Runtime asks for: shapes. Its optimisation would join operators and rename layers.
    prepared = target.with_name(f"prepared-{target.name}")
    try:
        quant_pre_process(source, prepared, skip_optimization=True, skip_symbolic_shape=True)
        _quantize(prepared, target, calibration, settings)
    finally:
        prepared.unlink(missing_ok=True)
    return excluded


def _quantize(
    source: Path, target: Path, calibration: Sequence[dict[str, np.ndarray]] | None, settings: dict[str, Any]
) -> None:
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_dynamic, quantize_static

    if calibration is None:
        quantize_dynamic(source, target, **settings)
    else:
        quantize_static(
            source,
            target,
            _Batches(calibration),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            calibrate_method=CalibrationMethod.MinMax,
            **settings,
        )


class _Batches:
    """Batches as the calibration reads them."""

    def __init__(self, batches: Sequence[dict[str, np.ndarray]]) -> None:
        self._batches: Iterator[dict[str, np.ndarray]] = iter(batches)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._batches, None)


def _excluded(layers: Sequence[str], patterns: Sequence[str]) -> list[str]:
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in layers):
            raise ConversionError(f"--keep-float {pattern}: no layer has this name; they are {', '.join(layers)}")
    return [name for name in layers if any(fnmatch(name, pattern) for pattern in (*_HEADS, *patterns))]


def _nodes(path: Path) -> tuple[list[str], list[str]]:
    """The names of the layers with weights, and of products and choices of activations."""
    import onnx

    graph = onnx.load(path).graph
    matrices = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
    layers: list[str] = []
    others: list[str] = []
    for node in graph.node:
        if node.op_type in _OPERATORS:
            (layers if matrices.intersection(node.input) else others).append(node.name)
    return layers, others

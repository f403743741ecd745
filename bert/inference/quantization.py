"""Makes an ONNX file smaller and faster: INT8 or float16, with ONNX Runtime's tools.

INT8 quantises the weights of the linear layers, one scale for each column of a matrix. Dynamic: the
scale of the inputs of a layer is found while it runs. Static: it is found beforehand, from a sample; this needs a
typical sample and loses more, since a few activations of BERT are much larger than the others.
"""

from collections.abc import Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from types import SimpleNamespace
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
    calibration: Sequence[dict[str, np.ndarray]] | None = None,
    *,
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
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    graph = onnx.load(source).graph
    matrices = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
    products = [node for node in graph.node if node.op_type in _OPERATORS]
    layers = [node.name for node in products if matrices.intersection(node.input)]  # others multiply activations
    for pattern in keep_float:
        if not any(fnmatch(name, pattern) for name in layers):
            raise ConversionError(f"--keep-float {pattern}: no layer has this name; they are {', '.join(layers)}")
    kept = [name for name in layers if any(fnmatch(name, pattern) for pattern in (*_HEADS, *keep_float))]
    settings: dict[str, Any] = {
        "per_channel": True,
        "reduce_range": reduce_range,
        "weight_type": QuantType.QInt8,
        "nodes_to_exclude": [*kept, *(node.name for node in products if node.name not in layers)],
        "op_types_to_quantize": list(_OPERATORS),
    }
    # The preparation that ONNX Runtime asks for: shapes. Its optimisation would join operators and rename layers.
    prepared = target.with_name(f"prepared-{target.name}")
    try:
        quant_pre_process(source, prepared, skip_optimization=True, skip_symbolic_shape=True)
        if calibration is None:
            quantize_dynamic(prepared, target, **settings)
        else:  # by default in the form QDQ, with scales from the least and the largest activation
            reader = SimpleNamespace(get_next=partial(next, iter(calibration), None))
            quantize_static(prepared, target, reader, **{**settings, "activation_type": QuantType.QUInt8})
    finally:
        prepared.unlink(missing_ok=True)
    return kept

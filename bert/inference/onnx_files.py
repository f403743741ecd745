"""Writes a model as an ONNX file in float32, fp16 or int8 with ONNX Runtime's tools, also for Triton.

INT8 quantises the weights of the linear layers, one scale for each column of a matrix. Dynamic quantisation finds the
scale of a layer's inputs while the layer runs. Static quantisation finds it beforehand, from a sample; this needs a
typical sample and loses more, since a few activations of BERT are much larger than the others.
"""

from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bert.conversion.model import Model
from bert.conversion.untrusted_files import ConversionError
from bert.inference.export_files import ONNX_FILE, ExportRequest
from bert.inference.onnx_graph import write_onnx
from bert.inference.samples import Sample
from bert.inference.triton_files import TRITON_VERSION, write_triton_config

_OPERATORS = ("MatMul",)  # embeddings in INT8 too cost MiniLM 2 to 3 points
_HEADS = ("classifier", "qa_outputs")  # their few columns cost no time and decide the result


def write_onnx_export(folder: Path, model: Model, request: ExportRequest, calibration: Sample | None) -> dict[str, Any]:
    """Write the ONNX file, and the files that Triton needs; returns their entries in serving.json."""
    for_triton = request.to_format == "triton"
    name = f"{TRITON_VERSION}/{ONNX_FILE}" if for_triton else ONNX_FILE
    file, plain = folder / name, folder / f"float32-{ONNX_FILE}"
    file.parent.mkdir(exist_ok=True)
    details: dict[str, Any] = {"format": "onnx", "file": name} if for_triton else {}
    write_onnx(plain, model)
    if request.precision == "float32":
        plain.rename(file)
    elif request.precision == "fp16":
        import onnx
        from onnxruntime.transformers.float16 import convert_float_to_float16

        onnx.save(convert_float_to_float16(onnx.load(plain), keep_io_types=True), file)
    else:
        float_layers = _to_int8(plain, file, request, calibration)
        kind = "dynamic" if calibration is None else f"static, calibrated on {calibration.source}"
        details["quantization"] = {"activations": kind, "weights": "per column", "float32_layers": float_layers}
    plain.unlink(missing_ok=True)
    if for_triton:
        write_triton_config(folder, file, model.labels, model.task)
    return details


def _to_int8(source: Path, target: Path, request: ExportRequest, calibration: Sample | None) -> list[str]:
    """Quantise the linear layers of an ONNX file; returns the names of layers that stay in float32."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    graph = onnx.load(source).graph
    matrices = {tensor.name for tensor in graph.initializer if len(tensor.dims) == 2}
    products = [node for node in graph.node if node.op_type in _OPERATORS]
    layers = [node.name for node in products if matrices.intersection(node.input)]  # others multiply activations
    for pattern in request.keep_float:
        if not any(fnmatch(name, pattern) for name in layers):
            raise ConversionError(f"--keep-float {pattern}: no layer has this name; they are {', '.join(layers)}")
    float_layers = [
        name for name in layers if any(fnmatch(name, pattern) for pattern in (*_HEADS, *request.keep_float))
    ]
    settings: dict[str, Any] = {
        "per_channel": True,
        "reduce_range": request.reduce_range,
        "weight_type": QuantType.QInt8,
        "nodes_to_exclude": [*float_layers, *(node.name for node in products if node.name not in layers)],
        "op_types_to_quantize": list(_OPERATORS),
    }
    # The preparation that ONNX Runtime asks for: shapes. Its optimisation would join operators and rename layers.
    prepared = source.with_name(f"prepared-{source.name}")
    quant_pre_process(source, prepared, skip_optimization=True, skip_symbolic_shape=True)
    if calibration is None:
        quantize_dynamic(prepared, target, **settings)
    else:  # by default in the form QDQ, with scales from the least and the largest activation
        batches = calibration.batches(names=[value.name for value in graph.input])
        reader = SimpleNamespace(get_next=partial(next, iter(batches), None))
        quantize_static(prepared, target, reader, **settings, activation_type=QuantType.QUInt8)
    prepared.unlink()
    return float_layers

"""Writes a model as an ONNX file in a precision, with ONNX Runtime's tools, and describes it for NVIDIA's Triton.

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

from bert.conversion.model import Model
from bert.conversion.untrusted_files import ConversionError
from bert.inference.export_files import ONNX_FILE, ExportRequest
from bert.inference.onnx_graph import write_onnx
from bert.inference.samples import Sample

_OPERATORS = ("MatMul",)  # embeddings in INT8 too cost MiniLM 2 to 3 points
_HEADS = ("classifier", "qa_outputs")  # their few columns cost no time and decide the result

_TRITON_VERSION = "1"  # folder of the ONNX file
_LABELS_FILE = "labels.txt"
_TYPES = {"INT64": "TYPE_INT64", "FLOAT": "TYPE_FP32", "FLOAT16": "TYPE_FP16"}  # ONNX -> Triton
_TRITON_CONFIG = """\
# For Triton Inference Server. Requests of the same length run together: pad texts to a few lengths.
backend: "onnxruntime"
max_batch_size: 64
{tensors}
dynamic_batching {{
  max_queue_delay_microseconds: 1000
}}
"""


def write_onnx_export(folder: Path, model: Model, request: ExportRequest, calibration: Sample | None) -> dict[str, Any]:
    """Write an ONNX file in float32, fp16 or int8, and what Triton needs; returns what serving.json says of them."""
    for_triton = request.to_format == "triton"
    name = f"{_TRITON_VERSION}/{ONNX_FILE}" if for_triton else ONNX_FILE
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
        kept = _to_int8(plain, file, request, calibration)
        kind = "dynamic" if calibration is None else f"static, calibrated on {calibration.source}"
        details["quantization"] = {"activations": kind, "weights": "per column", "float32_layers": kept}
    plain.unlink(missing_ok=True)
    if for_triton:
        _write_triton_config(folder, file, model.labels, model.task)
    return details


def _to_int8(source: Path, target: Path, request: ExportRequest, calibration: Sample | None) -> list[str]:
    """Quantise the linear layers; returns those that stay in float32."""
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
    kept = [name for name in layers if any(fnmatch(name, pattern) for pattern in (*_HEADS, *request.keep_float))]
    settings: dict[str, Any] = {
        "per_channel": True,
        "reduce_range": request.reduce_range,
        "weight_type": QuantType.QInt8,
        "nodes_to_exclude": [*kept, *(node.name for node in products if node.name not in layers)],
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
    return kept


def _write_triton_config(folder: Path, onnx_file: Path, labels: Sequence[str] | None, task: str) -> None:
    """Describe the inputs and outputs of `onnx_file` in folder/config.pbtxt; the classes go into folder/labels.txt.

    The folder is one model of a repository: `tritonserver --model-repository PARENT` serves all folders of its parent,
    each by its name. The format is that of model_config.proto (github.com/triton-inference-server/common); a test reads
    what is written with that schema. No Triton was run.
    """
    import onnx

    graph = onnx.load(str(onnx_file), load_external_data=False).graph
    if labels:
        (folder / _LABELS_FILE).write_text("".join(f"{label}\n" for label in labels), encoding="utf-8")
    names_classes = task == "sequence-classification" and bool(labels)
    tensors = [
        *(_tensor("input", value, onnx, "") for value in graph.input),
        *(_tensor("output", value, onnx, _LABELS_FILE if names_classes else "") for value in graph.output),
    ]
    (folder / "config.pbtxt").write_text(_TRITON_CONFIG.format(tensors="\n".join(tensors)), encoding="utf-8")


def _tensor(field: str, value: Any, onnx: Any, labels: str) -> str:
    """An input or output; the first dimension is the batch, which Triton adds itself."""
    tensor = value.type.tensor_type
    dims = ", ".join(str(size.dim_value or -1) for size in tensor.shape.dim[1:])
    kind = _TYPES[onnx.TensorProto.DataType.Name(tensor.elem_type)]
    label = f'  label_filename: "{labels}"\n' if labels else ""
    return f'{field} {{\n  name: "{value.name}"\n  data_type: {kind}\n  dims: [ {dims} ]\n{label}}}'

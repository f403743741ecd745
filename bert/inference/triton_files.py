"""Writes files that NVIDIA's Triton Inference Server needs for an ONNX file: config.pbtxt and the class names."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

TRITON_VERSION = "1"  # folder of the ONNX file
_LABELS_FILE = "labels.txt"
_TYPES = {"INT64": "TYPE_INT64", "FLOAT": "TYPE_FP32", "FLOAT16": "TYPE_FP16"}  # ONNX -> Triton
_CONFIG = """\
# For Triton Inference Server. Requests of the same length run together: pad texts to a few lengths.
backend: "onnxruntime"
max_batch_size: 64
{tensors}
dynamic_batching {{
  max_queue_delay_microseconds: 1000
}}
"""


def write_triton_config(folder: Path, onnx_file: Path, labels: Sequence[str] | None, task: str) -> None:
    """Describe the inputs and outputs of `onnx_file` in folder/config.pbtxt; the classes go into folder/labels.txt.

    The folder is one model of a repository: `tritonserver --model-repository PARENT` serves all folders of its parent,
    each by its name. The format is defined by model_config.proto (github.com/triton-inference-server/common); a test
    parses the file with this schema. It was not tried with a running Triton.
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
    (folder / "config.pbtxt").write_text(_CONFIG.format(tensors="\n".join(tensors)), encoding="utf-8")


def _tensor(field: str, value: Any, onnx: Any, labels: str) -> str:
    """The entry of an input or output, without the batch dimension, which Triton adds itself."""
    tensor = value.type.tensor_type
    dims = ", ".join(str(size.dim_value or -1) for size in tensor.shape.dim[1:])
    kind = _TYPES[onnx.TensorProto.DataType.Name(tensor.elem_type)]
    label = f'  label_filename: "{labels}"\n' if labels else ""
    return f'{field} {{\n  name: "{value.name}"\n  data_type: {kind}\n  dims: [ {dims} ]\n{label}}}'

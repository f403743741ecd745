"""What is exported: the request, and the inputs and outputs, which serving.json beside the model describes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert.conversion.converting import Request
from bert.conversion.model_description import VectorForm
from bert.conversion.raw_tensors import ConversionError
from bert.interpreter import install_command
from bert.model.head_specs import HEADS

DESCRIPTION_FILE = "serving.json"
PREFIX = "model"  # of Paddle Inference's model.pdmodel, the program, and model.pdiparams, the weights
ONNX_FILE = "model.onnx"
OPENVINO_FILE = "openvino_model.xml"  # as optimum names it; the weights are in the .bin beside it
CALIBRATION_FILE = "calibration.npz"  # from which Paddle Inference finds the scales of INT8 when it loads a model
Arrays = Mapping[str, np.ndarray]  # of a network's inputs or outputs
INPUTS = ("input_ids", "token_type_ids", "attention_mask")  # int64 [batch, s]
VECTORS = "sentence_embedding"  # the output of a model of vectors, as optimum names it
NO_TOKEN_TYPES = tuple(name for name in INPUTS if name != "token_type_ids")  # of a ModernBERT or a RoBERTa


@dataclass(frozen=True)
class ExportRequest(Request):
    """An export to do, from the flags of run_export.py."""

    precision: str = "float32"
    calibration: Path | None = None  # texts for the static quantisation of INT8; None: dynamic
    sample: Path | None = None
    tolerance: float | None = None
    keep_float: Sequence[str] = ()  # patterns of layers that INT8 leaves out: "*.output.dense"
    reduce_range: bool = False  # INT8 weights of 7 bits: without VNNI, sums of products of 8 bits saturate


def missing_package(user: str, package: str, extra: str, purpose: str = "") -> str:
    return f"{user} needs the {package} package, which {purpose}is not installed; {install_command(extra)}"


def outputs_of(task: str, with_pooler: bool, vectors: VectorForm | None = None) -> dict[str, tuple[str, ...]]:
    """Outputs of an exported model of a task, by name; of an encoder that was trained for vectors, these alone."""
    if vectors and task == "encoder":
        return {VECTORS: ("hidden",)}
    if not HEADS[task].is_exported:
        served = ", ".join(name for name, head in HEADS.items() if head.is_exported)
        raise ConversionError(
            f"task={task} is not one that is served ({served}); choose with --task, e.g. "
            "--task encoder for its hidden states"
        )
    return {name: shape for name, shape in HEADS[task].outputs.items() if with_pooler or name != "pooler_output"}

"""Settings of an export, names of its files, and names of its inputs and outputs, as serving.json has them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from bert.config.flags import Flag
from bert.config.setting_errors import SettingsWithRules
from bert.conversion.settings import ConversionRequest
from bert.conversion.untrusted_files import ConversionError
from bert.conversion.usage import VectorForm
from bert.interpreter import install_command
from bert.model.head_specs import HEADS

if TYPE_CHECKING:  # not for --help
    import numpy as np

DESCRIPTION_FILE = "serving.json"
PREFIX = "model"  # Paddle Inference reads model.pdmodel, the program, and model.pdiparams, the weights
ONNX_FILE = "model.onnx"
OPENVINO_FILE = "openvino_model.xml"  # as optimum names it; the weights are in the .bin beside it
CALIBRATION_FILE = "calibration.npz"  # Paddle Inference finds the scales of INT8 from it when it loads a model
Arrays = Mapping[str, "np.ndarray"]  # a network's inputs or outputs, by name
INPUTS = ("input_ids", "token_type_ids", "attention_mask")  # int64 [batch, s]
VECTORS = "sentence_embedding"  # the output of a model of vectors, as optimum names it
NO_TOKEN_TYPES = tuple(name for name in INPUTS if name != "token_type_ids")  # inputs of a ModernBERT or a RoBERTa


PRECISIONS = {  # precisions that each format can have
    "paddle-inference": ("float32", "fp16", "bfloat16", "int8"),
    "onnx": ("float32", "fp16", "int8"),
    "openvino": ("float32", "bfloat16", "int8"),
    "triton": ("float32", "fp16", "int8"),
}
# Default limits of the relative error. Measured on fine-tuned and random MiniLM models: 1e-6, 1e-3, 0.02 and 0.03 to
# 0.17.
TOLERANCES = {"float32": 1e-4, "fp16": 0.02, "bfloat16": 0.1, "int8": 0.3}


class ExportRequest(ConversionRequest, SettingsWithRules):
    """All settings of an export, from the flags of run_export.py."""

    source: Annotated[str, Flag(name="--model", hidden_aliases=("--checkpoint",), placeholder="DIR_OR_FILE")] = Field(
        description="a checkpoint of any format that run_convert.py reads; for a folder of steps, its newest"
    )
    to_format: Annotated[
        Literal[*PRECISIONS, "hf", "paddlenlp"],  # type: ignore[valid-type]
        Flag(name="--output-format", hidden_aliases=("--format",)),
    ] = Field(description="what will serve it")
    task: Literal[*HEADS] | None = Field(  # type: ignore[valid-type]
        None,
        description="task whose outputs to serve; encoder: hidden states (default: by the model's head, masked-lm "
        "after a pre-training)",
    )
    precision: Literal[*TOLERANCES] = Field(  # type: ignore[valid-type]
        "float32", description="type of weights and arithmetic"
    )
    calibration: Annotated[Path | None, Flag(placeholder="FILE", default_text="for ONNX: dynamic")] = Field(
        None,
        description="texts, one a line as for run_predict.py, from which INT8 finds the scales of activations "
        "beforehand (static quantisation)",
    )
    sample: Annotated[
        Path | None, Flag(placeholder="FILE", default_text="texts of --calibration, or random tokens")
    ] = Field(None, description="texts on which the export is compared with the model")
    tolerance: float | None = Field(
        None, gt=0, description="refuse an export with a larger relative error than this (default: by the precision)"
    )
    keep_float: Annotated[tuple[str, ...], Flag(placeholder="PATTERN", is_repeatable=True)] = Field(
        (), description="layers that INT8 leaves in float32, such as '*.output.dense'"
    )
    reduce_range: bool = Field(  # without VNNI, sums of products of 8 bits saturate
        False, description="INT8 for processors without VNNI: weights of 7 bits"
    )

    def _mistakes(self) -> Iterator[str]:
        precisions = PRECISIONS.get(self.to_format, ("float32",))
        if self.precision not in precisions:
            yield (
                f"--precision {self.precision}: {self.to_format} is written in {', '.join(precisions)}; choose one of "
                "them"
            )
        if self.precision != "int8" and (self.calibration or self.keep_float or self.reduce_range):
            yield "--calibration, --keep-float and --reduce-range are for INT8; add --precision int8"
        if self.to_format not in ("onnx", "triton") and (self.keep_float or self.reduce_range):
            yield "--keep-float and --reduce-range are for --output-format onnx and triton; omit them"
        if self.to_format in ("paddle-inference", "openvino") and self.precision == "int8" and not self.calibration:
            yield f"--precision int8 of {self.to_format} needs typical texts: --calibration FILE"
        if self.to_format not in PRECISIONS and (self.sample or self.tolerance is not None):
            yield f"--sample and --tolerance: {self.to_format} is not checked by a sample; omit them"


def missing_package(user: str, package: str, extra: str, purpose: str = "") -> str:
    return f"{user} needs the {package} package, which {purpose}is not installed; {install_command(extra)}"


def outputs_of(task: str, with_pooler: bool, vectors: VectorForm | None = None) -> dict[str, tuple[str, ...]]:
    """Names and dimensions of an export's outputs; an encoder that was trained for vectors has its vectors alone."""
    if vectors and task == "encoder":
        return {VECTORS: ("hidden",)}
    if not HEADS[task].is_exported:
        served = ", ".join(name for name, head in HEADS.items() if head.is_exported)
        raise ConversionError(
            f"task={task} is not one that is served ({served}); choose with --task, e.g. "
            "--task encoder for its hidden states"
        )
    return {name: shape for name, shape in HEADS[task].outputs.items() if with_pooler or name != "pooler_output"}

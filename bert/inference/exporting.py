"""Exports a BERT for serving: Paddle Inference or ONNX, or a checkpoint of Hugging Face or PaddleNLP."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion import converting
from bert.conversion.converting import Model, Request, convert, read, source_parser
from bert.conversion.model_description import TASK_FILE, read_usage
from bert.conversion.raw_tensors import ConversionError, write_json
from bert.inference import triton
from bert.inference.export_files import CALIBRATION_FILE, DESCRIPTION_FILE, INPUTS, ONNX_FILE, PRECISIONS, outputs_of
from bert.inference.onnx_graph import onnx_package, write_onnx
from bert.inference.quantization import to_float16, to_int8
from bert.inference.samples import Sample, random_sample, read_texts, table_of_texts

_PRECISIONS = {  # of the formats that are served
    "paddle-inference": ("float32", "bfloat16", "int8"),
    "onnx": ("float32", "fp16", "int8"),
    "triton": ("float32", "fp16", "int8"),
}
FORMATS = (*_PRECISIONS, "hf", "paddlenlp")


@dataclass(frozen=True)
class ExportRequest(Request):
    """An export to do, from the flags of run_export.py."""

    precision: str = "float32"
    calibration: Path | None = None
    sample: Path | None = None
    tolerance: float | None = None
    keep_float: tuple[str, ...] = ()
    reduce_range: bool = False


def parse_request(argv: Sequence[str] | None) -> ExportRequest:
    """The command line of run_export.py."""
    parser = source_parser(
        "run_export.py",
        "Export a BERT for serving (Paddle Inference, ONNX, Triton), or as a checkpoint of Hugging Face or PaddleNLP.",
        source="--checkpoint",
        source_help="a checkpoint of any format that run_convert.py reads; for a folder of steps, its newest",
        task_help="whose outputs to serve; by default those of the model's "
        "head, and the encoder's hidden states of a model with pre-training heads",
    )
    add = parser.add_argument
    add("--format", dest="to_format", required=True, choices=FORMATS, help="what will serve it")
    add("--precision", choices=PRECISIONS, default="float32", help="of weights and arithmetic (default: float32)")
    add(
        "--calibration",
        type=Path,
        metavar="FILE",
        help="texts, one a line as for run_predict.py, from which INT8 finds the scales of activations beforehand "
        "(static quantisation; default for ONNX: dynamic)",
    )
    add(
        "--sample",
        type=Path,
        metavar="FILE",
        help="texts on which the export is compared with the model (default: those of --calibration, or random tokens)",
    )
    add("--tolerance", type=float, metavar="X", help="refuse an export with a larger relative error than this")
    add(
        "--keep-float",
        action="append",
        default=[],
        metavar="PATTERN",
        help="layers that INT8 leaves in float32, such as '*.output.dense'; can be repeated",
    )
    add("--reduce-range", action="store_true", help="INT8 for processors without VNNI: weights of 7 bits")
    values = vars(parser.parse_args(argv))
    request = ExportRequest(**{**values, "keep_float": tuple(values["keep_float"])})
    _check(request)
    return request


def _check(request: ExportRequest) -> None:
    precision, to_format = request.precision, request.to_format
    known = _PRECISIONS.get(to_format, ("float32",))
    if precision not in known:
        raise ValueError(f"--precision {precision}: {to_format} is written in {', '.join(known)}; choose one of them")
    if precision != "int8" and (request.calibration or request.keep_float or request.reduce_range):
        raise ValueError("--calibration, --keep-float and --reduce-range are for INT8; add --precision int8")
    if to_format not in ("onnx", "triton") and (request.keep_float or request.reduce_range):
        raise ValueError("--keep-float and --reduce-range are for --format onnx and triton; omit them")
    if to_format == "paddle-inference" and precision == "int8":
        from bert.inference.predictor import require_quantizer  # loads Paddle

        require_quantizer()
        if request.calibration is None:
            raise ValueError("--precision int8 of paddle-inference needs typical texts: --calibration FILE")
    if to_format not in _PRECISIONS and (request.sample or request.tolerance is not None):
        raise ValueError(f"--sample and --tolerance: {to_format} is not checked by a sample; omit them")
    if request.tolerance is not None and not 0 < request.tolerance < np.inf:
        raise ValueError(f"--tolerance {request.tolerance} must be a positive number, such as 0.1")


def export(request: ExportRequest) -> dict[str, Any]:
    """Write what `request.to_format` needs, with the tokenizer and serving.json; returns the report.

    Raises:
        ConversionError, CheckpointError: the source cannot be read as a BERT, or its task is not served; the export
            differs too much from the model.
    """
    if request.to_format in converting.FORMATS:
        return convert(request)
    if request.to_format != "paddle-inference":
        onnx_package()
        onnx_package("onnxruntime", "checks what was exported and ")
        onnx_package("ml_dtypes", "onnxruntime imports and ")
    texts = {path: read_texts(path) for path in (request.calibration, request.sample) if path is not None}
    model = _with_outputs(read(request), request.task)

    def sample_of(path: Path, folder: Path) -> Sample:
        if model.tokens is None:
            raise ConversionError(f"{path}: the texts need a vocabulary; pass --vocab-file")
        trained = read_usage(folder).max_seq_length if (folder / TASK_FILE).is_file() else None
        length = min(trained or 384, model.config.max_position_embeddings)
        table = table_of_texts(texts[path], folder / "tokenizer.json", length, model.config.pad_token_id)
        return Sample(path.name, table, length)

    def write(folder: Path) -> None:
        from bert.inference.export_check import check_export  # loads Paddle

        model.write_tokenizer(folder)
        model.write_texts(folder)
        calibration = sample_of(request.calibration, folder) if request.calibration else None
        sample = sample_of(request.sample, folder) if request.sample else calibration or random_sample(model.config)
        outputs = outputs_of(model.task, model.has_pooler())
        description = {
            "format": request.to_format,
            "task": model.task,
            "inputs": list(INPUTS),
            "outputs": {name: ["batch", *shape] for name, shape in outputs.items()},
            "labels": model.labels,
            "max_length": model.config.max_position_embeddings,
            "precision": request.precision,
            **_write_model(folder, model, request, calibration),
        }
        write_json(folder / DESCRIPTION_FILE, description)  # the check opens the export
        check = check_export(folder, model, sample, request.precision, request.tolerance)
        write_json(folder / DESCRIPTION_FILE, {**description, "check": check})
        same = check["same_decision"]
        decisions = "" if same is None else f", the same decision in {same:.1%}"
        model.notes.append(f"checked on {sample.source}: relative error {check['relative_error']:.2g}{decisions}")
        write_json(folder / converting.REPORT_FILE, model.report(request.to_format))

    converting.write_directory(request.target, write)
    return model.report(request.to_format)


def _with_outputs(model: Model, task: str | None) -> Model:
    """The model with the task whose outputs are served."""
    if task is None and model.task in ("pretraining", "masked-lm", "next-sentence"):
        model.notes.append(f"the hidden states of the encoder are served; the heads of {model.task} are left out")
        parameters = converting.parameters_for("encoder", model.parameters, model.notes)
        model = dataclasses.replace(model, parameters=parameters, task="encoder", labels=None)
    outputs_of(model.task, model.has_pooler())  # raises for a task that is not served
    return model


def _write_model(folder: Path, model: Model, request: ExportRequest, calibration: Sample | None) -> dict[str, Any]:
    """The files of the model; returns what serving.json says of them beside the rest."""
    if request.to_format == "onnx":
        return _write_onnx(folder / ONNX_FILE, model, request, calibration)
    if request.to_format == "triton":
        file = f"{triton.VERSION}/{ONNX_FILE}"
        (folder / triton.VERSION).mkdir()
        details = _write_onnx(folder / file, model, request, calibration)
        triton.write_config(folder, folder / file, model.labels, model.task)
        return {**details, "format": "onnx", "file": file}
    from bert.inference.paddle_program import write_paddle_inference  # loads Paddle

    write_paddle_inference(folder, model)
    if request.precision != "int8":
        return {}
    assert calibration is not None
    (sequences,) = calibration.batches(len(calibration.table))
    np.savez(folder / CALIBRATION_FILE, **sequences)
    return {"quantization": {"activations": f"static, calibrated on {calibration.source}"}}


def _write_onnx(file: Path, model: Model, request: ExportRequest, calibration: Sample | None) -> dict[str, Any]:
    write_onnx(file, model)
    if request.precision == "float32":
        return {}
    plain = file.rename(file.with_name(f"float32-{ONNX_FILE}"))
    try:
        if request.precision == "fp16":
            to_float16(plain, file)
            return {}
        batches = None if calibration is None else calibration.batches()
        kept = to_int8(plain, file, batches, keep_float=request.keep_float, reduce_range=request.reduce_range)
        kind = "dynamic" if calibration is None else f"static, calibrated on {calibration.source}"
        return {"quantization": {"activations": kind, "weights": "per column", "float32_layers": kept}}
    finally:
        plain.unlink()

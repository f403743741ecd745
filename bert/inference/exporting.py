"""Exports a BERT for serving: Paddle Inference or ONNX, or a checkpoint of Hugging Face or PaddleNLP."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion import writing
from bert.conversion.command_line import source_parser
from bert.conversion.converting import Request, Source, convert, read
from bert.conversion.model_usage import TASK_FILE, read_usage
from bert.conversion.raw_tensors import ConversionError, write_json
from bert.conversion.writing import Model
from bert.inference import triton
from bert.inference.onnx_graph import onnx_package, write_onnx
from bert.inference.quantization import to_float16, to_int8
from bert.inference.samples import Sample, Texts, random_sample, read_texts, sample_of_texts
from bert.inference.serving import CALIBRATION_FILE, DESCRIPTION_FILE, INPUTS, ONNX_FILE, PRECISIONS, outputs_of


@dataclass(frozen=True)
class ExportRequest(Request):
    """An export to do, from the flags of run_export.py.

    Attributes:
        calibration: a file of texts from which the scales of INT8 are found beforehand.
        sample: a file of texts on which the export is compared with the model; None: those of the calibration, or
            random tokens.
        tolerance: the largest relative error of the outputs; None: `export_check.TOLERANCES`.
        keep_float: patterns of layers that INT8 leaves in float32.
    """

    precision: str = "float32"
    calibration: Path | None = None
    sample: Path | None = None
    tolerance: float | None = None
    keep_float: tuple[str, ...] = ()
    reduce_range: bool = False


@dataclass(frozen=True)
class Prepared:
    """What writes an export beside the model: the request, and the batches of the calibration."""

    request: ExportRequest
    calibration: Sample | None


@dataclass(frozen=True)
class Format:
    """A serving format.

    Attributes:
        precisions: what it can be written in.
        check: raises ConversionError before anything is read, if packages are missing.
        write: writes the files of the model into a folder, which has the tokenizer already; returns what serving.json
            says beside the rest.
    """

    precisions: tuple[str, ...]
    check: Callable[[], None]
    write: Callable[[Path, Model, Prepared], dict[str, Any]]


def parse_request(argv: Sequence[str] | None) -> ExportRequest:
    """The command line of run_export.py.

    Raises:
        ValueError: the flag, the rule and the remedy.
    """
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
    known = _SERVED[to_format].precisions if to_format in _SERVED else ("float32",)
    if precision not in known:
        raise ValueError(f"--precision {precision}: {to_format} is written in {', '.join(known)}; choose one of them")
    if precision != "int8" and (request.calibration or request.keep_float or request.reduce_range):
        raise ValueError("--calibration, --keep-float and --reduce-range are for INT8; add --precision int8")
    if to_format not in ("onnx", "triton") and (request.keep_float or request.reduce_range):
        raise ValueError("--keep-float and --reduce-range are for --format onnx and triton; omit them")
    if to_format == "paddle-inference" and precision == "int8":
        from bert.inference.sessions import require_quantizer  # loads Paddle

        require_quantizer()
        if request.calibration is None:
            raise ValueError("--precision int8 of paddle-inference needs typical texts: --calibration FILE")
    if to_format not in _SERVED and (request.sample or request.tolerance is not None):
        raise ValueError(f"--sample and --tolerance: {to_format} is not checked by a sample; omit them")
    if request.tolerance is not None and not 0 < request.tolerance < np.inf:
        raise ValueError(f"--tolerance {request.tolerance} must be a positive number, such as 0.1")


def export(request: Request) -> dict[str, Any]:
    """Write what `request.to_format` needs, with the tokenizer and serving.json; returns the report.

    Raises:
        ConversionError, CheckpointError: the source cannot be read as a BERT, or its task is not served; the export
            differs too much from the model.
    """
    if request.to_format in writing.FORMATS:
        return convert(request)
    settings = request if isinstance(request, ExportRequest) else ExportRequest(**vars(request))
    form = _SERVED[request.to_format]
    form.check()
    texts = {path: read_texts(path) for path in (settings.calibration, settings.sample) if path is not None}
    source = read(request)
    _choose_outputs(source, request.task)

    def write(folder: Path) -> None:
        from bert.inference.export_check import TOLERANCES, check_export  # loads Paddle

        model = source.model
        model.write_tokenizer(folder)
        model.write_texts(folder)
        samples = {path: _sample(path, lines, model, folder) for path, lines in texts.items()}
        calibration = samples[settings.calibration] if settings.calibration else None
        sample = samples[settings.sample] if settings.sample else calibration or random_sample(model.config)
        details = form.write(folder, model, Prepared(settings, calibration))
        write_json(folder / DESCRIPTION_FILE, _description(model, settings) | details)
        tolerance = TOLERANCES[settings.precision] if settings.tolerance is None else settings.tolerance
        checked = check_export(folder, model, sample, tolerance)
        write_json(folder / DESCRIPTION_FILE, _description(model, settings) | details | {"check": checked})
        source.notes.append(_describe(checked))
        write_json(folder / writing.REPORT_FILE, source.report(request.to_format))

    writing.write_directory(request.target, write)
    return source.report(request.to_format)


def _choose_outputs(source: Source, asked: str | None) -> None:
    model = source.model
    if asked is None and model.task in ("pretraining", "masked-lm", "next-sentence"):
        source.notes.append(f"the hidden states of the encoder are served; the heads of {model.task} are left out")
        parameters = writing.parameters_for("encoder", model.parameters, source.notes)
        source.model = dataclasses.replace(model, parameters=parameters, task="encoder", labels=None)
    outputs_of(source.model.task, source.model.has_pooler())  # raises for a task that is not served


def _sample(path: Path, texts: Texts, model: Model, folder: Path) -> Sample:
    if model.tokens is None:
        raise ConversionError(f"{path}: the texts need a vocabulary; pass --vocab-file")
    trained = read_usage(folder).max_seq_length if (folder / TASK_FILE).is_file() else None
    length = min(trained or 384, model.config.max_position_embeddings)
    return sample_of_texts(path.name, texts, folder / "tokenizer.json", length, model.config.pad_token_id)


def _description(model: Model, request: ExportRequest) -> dict[str, Any]:
    return {
        "format": request.to_format,
        "task": model.task,
        "inputs": list(INPUTS),
        "outputs": {name: ["batch", *shape] for name, shape in outputs_of(model.task, model.has_pooler()).items()},
        "labels": model.labels,
        "max_length": model.config.max_position_embeddings,
        "precision": request.precision,
    }


def _describe(checked: dict[str, Any]) -> str:
    same = checked["same_decision"]
    decisions = "" if same is None else f", the same decision in {same:.1%}"
    return f"checked on {checked['sample']}: relative error {checked['relative_error']:.2g}{decisions}"


def _write_onnx(folder: Path, model: Model, prepared: Prepared) -> dict[str, Any]:
    write_onnx(folder, model)
    request, target = prepared.request, folder / ONNX_FILE
    if request.precision == "float32":
        return {}
    plain = target.rename(folder / f"float32-{ONNX_FILE}")
    try:
        if request.precision == "fp16":
            to_float16(plain, target)
            return {}
        calibration = prepared.calibration
        kept = to_int8(
            plain,
            target,
            calibration=None if calibration is None else calibration.batches,
            keep_float=request.keep_float,
            reduce_range=request.reduce_range,
        )
        kind = "dynamic" if calibration is None else f"static, calibrated on {calibration.source}"
        return {"quantization": {"activations": kind, "weights": "per column", "float32_layers": kept}}
    finally:
        plain.unlink()


def _write_paddle_inference(folder: Path, model: Model, prepared: Prepared) -> dict[str, Any]:
    from bert.inference.paddle_program import write_paddle_inference  # loads Paddle

    write_paddle_inference(folder, model)
    if prepared.request.precision != "int8":
        return {}
    assert prepared.calibration is not None
    np.savez(folder / CALIBRATION_FILE, **prepared.calibration.joined())
    return {"quantization": {"activations": f"static, calibrated on {prepared.calibration.source}"}}


def _write_triton(folder: Path, model: Model, prepared: Prepared) -> dict[str, Any]:
    (folder / triton.VERSION).mkdir()
    details = _write_onnx(folder / triton.VERSION, model, prepared)
    file = f"{triton.VERSION}/{ONNX_FILE}"
    triton.write_config(folder, folder / file, model.labels, model.task)
    return {**details, "format": "onnx", "file": file}


def _check_onnx() -> None:
    onnx_package()
    onnx_package("onnxruntime", "checks what was exported and ")
    onnx_package("ml_dtypes", "onnxruntime imports and ")


_SERVED = {
    "paddle-inference": Format(("float32", "bfloat16", "int8"), lambda: None, _write_paddle_inference),
    "onnx": Format(("float32", "fp16", "int8"), _check_onnx, _write_onnx),
    "triton": Format(("float32", "fp16", "int8"), _check_onnx, _write_triton),
}
FORMATS = (*_SERVED, "hf", "paddlenlp")

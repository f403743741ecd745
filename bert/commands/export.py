"""`run_export.py`: export a model for serving, or for another library."""

import math
from collections.abc import Sequence
from pathlib import Path

from bert import exit_codes
from bert.commands.convert import request_of, source_parser
from bert.config.setting_errors import usage_errors
from bert.conversion.converting import table
from bert.inference.export_files import ExportRequest
from bert.inference.exporting import PRECISIONS, TOLERANCES, export


def parse_request(argv: Sequence[str] | None) -> ExportRequest:
    """The command line of run_export.py."""
    parser = source_parser(
        "run_export.py",
        "Export a BERT for serving (Paddle Inference, ONNX, OpenVINO, Triton), or for Hugging Face or PaddleNLP.",
        old_source="--checkpoint",
        source_help="a checkpoint of any format that run_convert.py reads; for a folder of steps, its newest",
        task_help="whose outputs to serve; by default those of the model's "
        "head, and the encoder's hidden states of a model with pre-training heads",
    )
    add, formats = parser.add_argument, (*PRECISIONS, "hf", "paddlenlp")
    add("--output-format", dest="to_format", required=True, choices=formats, help="what will serve it")
    parser.add_old_names({"--format": "--output-format"})
    add("--precision", choices=TOLERANCES, default="float32", help="of weights and arithmetic (default: float32)")
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
    request = request_of(ExportRequest, parser.parse_args(argv))
    _check(request)
    return request


def _check(request: ExportRequest) -> None:
    precision, to_format = request.precision, request.to_format
    precisions = PRECISIONS.get(to_format, ("float32",))
    if precision not in precisions:
        raise ValueError(
            f"--precision {precision}: {to_format} is written in {', '.join(precisions)}; choose one of them"
        )
    if precision != "int8" and (request.calibration or request.keep_float or request.reduce_range):
        raise ValueError("--calibration, --keep-float and --reduce-range are for INT8; add --precision int8")
    if to_format not in ("onnx", "triton") and (request.keep_float or request.reduce_range):
        raise ValueError("--keep-float and --reduce-range are for --output-format onnx and triton; omit them")
    if to_format in ("paddle-inference", "openvino") and precision == "int8":
        if to_format == "paddle-inference":
            from bert.inference.predictor import require_quantizer  # loads Paddle

            require_quantizer()
        if request.calibration is None:
            raise ValueError(f"--precision int8 of {to_format} needs typical texts: --calibration FILE")
    if to_format not in PRECISIONS and (request.sample or request.tolerance is not None):
        raise ValueError(f"--sample and --tolerance: {to_format} is not checked by a sample; omit them")
    if request.tolerance is not None and not 0 < request.tolerance < math.inf:
        raise ValueError(f"--tolerance {request.tolerance} must be a positive number, such as 0.1")


def main(argv: Sequence[str] | None = None) -> int:
    with usage_errors():
        request = parse_request(argv)
        print(table(export(request)))
        print(f"written: {request.target}")
    return exit_codes.OK

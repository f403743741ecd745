"""`run_export.py`: export a model for serving, or for another library."""

from collections.abc import Sequence

from bert import exit_codes
from bert.config.plain_commands import read_flags
from bert.config.setting_errors import usage_errors
from bert.inference.export_files import ExportRequest

_DESCRIPTION = "Export a BERT for serving (Paddle Inference, ONNX, OpenVINO, Triton), or for Hugging Face or PaddleNLP."
_EXAMPLES = (
    "--model results/classify-tickets --output-dir exports/tickets --output-format onnx",
    "--model results/classify-tickets --output-dir exports/small --output-format onnx --precision int8",
)


def main(argv: Sequence[str] | None = None) -> int:
    request = read_flags(ExportRequest, argv, description=_DESCRIPTION, examples=_EXAMPLES, program="run_export.py")
    with usage_errors():
        from bert.conversion.converting import table  # not for --help
        from bert.inference.exporting import export

        if request.to_format == "paddle-inference" and request.precision == "int8":
            from bert.inference.predictor import require_quantizer  # loads Paddle

            require_quantizer()
        print(table(export(request)))
        print(f"written: {request.target}")
    return exit_codes.OK

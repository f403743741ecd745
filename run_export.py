"""Export a BERT: Paddle Inference, ONNX, Triton, Hugging Face or PaddleNLP; bert/inference/README.md."""

import sys
from collections.abc import Sequence

from bert.config.command_line import usage_errors
from bert.conversion.converting import table
from bert.inference.exporting import export, parse_request


def main(argv: Sequence[str] | None = None) -> int:
    with usage_errors():
        request = parse_request(argv)
        print(table(export(request)))
        print(f"written: {request.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Export a BERT: Paddle Inference, ONNX, OpenVINO, Triton, Hugging Face or PaddleNLP; docs/howto/export.md."""

import sys

from bert.commands.export import main

if __name__ == "__main__":
    sys.exit(main())

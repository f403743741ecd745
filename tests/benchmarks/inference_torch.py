"""Hugging Face's part of the inference comparison, on PyTorch and on ONNX Runtime.

python -m tests.benchmarks.inference_torch FOLDER THREADS, with the interpreter of scripts/benchmark_inference.sh. The
ONNX file is PyTorch's export of the modules of transformers; ONNX Runtime's own quantisation makes it INT8.
"""

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.measuring import Feed, Run, read_batches, serve

NAMES = ("input_ids", "attention_mask", "token_type_ids")


def main(folder: Path, threads: int) -> None:
    os.environ.update(OMP_NUM_THREADS=str(threads), HF_HUB_OFFLINE="1")
    warnings.filterwarnings("ignore")
    import torch
    from transformers import AutoModelForSequenceClassification

    torch.set_num_threads(threads)
    network = AutoModelForSequenceClassification.from_pretrained(folder / "hf").eval()
    half = AutoModelForSequenceClassification.from_pretrained(folder / "hf", dtype=torch.bfloat16).eval()
    int8 = torch.ao.quantization.quantize_dynamic(network, {torch.nn.Linear}, dtype=torch.qint8)
    onnx_file, onnx_int8 = _exported(network, folder)

    def run_of(module: Any) -> Run:
        def run(feed: Feed) -> np.ndarray:
            with torch.inference_mode():
                return module(**{name: torch.from_numpy(feed[name]) for name in NAMES}).logits.float().numpy()

        return run

    variants = {
        "transformers on PyTorch": run_of(network),
        "transformers on PyTorch, bfloat16": run_of(half),
        "transformers on PyTorch, INT8": run_of(int8),
        "ONNX Runtime, transformers' export": _session(onnx_file, threads),
        "ONNX Runtime, transformers' export, INT8": _session(onnx_int8, threads),
    }
    serve(variants, read_batches(folder / "cases.npz"))


def _exported(network: Any, folder: Path) -> tuple[Path, Path]:
    """The ONNX files, made once."""
    import torch
    from onnxruntime.quantization import QuantType, quantize_dynamic

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, *inputs: Any) -> Any:
            return self.network(**dict(zip(NAMES, inputs, strict=True))).logits

    plain, int8 = folder / "hf" / "model.onnx", folder / "hf" / "int8.onnx"
    if not int8.exists():
        ids = torch.randint(5, 100, (2, 16))
        torch.onnx.export(
            Logits().eval(),
            (ids, torch.ones_like(ids), torch.zeros_like(ids)),
            str(plain),
            input_names=list(NAMES),
            output_names=["logits"],
            dynamic_axes={name: {0: "batch", 1: "sequence"} for name in NAMES},
            opset_version=17,
            dynamo=False,
        )
        quantize_dynamic(plain, int8, per_channel=True, weight_type=QuantType.QInt8)
    return plain, int8


def _session(file: Path, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    known = {value.name for value in session.get_inputs()}
    return lambda feed: session.run(None, {name: feed[name] for name in NAMES if name in known})[0]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

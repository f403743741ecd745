"""This project's part of the inference comparison: `python -m tests.benchmarks.inference_ours FOLDER THREADS`."""

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from bert.inference.model_folder import open_model
from bert.inference.predictor import Predictor
from bert.runtime.paddle_api import set_cpu_threads
from tests.benchmarks.measuring import Feed, Run, read_batches, serve

EXPORTS = {
    "ours, Paddle Inference": "paddle-inference-float32",
    "ours, Paddle Inference, bfloat16": "paddle-inference-bfloat16",
    "ours, Paddle Inference, INT8": "paddle-inference-int8",
    "ours, ONNX": "onnx-float32",
    "ours, ONNX, INT8": "onnx-int8",
}
if find_spec("openvino") is not None:
    EXPORTS |= {f"ours, OpenVINO, {name}": f"openvino-{name.lower()}" for name in ("bfloat16", "INT8")}


def main(folder: Path, threads: int) -> None:
    set_cpu_threads(threads)
    opened = open_model(folder / "model", device="cpu")

    def program(feed: Feed) -> np.ndarray:
        return opened.forward(opened.task, feed)["logits"]

    def run_of(predictor: Predictor) -> Run:
        return lambda feed: predictor.run(feed)["logits"]

    predictors = {name: Predictor(folder / export, cpu_threads=threads) for name, export in EXPORTS.items()}
    serve(
        {"ours, static program": program, **{name: run_of(found) for name, found in predictors.items()}},
        read_batches(folder / "cases.npz"),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

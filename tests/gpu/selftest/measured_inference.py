"""Sentences a second of an exported BERT, in float32 and in half precision; prints JSON. Run by test_inference.py:

python -m tests.gpu.selftest.measured_inference FOLDER FORMAT DEVICE MODEL LENGTH

Of an ONNX file also on the CPU, with all cores; its outputs there are what those of the card are compared with.
"""

import json
import os
import shutil
import statistics
import sys
import time
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import bert  # noqa: F401 - before Paddle
from bert.config.architecture import BUILT_IN_MODELS, BertConfig
from bert.inference.export_files import DESCRIPTION_FILE, INPUTS, PRECISIONS, ExportRequest, outputs_of
from bert.inference.onnx_files import write_onnx_export
from bert.inference.onnx_graph import require_packages
from bert.inference.paddle_program import Network, build_program
from bert.inference.predictor import Predictor

TASK = "question-answering"
BATCHES, RUNS, SECONDS = (1, 8, 32), 10, 10.0  # runs of a batch: so many, or fewer in so long


@cache
def exported(folder: Path, config: BertConfig, to_format: str, precision: str) -> Path:
    """Write an export with random weights, as run_export.py does."""
    random, shapes = np.random.RandomState(1), build_program(TASK, config, None, False).main.all_parameters()
    parameters = {p.name: random.normal(0, 0.02, p.shape).astype("float32") for p in shapes}
    parameters |= {name: value + 1 for name, value in parameters.items() if "norm.weight" in name.lower()}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if to_format == "onnx":
        require_packages(to_format, precision)
        model = SimpleNamespace(parameters=parameters, config=config, task=TASK, labels=None, has_pooler=lambda: False)
        request = ExportRequest(source="", target=folder, to_format=to_format, precision=precision)
        write_onnx_export(folder, model, request, None)
    else:
        Network(parameters, config).save(TASK, folder)
    outputs = {name: ["batch", *shape] for name, shape in outputs_of(TASK, False).items()}
    description = {"format": to_format, "task": TASK, "inputs": INPUTS, "outputs": outputs}
    description |= {"max_length": config.max_position_embeddings, "precision": precision}
    (folder / DESCRIPTION_FILE).write_text(json.dumps(description))
    return folder


def measured(predictor: Predictor, batch: int, length: int, vocab_size: int) -> tuple[float, dict[str, np.ndarray]]:
    """Return sentences a second, the median of some runs, and the outputs."""
    ids = np.random.RandomState(2).randint(5, vocab_size, (batch, length))
    feed = {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": np.ones_like(ids)}
    outputs, seconds = dict(predictor.run(feed)), []
    while len(seconds) < RUNS and sum(seconds) < SECONDS:
        start = time.perf_counter()
        predictor.run(feed)  # copies the outputs to the host, so it has finished
        seconds.append(time.perf_counter() - start)
    return batch / statistics.median(seconds), outputs


def main(folder: str, to_format: str, device: str, model: str, length: str) -> None:
    config, found, expected = BUILT_IN_MODELS[model], dict[str, dict](), dict[int, dict]()
    runs = [(precision, precision, device) for precision in PRECISIONS[to_format] if precision != "int8"]
    if to_format == "onnx":
        runs.insert(0, ("float32 on the CPU", "float32", "cpu"))
    for name, precision, place in runs:
        try:
            source = exported(Path(folder) / precision, config, to_format, precision)
            predictor = Predictor(source, device=place, cpu_threads=len(os.sched_getaffinity(0)))
        except ValueError as error:  # bfloat16 before Ampere, TensorRT that is not there
            found[name] = {"refused": str(error)}
            continue
        speeds, errors = {}, []
        for batch in BATCHES:
            speed, outputs = measured(predictor, batch, int(length), config.vocab_size)
            reference = expected.setdefault(batch, outputs)
            errors += [
                float(np.sqrt(np.square(outputs[key] - value).mean() / np.square(value).mean()))
                for key, value in reference.items()
            ]
            speeds[str(batch)] = round(speed, 2)
        found[name] = {"sentences per second": speeds, "relative error": max(errors)}
    print(json.dumps({"model": model, "tokens": int(length), "device": device, "precisions": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Sentences a second of an exported BERT, in float32 and in half precision; prints JSON. Run by test_inference.py:

python -m tests.gpu.selftest.measured_inference FOLDER DEVICE MODEL LENGTH
"""

import json
import shutil
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import bert  # noqa: F401 - before Paddle
from bert.config.architecture import BUILT_IN_MODELS, BertConfig
from bert.inference.export_files import DESCRIPTION_FILE, INPUTS, outputs_of
from bert.inference.paddle_program import Network, build_program
from bert.inference.predictor import Predictor

TASK = "question-answering"
BATCHES, RUNS = (1, 8, 32), 10
PRECISIONS = ("float32", "fp16", "bfloat16")


def exported(folder: Path, config: BertConfig, precision: str) -> Path:
    """An export with random weights, as run_export.py writes it."""
    random, shapes = np.random.RandomState(1), build_program(TASK, config, None, False).main.all_parameters()
    parameters = {p.name: random.normal(0, 0.02, p.shape).astype("float32") for p in shapes}
    parameters |= {name: value + 1 for name, value in parameters.items() if "norm.weight" in name.lower()}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    Network(parameters, config).save(TASK, folder)
    outputs = {name: ["batch", *shape] for name, shape in outputs_of(TASK, False).items()}
    description = {"format": "paddle-inference", "task": TASK, "inputs": INPUTS, "outputs": outputs}
    description |= {"max_length": config.max_position_embeddings, "precision": precision}
    (folder / DESCRIPTION_FILE).write_text(json.dumps(description))
    return folder


def measured(predictor: Predictor, batch: int, length: int, vocab_size: int) -> tuple[float, dict[str, np.ndarray]]:
    """Sentences a second, by the median of some runs, and the outputs."""
    ids = np.random.RandomState(2).randint(5, vocab_size, (batch, length))
    feed = {"input_ids": ids, "token_type_ids": np.zeros_like(ids), "attention_mask": np.ones_like(ids)}
    outputs, seconds = dict(predictor.run(feed)), []
    for _ in range(RUNS):
        start = time.perf_counter()
        predictor.run(feed)  # copies the outputs to the host, so it has finished
        seconds.append(time.perf_counter() - start)
    return batch / statistics.median(seconds), outputs


def main(folder: str, device: str, model: str, length: str) -> None:
    config, found, expected = BUILT_IN_MODELS[model], dict[str, dict](), dict[int, dict]()
    for precision in PRECISIONS:
        try:
            predictor = Predictor(exported(Path(folder) / precision, config, precision), device=device)
        except ValueError as error:  # bfloat16 before Ampere, TensorRT that is not there
            found[precision] = {"refused": str(error)}
            continue
        speeds, errors = {}, []
        for batch in BATCHES:
            speed, outputs = measured(predictor, batch, int(length), config.vocab_size)
            reference = expected.setdefault(batch, outputs)
            errors += [
                float(np.sqrt(np.square(outputs[name] - value).mean() / np.square(value).mean()))
                for name, value in reference.items()
            ]
            speeds[str(batch)] = round(speed, 2)
        found[precision] = {"sentences per second": speeds, "relative error": max(errors)}
    print(json.dumps({"model": model, "tokens": int(length), "device": device, "precisions": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Exports a BERT for serving: Paddle Inference or ONNX, or a checkpoint of Hugging Face or PaddleNLP."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bert.conversion import writing
from bert.conversion.command_line import source_parser
from bert.conversion.converting import Request, convert, read
from bert.conversion.raw_tensors import write_json
from bert.inference.onnx_graph import onnx_package, write_onnx
from bert.inference.serving import DESCRIPTION_FILE, INPUTS, outputs_of

FORMATS = ("paddle-inference", "onnx", "hf", "paddlenlp")


def parse_request(argv: Sequence[str] | None) -> Request:
    """The command line of run_export.py."""
    parser = source_parser(
        "run_export.py",
        "Export a BERT for serving: Paddle Inference or ONNX, or as Hugging Face's and PaddleNLP's own checkpoint.",
        source="--checkpoint",
        source_help="a checkpoint of any format that run_convert.py reads; for a folder of steps, its newest",
        task_help="whose outputs to serve; by default those of the model's "
        "head, and the encoder's hidden states of a model with pre-training heads",
    )
    parser.add_argument("--format", dest="to_format", required=True, choices=FORMATS, help="what will serve it")
    return Request(**vars(parser.parse_args(argv)))


def export(request: Request) -> dict[str, Any]:
    """Write what `request.to_format` needs, with the tokenizer and serving.json; returns the report.

    Raises:
        ConversionError, CheckpointError: the source cannot be read as a BERT, or its task is not served.
    """
    if request.to_format in writing.FORMATS:
        return convert(request)
    if request.to_format == "onnx":
        onnx_package()  # before anything is read
    source = read(request)
    model = source.model
    if request.task is None and model.task in ("pretraining", "masked-lm", "next-sentence"):
        source.notes.append(f"the hidden states of the encoder are served; the heads of {model.task} are left out")
        parameters = writing.parameters_for("encoder", model.parameters, source.notes)
        source.model = model = dataclasses.replace(model, parameters=parameters, task="encoder", labels=None)
    description = {
        "format": request.to_format,
        "task": model.task,
        "inputs": list(INPUTS),
        "outputs": {name: ["batch", *shape] for name, shape in outputs_of(model.task, model.has_pooler()).items()},
        "labels": model.labels,
        "max_length": model.config.max_position_embeddings,
    }

    def write(folder: Path) -> None:
        if request.to_format == "onnx":
            write_onnx(folder, model)
        else:
            from bert.inference.paddle_program import write_paddle_inference  # loads Paddle

            write_paddle_inference(folder, model)
        model.write_tokenizer(folder)
        model.write_texts(folder)
        write_json(folder / DESCRIPTION_FILE, description)
        write_json(folder / writing.REPORT_FILE, source.report(request.to_format))

    writing.write_directory(request.target, write)
    return source.report(request.to_format)

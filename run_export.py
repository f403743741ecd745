"""Export a BERT for serving: Paddle Inference or ONNX, or as Hugging Face's and PaddleNLP's own checkpoint."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bert.config.command_line import usage_errors
from bert.config.flags import Formatter, Parser
from bert.conversion import converting, onnx_graph, vocabularies, writing

FORMATS = ("paddle-inference", "onnx", "hf", "paddlenlp")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="run_export.py", description=__doc__, formatter_class=Formatter, allow_abbrev=False)
    parser.add_argument(
        "--checkpoint",
        required=True,
        metavar="DIR_OR_FILE",
        help="a checkpoint of any format that run_convert.py reads; of a folder of steps the newest",
    )
    parser.add_argument("--to", dest="target", required=True, type=Path, metavar="DIR", help="the folder to make")
    parser.add_argument("--format", required=True, choices=FORMATS, help="what will serve it")
    parser.add_argument(
        "--task",
        choices=writing.TASKS,
        help="whose outputs to serve; by default those of the model's "
        "head, and the encoder's hidden states of a model with pre-training heads",
    )
    parser.add_argument("--config-file", type=Path, help="the model's description, where none lies beside the weights")
    parser.add_argument("--vocab-file", type=Path, help="the vocab.txt, where none lies beside the weights")
    parser.add_argument(
        "--do-lower-case",
        action=argparse.BooleanOptionalAction,
        help="whether the vocabulary is of lower-cased text (default: as the checkpoint says)",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    with usage_errors():
        flags = parse(argv)
        to_format = flags.format if flags.format in writing.FORMATS else "native"
        request = converting.Request(
            flags.checkpoint,
            flags.target,
            to_format,
            flags.task,
            flags.config_file,
            flags.vocab_file,
            flags.do_lower_case,
        )
        report = converting.convert(request) if to_format != "native" else export(request, flags.format)
        print(converting.table(report))
        print(f"written: {flags.target}")
    return 0


def export(request: converting.Request, serving_format: str) -> converting.Report:
    """Write the served form, its tokenizer and serving.json, which says what goes in and what comes out."""
    source, pretrained, model, notes = converting.read(request)
    if request.task is None and model.task in ("pretraining", "masked-lm", "next-sentence"):
        notes.append(f"the hidden states of the encoder are served; the heads of {model.task} are left out")
        parameters = writing.parameters_for("encoder", model.parameters, notes)
        model = writing.Model(parameters, model.config, "encoder", None, model.tokens)
    outputs = onnx_graph.outputs_of(model.task, "bert.pooler.dense.weight" in model.parameters)
    report = converting.report_of(source, pretrained, serving_format, model)

    def write(folder: Path) -> None:
        if serving_format == "onnx":
            onnx_graph.write_onnx(folder, model)
        else:
            from bert.inference.exporting import write_paddle_inference

            write_paddle_inference(folder, model)
        if model.tokens is not None:
            vocabularies.write_tokenizer(folder, model.tokens, model.config.max_position_embeddings)
        description = {
            "format": serving_format,
            "task": model.task,
            "inputs": list(onnx_graph.INPUTS),
            "outputs": {name: ["batch", *shape] for name, shape in outputs.items()},
            "labels": model.labels,
            "max_length": model.config.max_position_embeddings,
        }
        (folder / "serving.json").write_text(json.dumps(description, indent=2) + "\n")
        (folder / writing.REPORT_FILE).write_text(json.dumps(report(notes).as_json(), indent=2) + "\n")

    writing.write_directory(request.target, write)
    return report(notes)


if __name__ == "__main__":
    sys.exit(main())

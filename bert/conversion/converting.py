"""Converts a source of any known format to a directory of another, with a report of every change; its command line."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bert.config.flags import Formatter, Parser
from bert.conversion import downloading, vocabularies, writing
from bert.conversion.model_usage import kept_texts
from bert.conversion.raw_tensors import ConversionError
from bert.conversion.reading import read_pretrained
from bert.conversion.tensor_names import heads_of, with_question_answering_head


@dataclass(frozen=True)
class Request:
    """A conversion to do, from the flags of run_convert.py."""

    source: str  # a path, or a name that PaddleNLP knows
    target: Path
    to_format: str  # one of writing.FORMATS, or a serving format
    task: str | None = None
    config_file: Path | None = None
    vocab_file: Path | None = None
    do_lower_case: bool | None = None
    fused_qkv: str | None = None
    allow_unknown: bool = False
    keep_padding: bool = False


def convert(request: Request) -> dict[str, Any]:
    """Read, map and write; returns the report.

    Raises:
        ConversionError, CheckpointError: the source cannot be read as a BERT or the target cannot be written; nothing
            partial is left.
    """
    model = read(request)
    writing.write_model(request.target, request.to_format, model)
    return model.report(request.to_format)


def read(request: Request) -> writing.Model:
    """Find and read the source: the heads of one task, a vocabulary, a model description.

    Refuses a target that exists before anything is read.
    """
    writing.check_target(request.target)
    path = downloading.resolve(request.source)
    pretrained = read_pretrained(
        path, config_file=request.config_file, fused_qkv=request.fused_qkv, allow_unknown=request.allow_unknown
    )
    if pretrained.config is None:
        raise ConversionError(
            f"{path} has no model description beside it, and the number of attention heads cannot "
            "be inferred from weights; name the bert_config.json: --config-file"
        )
    notes = pretrained.notes
    parameters, from_paddlenlp = pretrained.parameters, pretrained.format == "paddlenlp"
    if from_paddlenlp and request.task == "question-answering":
        parameters = with_question_answering_head(parameters)
    heads = heads_of(parameters)
    task = writing.choose_task(heads, pretrained.task, request.task, every_model_has_a_pooler=from_paddlenlp)
    parameters = writing.parameters_for(task, parameters, notes)
    vocab_file = request.vocab_file or pretrained.vocab_file
    tokens = vocabularies.find_tokens(pretrained.folder, vocab_file, request.do_lower_case, notes)
    if tokens is not None:
        vocabularies.check_ids(tokens, pretrained.config.vocab_size, notes)
    return writing.Model(
        path,
        pretrained.format,
        parameters,
        pretrained.config,
        task,
        pretrained.labels,
        tokens,
        kept_texts(pretrained.folder),
        request.keep_padding,
        notes,
    )


def table(report: dict[str, Any]) -> str:
    """A report as a table for the terminal."""
    rows = [
        ("from", f"{report['source']} ({report['source_format']})"),
        ("to", report["to_format"]),
        ("for", report["task"]),
        ("tensors", f"{report['tensors']:,}"),
        ("parameters", f"{report['parameters']:,}"),
    ]
    lines = [f"{name:<12}{value}" for name, value in rows]
    return "\n".join([*lines, "changes:", *(f"  {note}" for note in report["notes"])])


def parse_request(argv: Sequence[str] | None) -> Request:
    """The command line of run_convert.py."""
    parser = source_parser(
        "run_convert.py",
        "Convert a BERT between this project, Hugging Face, PaddleNLP, NVIDIA's Paddle and Google's TensorFlow.",
        source="--from",
        source_help="a checkpoint directory or a file of weights in any of these formats (detected), "
        "or a name that PaddleNLP knows",
        task_help="the task of the model, if the source does not name it; other heads are left out",
    )
    parser.add_argument("--to-format", required=True, choices=writing.FORMATS, help="the format to write")
    parser.add_argument(
        "--fused-qkv",
        metavar="blocks|heads:NUMBER",
        help="order of columns in the fused attention matrices of NVIDIA's Paddle checkpoints trained with --fuse-mha",
    )
    parser.add_argument(
        "--allow-unknown",
        action="store_true",
        help="leave out tensors that no BERT has, instead of refusing them; they are listed",
    )
    parser.add_argument(
        "--keep-padding",
        action="store_true",
        help="write the rows that pad the vocabulary to a "
        "multiple of 8 to the other formats too, as part of the vocabulary",
    )
    return Request(**vars(parser.parse_args(argv)))


def source_parser(program: str, description: str, *, source: str, source_help: str, task_help: str) -> Parser:
    """A parser with the flags of both commands: the model to read and the folder to make."""
    parser = Parser(prog=program, description=description, formatter_class=Formatter, allow_abbrev=False)
    parser.add_argument(source, dest="source", required=True, metavar="DIR_OR_FILE", help=source_help)
    parser.add_argument("--to", dest="target", required=True, type=Path, metavar="DIR", help="the folder to make")
    parser.add_argument("--task", choices=writing.TASKS, help=task_help)
    parser.add_argument(
        "--config-file", type=Path, help="the model's bert_config.json or config.json, if none is beside the weights"
    )
    parser.add_argument("--vocab-file", type=Path, help="vocab.txt or tokenizer.json, if none is beside the weights")
    parser.add_argument(
        "--do-lower-case",
        action=argparse.BooleanOptionalAction,
        help="whether the vocabulary is of lower-cased text (default: from the source)",
    )
    return parser

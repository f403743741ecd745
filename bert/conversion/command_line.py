"""The flags of run_convert.py, and those of run_export.py that name the model to read."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from bert.config.flags import Formatter, Parser
from bert.conversion import writing
from bert.conversion.converting import Request

_DESCRIPTION = "Convert a BERT between this project, Hugging Face, PaddleNLP, NVIDIA's Paddle and Google's TensorFlow."


def parse_request(argv: Sequence[str] | None) -> Request:
    """The command line of run_convert.py."""
    parser = source_parser(
        "run_convert.py",
        _DESCRIPTION,
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

"""Convert a BERT between this project's format and those of other libraries, or push it to a hub."""

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TypeVar

from bert.config.flags import Formatter, Parser
from bert.config.setting_errors import usage_errors
from bert.conversion.converting import Request, convert, table
from bert.conversion.model_card import CardRequest
from bert.conversion.writers import FORMATS
from bert.model.head_specs import HEADS

AnyRequest = TypeVar("AnyRequest", bound=Request)


def main(argv: Sequence[str] | None = None) -> int:
    with usage_errors():
        request = parse_request(argv)
        if request.check:
            from bert.inference.paddlenlp_check import check_with_paddlenlp  # loads Paddle
        if request.fused_qkv is not None:
            from bert.inference.fused_attention_check import check_fused_qkv  # loads Paddle

            print(check_fused_qkv(request), end="", flush=True)
        if request.to_hub is not None:
            from bert.conversion.sharing import share

            report, address = share(request)
            print(f"{table(report)}\npushed: {address}")
        else:
            print(table(convert(request, check_with_paddlenlp if request.check else None)))
            print(f"written: {request.target}")
    return 0


def parse_request(argv: Sequence[str] | None) -> Request:
    """Read and check the command line."""
    parser = source_parser(
        "run_convert.py",
        "Convert a BERT between this project, Hugging Face, PaddleNLP, NVIDIA's Paddle and Google's TensorFlow.",
        old_source="--from",
        source_help="a checkpoint directory or a file of weights in any of these formats (detected), "
        "or a name that PaddleNLP knows",
        task_help="the task of the model, if the source does not name it; other heads are left out",
        needs_target=False,
    )
    parser.add_argument(
        "--output-format", dest="to_format", choices=FORMATS, help="the format to write; with --to-hub it is hf"
    )
    parser.add_old_names({"--to-format": "--output-format"})
    hub = parser.add_argument_group("Hugging Face hub (HF_ENDPOINT names another)")
    hub.add_argument(
        "--to-hub", metavar="NAME", help="push it there as [OWNER/]NAME, with its card, instead of --output-dir"
    )
    hub.add_argument("--hub-private", action="store_true", help="make the repository private")
    hub.add_argument("--hub-update", action="store_true", help="make a new commit in a repository that has a model")
    hub.add_argument("--hub-token-file", type=Path, metavar="FILE", help="with a token that may write (else HF_TOKEN)")
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
    parser.add_argument(
        "--check", action="store_true", help="load the result with PaddleNLP's own classes and compare the outputs"
    )
    request = request_of(Request, parser.parse_args(argv))
    if (request.target is None) == (request.to_hub is None):
        raise ValueError("give the folder to make, --output-dir DIR, or the name on a hub, --to-hub NAME: one of them")
    if request.to_hub is None and request.to_format is None:
        raise ValueError(f"--output-dir DIR needs --output-format, one of {', '.join(FORMATS)}; add it")
    if request.to_hub is not None and request.to_format not in (None, "hf"):
        raise ValueError(f"--output-format {request.to_format}: --to-hub writes hf, which transformers loads; omit it")
    if request.to_hub is None and (request.hub_private or request.hub_update or request.hub_token_file):
        raise ValueError("--hub-private, --hub-update and --hub-token-file are for --to-hub NAME; omit them")
    request = replace(request, to_format=request.to_format or "hf")
    if request.check and request.to_format != "paddlenlp":
        raise ValueError(f"--check: PaddleNLP loads no {request.to_format}; use --output-format paddlenlp, or omit it")
    if request.check and importlib.util.find_spec("paddlenlp") is None:
        raise ValueError(
            f"--check needs PaddleNLP; run `{sys.executable} -m pip install paddlenlp==2.8.1`, with Paddle 2.6, or "
            "omit it"
        )
    return request


def source_parser(
    program: str, description: str, *, old_source: str, source_help: str, task_help: str, needs_target: bool = True
) -> Parser:
    """A parser with the flags of both commands: the model to read and the folder to make.

    Args:
        old_source: the name that --model had before.
    """
    parser = Parser(prog=program, description=description, formatter_class=Formatter, allow_abbrev=False)
    parser.add_argument("--model", dest="source", required=True, metavar="DIR_OR_FILE", help=source_help)
    parser.add_argument(
        "--output-dir", dest="target", required=needs_target, type=Path, metavar="DIR", help="the folder to make"
    )
    parser.add_old_names({old_source: "--model", "--to": "--output-dir"})
    parser.add_argument("--task", choices=HEADS, help=task_help)
    parser.add_argument(
        "--config-file", type=Path, help="the model's bert_config.json or config.json, if none is beside the weights"
    )
    parser.add_argument("--vocab-file", type=Path, help="vocab.txt or tokenizer.json, if none is beside the weights")
    parser.add_argument(
        "--lowercase",
        dest="do_lower_case",
        action=argparse.BooleanOptionalAction,
        help="whether the vocabulary is of lower-cased text (default: from the source)",
    )
    parser.add_argument(
        "--strip-accents",
        action=argparse.BooleanOptionalAction,
        help="whether it is of text without accents (default: from the source, else if lower-cased)",
    )
    card = parser.add_argument_group("model card (README.md)")
    card.add_argument("--license", help="of the model, as the hub spells it: apache-2.0, cc-by-4.0, other")
    card.add_argument(
        "--language", "--lang", dest="languages", nargs="+", default=(), metavar="CODE", help="of its text: en de"
    )
    return parser


def request_of(kind: type[AnyRequest], arguments: argparse.Namespace) -> AnyRequest:
    """The request of a parsed command line."""
    values = vars(arguments)
    card = CardRequest(**{field.name: values.pop(field.name) for field in fields(CardRequest)})
    return kind(**values, card=card)

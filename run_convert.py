"""Convert a BERT between this project, Hugging Face, PaddleNLP, NVIDIA's Paddle and Google's TensorFlow formats."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bert.config.command_line import usage_errors
from bert.config.flags import Formatter, Parser
from bert.conversion import converting, writing


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = Parser(prog="run_convert.py", description=__doc__, formatter_class=Formatter, allow_abbrev=False)
    parser.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="DIR_OR_FILE",
        help="a checkpoint directory or a file of weights of any of these formats, which is "
        "recognised; or a name that PaddleNLP knows",
    )
    parser.add_argument("--to", dest="target", required=True, type=Path, metavar="DIR", help="the folder to make")
    parser.add_argument("--to-format", required=True, choices=writing.FORMATS, help="whose format to write")
    parser.add_argument(
        "--task",
        choices=writing.TASKS,
        help="what the model is for, where the source does not say; other heads are left out",
    )
    parser.add_argument(
        "--config-file",
        type=Path,
        help="the model's bert_config.json or config.json, where none lies beside the weights",
    )
    parser.add_argument("--vocab-file", type=Path, help="the vocab.txt, where none lies beside the weights")
    parser.add_argument(
        "--do-lower-case",
        action=argparse.BooleanOptionalAction,
        help="whether the vocabulary is of lower-cased text (default: as the source says)",
    )
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
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    with usage_errors():
        flags = parse(argv)
        report = converting.convert(
            converting.Request(
                flags.source,
                flags.target,
                flags.to_format,
                flags.task,
                flags.config_file,
                flags.vocab_file,
                flags.do_lower_case,
                flags.fused_qkv,
                flags.allow_unknown,
                flags.keep_padding,
            )
        )
        print(converting.table(report))
        print(f"written: {flags.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

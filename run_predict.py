"""Use a trained model: fill masks, make vectors, answer, classify, tag. See `--help` and bert/inference/README.md."""

import sys
from collections.abc import Sequence

from bert.config.command_line import usage_errors
from bert.inference.command_line import parse_request, run_request


def main(argv: Sequence[str] | None = None) -> int:
    with usage_errors():
        return run_request(parse_request(argv))
    return 0


if __name__ == "__main__":
    sys.exit(main())

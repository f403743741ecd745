"""Use a trained model: fill masks, make vectors, answer, classify, tag. See `--help` and bert/inference/README.md."""

import sys
from collections.abc import Sequence

from bert.config.command_line import usage_errors
from bert.inference.command_line import parse_request


def main(argv: Sequence[str] | None = None) -> int:
    with usage_errors():
        request = parse_request(argv)
        from bert.inference.streaming import run_request  # loads Paddle

        return run_request(request)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Convert a BERT between this project's format and those of other libraries. See `--help` and bert/conversion."""

import sys
from collections.abc import Sequence

from bert.config.command_line import usage_errors
from bert.conversion.converting import convert, parse_request, table


def main(argv: Sequence[str] | None = None) -> int:
    with usage_errors():
        request = parse_request(argv)
        if request.check:
            from bert.inference.paddlenlp_check import check_with_paddlenlp  # loads Paddle
        if request.to_hub is not None:
            from bert.conversion.sharing import share  # needs huggingface_hub

            report, address = share(request)
            print(f"{table(report)}\npushed: {address}")
        else:
            print(table(convert(request, check_with_paddlenlp if request.check else None)))
            print(f"written: {request.target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

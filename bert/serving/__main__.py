"""`python -m bert.serving MODEL`."""

import sys
from collections.abc import Sequence

from bert.command_errors import command
from bert.serving.command_line import parse_settings, run


def main(argv: Sequence[str] | None = None) -> int:
    with command():
        return run(parse_settings(argv))
    return 0


if __name__ == "__main__":
    sys.exit(main())

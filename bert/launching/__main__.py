"""`python -m bert.launching TASK ...`: what scripts/run_*.sh call."""

import importlib
import sys
from collections.abc import Sequence

from bert.exit_codes import BAD_INPUT, OK

TASKS = ("pretraining", "squad", "glue", "ner", "seeds")  # modules beside this one; importing all takes twice as long


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] in (["-h"], ["--help"]):
        print(f"{__doc__}\nTASK is one of {', '.join(TASKS)}; `TASK --help` lists its arguments.")
        return OK
    if not words or words[0] not in TASKS:
        print(f"error: {' '.join(words[:1]) or 'no task'} must be one of {', '.join(TASKS)}; pass one", file=sys.stderr)
        return BAD_INPUT
    return importlib.import_module(f"bert.launching.{words[0]}").main(words[1:])


if __name__ == "__main__":
    sys.exit(main())

"""`python -m bert.launching TASK ...`: what scripts/run_*.sh call."""

import importlib
import sys
from collections.abc import Sequence

from bert.exit_codes import BAD_INPUT, OK
from bert.parent_death import end_with_caller

TASKS = ("pretraining", "squad", "glue", "classify", "ner", "seeds")


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] in (["-h"], ["--help"]):
        print(f"{__doc__}\nTASK is one of {', '.join(TASKS)}; `TASK --help` lists its arguments.")
        return OK
    end_with_caller()
    task = words.pop(0) if words else "no task"
    if task not in TASKS:
        print(f"error: {task} must be one of {', '.join(TASKS)}; pass one", file=sys.stderr)
        return BAD_INPUT
    if task in ("pretraining", "seeds"):  # a launcher is imported only where it is called: all take twice as long
        return importlib.import_module(f"bert.launching.{task}").main(words)
    return importlib.import_module("bert.launching.finetuning").main(task, words)


if __name__ == "__main__":
    sys.exit(main())

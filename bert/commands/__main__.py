"""`python -m bert.commands TASK ...`: what scripts/run_*.sh call."""

import sys
from collections.abc import Callable, Sequence
from functools import partial

from bert.config.entry_point import load_task
from bert.exit_codes import BAD_INPUT, OK
from bert.parent_death import end_with_caller

_COMMANDS = {
    "pretraining": "bert.commands.pretrain",
    "squad": "bert.commands.squad",
    "glue": "bert.commands.glue",
    "classify": "bert.commands.classify",
    "ner": "bert.commands.ner",
    "vectors": "bert.commands.vectors",
}
TASK_NAMES = tuple(_COMMANDS)


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] in (["-h"], ["--help"]):
        print(f"{__doc__}\nTASK is one of {', '.join(TASK_NAMES)}; `TASK --help` lists its arguments.")
        return OK
    end_with_caller()
    task = words.pop(0) if words else "no task"
    if task not in TASK_NAMES:
        print(f"error: {task} must be one of {', '.join(TASK_NAMES)}; pass one", file=sys.stderr)
        return BAD_INPUT
    return _command(task, words)(words)


def _command(task: str, words: Sequence[str]) -> Callable[[Sequence[str]], int]:
    """The main function of a task's command; only its module is imported, because all modules take twice as long."""
    is_all = task == "glue" and words[:1] == ["all"]
    if is_all or any(word.partition("=")[0] == "--seeds" for word in words):
        return partial(load_task("bert.commands.repetitions:main"), task, load_task(f"{_COMMANDS[task]}:planned"))
    command: Callable[[Sequence[str]], int] = load_task(f"{_COMMANDS[task]}:main")
    return command


if __name__ == "__main__":
    sys.exit(main())

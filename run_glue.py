"""Fine-tune BERT on a task of GLUE or on your own sentences: train, evaluate, predict. See `--help` and README.md."""

import sys

from bert.config.command_line import parse_arguments, usage_errors
from bert.config.entry_point import load_task
from bert.glue.config import ENTRY


def main(argv: list[str] | None = None) -> int:
    config = parse_arguments(ENTRY, argv)
    with usage_errors():
        config.prepare_files()
        # Paddle takes a second to load: not for --help or an error in the settings.
        from bert.training.training_run import run

        return run(config, load_task(ENTRY.task).open)


if __name__ == "__main__":
    sys.exit(main())

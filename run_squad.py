"""Answer questions about paragraphs: fine-tune, evaluate, predict, interactive use. See `--help` and README.md."""

import sys

from bert.config.command_line import parse_arguments, usage_errors
from bert.config.entry_point import load_task
from bert.finetuning.squad.config import ENTRY


def main(argv: list[str] | None = None) -> int:
    config = parse_arguments(ENTRY, argv)
    with usage_errors():
        config.prepare_files()
        # Paddle takes a second to load: not for --help or an error in the settings.
        if config.run.interactive:
            from bert.inference.terminal import answer_from_terminal

            return answer_from_terminal(config)
        from bert.training.training_run import run

        return run(config, load_task(ENTRY.task).open)


if __name__ == "__main__":
    sys.exit(main())

"""Answer questions about paragraphs: fine-tune, evaluate, predict, interactive use. See `--help` and README.md."""

import sys

from bert.config.command_line import settings_of
from bert.config.entry_point import load_task
from bert.config.setting_errors import usage_errors
from bert.finetuning.squad.config import ENTRY


def main(argv: list[str] | None = None) -> int:
    config = settings_of(ENTRY, argv)
    with usage_errors():
        # Paddle takes a second to load: not for --help or an error in the settings.
        if config.run.interactive:
            from bert.inference.terminal import answer_from_terminal

            return answer_from_terminal(config)
        from bert.training.training_run import run

        return run(config, load_task(ENTRY.task).open)


if __name__ == "__main__":
    sys.exit(main())

"""Answer questions about paragraphs: fine-tune, score, predict, talk. See `--help` and README.md."""

import sys

from bert.config.command_line import dump_yaml, parse_arguments, usage_errors
from bert.finetuning.squad.config import ENTRY


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(ENTRY, argv)
    config = arguments.config
    if arguments.show_config:
        print(dump_yaml(config), end="")
        return 0
    with usage_errors():
        config.check_files()
        # Paddle takes a second to load: not for --help or an error in the settings.
        from bert.finetuning import run as finetuning
        from bert.finetuning.squad import task as squad

        return squad.talk(config) if config.run.interactive else finetuning.run(config, squad.open_squad)


if __name__ == "__main__":
    sys.exit(main())

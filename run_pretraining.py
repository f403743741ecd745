"""Pre-train BERT, one phase per run. See `--help` and README.md."""

import sys
from collections.abc import Sequence

from bert.config.run_file import given_run_file, rank_settings
from bert.config.setting_errors import usage_errors
from bert.pretraining.config import PretrainingConfig


def main(argv: Sequence[str] | None = None) -> int:
    if (file := given_run_file(argv)) is not None:  # a rank that a launcher started
        config = rank_settings(file, PretrainingConfig)
    else:
        from bert.config.command_line import settings_of
        from bert.pretraining.entry import ENTRY

        config = settings_of(ENTRY, argv)
    with usage_errors():  # Paddle takes a second to load: not for --help or an error in the settings
        from bert.pretraining.task import Pretraining
        from bert.training.training_run import run

        return run(config, Pretraining.open)


if __name__ == "__main__":
    sys.exit(main())

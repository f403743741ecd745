"""Fine-tune BERT on a task of GLUE or on your own sentences: train, evaluate, predict. See `--help` and README.md."""

import sys
from functools import partial

from bert.config.command_line import run_entry
from bert.glue.config import ENTRY

main = partial(run_entry, ENTRY)

if __name__ == "__main__":
    sys.exit(main())

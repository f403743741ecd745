"""Pre-train BERT, one phase per run. See `--help` and README.md."""

import sys
from functools import partial

from bert.config.command_line import run_entry
from bert.pretraining.entry import ENTRY

main = partial(run_entry, ENTRY)

if __name__ == "__main__":
    sys.exit(main())

"""Train vectors of texts for search, and measure how well they find. See `--help` and README.md."""

import sys
from functools import partial

from bert.config.command_line import run_entry
from bert.vectors.settings import ENTRY

main = partial(run_entry, ENTRY)

if __name__ == "__main__":
    sys.exit(main())

"""Train a reranker, which reads a query and a passage together. See `--help` and README.md."""

import sys
from functools import partial

from bert.config.command_line import run_entry
from bert.vectors.reranker_settings import ENTRY

main = partial(run_entry, ENTRY)

if __name__ == "__main__":
    sys.exit(main())

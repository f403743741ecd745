"""Convert a BERT between this project's format and those of other libraries. See `--help` and bert/conversion."""

import sys

from bert.commands.convert import main

if __name__ == "__main__":
    sys.exit(main())

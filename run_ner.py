"""Fine-tune BERT to find named entities, or other spans: train, evaluate, predict. See `--help` and README.md."""

import sys
from functools import partial

from bert.config.command_line import run_entry
from bert.finetuning.ner.config import ENTRY

main = partial(run_entry, ENTRY)

if __name__ == "__main__":
    sys.exit(main())

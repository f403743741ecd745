"""Use a trained model: fill masks, make vectors, answer, classify, tag. See `--help` and docs/howto/predict.md."""

import sys

from bert.commands.predict import main

if __name__ == "__main__":
    sys.exit(main())

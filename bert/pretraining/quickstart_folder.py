"""Where the quickstart of pre-training leaves its results, from which those of fine-tuning begin."""

from pathlib import Path

QUICKSTART_DIR = Path("results/quickstart")

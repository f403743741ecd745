"""Output folder of the pre-training quickstart, where the fine-tuning quickstarts find their model."""

from pathlib import Path

QUICKSTART_DIR = Path("results/quickstart")

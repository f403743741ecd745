"""The recipe `evening`, for an evening on two CPU cores, as flags of a training with `--text`.

How long it takes and what it learned: tests/research/pretraining.md.
"""

from pathlib import Path

NAME = "evening"
OUTPUT_DIR = Path("results/evening")
HOURS = "4"  # with --text FOLDER, where the plan chooses everything else

# On the documentation of this machine: the same model and updates everywhere, so that results can be compared.
MODEL = "mini"
FLAGS = {"vocab_size": "8192", "global_batch_size": "64", "objective": "mlm_nsp", "masked_lm_ratio": "0.15"}
MAX_STEPS = "9000"

# What a dry run assumes before it is collected: the documentation that was measured, 28 MB.
USUAL_WORDS, USUAL_BYTES, USUAL_CHARACTERS = 4_600_000, 28_000_000, 300

"""Caches programs for all runs in this process: building one takes longer than a run of the tiny model.

A program is a pure function of its settings, and takes 1 to 2 s. What Paddle's executor makes of it before its first
run is made in each scope, as in the runs of users.
"""

from functools import lru_cache

import bert  # noqa: F401 - before Paddle, whichever module loads it
from bert.finetuning import run as finetuning
from bert.inference import paddle_program as inference
from bert.pretraining import task as pretraining
from bert.training import training_run
from program import build_evaluation_program, build_prediction_program
from tests.support import tiny

KEPT = 12  # of each kind; one takes some 20 MB


@lru_cache
def share() -> None:
    training_run.build_training_program = tiny.build
    finetuning.build_prediction_program = lru_cache(KEPT)(build_prediction_program)
    pretraining.build_evaluation_program = lru_cache(KEPT)(build_evaluation_program)
    inference.build_program = lru_cache(KEPT)(inference.build_program)

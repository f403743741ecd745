"""Programs are built once for all runs of this process: a run of the tiny model takes less time than its program.

A program is a pure function of its settings (1 to 2 s), and so is what Paddle's executor makes of it before its first
run (0.2 to 0.7 s in each scope).
"""

from functools import lru_cache

import bert  # noqa: F401 - before Paddle, whichever module loads it
from bert.finetuning import run as finetuning
from bert.inference import paddle_program as inference
from bert.pretraining import task as pretraining
from bert.runtime.paddle_api import paddle
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
    if paddle.__version__.startswith("2."):
        _share_preparations()


def _share_preparations() -> None:
    """An executor copies a program and applies passes to the copy; of that it makes the one that it runs."""
    from paddle.base import executor

    add_feed_and_fetch, apply_passes = executor._add_feed_fetch_ops, executor._apply_inplace_addto_pass
    prepared: dict[tuple, paddle.static.Program] = {}
    complete: set[int] = set()  # ids of those with passes applied

    def add_once(program, feed, fetch_list, **names):
        names_of_both = executor._get_program_cache_key(feed, fetch_list)
        key = (program.desc.serialize_to_string(), program.random_seed, names_of_both)
        if key not in prepared:
            if len(prepared) == KEPT:
                complete.discard(id(prepared.pop(next(iter(prepared)))))
            prepared[key] = add_feed_and_fetch(program, feed, fetch_list, **names)
        return prepared[key]

    def apply_once(program, *arguments):
        if id(program) not in complete:
            apply_passes(program, *arguments)
            complete.add(id(program))

    executor._add_feed_fetch_ops, executor._apply_inplace_addto_pass = add_once, apply_once

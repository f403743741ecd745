"""Recipes for named-entity recognition.

The model's sizes and its vocabulary come from the weights that are fine-tuned.
"""

from collections.abc import Callable
from typing import Any

from bert import REPOSITORY

_EXAMPLES = REPOSITORY / "data" / "examples" / "entities"
Settings = dict[str, Any]


def conll2003() -> Settings:
    """CoNLL-2003 as in Devlin et al. (2019, section 5.3): document context, batches of 32, 3 epochs.

    They chose among the learning rates 5e-5, 3e-5 and 2e-5 on the dev set. Capitals mark names: use a cased model, and
    pass --no-do-lower-case if its files do not say that it is cased.
    """
    return {
        "max_seq_length": 256,
        "document_context": True,
        "batch_size": 32,
        "global_batch_size": 32,
        "epochs": 3.0,
        "learning_rate": 3e-5,
        "warmup_proportion": 0.1,
        "do_train": True,
        "do_eval": True,
    }


def small_entities() -> Settings:
    """People, places and organisations in 105 sentences written for this project, 29 held out; a small encoder."""
    return {
        "train_file": _EXAMPLES / "train.conll",
        "eval_file": _EXAMPLES / "held_out.conll",
        "max_seq_length": 64,
        "batch_size": 8,
        "global_batch_size": 8,
        "epochs": 12.0,
        "learning_rate": 2e-4,
        "log_freq": 10,
        "num_steps_per_checkpoint": 1000,
        "do_train": True,
        "do_eval": True,
    }


def quickstart_entities() -> Settings:
    """`small_entities` for the two-layer model of the pre-training quickstart."""
    return {**small_entities(), "epochs": 20.0, "learning_rate": 5e-4, "device": "cpu"}


NER_RECIPES: dict[str, Callable[[], Settings]] = {
    recipe.__name__: recipe for recipe in (conll2003, small_entities, quickstart_entities)
}

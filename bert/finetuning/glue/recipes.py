"""Recipes for GLUE and for the sentence sets of this project.

The model's sizes and its vocabulary come from the weights that are fine-tuned.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from bert import REPOSITORY
from bert.finetuning.glue.task_table import TASKS

_EXAMPLES = REPOSITORY / "data" / "examples"
Settings = dict[str, Any]


def paper() -> Settings:
    """Devlin et al. (2019), section 4.1 and appendix A.3: batches of 32, 3 epochs, AdamW, 10% warm-up.

    They chose the best of the learning rates 5e-5, 4e-5, 3e-5 and 2e-5 on the dev set; 2e-5 suits all tasks.
    """
    return {
        "max_seq_length": 128,
        "global_batch_size": 32,
        "batch_size": 32,
        "epochs": 3.0,
        "learning_rate": 2e-5,
        "warmup_proportion": 0.1,
        "weight_decay": 0.01,
        "do_train": True,
        "do_eval": True,
    }


def small_task(name: str) -> Settings:
    """CoLA, MRPC, STS-B, RTE and WNLI, which have fewer than 10,000 examples: 5 epochs, the best one is kept."""
    return {**paper(), "task_name": name, "epochs": 5.0}


def large_task(name: str) -> Settings:
    """SST-2, QNLI, QQP and MNLI: 3 epochs and less frequent checkpoints."""
    return {**paper(), "task_name": name, "num_steps_per_checkpoint": 1000}


def bert_large(plain: Callable[[], Settings]) -> Settings:
    """NVIDIA's recipe for BERT-large on 8 GPUs: 16 sequences per GPU, 2.4e-5, 3 epochs, mixed precision."""
    return {**plain(), "global_batch_size": 128, "batch_size": 16, "learning_rate": 2.4e-5, "epochs": 3.0, "amp": True}


def small_pairs() -> Settings:
    """Paraphrases: 496 sentence pairs written for this project, 176 held out; for a small published encoder.

    The number of epochs was chosen on a fold of the training pairs: accuracy does not rise after the fifth.
    """
    folder = _EXAMPLES / "paraphrases"
    return {
        "task_name": "custom",
        "train_file": folder / "train.tsv",
        "eval_file": folder / "held_out.tsv",
        "text_column": "sentence1",
        "text_pair_column": "sentence2",
        "max_seq_length": 64,
        "batch_size": 16,
        "global_batch_size": 16,
        "epochs": 6.0,
        "learning_rate": 5e-5,
        "log_freq": 10,
        "num_steps_per_checkpoint": 1000,
        "do_train": True,
        "do_eval": True,
    }


def small_sentiment() -> Settings:
    """Sentiment: 240 sentences written for this project, 100 held out; for a small published encoder."""
    folder = _EXAMPLES / "sentiment"
    return {
        **small_pairs(),
        "train_file": folder / "train.tsv",
        "eval_file": folder / "held_out.tsv",
        "text_column": "sentence",
        "text_pair_column": None,
    }


def quickstart_pairs() -> Settings:
    """`small_pairs` for the two-layer model of the pre-training quickstart: a higher learning rate, more epochs."""
    return {**small_pairs(), "epochs": 15.0, "learning_rate": 5e-4, "device": "cpu"}


def quickstart_sentiment() -> Settings:
    """`small_sentiment` for the two-layer model of the pre-training quickstart."""
    return {**small_sentiment(), "epochs": 15.0, "learning_rate": 5e-4, "device": "cpu"}


_LARGE_TASKS = ("SST-2", "QQP", "MNLI", "QNLI")
_PLAIN: dict[str, Callable[[], Settings]] = {
    name.lower(): partial(large_task if name in _LARGE_TASKS else small_task, name)
    for name, task in TASKS.items()
    if task.train is not None
}

GLUE_RECIPES: dict[str, Callable[[], Settings]] = {
    **_PLAIN,
    **{f"{name}_large": partial(bert_large, plain) for name, plain in _PLAIN.items()},
    **{recipe.__name__: recipe for recipe in (small_pairs, small_sentiment, quickstart_pairs, quickstart_sentiment)},
}

"""Published recipes of GLUE's tasks. Sizes and vocabulary come from the weights that are fine-tuned."""

from collections.abc import Callable
from functools import partial
from typing import Any

from bert import REPOSITORY
from bert.finetuning.glue.tasks import TASKS

_EXAMPLES = REPOSITORY / "data" / "examples"
Settings = dict[str, Any]


def paper() -> Settings:
    """Devlin et al. (2019), section 4.1 and appendix A.3: batches of 32, 3 epochs, AdamW, a tenth of it warm-up.

    They took the best of the rates 5e-5, 4e-5, 3e-5 and 2e-5 on the dev set; 2e-5 is a safe one for all tasks.
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
    """CoLA, MRPC, STS-B, RTE and WNLI have less than 10,000 examples: five epochs, of which the best is kept."""
    return {**paper(), "task_name": name, "epochs": 5.0}


def large_task(name: str) -> Settings:
    """SST-2, QNLI, QQP and MNLI: three epochs; checkpoints are further apart."""
    return {**paper(), "task_name": name, "num_steps_per_checkpoint": 1000}


def bert_large(plain: Callable[[], Settings]) -> Settings:
    """NVIDIA's GLUE recipe for BERT-large on 8 GPUs: 16 sequences on each, 2.4e-5, 3 epochs, mixed precision."""
    return {**plain(), "global_batch_size": 128, "batch_size": 16, "learning_rate": 2.4e-5, "epochs": 3.0, "amp": True}


def small_pairs() -> Settings:
    """Do two sentences say the same? 496 pairs written for this project, 176 held out; for a small real encoder.

    The number of epochs comes from a fold of the training pairs: accuracy no longer rises after the fifth.
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
    """Praise or blame? 240 sentences written for this project and 100 held out."""
    folder = _EXAMPLES / "sentiment"
    return {
        **small_pairs(),
        "train_file": folder / "train.tsv",
        "eval_file": folder / "held_out.tsv",
        "text_column": "sentence",
        "text_pair_column": None,
    }


def quickstart_pairs() -> Settings:
    """The pairs for the two layers that the pre-training quickstart leaves: they take a higher rate and more epochs."""
    return {**small_pairs(), "epochs": 15.0, "learning_rate": 5e-4, "device": "cpu"}


def quickstart_sentiment() -> Settings:
    """The sentiment set for the two layers that the pre-training quickstart leaves."""
    return {**small_sentiment(), "epochs": 15.0, "learning_rate": 5e-4, "device": "cpu"}


_LARGE_TASKS = ("SST-2", "QQP", "MNLI", "QNLI")
_PLAIN: dict[str, Callable[[], Settings]] = {
    name.lower(): partial(large_task if name in _LARGE_TASKS else small_task, name)
    for name, task in TASKS.items()
    if task.train is not None
}
_BERT_LARGE: dict[str, Callable[[], Settings]] = {
    f"{name}_large": partial(bert_large, plain) for name, plain in _PLAIN.items()
}

GLUE_RECIPES: dict[str, Callable[[], Settings]] = {
    **_PLAIN,
    **_BERT_LARGE,
    **{recipe.__name__: recipe for recipe in (small_pairs, small_sentiment, quickstart_pairs, quickstart_sentiment)},
}

"""Recipes for SQuAD.

The model's sizes and its vocabulary come from the weights that are fine-tuned (--from-pretrained-params).
"""

from collections.abc import Callable
from typing import Any

Recipe = dict[str, Any]


def squad() -> Recipe:
    """NVIDIA's recipe for BERT-large and SQuAD 1.1 on 8 GPUs: 32 sequences per GPU, 2 epochs, 20% warm-up."""
    return {
        "optimizer": "AdamW",
        "learning_rate": 4.6e-5,
        "warmup_proportion": 0.2,
        "epochs": 2.0,
        "batch_size": 32,
        "max_seq_length": 384,
        "doc_stride": 128,
        "max_query_length": 64,
        "n_best_size": 20,
        "max_answer_length": 30,
        "scale_loss": 128.0,
        "seed": 1,
    }


def squad_large() -> Recipe:
    """BERT-large in mixed precision."""
    return {**squad(), "bert_model": "bert-large-uncased", "amp": True}


def squad_large_tf32() -> Recipe:
    """BERT-large in float32 with TF32 matrix products."""
    return {**squad_large(), "amp": False, "tf32": True}


def squad2_large() -> Recipe:
    """SQuAD 2.0: half of the questions in the evaluation set are unanswerable."""
    return {**squad_large(), "version_2_with_negative": True}


def squad_base() -> Recipe:
    """BERT-base on one device as in BERT's published code: batches of 12, 3e-5, 10% warm-up (Devlin et al., 2019)."""
    return {
        **squad(),
        "bert_model": "bert-base-uncased",
        "batch_size": 12,
        "learning_rate": 3e-5,
        "warmup_proportion": 0.1,
    }


def squad_quickstart() -> Recipe:
    """A few hundred answerable questions written for this project, for the quickstart's tiny model on a CPU."""
    return {
        **squad(),
        "batch_size": 8,
        "global_batch_size": 8,
        "epochs": 20.0,
        "learning_rate": 3e-4,
        "warmup_proportion": 0.1,
        "max_seq_length": 128,
        "doc_stride": 48,
        "max_query_length": 32,
        "max_answer_length": 12,
        "num_workers": 0,
        "eval_freq": 200,
    }


def squad_small() -> Recipe:
    """A few hundred questions, some of them unanswerable, for a small published encoder."""
    return {
        **squad_quickstart(),
        "version_2_with_negative": True,
        "epochs": 5.0,
        "learning_rate": 1e-4,
        "max_answer_length": 16,
    }


RECIPES: dict[str, Callable[[], Recipe]] = {
    recipe.__name__: recipe
    for recipe in (squad, squad_large, squad_large_tf32, squad2_large, squad_base, squad_quickstart, squad_small)
}

"""Fine-tuning on SQuAD. Recipes give some settings by flat names; the model's sizes and its vocabulary come from the
weights it starts with (--from-pretrained-params)."""

from collections.abc import Callable
from typing import Any

Recipe = dict[str, Any]


def squad() -> Recipe:
    """SQuAD 1.1 as NVIDIA fine-tunes BERT-large on 8 GPUs: 32 sequences on each, 2 epochs, a fifth of it warm-up."""
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
    """SQuAD 2.0, where half of the questions in the evaluation set have no answer."""
    return {**squad_large(), "version_2_with_negative": True}


def squad_base() -> Recipe:
    """BERT-base on one device, as first published (Devlin et al., 2019): 12 sequences, 3e-5, a tenth of warm-up."""
    return {
        **squad(),
        "bert_model": "bert-base-uncased",
        "batch_size": 12,
        "learning_rate": 3e-5,
        "warmup_proportion": 0.1,
    }


def squad_quickstart() -> Recipe:
    """Some hundred questions about texts of this project, for a tiny model on a CPU, in SQuAD 1.1's manner."""
    return {
        **squad(),
        "batch_size": 8,
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
    """Some hundred questions, some of them without answer, and a small pre-trained encoder."""
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

"""Loads a trained model for use, whatever its head.

model = load_model("results/quickstart")
model.fill_mask("Paris is the capital of [MASK].")
"""

from pathlib import Path
from typing import Any

from bert.inference.classification import Classifier
from bert.inference.masked_words import MaskFiller, SentenceEncoder
from bert.inference.model_folder import open_model
from bert.inference.question_answering import QuestionAnswerer
from bert.inference.settings import ModelSettings
from bert.inference.tagging import Tagger
from bert.inference.trained_model import TrainedModel
from bert.runtime.hardware import use_cores

_HEADS: dict[str, type[TrainedModel]] = {
    head.task: head for head in (MaskFiller, SentenceEncoder, Classifier, Tagger, QuestionAnswerer)
}


def load_model(
    source: str | Path,
    task: str | None = None,
    *,
    max_seq_length: int | None = None,
    batch_size: int = 32,
    top_k: int = 5,
    **settings: Any,
) -> TrainedModel:
    """A model with the methods of its head: predict, encode, fill_mask or answer.

    Args:
        source: a checkpoint, the output folder of a run, an export, another library's model, or a published name.
        task: one of settings.TASKS; None: that of the model's head. "encoder" makes vectors with any checkpoint.
        max_seq_length, batch_size, top_k: as `TrainedModel`.
        settings: further arguments of `open_model`.
    """
    opened = open_model(source, task, **settings)
    return _HEADS[opened.task](opened, max_seq_length=max_seq_length, batch_size=batch_size, top_k=top_k)


def load_from_settings(settings: ModelSettings, batch_size: int = 32) -> TrainedModel:
    """The model of a command line, with Paddle's threads as it says."""
    own = settings.model_dump(include=set(ModelSettings.model_fields))
    threads = use_cores(own.pop("cpu_threads"), "off", 0, 1)
    return load_model(own.pop("model"), batch_size=batch_size, cpu_threads=threads, **own)

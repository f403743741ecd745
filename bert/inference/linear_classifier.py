"""Loads a kept baseline (`run_classify.sh --keep-baseline`), a linear model that is used like any other classifier."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert.conversion.model_description import read_labels
from bert.conversion.task_file import read_usage
from bert.conversion.untrusted_files import ConversionError
from bert.conversion.usage import LINEAR_MODEL_FILE
from bert.conversion.vocabularies import Tokens
from bert.files import checksum_of_file
from bert.inference.classifier import Classifier
from bert.inference.export_files import Arrays
from bert.inference.model_folder import OpenedModel
from bert.inference.rows import Request
from bert.labels.linear_model import ARRAYS_FILE, LinearTextModel
from bert.model.head_specs import HEADS
from bert.reporting.metric_titles import BASELINE_TITLES
from bert.tokenization.normalization import Normalization
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

_CHARACTERS_OF_A_TOKEN = 4  # with which the server estimates the length of a text


class LinearClassifier(Classifier):
    """Predicts the class, the labels or the number of a text from its words or characters."""

    def __init__(self, opened: OpenedModel, model: LinearTextModel, batch_size: int) -> None:
        super().__init__(opened, batch_size=batch_size)
        self._model = model

    def encode(self, texts: Sequence[str], input_type: str = "passage") -> np.ndarray:
        raise ValueError(f"{self.opened.path} makes no vectors: it is a kept baseline; use a model with a network")

    def logits(self, requests: Sequence[Request]) -> np.ndarray:
        self.num_read += len(requests)
        self.num_truncated += sum(len(" ".join(texts)) > self._model.characters for texts in requests)
        return self._model.logits(self._model.read(requests), self.decision.several)

    def longest_text(self) -> str:
        return f"{self._model.characters:,} characters"


def is_linear(source: str | Path) -> bool:
    """Whether the source is the folder of a kept baseline."""
    return (Path(source).expanduser() / LINEAR_MODEL_FILE).is_file()


def load_linear(
    source: str | Path, task: str | None, max_seq_length: int | None = None, batch_size: int = 32
) -> LinearClassifier:
    """Load a kept baseline as a model. Raises ConversionError for another task, or for damaged files."""
    folder = Path(source).expanduser()
    if task not in (None, Classifier.task):
        raise ConversionError(
            f"{folder} is a kept baseline, which classifies texts; task={task} needs a network: name a checkpoint"
        )
    model, labels = LinearTextModel.load(folder), read_labels(folder)
    if max_seq_length is not None:
        raise ValueError(
            f"max_seq_length={max_seq_length}: {folder} is a kept baseline, which reads {model.characters:,} "
            "characters of a text and has no tokens; omit it"
        )
    if len(labels or ("a number",)) != model.num_labels:
        raise ConversionError(f"{folder} has {len(labels or ())} labels, its arrays {model.num_labels}; write it again")
    opened = OpenedModel(
        path=folder,
        task=Classifier.task,
        forward=_no_network,
        tokens=Tokens(Vocabulary(SPECIAL_TOKENS, str(folder)), Normalization()),  # a baseline does not use them
        usage=read_usage(folder),
        labels=labels or ("value",),
        most_positions=model.characters // _CHARACTERS_OF_A_TOKEN,
        hidden_size=0,
        checksums=lambda: [checksum_of_file(folder / ARRAYS_FILE)],
        has_encoder=False,
        noun=f"{BASELINE_TITLES[model.method]}, {HEADS[Classifier.task].noun}",
    )
    return LinearClassifier(opened, model, batch_size)


def _no_network(task: str, feed: Arrays) -> Arrays:
    raise AssertionError("a kept baseline has no network")

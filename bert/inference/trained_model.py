"""The base of all heads: what a trained model takes, how it runs over many texts, sentence vectors.

The result for a text is a dictionary of values for JSON.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from bert.finetuning.glue.features import sentence_features
from bert.finetuning.loader import FeatureTable, PredictionBatch, prediction_batches
from bert.inference.lines import SINGLE_KEYS, Given, texts_of
from bert.inference.model_folder import HEADS, OpenedModel
from bert.tokenization.fast_tokenizer import FastTokenizer

Request = tuple[str, ...]  # a text, a pair of texts, or a question and its context
Result = dict[str, Any]


class TrainedModel:
    """A model with its vocabulary, loaded once.

    Args:
        top_k: fills of a mask, or answers to a question, that a result lists.
    """

    task: ClassVar[str]
    keys: ClassVar[tuple[tuple[str, ...], ...]] = SINGLE_KEYS  # of a JSON request, the first that fit
    splits_tabs: bool = False  # whether a tab in a line separates two texts
    num_texts: tuple[int, ...] = (1,)  # numbers of texts that a request can have

    def __init__(
        self, opened: OpenedModel, *, max_seq_length: int | None = None, batch_size: int = 32, top_k: int = 5
    ) -> None:
        for name, value in (("batch_size", batch_size), ("top_k", top_k)):
            if value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        most = opened.most_positions
        length = max_seq_length or min(opened.usage.max_seq_length or most, most)
        if not 8 <= length <= most:
            raise ValueError(f"max_seq_length={length} must be from 8 to the model's {most} positions")
        self.opened, self.network, self.max_seq_length = opened, opened.network, length
        self.batch_size, self.top_k = batch_size, top_k
        self.vocabulary = opened.tokens.vocabulary
        self.tokenizer = FastTokenizer(self.vocabulary, opened.tokens.lowercase)

    def predict(self, requests: Sequence[Given]) -> list[Result]:
        """The results for texts (pairs of texts; questions and contexts), in their order."""
        return self.run([self.request(request) for request in requests])

    def request(self, given: Given) -> Request:
        """A text, a sequence of texts or a JSON object, checked."""
        texts = texts_of(given, self.columns())
        for text in texts:
            if not isinstance(text, str):
                raise ValueError(f"{text!r} must be text")
            if not text.strip():
                raise ValueError("the text is empty")
            if any("\ud800" <= letter <= "\udfff" for letter in text if letter > "\ud7ff"):
                raise ValueError(
                    "the text holds bytes that are not UTF-8, or half of a surrogate pair; save it as UTF-8"
                )
        self.check(texts)
        return texts

    def columns(self) -> list[tuple[str, ...]]:
        """The names that the texts of a request can have; first those of the training data."""
        return [names for names in (tuple(self.opened.usage.text_columns), *self.keys) if names]

    def check(self, texts: Request) -> None:
        """Raise ValueError if this head cannot take the texts."""
        if len(texts) != 1:
            raise ValueError(f"{len(texts)} texts in one request; {HEADS[self.task]} takes one")

    def run(self, requests: Sequence[Request]) -> list[Result]:
        """The results for checked requests."""
        raise NotImplementedError

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """The mean of the last hidden states over all tokens of each text, float32 [n, hidden]; long texts are cut."""
        if isinstance(texts, str):
            raise ValueError("texts must be a list of texts, not one text; pass [text]")
        table = self.table([(text,) for text in texts])
        vectors: np.ndarray | None = None
        for batch in self.batches(table):
            hidden = self.network.run("encoder", batch.feed)["last_hidden_state"]
            mask = batch.feed["attention_mask"][:, :, None].astype("float32")
            if vectors is None:
                vectors = np.empty((len(texts), hidden.shape[-1]), "float32")
            vectors[batch.rows] = (hidden * mask).sum(1) / mask.sum(1)
        return np.zeros((0, 0), "float32") if vectors is None else vectors

    def fill_mask(self, text: str, top_k: int = 5) -> list[list[dict[str, Any]]]:
        """The `top_k` most likely tokens at each [MASK] of a text: [{"token": ..., "probability": ...}, ...]."""
        raise self._lacks("fill_mask", "masked-lm")

    def answer(self, question: str, paragraph: str) -> Any:
        """The answer to a question about a paragraph, an `AnsweredQuestion`."""
        raise self._lacks("answer", "question-answering")

    def _lacks(self, method: str, task: str) -> ValueError:
        return ValueError(
            f"this model has {HEADS[self.opened.task]}; {method} needs {HEADS[task]} ({self.opened.path})"
        )

    # -- for the heads

    def table(self, requests: Sequence[Request]) -> FeatureTable:
        """Texts, or pairs of texts (not both), as sequences."""
        columns = list(zip(*requests, strict=True)) or [()]
        arrays, _ = sentence_features(self.tokenizer, columns, self.max_seq_length)
        return self.table_of(arrays["input_ids"], arrays["offsets"], arrays["first_lengths"])

    def table_of(self, ids: np.ndarray, offsets: np.ndarray, first_lengths: np.ndarray) -> FeatureTable:
        return FeatureTable(ids, offsets, first_lengths, pad_id=self.vocabulary.id_of("[PAD]"))

    def batches(self, table: FeatureTable) -> Iterator[PredictionBatch]:
        return prediction_batches(table, self.batch_size, max_seq_length=self.max_seq_length)


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Softmax over the last axis, float64."""
    if not np.isfinite(logits).all():
        raise ValueError("the model's outputs are NaN or infinite; its weights are damaged, or its training diverged")
    odds = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    return odds / odds.sum(-1, keepdims=True)

"""The model that classifies texts, rates them with a number, or scores passages for a query."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert.finetuning.loader import check_finite
from bert.inference.given_texts import checked_texts, list_of_texts, one_text
from bert.inference.model_folder import OpenedModel
from bert.inference.rows import PAIR_KEYS, SINGLE_KEYS, Request
from bert.inference.trained_model import Result, TrainedModel
from bert.labels.decision import Decision


class Classifier(TrainedModel):
    """Predicts the class or the labels of a text or a pair of texts, with all probabilities; a regression a number."""

    task = "sequence-classification"
    keys = (*PAIR_KEYS, *SINGLE_KEYS)

    def __init__(self, opened: OpenedModel, **settings: Any) -> None:
        super().__init__(opened, **settings)
        self.is_regression = opened.usage.regression or (len(self.labels) == 1 and not opened.usage.label_separator)
        self.decision = Decision.of(opened.usage, self.labels)
        trained_on = len(opened.usage.text_columns)
        self.num_texts = (trained_on,) if trained_on else (1, 2)  # a foreign model does not say
        self.splits_tabs = trained_on != 1

    def run(self, requests: Sequence[Request]) -> list[Result]:
        logits = self.logits(requests)
        if self.is_regression:
            return [{"value": rounded(value)} for value in logits[:, 0]]
        likely = self.decision.probabilities(logits)
        results: list[Result] = []
        for row, chosen in zip(likely, self.decision.classes(likely), strict=True):
            named = dict(zip(self.labels, map(rounded, row), strict=True))
            if self.decision.several:
                labels = [self.labels[index] for index in np.flatnonzero(chosen)]
                results.append({"labels": labels, "probabilities": named})
            else:
                label = self.labels[int(chosen)]
                results.append({"label": label, "probability": named[label], "probabilities": named})
        return results

    def logits(self, requests: Sequence[Request]) -> np.ndarray:
        """Compute logits, float32 [n, classes]; a regression gives numbers, [n, 1]."""
        logits = np.zeros((len(requests), len(self.labels)), "float32")
        for size in {len(texts) for texts in requests}:
            rows = [row for row, texts in enumerate(requests) if len(texts) == size]
            for row, values in self.outputs(self.task, self.table([requests[row] for row in rows])):
                logits[rows[row]] = values
        check_finite({"logits": logits})
        return logits

    def rank_scores(self, query: str, passages: Sequence[str]) -> np.ndarray:
        """Score passages for a query by a reranker, float32 [n]: logits, where a higher one is a better answer.

        Raises:
            ValueError: the model does not have one output for two texts, or a text cannot be read.
        """
        if not self.is_reranker():
            raise self.lacks_scores()
        requests = [self.request((one_text(query), text)) for text in checked_texts(list_of_texts(passages))]
        return self.logits(requests)[:, 0]

    def is_reranker(self) -> bool:
        return len(self.labels) == 1 and 2 in self.num_texts

    def columns(self) -> dict[str, type]:
        if self.is_regression:
            return {"value": float}
        columns: dict[str, type] = {"labels": str} if self.decision.several else {"label": str, "probability": float}
        return columns | dict.fromkeys((f"probability_{label}" for label in self.labels), float)


def rounded(number: float) -> float:
    return round(float(number), 6)

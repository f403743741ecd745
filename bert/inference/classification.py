"""Classifies or rates texts and pairs of texts with a fine-tuned model."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bert.inference.lines import PAIR_KEYS, SINGLE_KEYS
from bert.inference.model_folder import OpenedModel
from bert.inference.trained_model import Request, Result, TrainedModel, probabilities


class Classifier(TrainedModel):
    """The probabilities of all classes of a text or a pair of texts; of a regression, the number."""

    task = "sequence-classification"
    keys = (*PAIR_KEYS, *SINGLE_KEYS)

    def __init__(self, opened: OpenedModel, **settings: Any) -> None:
        super().__init__(opened, **settings)
        assert self.opened.labels is not None
        self.labels = self.opened.labels
        self.is_regression = self.opened.usage.regression or len(self.labels) == 1
        trained_on = len(self.opened.usage.text_columns)
        self.num_texts = (trained_on,) if trained_on else (1, 2)  # a foreign model does not say
        self.splits_tabs = trained_on != 1

    def check(self, texts: Request) -> None:
        if len(texts) not in self.num_texts:
            needed = "one text" if self.num_texts == (1,) else "two texts"
            form = 'separated by a tab, or {"text": ..., "text_pair": ...}'
            raise ValueError(f"{len(texts)} text(s) in a request; this model takes {needed} (two: {form})")

    def run(self, requests: Sequence[Request]) -> list[Result]:
        logits = np.zeros((len(requests), len(self.labels)), "float32")
        for size in {len(texts) for texts in requests}:
            rows = np.array([row for row, texts in enumerate(requests) if len(texts) == size])
            for batch in self.batches(self.table([requests[row] for row in rows])):
                logits[rows[batch.rows]] = self.network.run(self.task, batch.feed)["logits"]
        likely = probabilities(logits)
        if self.is_regression:
            return [{"value": round(float(value), 6)} for value in logits[:, 0]]
        results: list[Result] = []
        for row in likely:
            values, best = [round(float(value), 6) for value in row], int(row.argmax())
            named = dict(zip(self.labels, values, strict=True))
            results.append({"label": self.labels[best], "probability": values[best], "probabilities": named})
        return results

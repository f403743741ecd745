"""Finds the sentences of a file that are nearest to others, by the cosine of their vectors."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert.inference.lines import LineFormat, read_lines
from bert.inference.trained_model import Request, Result, TrainedModel


class NearestSentences:
    """The sentences of a file with their vectors, in memory: 4 bytes x hidden size for each.

    Raises:
        ValueError: the file has fewer than two different sentences.
    """

    def __init__(self, model: TrainedModel, path: Path) -> None:
        self._model = model
        self.texts = _read(model, path)
        if len(self.texts) < 2:
            raise ValueError(f"{path} has {len(self.texts)} sentences; at least two are needed, one on each line")
        self._vectors = model.encode(self.texts)

    def run(self, requests: Sequence[Request]) -> list[Result]:
        """The `top_k` nearest for each text; never the text itself."""
        texts, top_k = [text for (text,) in requests], self._model.top_k
        found = cosines(self._model.encode(texts), self._vectors)
        results: list[Result] = []
        for text, row in zip(texts, found, strict=True):
            some = np.argpartition(-row, min(top_k, len(row) - 1))[: top_k + 1]  # one more, for the text itself
            best = [
                index for index in some[np.argsort(-row[some], kind="stable")].tolist() if self.texts[index] != text
            ]
            listed = [{"text": self.texts[index], "similarity": round(float(row[index]), 4)} for index in best[:top_k]]
            results.append({"nearest": listed})
        return results


def cosines(vectors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The cosines [n, m] of vectors [n, hidden] with others [m, hidden], both without the mean of the others.

    BERT's mean states share one large direction; without it, cosines tell sentences apart (Mu and Viswanath, 2018).
    """
    center = others.mean(0)
    return _unit(vectors - center) @ _unit(others - center).T


def _unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


def _read(model: TrainedModel, path: Path) -> list[str]:
    """The different sentences of a file, in their order."""
    line_format = LineFormat("auto", path, splits_tabs=False, keys=model.columns())
    texts: dict[str, None] = {}
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for line in read_lines(descriptor):
            if line is None or line_format.is_header(line) or (line.text is not None and not line.text.strip()):
                continue
            try:
                if line.text is None:
                    raise ValueError(line.error)
                texts[model.request(line_format.parse(line.text))[0]] = None
            except ValueError as error:
                print(f"{path}:{line.number}: {error}; left out", file=sys.stderr)
    finally:
        os.close(descriptor)
    return list(texts)

"""What is made of sentence vectors: the nearest lines of a file, a .npy file."""

import io
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert.inference.lines import checked_lines
from bert.inference.trained_model import Request, Result, TrainedModel


class NearestSentences:
    """The different sentences of a file with their vectors, in memory: 4 bytes x hidden size for each."""

    def __init__(self, model: TrainedModel, path: Path) -> None:
        self._model = model
        texts: dict[str, None] = {}
        for request in checked_lines(path, model.columns(), model.request):
            if isinstance(request, ValueError):
                print(f"{request}; left out", file=sys.stderr)
            else:
                texts[request[0]] = None
        self.texts = list(texts)
        if len(self.texts) < 2:
            raise ValueError(f"{path} has {len(self.texts)} sentences; at least two are needed, one on each line")
        self._vectors = model.encode(self.texts)

    def run(self, requests: Sequence[Request]) -> list[Result]:
        """The `top_k` nearest for each text; never the text itself."""
        texts, top_k = [text for (text,) in requests], self._model.top_k
        results: list[Result] = []
        for text, row in zip(texts, cosines(self._model.encode(texts), self._vectors), strict=True):
            near = np.argpartition(-row, min(top_k, len(row) - 1))[: top_k + 1]  # one more, for the text itself
            best = [i for i in near[np.argsort(-row[near], kind="stable")].tolist() if self.texts[i] != text]
            listed = [{"text": self.texts[i], "similarity": round(float(row[i]), 4)} for i in best[:top_k]]
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


def vector_rows(records: Sequence[Result], width: int) -> bytes:
    """float32 [records, width]; NaN for a bad line."""
    return np.array([record.get("vector", [np.nan] * width) for record in records], "<f4").tobytes()


def npy_header(rows: int, width: int) -> bytes:
    """What stands before the rows in a .npy file; as long for any number of rows: numpy leaves room for it to grow."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)})
    return header.getvalue()

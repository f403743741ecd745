"""The nearest texts of a file, by exact search: products of matrices, in blocks.

On two cores a query takes 0.1 s among a million vectors of 128 numbers, memory-mapped, and 0.2 s among those of 384, so
that no index of approximate neighbours is needed.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bert.arrays.vectors import unit
from bert.files import read_json
from bert.finetuning.prediction_files import stamps
from bert.inference.predict_settings import PredictRequest
from bert.inference.rows import Request, Rows, filled_rows
from bert.inference.trained_model import Result, TrainedModel
from bert.printable import printable

_BLOCK, _QUERIES = 1 << 16, 64  # vectors and queries whose cosines, 16 MB, are computed at a time


class NearestSentences:
    """Texts with their vectors; each different text once.

    BERT's mean states share one large direction; without their mean, cosines tell sentences apart (Mu and Viswanath,
    2018). Vectors that were trained for search are compared as they are.

    Args:
        texts: "" for one that cannot be found.
        vectors: float32 [texts, width]; those of length 1 of a model that was trained for them can stay on the disk.
        sizes: vectors and queries whose cosines are computed at a time.
    """

    def __init__(
        self,
        model: TrainedModel,
        texts: Sequence[str],
        vectors: np.ndarray,
        sizes: tuple[int, int] = (_BLOCK, _QUERIES),
    ) -> None:
        self._model, self._texts, form = model, texts, model.opened.usage.vectors
        self._block, self._queries = sizes
        first = {text: row for row, text in reversed([*enumerate(texts)]) if text}
        self._usable = np.isin(np.arange(len(texts)), [*first.values()])
        self._mean = np.zeros(1) if form else vectors[self._usable].mean(0)
        self._vectors = vectors if form and form.normalize else unit(vectors - self._mean)

    @classmethod
    def of(cls, request: PredictRequest, model: TrainedModel) -> "NearestSentences":
        """What --in names: texts, or a .npy, whose .npy.json says how it was made and of what."""
        path = request.in_
        assert path is not None
        if path.suffix.lower() != ".npy":
            texts: dict[str, None] = {}
            for row in filled_rows(path, request.row_form(model) if request.nearest else model.row_form()):
                if row.error:
                    print(printable(f"{row.where}: {row.error}; left out"), file=sys.stderr)
                texts |= dict.fromkeys(row.texts)
            if len(texts) < 2:
                raise ValueError(f"{path} has {len(texts)} sentences; at least two are needed, one on each line")
            return cls(model, [*texts], model.encode([*texts]))
        if not (record := read_json(Path(f"{path}.json"))):
            raise ValueError(f"{path} needs {path.name}.json beside it; --encode FILE --output {path} writes both")
        try:
            made, fingerprint = PredictRequest(**record["settings"]), record["model"][1]
            changed, vectors = stamps(made.files) != record["files"], np.load(path, mmap_mode="r")
        except (LookupError, TypeError, ValueError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ValueError(f"{path}, {path.name}.json: {reason}; make both again by --encode") from None
        if fingerprint != model.opened.fingerprint() or made.layers or made.pooling:
            raise ValueError(f"{path} has vectors of another model, --layers or --pooling; make it again by --encode")
        if changed:
            raise ValueError(f"{', '.join(map(str, made.files))} changed after {path}; make it again by --encode")
        found = ["".join(row.texts) for row in Rows(made.files, made.row_form(model)) if row is not None]
        wanted = (len(found), model.opened.hidden_size)
        if vectors.dtype.kind != "f" or vectors.shape != wanted:
            raise ValueError(f"{path} has {vectors.shape} {vectors.dtype}, not {wanted}; make it again by --encode")
        finite = [np.isfinite(vectors[start : start + _BLOCK]).all(1) for start in range(0, len(vectors), _BLOCK)]
        if wrong := [row for row, is_whole in enumerate(np.concatenate(finite)) if found[row] and not is_whole]:
            raise ValueError(f"{path}: vector {wrong[0] + 1} has NaN or infinity; make it again by --encode")
        return cls(model, found, vectors)

    def run(self, requests: Sequence[Request], *, itself: bool = False) -> list[Result]:
        """The `top_k` nearest for each text; the text itself only if `itself`."""
        results, top_k = list[Result](), self._model.top_k
        for start in range(0, len(requests), self._queries):
            queries = [text for (text,) in requests[start : start + self._queries]]
            for query, rows, cosines in zip(queries, *self._search(queries, top_k + 1), strict=True):
                found = [(self._texts[row], cosine) for row, cosine in zip(rows, cosines, strict=True) if cosine > -2]
                found = [(text, cosine) for text, cosine in found if itself or text != query][:top_k]
                results.append({"nearest": [{"text": text, "similarity": round(c, 4)} for text, c in found]})
        return results

    def columns(self) -> dict[str, type]:
        """As of `TrainedModel`."""
        return {"nearest": str}

    def _search(self, queries: Sequence[str], number: int) -> tuple[list[list[int]], list[list[float]]]:
        """The rows of the nearest texts to each query, best first, and their cosines; -inf if there are fewer texts."""
        vectors = unit(self._model.encode(queries, "query") - self._mean).astype("float32")
        rows, best = np.zeros((len(queries), number), np.int64), np.full((len(queries), number), -np.inf, "float32")
        for start in range(0, len(self._vectors), self._block):
            part = slice(start, start + self._block)
            cosines = np.where(self._usable[part], vectors @ self._vectors[part].T, -np.inf)
            places = np.broadcast_to(np.arange(start, start + cosines.shape[1]), cosines.shape)
            rows, best = np.concatenate([rows, places], axis=1), np.concatenate([best, cosines], axis=1)
            chosen = np.argpartition(-best, number - 1)[:, :number]
            rows, best = (np.take_along_axis(values, chosen, 1) for values in (rows, best))
        order = np.argsort(-best, kind="stable")
        return np.take_along_axis(rows, order, 1).tolist(), np.take_along_axis(best, order, 1).tolist()

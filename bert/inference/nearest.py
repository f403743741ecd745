"""Finds the nearest texts of a file by exact search: by vectors, by words (BM25), or by the hybrid ranking of both.

On two cores a query takes 0.1 s among a million memory-mapped vectors of 128 dimensions, and 0.2 s for 384 dimensions,
so that no index of approximate neighbours is needed.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import get_args

import numpy as np

from bert.arrays.vectors import unit
from bert.files import read_json
from bert.finetuning.prediction_files import stamps
from bert.inference.predict_settings import PredictRequest
from bert.inference.reranked import Reranker
from bert.inference.rows import Request, Rows, filled_rows
from bert.inference.trained_model import Result, TrainedModel
from bert.printable import printable
from bert.search import Ranking
from bert.search.fusion import USUAL_WEIGHT, hybrid
from bert.search.postings import Postings, WordScores
from bert.search.ranking import best_rows

_BLOCK, _QUERIES = 1 << 16, 64  # vectors and queries whose cosines, 16 MB, are computed at a time


_Hit = tuple[int, dict[str, float]]  # the row of a text, and its figures by name


def ranking_of(model: TrainedModel, ranking: Ranking | None) -> Ranking:
    """Check a requested ranking. None becomes hybrid for a model that was trained for search, otherwise vectors.

    Raises:
        ValueError: there is no such ranking, or it is hybrid with vectors that were not trained for search.
    """
    if ranking is not None and ranking not in get_args(Ranking):
        raise ValueError(f"ranking={ranking!r} must be one of {', '.join(get_args(Ranking))}; pass one of them")
    is_trained = model.opened.usage.vectors is not None
    if ranking == "hybrid" and not is_trained:
        raise ValueError(
            f"--ranking hybrid needs a model that was trained for search, and {model.opened.path} was not; "
            "train it with run_vectors.py, or pass --ranking vectors or --ranking words"
        )
    return ranking or ("hybrid" if is_trained else "vectors")


def hybrid_weight(model: TrainedModel) -> float:
    """The weight of the vectors in the hybrid ranking: fitted by the training, otherwise the usual weight.

    Vectors that were not trained for search have weight 0, as they find next to nothing (tests/research/search.md).
    """
    form = model.opened.usage.vectors
    if form is None:
        return 0.0
    return USUAL_WEIGHT if form.hybrid_weight is None else form.hybrid_weight


class NearestSentences:
    """Searches texts by their vectors or words; equal texts are found once.

    BERT's mean states share one large direction; without their mean, cosines tell sentences apart (Mu and Viswanath,
    2018). Vectors that were trained for search are compared as they are.

    Args:
        texts: the texts to search; "" marks a text that cannot be found.
        vectors: float32 [texts, width]. They can stay on the disk if the model was trained to make vectors of length 1.
            None: texts are ranked by words alone.
        sizes: numbers of vectors and of queries whose cosines are computed at a time.
        ranking: a result of `ranking_of`.
        reranker: changes the order of the first hits.
    """

    def __init__(
        self,
        model: TrainedModel,
        texts: Sequence[str],
        vectors: np.ndarray | None,
        sizes: tuple[int, int] = (_BLOCK, _QUERIES),
        ranking: Ranking = "vectors",
        reranker: Reranker | None = None,
    ) -> None:
        self._model, self._texts, form = model, texts, model.opened.usage.vectors
        (self._block, self._queries), self._reranker = sizes, reranker
        first = {text: row for row, text in reversed([*enumerate(texts)]) if text}
        self._usable = np.isin(np.arange(len(texts)), [*first.values()])
        self._rank = {"hybrid": self._hybrid, "vectors": self._by_vectors, "words": self._by_words}[ranking]
        self._ranking, self._weight = ranking, hybrid_weight(model)
        if ranking != "words":
            assert vectors is not None
            self._mean = np.zeros(1) if form else vectors[self._usable].mean(0)
            self._vectors = vectors if form and form.normalize else unit(vectors - self._mean)
        if ranking != "vectors":
            self._words = WordScores([Postings.of(texts)], [self._usable])

    @classmethod
    def of(cls, request: PredictRequest, model: TrainedModel, reranker: Reranker | None = None) -> "NearestSentences":
        """Open the file of --in: texts, or a .npy of vectors with a .npy.json that names its texts and settings."""
        path = request.in_
        assert path is not None
        ranking = ranking_of(model, request.ranking)
        if path.suffix.lower() != ".npy":
            texts: dict[str, None] = {}
            for row in filled_rows(path, request.row_form(model) if request.nearest else model.row_form()):
                if row.error:
                    print(printable(f"{row.where}: {row.error}; left out"), file=sys.stderr)
                texts |= dict.fromkeys(row.texts)
            if len(texts) < 2:
                raise ValueError(f"{path} has {len(texts)} sentences; at least two are needed, one on each line")
            vectors = None if ranking == "words" else model.encode([*texts])
            return cls(model, [*texts], vectors, ranking=ranking, reranker=reranker)
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
        return cls(model, found, vectors, ranking=ranking, reranker=reranker)

    def run(self, requests: Sequence[Request], *, itself: bool = False, top_k: int | None = None) -> list[Result]:
        """Find the `top_k` nearest texts of each query, best first; None: the model's `top_k`.

        A text that equals the query is found only if `itself`. A result has the text, its `score` if the ranking uses
        words, and its `similarity`, a cosine, if the ranking uses vectors. A reranker changes the order alone.
        """
        results, top_k = list[Result](), top_k or self._model.top_k
        number = top_k if self._reranker is None else max(top_k, self._reranker.form.depth)
        number = min(number, len(self._texts))
        for start in range(0, len(requests), self._queries):
            queries = [text for (text,) in requests[start : start + self._queries]]
            for query, hits in zip(queries, self._rank(queries, number + 1), strict=True):
                found = [hit for hit in hits if itself or self._texts[hit[0]] != query]
                nearest = [
                    {"text": self._texts[row], **{name: round(value, 4) for name, value in figures.items()}}
                    for row, figures in self._sorted_again(query, found)[:top_k]
                ]
                results.append({"nearest": nearest})
        return results

    def _sorted_again(self, query: str, hits: list[_Hit]) -> list[_Hit]:
        """Let the reranker sort the hits, if there is one."""
        if self._reranker is None or not hits:
            return hits
        scores = np.array([figures.get("score", figures.get("similarity")) for _, figures in hits], np.float32)
        order = self._reranker.order(query, [self._texts[row] for row, _ in hits], scores)
        return [hits[place] for place in order.tolist()]

    def columns(self) -> dict[str, type]:
        """The columns of the output, as in `TrainedModel`."""
        return {"nearest": str}

    def describe(self) -> str:
        """Describe the ranking in one phrase for the user."""
        again = f"; the first {self._reranker.form.depth} are sorted by a reranker" if self._reranker else ""
        if self._ranking != "hybrid":
            return f"ranked by {'vectors' if self._ranking == 'vectors' else 'BM25'}{again}"
        form = self._model.opened.usage.vectors
        is_fitted = form is not None and form.hybrid_weight is not None
        source = "as the training fitted it" if is_fitted else "the usual shares; a training fits its own"
        return f"ranked by {self._weight:.0%} vectors and {1 - self._weight:.0%} BM25 ({source}){again}"

    def _by_vectors(self, queries: Sequence[str], number: int) -> Iterator[list[_Hit]]:
        """Rank texts by cosine for each query, block by block, so that vectors can stay on the disk."""
        vectors = self._vectors_of(queries)
        rows, best = np.zeros((len(queries), number), np.int64), np.full((len(queries), number), -np.inf, "float32")
        for start in range(0, len(self._vectors), self._block):
            part = slice(start, start + self._block)
            cosines = np.where(self._usable[part], vectors @ self._vectors[part].T, -np.inf)
            places = np.broadcast_to(np.arange(start, start + cosines.shape[1]), cosines.shape)
            rows, best = np.concatenate([rows, places], axis=1), np.concatenate([best, cosines], axis=1)
            chosen = np.argpartition(-best, number - 1)[:, :number]
            rows, best = (np.take_along_axis(values, chosen, 1) for values in (rows, best))
        order = np.argsort(-best, kind="stable")
        rows, best = np.take_along_axis(rows, order, 1), np.take_along_axis(best, order, 1)
        for places, cosines in zip(rows.tolist(), best.tolist(), strict=True):
            yield [(row, {"similarity": value}) for row, value in zip(places, cosines, strict=True) if value > -np.inf]

    def _by_words(self, queries: Sequence[str], number: int) -> Iterator[list[_Hit]]:
        """Rank texts by BM25 for each query; texts that share no word with it are left out."""
        for query in queries:
            scores = self._words.scores(query)
            rows = best_rows(np.where(self._usable & (scores > 0), scores, -np.inf), number)
            yield [(row, {"score": float(scores[row])}) for row in rows]

    def _hybrid(self, queries: Sequence[str], number: int) -> Iterator[list[_Hit]]:
        """Rank texts for each query by the weighted sum of standardised cosines and BM25 scores."""
        vectors, cosines = self._vectors_of(queries), np.empty(len(self._texts), np.float32)
        for query, vector in zip(queries, vectors, strict=True):
            for start in range(0, len(self._vectors), self._block):
                part = slice(start, start + self._block)
                cosines[part] = self._vectors[part] @ vector
            scores = hybrid(self._words.scores(query), cosines, self._weight, ~self._usable)
            rows = best_rows(np.where(self._usable, scores, -np.inf), number)
            yield [(row, {"score": float(scores[row]), "similarity": float(cosines[row])}) for row in rows]

    def _vectors_of(self, queries: Sequence[str]) -> np.ndarray:
        return unit(self._model.encode(queries, "query") - self._mean).astype("float32")

"""Compares BM25, vectors and the hybrid ranking on held-out queries, and fits the weight of the hybrid ranking."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bert.reporting.comparison import Metrics, verdict
from bert.search.fusion import cross_fitted, fitted_weight, hybrid
from bert.search.ranking import cosines, found
from bert.search.words import WordIndex
from bert.vectors.measures import relevance, scored, searched
from bert.vectors.pairs import LABELLED, SCORED

if TYPE_CHECKING:
    import pandas as pd

# Names of the rankings, as --ranking has them: the name in a sentence, and how to use it.
_RANKINGS = {
    "hybrid": ("the hybrid ranking", "--nearest does so by default"),
    "vectors": ("the vectors alone", "add --ranking vectors to --nearest"),
    "words": ("BM25 alone", "add --ranking words to --nearest"),
}


@dataclass(frozen=True)
class HeldOutSearch:
    """A search with held-out queries: BM25 scores and relevant passages, which do not depend on the model.

    Attributes:
        words: float32 [q, p], the scores of BM25.
        relevant: bool [q, p]: whether a passage answers a query.
        itself: bool [q, p]: passages that are the query, which are not searched among.
    """

    words: np.ndarray
    relevant: np.ndarray
    itself: np.ndarray

    @classmethod
    def of(cls, pairs: "pd.DataFrame") -> "HeldOutSearch | None":
        """The search with the queries of held-out pairs; None if all pairs have a score or a class."""
        if pairs.kind.isin([SCORED, LABELLED]).all():
            return None
        queries = scored(pairs)
        words = WordIndex(searched(pairs).passage).score_matrix(queries["query"].tolist())
        return cls(words, *relevance(queries, pairs))

    def cosines(self, vectors: np.ndarray) -> np.ndarray:
        """Cosines of queries and passages, float32 [q, p]; `vectors` [q + p, width] has the queries first."""
        return cosines(vectors, len(self.words))

    def fitted_weight(self, vectors: np.ndarray) -> float:
        """The weight of the vectors in the hybrid ranking that answers these queries best."""
        return fitted_weight(self.words, self.cosines(vectors), self.relevant, self.itself)

    def compare(
        self, vectors: np.ndarray, weight: float | None, fitted_here: bool = False
    ) -> tuple[dict[str, float], str]:
        """Compare the hybrid ranking with BM25 and vectors alone: (metrics, sentences that name the best ranking).

        Args:
            weight: the share of the vectors; None: it is fitted here.
            fitted_here: whether the weight was fitted on these queries. If so, each half of them is ranked with the
                weight that is fitted on the other half.
        """
        by_vectors = self.cosines(vectors)
        if weight is None or fitted_here:
            weight = self.fitted_weight(vectors) if weight is None else weight
            scores = cross_fitted(self.words, by_vectors, self.relevant, self.itself)
            source = "fitted on one half of the queries for the other half"
        else:
            scores = hybrid(self.words, by_vectors, weight, self.itself)
            source = "as the training of this model fitted it"
        rankings = {"hybrid": scores, "vectors": by_vectors, "words": np.where(self.words > 0, self.words, -np.inf)}
        figures, every = {name: self._figures(each) for name, each in rankings.items()}, np.arange(len(self.words))
        metrics = {name: each(every) for name, each in figures.items()}
        decisive = [*metrics["hybrid"]][-1]
        better_part = max(("words", "vectors"), key=lambda name: metrics[name][decisive])
        best = max(_RANKINGS, key=lambda name: metrics[name][decisive])
        title = f"The hybrid ranking ({weight:.0%} vectors, {1 - weight:.0%} BM25, {source})"
        sentence = verdict(
            _RANKINGS[better_part][0],
            figures["hybrid"],
            figures[better_part],
            len(every),
            unit="queries",
            remedy="",
            model=title,
        )
        values = {f"eval_hybrid_{name}": value for name, value in metrics["hybrid"].items()}
        return {**values, "eval_hybrid_weight": weight}, f"{sentence} Use {_RANKINGS[best][0]}: {_RANKINGS[best][1]}."

    def _figures(self, scores: np.ndarray) -> Metrics:
        values = found(scores, self.relevant, self.itself)
        return lambda rows: {name: float(each[rows].mean()) for name, each in values.items()}

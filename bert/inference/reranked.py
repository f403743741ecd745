"""Finds and applies the reranker of a search, which sorts the first hits by its scores and the first-stage scores."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bert.conversion.usage import RERANKER_FOLDER, RerankingForm
from bert.inference.heads import load_model
from bert.inference.trained_model import TrainedModel
from bert.search.fusion import hybrid

NONE = "none"  # value of --reranker that switches the reranker off

logger = logging.getLogger(__name__)


class Reranker:
    """A reranker with the weight and the depth that its training has fitted on held-out queries."""

    def __init__(self, model: TrainedModel) -> None:
        self._model, self.form = model, model.opened.usage.reranking or RerankingForm()

    def order(self, query: str, texts: Sequence[str], scores: np.ndarray) -> np.ndarray:
        """Sort the hits of a query: int64 [n], places of texts, best first. Hits beyond the depth keep their places.

        Args:
            texts: the hits of the first stage, best first.
            scores: float [n], first-stage scores.
        """
        number = min(self.form.depth, len(texts))
        own = self._model.rank_scores(query, texts[:number])
        both = hybrid(np.asarray(scores[:number], np.float32), own, self.form.weight)
        return np.concatenate([np.argsort(-both, kind="stable"), np.arange(number, len(texts))])


def find_reranker(source: str | Path, chosen: str | Path | None = None, **settings: Any) -> Reranker | None:
    """Load the reranker of a model of vectors; None if there is none, or if its weight is 0, as it did not help.

    Args:
        source: the model of the vectors.
        chosen: the folder of a reranker, or NONE; None: the reranker in the output folder `source`, if any.
        settings: arguments of `load_model`.
    Raises:
        ValueError: the chosen folder has no reranker.
    """
    folder = _beside(Path(source).expanduser()) if chosen is None else Path(chosen).expanduser()
    if str(chosen) == NONE or (chosen is None and not folder.is_dir()):
        return None
    model = load_model(folder, **settings)
    if not model.is_reranker():
        raise model.lacks_scores()
    found = Reranker(model)
    if found.form.weight == 0:
        level = logging.INFO if chosen is None else logging.WARNING  # one that was asked for
        logger.log(level, "%s is not used: it did not help in its training, so its weight is 0", folder)
        return None
    return found


def _beside(source: Path) -> Path:
    """The reranker's folder in OUTPUT, if the source is OUTPUT, OUTPUT/MODEL/STAGE or OUTPUT/MODEL/STAGE/STEP."""
    whole = source.absolute()
    levels = 3 if whole.name.isdecimal() else 2
    outer = whole.parents[levels - 1] / RERANKER_FOLDER if len(whole.parents) >= levels else whole / RERANKER_FOLDER
    is_of_a_run = (outer / "reranker.yaml").is_file()
    return outer if is_of_a_run and not (source / RERANKER_FOLDER).is_dir() else source / RERANKER_FOLDER

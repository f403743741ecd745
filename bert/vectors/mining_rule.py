"""The rule that decides which passages become hard negatives."""

from dataclasses import dataclass
from typing import Literal

Source = Literal["model", "words"]


@dataclass(frozen=True)
class MiningRule:
    """Rule that decides which passages become the negatives of a pair.

    Attributes:
        number: most negatives of a pair.
        share: a negative's cosine with the query is at most this share of the positive's cosine.
        depth: number of best passages of each source that become candidates.
        sources: rankings that give candidates in turn: cosines of the model, BM25 of words.
    """

    number: int = 8
    share: float = 0.95
    depth: int = 50
    sources: tuple[Source, ...] = ("model", "words")

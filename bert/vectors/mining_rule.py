"""The rule by which passages become hard negatives."""

from dataclasses import dataclass
from typing import Literal

Source = Literal["model", "words"]


@dataclass(frozen=True)
class MiningRule:
    """Which passages become the negatives of a pair.

    Attributes:
        number: negatives of a pair, at most.
        share: a negative's cosine with the query is at most this share of the positive's.
        depth: so many of the best passages of each source are candidates.
        sources: the model's cosines, BM25 of words; they take turns.
    """

    number: int = 8
    share: float = 0.95
    depth: int = 50
    sources: tuple[Source, ...] = ("model", "words")

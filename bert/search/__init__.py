"""Search: BM25 of words, cosines of vectors, and the weighted sum of both."""

from typing import Literal

Ranking = Literal["hybrid", "vectors", "words"]  # here: settings name it before NumPy is loaded

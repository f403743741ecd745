"""BM25 scores of passages by their words (Robertson et al., 1995), computed by the library bm25s."""

import re
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from bert.tokenization.equal_letters import normal_form, word_pattern

_CJK = r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"  # each character is a word
# Pyserini's values for passages (Lin et al., 2021): tests/research/search.md compares them with 1.5 and 0.75.
K1, B = 0.9, 0.4
NO_WORD = "!"  # stands for a text without a word, such as "?!": bm25s takes no empty list, and no word is "!"


@cache
def _word() -> re.Pattern[str]:
    return re.compile(rf"{_CJK}|{word_pattern()}")


def words_of(text: str) -> list[str]:
    """Split a text into lower-case words; each character of Chinese and Japanese is a word.

    A name such as dma_map_sg is a word, and so are its parts, by which people search for it.
    """
    words = _word().findall(normal_form(text.lower()))
    return words if "_" not in text else [part for word in words for part in _with_parts(word)]


def _with_parts(word: str) -> list[str]:
    parts = list(filter(None, word.split("_")))
    return [word, *parts] if len(parts) > 1 else parts


class WordIndex:
    """BM25 index of passages, with Lucene's formula.

    Raises:
        ValueError: there is no passage.
    """

    def __init__(self, passages: Iterable[str]) -> None:
        import bm25s  # it takes a tenth of a second to load

        # Numbers of words: a million passages as lists of strings would take ten times the memory.
        numbers, passage_words = {NO_WORD: 0}, list[list[int]]()
        for passage in passages:
            words = words_of(passage) or [NO_WORD]
            passage_words.append([numbers.setdefault(word, len(numbers)) for word in words])
        if not passage_words:
            raise ValueError("no passage to search among; name at least one text")
        self._numbers, self._index = numbers, bm25s.BM25(k1=K1, b=B)
        self._index.index((passage_words, dict(numbers)), show_progress=False)

    def scores(self, query: str) -> np.ndarray:
        """The score of each passage for a query, float32 [p]; 0 for a passage that shares no word with it."""
        found = [self._numbers[word] for word in words_of(query) if word in self._numbers]
        return self._index.get_scores_from_ids(found)

    def score_matrix(self, queries: Sequence[str]) -> np.ndarray:
        """The score of each passage for each query, float32 [q, p]."""
        return np.stack([self.scores(query) for query in queries])

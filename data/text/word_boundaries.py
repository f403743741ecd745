"""Finds the words of Chinese text for whole-word masking; WordPiece splits Chinese into characters.

The words of other text follow from WordPiece's ## pieces; `bert.tokenization.segmentation` cuts scripts without spaces.
"""

import re
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from bert.arrays.ragged import offsets_of, positions_in_rows
from bert.tokenization.library import TextTokenizer
from bert.tokenization.segmentation import version_of

_CHINESE = "\u3400-\u4dbf\u4e00-\u9fff"
_IS_CHINESE = re.compile(f"[{_CHINESE}]")
# Characters that BERT's tokenisation separates from their neighbours: cutting a text beside one changes no token.
_APART = re.compile(
    f"[ \t\n\r!-/:-@\\[-`{{-~\u2010-\u2027\u2030-\u203e\u3000-\u3002\uff01\uff0c\uff1a\uff1b\uff1f{_CHINESE}]"
)


@lru_cache(maxsize=1)
def word_segmenter(name: str) -> "WordSegmenter":
    """The segmenter of that name; processes forked later share its dictionary."""
    version_of(name)
    return WordSegmenter()


class WordSegmenter:
    """The segmenter jieba with its own dictionary, and its hidden Markov model for other words."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # jieba imports setuptools' pkg_resources, which is deprecated
            import jieba

        self._jieba: Any = jieba.Tokenizer()
        # jieba would cache its dictionary in the shared temporary folder, and trust any file that it finds there.
        self._jieba.FREQ, self._jieba.total = self._jieba.gen_pfdict(self._jieba.get_dict_file())
        self._jieba.initialized = True

    def parts(self, text: str) -> list[str]:
        """Split the text; parts with odd indices are words of several characters with Chinese ones.

        A part never ends inside a unit of BERT's tokenisation; so a word that ends in the middle of a run of letters is
        cut to its Chinese characters.
        """
        parts, end = [], 0
        for start, stop in self._words(text) if _IS_CHINESE.search(text) else ():
            while not _is_edge(text, start):
                start += 1
            while not _is_edge(text, stop):
                stop -= 1
            if stop - start > 1:
                parts += [text[end:start], text[start:stop]]
                end = stop
        return [*parts, text[end:]]

    def _words(self, text: str) -> list[tuple[int, int]]:
        """Ranges (start, stop) of words with a Chinese character."""
        words, end = [], 0
        for word in self._jieba.cut(text):
            start, end = end, end + len(word)
            if _IS_CHINESE.search(word):
                words.append((start, end))
        return words


def _is_edge(text: str, place: int) -> bool:
    return not 0 < place < len(text) or _APART.search(text, place - 1, place + 1) is not None


def encode_words(
    texts: Sequence[str], tokenizer: TextTokenizer, segmenter: WordSegmenter
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Tokens of n texts, and which tokens continue a word of the segmenter.

    Returns:
        ids [T] and offsets, int64 [n + 1], as the tokenizer gives them; bool [T], whether a token belongs to the word
        of the previous token; the number of words of several characters that the segmenter found.
    """
    parts: list[str] = []
    numbers = []
    for text in texts:
        parts_of_text = segmenter.parts(text)
        parts += parts_of_text
        numbers.append(len(parts_of_text))
    ids, offsets = tokenizer.encode_texts(parts)
    first_parts = offsets_of(numbers)
    lengths = np.diff(offsets)
    is_word = positions_in_rows(first_parts) % 2 == 1
    inside = np.repeat(is_word, lengths)
    inside[offsets[:-1][lengths > 0]] = False
    return ids, offsets[first_parts], tokenizer.vocabulary.continuations()[ids] | inside, int(is_word.sum())

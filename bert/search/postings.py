"""The words of a segment's passages on the disk, and BM25 scores over several segments.

`WordIndex` is made anew for all passages, a minute for a million of them. Postings of a segment are written once: an
addition reads the new passages alone, and a deletion changes only the number of passages that have a word. The scores
are those of `WordIndex` over the passages that are left.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash

from bert.search.words import K1, B, words_of

_NO_WORD = "!"  # of a text without a word, such as "?!": it counts as one word, which no query has


@dataclass(frozen=True)
class Postings:
    """Which passages have a word, and how often.

    Attributes:
        words: uint64 [2, w + 1]: the hashes of the words, ascending, and where the entries of each begin; the last
            column has the end of the entries alone. Two of a million words are equal with a probability of 3e-8.
        entries: uint32 [2, n]: the passage and the number of times, by word, then by passage.
        lengths: int32 [p], the words of each passage.
    """

    words: np.ndarray
    entries: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Postings":
        """The postings of passages."""
        numbers, found, lengths = dict[str, int](), array("q"), array("i")
        for text in texts:
            words = words_of(text) or [_NO_WORD]
            lengths.append(len(words))
            found.extend(numbers.setdefault(word, len(numbers)) for word in words)
        hashes = np.array([_hash_of(word) for word in numbers], np.uint64)
        passages = np.repeat(np.arange(len(lengths)), lengths)
        return cls._sorted(hashes[np.array(found, np.int64)], passages, None, np.array(lengths, np.int32))

    @classmethod
    def joined(cls, parts: Sequence["Postings"], kept: Sequence[np.ndarray]) -> "Postings":
        """The postings of the passages that are kept of several segments, bool [p] each, one after the other."""
        hashes, passages, counts, first = list[np.ndarray](), list[np.ndarray](), list[np.ndarray](), 0
        for part, is_kept in zip(parts, kept, strict=True):
            places = first + np.cumsum(is_kept) - 1
            chosen = is_kept[part.entries[0]]
            sizes = np.diff(part.words[1].astype(np.int64))
            hashes.append(np.repeat(part.words[0, :-1], sizes)[chosen])
            passages.append(places[part.entries[0][chosen]])
            counts.append(part.entries[1][chosen])
            first += int(is_kept.sum())
        lengths = [part.lengths[is_kept] for part, is_kept in zip(parts, kept, strict=True)]
        return cls._sorted(*map(np.concatenate, (hashes, passages, counts, lengths)))

    @classmethod
    def _sorted(
        cls, hashes: np.ndarray, passages: np.ndarray, counts: np.ndarray | None, lengths: np.ndarray
    ) -> "Postings":
        """Postings of [n] hashes of words in [n] passages; `counts` None: each is one time."""
        words, places = np.unique(hashes, return_inverse=True)
        keys = places.astype(np.int64) * len(lengths) + passages
        if counts is None:
            keys, times = np.unique(keys, return_counts=True)
        else:
            order = np.argsort(keys, kind="stable")
            keys, times = keys[order], counts[order]
        word, passage = np.divmod(keys, max(1, len(lengths)))
        starts = np.searchsorted(word, np.arange(len(words) + 1)).astype(np.uint64)
        table = np.stack([np.append(words, np.uint64(0)), starts])
        return cls(table, np.stack([passage, times]).astype(np.uint32), lengths)

    def of_word(self, word: int) -> np.ndarray:
        """The entries of the hash of a word, uint32 [2, n]."""
        hashes = self.words[0, :-1]
        place = int(np.searchsorted(hashes, np.uint64(word)))
        if place == len(hashes) or hashes[place] != word:
            return self.entries[:, :0]
        return self.entries[:, int(self.words[1, place]) : int(self.words[1, place + 1])]


def _hash_of(word: str) -> int:
    return xxhash.xxh3_64_intdigest(word.encode("utf-8", "surrogatepass"))


class WordScores:
    """BM25 over the passages of several segments that are not deleted.

    Args:
        parts: the postings of each segment.
        live: bool [p] of each: the passages that count.
    """

    def __init__(self, parts: Sequence[Postings], live: Sequence[np.ndarray]) -> None:
        self._parts, self._live = parts, live
        self._number = sum(int(mask.sum()) for mask in live)
        num_words = sum(int(part.lengths[mask].sum()) for part, mask in zip(parts, live, strict=True))
        mean = max(1.0, num_words / max(1, self._number))
        # The part of the formula that is the passage's own.
        self._norms = [(K1 * (1 - B + B * part.lengths / mean)).astype(np.float32) for part in parts]

    def scores(self, query: str) -> np.ndarray:
        """The score of each passage of all segments, float32 [p]; 0 where no word is in common or it is deleted."""
        results = [np.zeros(len(part.lengths), np.float32) for part in self._parts]
        for word, times in Counter(words_of(query)).items():
            found = self._entries(word)
            number = sum(entries.shape[1] for entries in found)
            weight = times * self._weight(number)
            for entries, result, norms in zip(found, results, self._norms, strict=True):
                passages, counts = entries[0], entries[1].astype(np.float32)
                result[passages] += weight * counts / (counts + norms[passages])
        return np.concatenate([*results, np.zeros(0, np.float32)])

    def weights(self, query: str) -> dict[str, float]:
        """How much each word of a query tells: its inverse document frequency."""
        numbers = {word: sum(entries.shape[1] for entries in self._entries(word)) for word in {*words_of(query)}}
        return {word: float(self._weight(number)) for word, number in numbers.items()}

    def _entries(self, word: str) -> list[np.ndarray]:
        """The entries of a word in the passages that count, of each segment."""
        key, found = _hash_of(word), list[np.ndarray]()
        for part, mask in zip(self._parts, self._live, strict=True):
            entries = part.of_word(key)
            found.append(entries if mask.all() else entries[:, mask[entries[0]]])
        return found

    def _weight(self, number: int) -> np.float32:
        """The inverse document frequency of a word that so many passages have, as Lucene has it."""
        return np.float32(np.log1p((self._number - number + 0.5) / (number + 0.5)))

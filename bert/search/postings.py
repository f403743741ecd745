"""The words of a segment's passages on the disk, and BM25 scores over several segments.

`WordIndex` must be built for all passages at once, a minute for a million. Postings of a segment are written once: an
addition reads the new passages alone, and a deletion changes only the number of passages that have a word. The scores
equal the scores of a `WordIndex` that is built of the remaining passages.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import xxhash

from bert.search.words import K1, NO_WORD, B, words_of


@dataclass(frozen=True)
class Postings:
    """An inverted index: which passages have a word, and how often.

    Attributes:
        words: uint64 [2, w + 1]: the hashes of the words, ascending, and where the entries of each begin; the last
            column has the end of the entries alone. Two of a million words are equal with a probability of 3e-8.
        entries: uint32 [2, n]: passages, and how often each has the word; sorted by word, then by passage.
        lengths: int32 [p], number of words of each passage.
    """

    words: np.ndarray
    entries: np.ndarray
    lengths: np.ndarray

    @classmethod
    def of(cls, texts: Iterable[str]) -> "Postings":
        """Build the postings of passages from their texts."""
        numbers, found, lengths = dict[str, int](), array("q"), array("i")
        for text in texts:
            words = words_of(text) or [NO_WORD]
            lengths.append(len(words))
            found.extend(numbers.setdefault(word, len(numbers)) for word in words)
        hashes = np.array([_hash_of(word) for word in numbers], np.uint64)
        passages = np.repeat(np.arange(len(lengths)), lengths)
        return cls._sorted(hashes[np.array(found, np.int64)], passages, None, np.array(lengths, np.int32))

    @classmethod
    def joined(cls, parts: Sequence["Postings"], kept: Sequence[np.ndarray]) -> "Postings":
        """Concatenate the postings of several segments; `kept`, bool [p] for each, is False for dropped passages."""
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
        """Build postings from pairs of word hash and passage, [n] each; `counts` None: each pair is one occurrence."""
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
        """The entries of one word, given by its hash: uint32 [2, n]."""
        hashes = self.words[0, :-1]
        place = int(np.searchsorted(hashes, np.uint64(word)))
        if place == len(hashes) or hashes[place] != word:
            return self.entries[:, :0]
        return self.entries[:, int(self.words[1, place]) : int(self.words[1, place + 1])]


def _hash_of(word: str) -> int:
    return xxhash.xxh3_64_intdigest(word.encode("utf-8", "surrogatepass"))


class WordScores:
    """BM25 scores over several segments; deleted passages do not count.

    Args:
        parts: the postings of each segment.
        live: bool [p] for each segment: False for a deleted passage.
    """

    def __init__(self, parts: Sequence[Postings], live: Sequence[np.ndarray]) -> None:
        self._parts, self._live = parts, live
        self._number = sum(int(mask.sum()) for mask in live)
        num_words = sum(int(part.lengths[mask].sum()) for part, mask in zip(parts, live, strict=True))
        mean = max(1.0, num_words / max(1, self._number))
        # The part of the formula that depends on the passage alone.
        self._norms = [(K1 * (1 - B + B * part.lengths / mean)).astype(np.float32) for part in parts]

    def scores(self, query: str) -> np.ndarray:
        """The score of each passage, float32 [p]; 0 for a passage that is deleted or shares no word with the query."""
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
        """The inverse document frequency of each word of a query."""
        numbers = {word: sum(entries.shape[1] for entries in self._entries(word)) for word in {*words_of(query)}}
        return {word: float(self._weight(number)) for word, number in numbers.items()}

    def _entries(self, word: str) -> list[np.ndarray]:
        """The entries of a word for each segment, without deleted passages."""
        key, found = _hash_of(word), list[np.ndarray]()
        for part, mask in zip(self._parts, self._live, strict=True):
            entries = part.of_word(key)
            found.append(entries if mask.all() else entries[:, mask[entries[0]]])
        return found

    def _weight(self, number: int) -> np.float32:
        """Inverse document frequency, as in Lucene, of a word that `number` passages have."""
        return np.float32(np.log1p((self._number - number + 0.5) / (number + 0.5)))

"""Decides whether two texts are the same: one rule for duplicates, held-out groups and search passages.

Two texts are *equal* if they differ only in case, white space and the form of their letters (`normalized`). Two texts
are *nearly equal* if at least 0.8 of their shingles are common, estimated by MinHash (Broder, 1997). A shingle is a
sequence of five words, in lower case and without punctuation. A text of fewer than five words is one shingle, so two
short texts are nearly equal only if all their words are. The hash functions are fixed, so the result is deterministic.
"""

import hashlib
import re
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from bert.arrays.components import Components
from bert.arrays.ragged import offsets_of
from bert.tokenization.equal_letters import normal_form

if TYPE_CHECKING:
    from datasketch import MinHash

MODES = ("exact", "near")  # of duplicates: equal texts, or also nearly equal ones
NEAR = 0.8  # the usual share of common shingles, here estimated to about 0.04
_HASHES, _ROWS = 128, 5  # texts alike to 0.8 share one of 25 bands of 5 with probability 0.9999, to 0.3 with 0.06
_BANDS = _HASHES // _ROWS
SHINGLE_WORDS = 5
_BATCH_SHINGLES = 4096
_LEAST_COMMON = 0.6  # less than NEAR, as MinHash is an estimate
_NEIGHBOURS = 8  # texts with an equal band that a text is compared with, in each band: bounds the time
_COMPARED_AT_ONCE = 1 << 16  # pairs of signatures: 8 MB
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]|\w+")  # CJK by character


def normalized(text: str) -> str:
    """Lower-cased text in normal form with single spaces, which is equal for equal texts."""
    return " ".join(normal_form(text.lower()).split())


def words_of(text: str) -> list[str]:
    """Lower-cased words of a text without punctuation; single characters in Chinese and Japanese."""
    return _WORD.findall(normal_form(text.lower()))


@cache
def _empty_minhash() -> "MinHash":
    from datasketch import MinHash  # loads SciPy

    return MinHash(_HASHES, seed=1, hashfunc=zlib.crc32, scheme="affine32")


class TextDigest:
    """Hashes of a document that is added in pieces: of its text and, with a mode, for finding duplicates."""

    def __init__(self, mode: str | None) -> None:
        """mode: one of MODES; None: only the hash of the unchanged text."""
        self._hash = hashlib.sha256()
        self._normalized_hash = hashlib.sha256() if mode is not None else None
        self._minhash = _empty_minhash().copy() if mode == "near" else None
        self._words: list[str] = []
        self._has_text = self._has_space = False  # whether a word was added, and white space behind the last word

    def add(self, text: bytes) -> None:
        """Add the next piece of the text, in UTF-8."""
        self._hash.update(text)
        if self._normalized_hash is None:
            return
        lowered = text.decode("utf-8", errors="replace").lower()
        self._add_normalized(lowered)
        if self._minhash is None:
            return
        self._words += _WORD.findall(lowered)
        while len(self._words) >= _BATCH_SHINGLES + SHINGLE_WORDS:
            self._shingle(_BATCH_SHINGLES)

    def _add_normalized(self, lowered: str) -> None:
        assert self._normalized_hash is not None
        self._has_space |= lowered[:1].isspace()
        if words := " ".join(lowered.split()):
            space = " " if self._has_space and self._has_text else ""
            self._normalized_hash.update(f"{space}{words}".encode())
            self._has_text, self._has_space = True, False
        self._has_space |= lowered[-1:].isspace()

    def _shingle(self, count: int) -> None:
        assert self._minhash is not None
        words = self._words[: count + SHINGLE_WORDS - 1]
        self._minhash.update_batch(_shingles(words))
        del self._words[:count]

    def sha256(self) -> bytes:
        """Hash of the unchanged text, which assigns a document to training or held-out text."""
        return self._hash.digest()

    def normalized_sha256(self) -> bytes:
        """Hash of the `normalized` text, which is equal for equal texts."""
        assert self._normalized_hash is not None, "without a mode, duplicates are not looked for"
        return self._normalized_hash.digest()

    def signature(self) -> np.ndarray | None:
        """MinHash signature of the whole document, uint64 [128]; None without words."""
        if self._minhash is None:
            return None
        count = len(self._words) - SHINGLE_WORDS + 1
        if count > 0 or (self._words and self._minhash.is_empty()):
            self._shingle(max(1, count))
        return None if self._minhash.is_empty() else self._minhash.hashvalues.astype(np.uint64)


def band_keys(signature: np.ndarray) -> list[int]:
    """64-bit keys of the 25 bands of a signature; nearly equal texts share at least one."""
    bands = signature[: _BANDS * _ROWS].astype("<u8").reshape(-1, _ROWS)
    keys = (hashlib.blake2b(band.tobytes(), digest_size=8, key=bytes([row])).digest() for row, band in enumerate(bands))
    return [int.from_bytes(key, "little", signed=True) for key in keys]


def similarity(signatures: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Estimated share of common shingles of two signatures [n, 128], float64 [n]."""
    return np.asarray((signatures == others).mean(axis=-1))


def near_numbers(texts: Sequence[str]) -> np.ndarray:
    """Number of the first text that is the same, directly or through others, for each text: int64 [n].

    The texts of one number are equal, or linked by nearly equal texts. Needs 0.6 kB of memory for each text that has
    most of its shingles in common with others.
    """
    firsts: dict[str, int] = {}  # word sequences
    numbers, places, hashes = np.zeros(len(texts), np.int64), list[int](), list[np.ndarray]()
    for number, text in enumerate(texts):
        words = words_of(text)
        key = " ".join(words) if words else f"\0{normalized(text)}"  # a text of signs alone is only equal
        numbers[number] = first = firsts.setdefault(key, number)
        if first == number and len(words) >= SHINGLE_WORDS:
            places.append(number)
            hashes.append(_shingle_hashes(words))
    if not places:
        return numbers
    long_texts = np.array(places)[_may_be_near(hashes)]
    if len(long_texts):
        components = Components(len(long_texts))
        _link_near(components, _signatures(texts[number] for number in long_texts))
        smallest = np.arange(len(texts))
        smallest[long_texts] = long_texts[components.numbers()]
        numbers = smallest[numbers]
    return numbers


def _shingles(words: Sequence[str]) -> set[bytes]:
    """All sequences of five words; of a shorter text its only sequence."""
    places = range(max(1, len(words) - SHINGLE_WORDS + 1))
    return {" ".join(words[place : place + SHINGLE_WORDS]).encode("utf-8", "replace") for place in places}


def _shingle_hashes(words: Sequence[str]) -> np.ndarray:
    """Hashes of the shingles, uint32; equal only for equal shingles, except for collisions."""
    return np.array([*map(zlib.crc32, _shingles(words))], np.uint32)


def _may_be_near(hashes: Sequence[np.ndarray]) -> np.ndarray:
    """Whether enough shingles of a text occur elsewhere, bool [n]; spares most texts their signature.

    A text has at least 0.8 of its shingles in common with a nearly equal text.
    """
    offsets = offsets_of([len(own) for own in hashes])
    _, numbers, counts = np.unique(np.concatenate(hashes), return_inverse=True, return_counts=True)
    common = np.add.reduceat((counts[numbers] > 1).astype(np.int64), offsets[:-1])
    return np.asarray(common >= _LEAST_COMMON * np.diff(offsets))


def _signatures(texts: Iterable[str]) -> np.ndarray:
    """MinHash signatures of texts with words, uint32 [n, 128]."""
    signatures = list[np.ndarray]()
    for text in texts:
        digest = TextDigest("near")
        digest.add(text.encode("utf-8", "replace"))
        signature = digest.signature()
        assert signature is not None
        signatures.append(signature.astype(np.uint32))
    return np.stack(signatures)


def _link_near(components: Components, signatures: np.ndarray) -> None:
    """Link nearly equal texts. Only texts with an equal band are compared, each with a few neighbours.

    Sorting by the next band too puts the most similar texts of a large band beside each other.
    """
    bands = signatures[:, : _BANDS * _ROWS].reshape(-1, _BANDS, _ROWS)
    keys = np.zeros(bands.shape[:2], np.uint64)
    for row in range(_ROWS):
        keys = (keys + bands[:, :, row]) * _MULTIPLIER
    numbers = components.numbers()
    for band in range(_BANDS):
        order = np.lexsort((keys[:, (band + 1) % _BANDS], keys[:, band]))
        for distance in range(1, _NEIGHBOURS + 1):
            ones, others = order[:-distance], order[distance:]
            in_band = keys[ones, band] == keys[others, band]
            if not in_band.any():
                break
            candidates = in_band & (numbers[ones] != numbers[others])
            ones, others = ones[candidates], others[candidates]
            for start in range(0, len(ones), _COMPARED_AT_ONCE):
                one, other = (side[start : start + _COMPARED_AT_ONCE] for side in (ones, others))
                is_near = similarity(signatures[one], signatures[other]) >= NEAR
                components.link(one[is_near], other[is_near])
            if len(ones):
                numbers = components.numbers()

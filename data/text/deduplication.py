"""Finds duplicate documents: identical text, or near-duplicates by MinHash (Broder, 1997).

Hashes of earlier documents are kept in a temporary SQLite file, so that memory does not grow with the corpus. The first
of several duplicates is kept. The hash functions are fixed, so the result is deterministic.
"""

import hashlib
import re
import sqlite3
import zlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from datasketch import MinHash

MODES = ("exact", "near")
_NEAR = 0.8  # the usual share of common shingles, here estimated to about 0.04
_HASHES, _ROWS = 128, 5  # texts alike to 0.8 share one of 25 bands of 5 with probability 0.9999, to 0.3 with 0.06
_SHINGLE_WORDS = 5
_BATCH_SHINGLES = 4096
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]|\w+")  # CJK by character


@cache
def _empty_minhash() -> "MinHash":
    from datasketch import MinHash  # loads SciPy

    return MinHash(_HASHES, seed=1, hashfunc=zlib.crc32, scheme="affine32")


class TextDigest:
    """The sha256 of a document added in pieces and, for near-duplicates, its MinHash over five-word shingles."""

    def __init__(self, near: bool) -> None:
        self._hash = hashlib.sha256()
        self._minhash = _empty_minhash().copy() if near else None
        self._words: list[str] = []

    def add(self, text: bytes) -> None:
        self._hash.update(text)
        if self._minhash is None:
            return
        self._words += _WORD.findall(text.decode("utf-8", errors="replace").lower())
        while len(self._words) >= _BATCH_SHINGLES + _SHINGLE_WORDS:
            self._shingle(_BATCH_SHINGLES)

    def _shingle(self, count: int) -> None:
        assert self._minhash is not None
        words = self._words[: count + _SHINGLE_WORDS - 1]
        shingles = {" ".join(words[place : place + _SHINGLE_WORDS]).encode() for place in range(max(1, count))}
        self._minhash.update_batch(shingles)
        del self._words[:count]

    def sha256(self) -> bytes:
        return self._hash.digest()

    def signature(self) -> np.ndarray | None:
        """uint64 [128] when all of the document was added; None for a document without a word."""
        if self._minhash is None:
            return None
        count = len(self._words) - _SHINGLE_WORDS + 1
        if count > 0 or (self._words and self._minhash.is_empty()):
            self._shingle(max(1, count))
        return None if self._minhash.is_empty() else self._minhash.hashvalues.astype(np.uint64)


class SeenDocuments:
    """Index of earlier documents."""

    def __init__(self, path: Path, mode: str) -> None:
        if mode not in MODES:
            raise ValueError(f"deduplicate={mode!r} must be one of {' '.join(MODES)}")
        self.near = mode == "near"
        self._path = path
        self._database = sqlite3.connect(path, isolation_level=None)
        self._database.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-65536; BEGIN;"
            "CREATE TABLE texts (sha256 BLOB PRIMARY KEY, id TEXT) WITHOUT ROWID;"
            "CREATE TABLE signatures (number INTEGER PRIMARY KEY, id TEXT, signature BLOB);"
            "CREATE TABLE bands (band INTEGER, number INTEGER, PRIMARY KEY (band, number)) WITHOUT ROWID;"
        )

    def close(self) -> None:
        """Delete the index."""
        self._database.close()
        self._path.unlink(missing_ok=True)

    def earlier(self, identifier: str, digest: TextDigest) -> tuple[str, str] | None:
        """("exact" or "near", id of the earlier document); None if there is none, and the document is added."""
        sha256 = digest.sha256()
        same = self._database.execute("SELECT id FROM texts WHERE sha256 = ?", (sha256,)).fetchone()
        if same:
            return "exact", same[0]
        signature = digest.signature() if self.near else None
        if signature is not None:
            bands = _band_keys(signature)
            if (alike := self._most_alike(signature, bands)) is not None:
                return "near", alike
            number = self._database.execute(
                "INSERT INTO signatures (id, signature) VALUES (?, ?)",
                (identifier, signature.astype(np.uint32).tobytes()),
            ).lastrowid
            self._database.executemany("INSERT OR IGNORE INTO bands VALUES (?, ?)", ((band, number) for band in bands))
        self._database.execute("INSERT INTO texts VALUES (?, ?)", (sha256, identifier))
        return None

    def _most_alike(self, signature: np.ndarray, bands: list[int]) -> str | None:
        """The id of the first of the most similar documents, if it is similar enough."""
        marks = ",".join("?" * len(bands))
        rows = self._database.execute(
            f"SELECT id, signature FROM signatures WHERE number IN (SELECT number FROM bands WHERE band IN ({marks})) "
            "ORDER BY number",
            bands,
        )
        best, alike = None, _NEAR
        for identifier, stored in rows:
            share = float((np.frombuffer(stored, np.uint32) == signature.astype(np.uint32)).mean())
            if share >= alike and (best is None or share > alike):
                best, alike = identifier, share
        return best


def _band_keys(signature: np.ndarray) -> list[int]:
    """A 64-bit key of each band."""
    bands = signature[: _HASHES // _ROWS * _ROWS].astype("<u8").reshape(-1, _ROWS)
    keys = (hashlib.blake2b(band.tobytes(), digest_size=8, key=bytes([row])).digest() for row, band in enumerate(bands))
    return [int.from_bytes(key, "little", signed=True) for key in keys]

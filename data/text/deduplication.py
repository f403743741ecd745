"""Finds duplicate documents of a corpus: equal or nearly equal texts, as `data.text.same_text` defines them.

Hashes of earlier documents are kept in a temporary SQLite file, so that memory does not grow with the corpus. The first
of several duplicates is kept.
"""

import sqlite3
from pathlib import Path

import numpy as np

from data.text.same_text import MODES, NEAR, TextDigest, band_keys, similarity


class SeenDocuments:
    """Index of the documents that were read earlier."""

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
        """("exact" or "near", id) of an earlier document like this; otherwise None, and this one is added."""
        sha256 = digest.normalized_sha256()
        same = self._database.execute("SELECT id FROM texts WHERE sha256 = ?", (sha256,)).fetchone()
        if same:
            return "exact", same[0]
        signature = digest.signature() if self.near else None
        if signature is not None:
            bands = band_keys(signature)
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
        """Id of the first of the most similar documents, if similar enough."""
        marks = ",".join("?" * len(bands))
        rows = self._database.execute(
            f"SELECT id, signature FROM signatures WHERE number IN (SELECT number FROM bands WHERE band IN ({marks})) "
            "ORDER BY number",
            bands,
        )
        best, alike = None, NEAR
        for identifier, stored in rows:
            share = float(similarity(np.frombuffer(stored, np.uint32), signature.astype(np.uint32)))
            if share >= alike and (best is None or share > alike):
                best, alike = identifier, share
        return best

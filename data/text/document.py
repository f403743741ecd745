"""A document that is being read: its text with single spaces, its digest and its size."""

from __future__ import annotations

import tempfile
from pathlib import Path

from data.text.deduplication import TextDigest
from data.text.lddl_writer import SourceWriter, document_id, utf8

_SPOOL_BYTES = 8 << 20  # a longer document is kept on disk until the check for duplicates
_COPY_BYTES = 1 << 20


class Document:
    """A document that is being read: its text with single spaces, in memory or, if long, on the disk."""

    def __init__(self, identifier: str, near: bool, folder: Path) -> None:
        self.id = utf8(document_id(identifier)).decode()
        self.digest = TextDigest(near)
        self.characters = self.num_bytes = 0
        self._spool = tempfile.SpooledTemporaryFile(_SPOOL_BYTES, dir=str(folder))
        self._space = False

    def add(self, text: str) -> None:
        words = " ".join(text.split())
        self._space |= text[:1].isspace()
        if words:
            joined = " " * (self._space and self.characters > 0) + words
            data = utf8(joined)
            self._spool.write(data)
            self.digest.add(data)
            self.characters += len(joined)
            self.num_bytes += len(data)
            self._space = False
        self._space |= text[-1:].isspace()

    def write(self, writer: SourceWriter) -> None:
        writer.write(utf8(self.id) + b" ", is_end=False)
        self._spool.seek(0)
        while data := self._spool.read(_COPY_BYTES):
            writer.write(data, is_start=False, is_end=False)
        writer.write(b"\n", is_start=False)

    def close(self) -> None:
        self._spool.close()

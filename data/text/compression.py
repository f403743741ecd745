"""Reads the bytes of a plain or compressed file in pieces; damage becomes an error that names the file."""

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import zstandard

from bert.files import shown
from data.text.size_limits import no_bomb

COMPRESSIONS = (".gz", ".bz2", ".zst", ".xz")
CHUNK_BYTES = 1 << 20
_ZSTD_INPUT_BYTES = 1 << 10  # small, so that even highly compressed input gives pieces of a few megabytes


class DamagedError(ValueError):
    """A file is damaged; `reason` is the message without the file's name."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{shown(path)}: {reason}")
        self.reason = reason


def _damage_errors() -> tuple[type[Exception], ...]:
    from pyarrow import ArrowException  # here: commands that read no parquet start without it

    return EOFError, OSError, zlib.error, lzma.LZMAError, zstandard.ZstdError, ArrowException


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Context manager: damage of a compressed or Parquet file becomes a DamagedError with the remedy."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, _damage_errors()):
            raise
        if isinstance(error, OSError) and error.errno is not None:  # not of gzip, bz2 or parquet
            error.filename = error.filename or os.fspath(path)
            raise
        raise DamagedError(path, f"is damaged or cut off ({error}); repair it, or leave it out") from error


def read_chunks(path: Path, compression: str, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """Decompressed bytes of a file, in pieces; `compression` is "" or one of COMPRESSIONS.

    Raises:
        DamagedError: the compressed data is damaged or truncated.
        TooMuchError: see `size_limits`.
    """
    with damage_named(path):
        chunks = _zstd_chunks(path) if compression == ".zst" else _opened_chunks(path, compression, chunk_bytes)
        yield from no_bomb(path, chunks, len)


def _opened_chunks(path: Path, compression: str, chunk_bytes: int) -> Iterator[bytes]:
    openers: dict[str, Callable] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, "": open}
    with openers[compression](path, "rb") as file:
        while chunk := file.read(chunk_bytes):
            yield chunk


def _zstd_chunks(path: Path) -> Iterator[bytes]:
    """As read_chunks, for zstd; the library's own reader does not notice a truncated file."""
    with open(path, "rb") as file:
        data = file.read(_ZSTD_INPUT_BYTES)
        while data:
            frame = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
            while not frame.eof:
                if not data:
                    raise EOFError(f"ends inside a zstd frame, at byte {file.tell()}")
                chunk = frame.decompress(data)
                if chunk:
                    yield chunk
                data = frame.unused_data if frame.eof else file.read(_ZSTD_INPUT_BYTES)
            data = data or file.read(_ZSTD_INPUT_BYTES)

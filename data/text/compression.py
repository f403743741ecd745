"""Reads compressed files in pieces of bounded size; errors name a damaged or truncated file."""

import bz2
import gzip
import lzma
import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import zstandard

from bert.files import shown

COMPRESSIONS = (".gz", ".bz2", ".zst", ".xz")
CHUNK_BYTES = 1 << 20
_ZSTD_INPUT_BYTES = 1 << 10  # small, so that even highly compressed input gives pieces of a few megabytes


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Report damage of a compressed or parquet file as a ValueError that names the file and the remedy."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError, pa.ArrowException) as error:
        raise ValueError(f"{shown(path)}: is damaged or cut off ({error}); repair it, or leave it out") from error
    except OSError as error:
        if error.errno is None:  # bz2's
            raise ValueError(f"{shown(path)}: is damaged or cut off ({error}); repair it, or leave it out") from error
        if error.filename is None:
            error.filename = os.fspath(path)
        raise


def read_chunks(path: Path, compression: str) -> Iterator[bytes]:
    """The bytes of a file, decompressed, in pieces; compression is "" or one of COMPRESSIONS."""
    with damage_named(path):
        if compression == ".zst":
            yield from _zstd_chunks(path)
            return
        openers: dict[str, Callable] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, "": open}
        with openers[compression](path, "rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk


def _zstd_chunks(path: Path) -> Iterator[bytes]:
    """Like read_chunks, for zstd; the library's own reader does not notice a truncated file."""
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

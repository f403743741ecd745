"""Limits on the decompressed size of a file, against decompression bombs."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from data.text.text_check import NotTextError

# Limits on decompressed size: an absolute floor, and a ratio to the file. Measured: logs 25 to 50 times (gzip), 40 to
# 130 (zstd), one line over and over up to 145 (bzip2); a bomb a thousand (gzip) and without an end (Parquet, EPUB).
_LEAST_BYTES, _MOST_RATIO = 16 << 20, 200
T = TypeVar("T")


class TooMuchError(NotTextError):
    """A small file becomes very large, so that it may be a decompression bomb or one repeated line."""


def no_bomb(path: Path, items: Iterable[T], size: Callable[[T], int]) -> Iterator[T]:
    """Pass on the pieces of a file unchanged; TooMuchError if they become too many.

    Args:
        path: the file; its size on disk decides the limit.
        items: the decompressed contents, in pieces.
        size: the size of one piece, in bytes or characters.

    Raises:
        TooMuchError: the pieces together exceed the limit.
    """
    total, limit = 0, _LEAST_BYTES + _MOST_RATIO * path.stat().st_size
    for item in items:
        total += size(item)
        if total > limit:
            raise TooMuchError(
                f"becomes more than {limit:,} bytes, {_MOST_RATIO} times its size and more; if that is no mistake, "
                "unpack it, or save it as text or CSV"
            )
        yield item


def require_no_bomb(path: Path, sizes: Iterable[int]) -> None:
    """Raise TooMuchError if the sizes that a file states for its parts exceed the limit together."""
    deque(no_bomb(path, sizes, int), 0)

"""A file in memory as the operating system maps it: nothing is read until it is looked at."""

import mmap
from pathlib import Path

from bert.conversion.raw import regular_file


def map_file(path: Path) -> mmap.mmap:
    """The bytes of a file, read-only; its read() never gives more than is there, whatever is asked for.

    Arrays made from it keep it alive; it is closed with the last of them.

    Raises:
        ConversionError: empty, or no ordinary file.
    """
    regular_file(path)
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

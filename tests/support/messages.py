"""Collects the library's log messages while a test runs."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def messages() -> Iterator[list[str]]:
    """Return the messages of the logger `bert`, in their order."""
    logger, kept = logging.getLogger("bert"), _Kept()
    level = logger.level
    logger.addHandler(kept)
    logger.setLevel(logging.INFO)
    try:
        yield kept.lines
    finally:
        logger.removeHandler(kept)
        logger.setLevel(level)

"""Reads the text of a file in any encoding, and limits the CPU time of parsers.

A malformed file can make a parser's time quadratic.
"""

import errno
import re
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import TypeVar

from bert.files import shown
from data.text.compression import DamagedError, read_chunks
from data.text.encodings import decoded
from data.text.file_formats import Input
from data.text.findings import Findings
from data.text.text_check import NotTextError

_LEAST_SECONDS = 5  # of CPU time for a file of HTML or Office
_SECONDS_PER_MEGABYTE = {"html": 5, "office": 20}  # and this, ten times what they take
_ACCENTED = re.compile(r".{0,19}[^\x00-\x7f].{0,20}")  # of a line: it shows an encoding
_MAX_SHOWN = 200  # characters of a library's message
_AGAIN_SECONDS = 0.5  # after which the signal is repeated, if a destructor swallowed its exception
_END = object()
T = TypeVar("T")


def text_chunks(source: Input, findings: Findings, encoding: str = "auto", language: str = "en") -> Iterator[str]:
    """Text of a file in any encoding, plain or compressed, in pieces.

    Args:
        encoding: "auto" or a codec.
    """
    counts: Counter = Counter()
    try:
        found, chunks = decoded(
            lambda: read_chunks(source.path, source.compression),
            encoding,
            language,
            counts,
            check=source.kind != "jsonl",
            is_page=source.kind == "html",
        )
        name = f"{found.name} ({found.found_by})"
        findings.encodings[name] += 1
        findings.code_page = found.code_page() or findings.code_page
        for number, chunk in enumerate(chunks):
            if number == 0 and chunk.startswith("#!") and "." not in source.path.name:
                raise NotTextError("is a program (#!)")
            text = found.sample or chunk
            # The search reads each character of ASCII twenty times.
            if name not in findings.not_ascii and not text.isascii() and (line := _ACCENTED.search(text)):
                findings.not_ascii[name] = line[0].strip()
            yield chunk
    except UnicodeError as error:  # utf-16 and utf-32 require a byte order mark
        raise ValueError(
            f"{shown(source.path)}: cannot be read as {encoding} ({error}); use --encoding auto, "
            f"or {encoding}-le or {encoding}-be"
        ) from error
    findings.counts.update(counts)
    if counts["undecodable bytes"]:
        findings.problem(f"{shown(source.path)}: {counts['undecodable bytes']} bytes are not {found.name}")


def bounded(source: Input, items: Iterator[T], damage: type[Exception]) -> Iterator[T]:
    """Yield items within a time proportional to the file's size; errors that mean damage become DamagedError."""
    per_megabyte = _SECONDS_PER_MEGABYTE["html" if source.kind == "html" else "office"]
    seconds = _LEAST_SECONDS + per_megabyte * source.path.stat().st_size / 1e6
    try:
        yield from _with_cpu_limit(items, seconds)
    except (NotTextError, DamagedError):
        raise
    except damage as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # a library seeks before the begin
            raise
        message = " ".join(str(error).split())[:_MAX_SHOWN] or type(error).__name__
        reason = message if isinstance(error, TimeoutError) else f"is damaged or cut off ({message})"
        raise DamagedError(source.path, f"{reason}; save it again, or leave it out") from error


class _OutOfTime(BaseException):
    """Raised when the time is over; not an Exception, because parsers catch those."""


def _stop(number: int, frame: FrameType | None) -> None:
    raise _OutOfTime


def _with_cpu_limit(items: Iterator[T], seconds: float) -> Iterator[T]:
    """Yield items; TimeoutError if they take more CPU time of this process.

    What the caller does with an item is not counted. There is no limit outside of the main thread, which alone receives
    signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield from items
        return
    left = seconds
    while True:
        before = signal.signal(signal.SIGPROF, _stop)
        try:
            signal.setitimer(signal.ITIMER_PROF, left, _AGAIN_SECONDS)
            item = next(items, _END)
        except (_OutOfTime, Exception) as error:
            # A library that catches all raises its own error, such as "expected bool".
            if isinstance(error, _OutOfTime) or isinstance(error.__context__, _OutOfTime):
                raise TimeoutError(f"took more than {seconds:.0f} seconds of CPU time") from None
            raise
        finally:
            left = max(signal.setitimer(signal.ITIMER_PROF, 0)[0], 1e-3)
            signal.signal(signal.SIGPROF, before)
        if item is _END:
            return
        yield item  # type: ignore[misc]

"""Standard output whose reader may leave before the end, as `head` does. Standard library only."""

import atexit
import os
import sys
from contextlib import suppress
from io import UnsupportedOperation


def discard_output() -> None:
    """Discard buffered standard output, which the interpreter's flush at the end could not write."""
    with suppress(UnsupportedOperation):  # not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def end_silently_without_reader() -> None:
    """If the reader of standard output has left when this process ends, discard the rest without a traceback."""
    atexit.register(_flush_or_discard)


def _flush_or_discard() -> None:
    if sys.stdout is None or sys.stdout.closed:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    except OSError:  # such as a full disk: the interpreter flushes again, and reports it
        pass

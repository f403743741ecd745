"""How commands end: what the system refuses becomes a sentence, and so does Ctrl-C; a reader that left is no error."""

from __future__ import annotations

import errno
import os
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bert.files import shown

_STANDARD_OUTPUT = "standard output"


@contextmanager
def command(place: str | Path = _STANDARD_OUTPUT, interrupted: str = "interrupted") -> Iterator[None]:
    """End the process with "error: ..." and status 1 at a ValueError or what the system refuses; `place` is written to.

    A Ctrl-C ends it with the line `interrupted` and status 130; a closed pipe (`| head`) ends the block in silence.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        if place != _STANDARD_OUTPUT:  # what reports the progress was closed before the work was done
            sys.exit(1)
    except ValueError as error:
        sys.exit(f"error: {error}")
    except (OSError, sqlite3.OperationalError) as error:
        if place == _STANDARD_OUTPUT:
            _discard_output()  # the interpreter's last flush would fail again
        sys.exit(f"error: {system_error_text(error, place)}")
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        sys.exit(130)


def system_error_text(error: OSError | sqlite3.OperationalError, place: str | Path) -> str:
    """The path (`place` where the error names none: a full disk's does not), what is wrong, and the remedy."""
    number = getattr(error, "errno", None)
    if number in (errno.ENOSPC, errno.EDQUOT) or "disk is full" in str(error):
        remedy = "free space there or choose another folder"
    elif number in (errno.EACCES, errno.EPERM, errno.EROFS):
        remedy = "change who may read and write there, or choose another folder"
    elif number is None and isinstance(error, OSError):  # one of ours, which says all that
        return str(error)
    elif number in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        remedy = "check that the path exists and is of the right kind"
    else:
        remedy = "mend that or choose another path"
    path = getattr(error, "filename", None)
    return (
        f"{shown(path if isinstance(path, (str, bytes)) else place)}: "
        f"{getattr(error, 'strerror', None) or error}; {remedy}, then start again"
    )


def _discard_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

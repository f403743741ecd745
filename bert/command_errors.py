"""Reports the errors of a command as one line on standard error and an exit code, without a traceback."""

import errno
import os
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bert import exit_codes
from bert.files import shown
from bert.interpreter import missing_package, remedy
from bert.printable import printable
from bert.standard_output import discard_output

_STANDARD_OUTPUT = "standard output"
EXIT_CODE_FILE = "BERT_EXIT_CODE_FILE"  # environment variable of ranks: where the first that reports an error names it


@contextmanager
def command(
    place: str | Path | None = _STANDARD_OUTPUT,
    interrupted: str = "interrupted",
    explain: Callable[[ValueError], list[str]] = lambda error: [str(error)],
) -> Iterator[None]:
    """Report a ValueError, an OSError or a `Failure` as `error: ...` and end with its exit code.

    Args:
        place: what the command writes to, for errors that name no path; None: several places.
        explain: returns the lines to print for a ValueError.
    Raises:
        SystemExit: exit_codes.BAD_INPUT, NOT_SAVED for a full disk, the code of the `Failure`, or CTRL_C. A closed
            pipe (`| head`) ends the command in silence: with code OK if it only writes to standard output, otherwise
            with BAD_INPUT.
    """
    is_done = False
    try:
        yield
        is_done = True
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
        if not is_done:  # what follows the block must not run
            raise SystemExit(exit_codes.OK if place == _STANDARD_OUTPUT else exit_codes.BAD_INPUT) from None
    except exit_codes.Failure as error:
        raise _exit_with(error.exit_code, str(error)) from None
    except ValueError as error:
        raise _exit_with(exit_codes.BAD_INPUT, *explain(error)) from None
    except (OSError, sqlite3.OperationalError) as error:
        if place == _STANDARD_OUTPUT and getattr(error, "errno", None) in (errno.ENOSPC, errno.EIO):
            discard_output()  # the interpreter's last flush would fail again
        code = exit_codes.NOT_SAVED if _is_full(error) else exit_codes.BAD_INPUT
        raise _exit_with(code, system_error_text(error, place)) from None
    except ModuleNotFoundError as error:
        if (package := missing_package(error)) is None:
            raise
        raise _exit_with(exit_codes.BAD_INPUT, f"{sys.executable} lacks the package {package}; {remedy()}") from None
    except KeyboardInterrupt:
        print(interrupted, file=sys.stderr)
        raise SystemExit(exit_codes.CTRL_C) from None


def _is_full(error: OSError | sqlite3.OperationalError) -> bool:
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "disk is full" in str(error)


def system_error_text(error: OSError | sqlite3.OperationalError, place: str | Path | None) -> str:
    """The path (`place` if the error names none, as for a full disk), the problem and the remedy."""
    number = getattr(error, "errno", None)
    if _is_full(error):
        remedy = "free space there or choose another folder"
    elif number in (errno.EACCES, errno.EPERM, errno.EROFS):
        remedy = "change the permissions there or choose another folder"
    elif number is None and isinstance(error, OSError):  # one of our own, whose text is complete
        return str(error)
    elif number in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        remedy = "check that the path exists and is of the right kind"
    else:
        remedy = "fix that or choose another path"
    path = getattr(error, "filename", None)
    where = path if isinstance(path, (str, bytes)) else place
    named = "" if where is None else f"{shown(where)}: "
    return f"{named}{getattr(error, 'strerror', None) or error}; {remedy}, then start again"


def _exit_with(code: int, *lines: str) -> SystemExit:
    for line in lines:
        print(f"error: {printable(line, indented_lines=True)}", file=sys.stderr)
    if file := os.environ.get(EXIT_CODE_FILE):
        with suppress(OSError), open(file, "x") as opened:
            opened.write(str(code))
    return SystemExit(code)

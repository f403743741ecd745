"""Commands that end with an error."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

import pytest

from bert.exit_codes import BAD_INPUT


@contextmanager
def refused(rule: str, code: int = BAD_INPUT) -> Iterator[None]:
    """Check that the command in the block ends with this exit code and prints an error that matches the expression."""
    printed = io.StringIO()
    with redirect_stderr(printed), pytest.raises(SystemExit) as ended:
        yield
    assert ended.value.code == code, ended.value
    assert re.search(rule, printed.getvalue(), re.MULTILINE), printed.getvalue()

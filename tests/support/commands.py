"""Commands that end with an error."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

import pytest

from bert.exit_codes import BAD_INPUT


@contextmanager
def refused(rule: str) -> Iterator[None]:
    """The command in the block ends with exit code 2 and prints an error that matches the regular expression."""
    printed = io.StringIO()
    with redirect_stderr(printed), pytest.raises(SystemExit) as ended:
        yield
    assert ended.value.code == BAD_INPUT, ended.value
    assert re.search(rule, printed.getvalue(), re.MULTILINE), printed.getvalue()

"""Waits for another process or thread, with a limit that a busy machine does not reach."""

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Look every 10 ms until `condition()` is true; AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{condition} was not true within {seconds:g} s"
        time.sleep(0.01)

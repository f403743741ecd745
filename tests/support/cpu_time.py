"""A test that is not marked `long` fails if its call takes over 10 s of CPU time, with all processes that it starts.

Checked where CI=true, as CI's machines set it, or with --cpu-limit. Elapsed time is not judged: it depends on what else
the machine does. What is made once on a machine (machine code of loops, Paddle's first program) is made before the
tests, and what is over the limit is judged by how fast the machine is at that moment. That is measured by a loop that
needs no memory: beside a training, tests of 1.9 s took 5.7 s. So the limit is three times what is asked of a test.
"""

import os
import time

import pytest

from bert import REPOSITORY

LIMIT = 10.0  # seconds of a core of an AMD EPYC (Zen 5)
LOOP_SECONDS = 0.1  # of `_loop` on it
_UNLIMITED = ("journeys", "cluster", "documents", "newcomer", "figures", "gpu/selftest")
WITHOUT_LIMIT = [REPOSITORY / "tests" / name for name in _UNLIMITED]


def pytest_addoption(parser):
    text = "fail tests over 10 s of CPU time that are not marked long (default: if CI=true)"
    parser.addoption("--cpu-limit", action="store_true", default=os.environ.get("CI") == "true", help=text)


@pytest.fixture(scope="session", autouse=True)
def first_uses(request, tmp_path_factory):
    """Load Paddle and build a program in each process of the tests; compile the loops once for all of them."""
    if not request.config.getoption("--cpu-limit"):
        return
    from tests.support import first_use
    from tests.support.disk_cache import made_once

    made_once(tmp_path_factory, "first_use", first_use.compile_loops)
    first_use.load_paddle()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item):
    before = _cpu_seconds()
    result = yield
    used = _cpu_seconds() - before
    if item.config.getoption("--cpu-limit") and used > LIMIT and not _has_no_limit(item):
        used /= max(1.0, _loop() / LOOP_SECONDS)
        if used > LIMIT:
            pytest.fail(f"{item.nodeid} took {used:.1f} s of CPU time, over {LIMIT:g}: mark it long", pytrace=False)
    return result


def _has_no_limit(item) -> bool:
    return bool(item.get_closest_marker("long")) or any(item.path.is_relative_to(folder) for folder in WITHOUT_LIMIT)


def _cpu_seconds() -> float:
    """Of this process and of the processes that ended."""
    return sum(os.times()[:4])


def _loop() -> float:
    """CPU seconds of a fixed computation, the fastest of three."""
    seconds = []
    for _ in range(3):
        start, total = time.process_time(), 0
        for number in range(1_500_000):
            total += number & 7
        seconds.append(time.process_time() - start)
    return min(seconds)

"""Fixtures of all tests. `bert` is imported first: it loads zlib before anything can load Paddle."""

import bert  # noqa: F401, I001

import ctypes
import gc
import os
import signal
import sys

import pytest
from bert import REPOSITORY
from bert.runtime.topology import nvidia_smi

if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))

os.environ["COLUMNS"] = "100"  # what all output fits; the workers of xdist have 80

pytest_plugins = ["tests.support.cpu_time", "tests.support.skips"]
LONGEST = (  # minutes each: they begin first, so that no core waits for one at the end
    "test_one_check_of_each_kind_passes_on_this_cpu",
    "test_a_wheel_runs_commands_and_functions_in_any_folder",
)


def pytest_addoption(parser):
    parser.addoption("--write-golden", action="store_true", help="replace the golden numbers by what is computed now")


def pytest_configure():
    """Set handlers for ignored signals (`nohup`, a script's background job): programs under test would ignore them too.

    A handler of Python's is not inherited by a program that is started.
    """
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, lambda *_: None)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.name not in LONGEST)


@pytest.fixture(scope="session", autouse=True)
def loops_are_compiled(tmp_path_factory):
    """Compile the loops in a fresh clone of the gate: once for both workers, outside of any test's time limit."""
    if os.environ.get("CI") == "true":
        from tests.support import first_use
        from tests.support.disk_cache import made_once

        made_once(tmp_path_factory, "first_use", first_use.compile_loops)


@pytest.fixture(autouse=True)
def signal_handlers_are_put_back():
    """Restore the signal handlers after a test: a command that runs in this process replaces them."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def driver_is_asked_anew():
    """Forget the answers of nvidia-smi before a test: an earlier test may have stood in for it."""
    nvidia_smi.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def programs_are_shared():
    """Share programs between the tests of files that use Paddle."""
    if "paddle" in sys.modules:
        from tests.support import programs

        programs.share()


@pytest.fixture(scope="module", autouse=True)
def memory_given_back():
    """Free memory after each file: Paddle's programs would grow to gigabytes, and every fork copies its page tables."""
    yield
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture
def write_golden(request):
    """Tell whether to replace golden numbers instead of comparing with them."""
    return request.config.getoption("--write-golden")

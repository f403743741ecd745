"""Importing Paddle through `paddle_api` leaves other libraries working, which a direct import would break."""

import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from bert import REPOSITORY
from bert.runtime.paddle_api import IS_PADDLE_3, paddle, read_variable, static, write_variable
from tests.support import tiny

DECOMPRESS = """
import {first}
import gzip, io, os, tempfile, zipfile, zlib
import numpy.random, scipy.special, scipy.stats
text = os.urandom(1000) + b"shard" * 100_000
assert zlib.decompress(zlib.compress(text, 9)) == text
assert gzip.decompress(gzip.compress(text)) == text
buffer = io.BytesIO()
with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
    archive.writestr("shard", text)
assert zipfile.ZipFile(buffer).read("shard") == text
numpy.savez_compressed(buffer := io.BytesIO(), values=numpy.arange(100_000))
buffer.seek(0)
assert numpy.load(buffer)["values"][-1] == 99_999
print("whole", numpy.random.default_rng(3).integers(10), scipy.special.erf(1.0))
"""


@pytest.mark.long
@pytest.mark.parametrize("first", ["bert.runtime.paddle_api", "program", "bert.pretraining.task"])
def test_decompression_works_in_a_process_that_loads_paddle_first(first):
    """libpaddle.so exports zlib's symbols; `import bert` loads the real ones before."""
    line = [sys.executable, "-c", DECOMPRESS.format(first=first)]
    run = subprocess.run(line, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    assert run.stdout.startswith("whole")


def test_variables_are_copied_both_ways_and_unknown_names_refused():
    session = tiny.Session()
    name = "bert.pooler.dense.bias"
    value = np.arange(32, dtype="float32")
    session.write(name, value)
    copy = session.read(name)
    value[0] = copy[1] = 99
    assert session.read(name).tolist() == list(range(32))
    for action in (
        lambda: read_variable(session.scope, "bert.poller"),
        lambda: write_variable(session.scope, "bert.poller", value, session.place),
    ):
        with pytest.raises(KeyError, match="bert.poller"):
            action()


def test_loading_paddle_and_mixed_precision_on_a_cpu_add_no_message():
    """Paddle's handler of the root logger would show every message of a run twice; its warning is about GPUs."""
    code = (
        "import logging, bert; from bert.runtime.paddle_api import paddle; "
        "paddle.static.amp.AutoMixedPrecisionLists(custom_white_list={'gelu'}, dtype='float16'); "
        "paddle.distributed.fleet.DistributedStrategy(); assert not logging.getLogger().handlers; "
        "logging.getLogger('bert.x').warning('once')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr[-2000:]
    assert (run.stderr + run.stdout).count("once") == 1 and "On current" not in run.stderr + run.stdout


ARENAS = """
import ctypes, threading
import bert.runtime.paddle_api
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
together = threading.Barrier(4)
def allocate():
    kept = [bytearray(50_000) for _ in range(50)]
    together.wait()
threads = [threading.Thread(target=allocate) for _ in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
file = ctypes.c_void_p(libc.fopen(b"/dev/stdout", b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.long
def test_all_threads_share_one_arena_of_malloc():
    """Otherwise each of the executor's threads keeps freed memory, which costs half as much memory again."""
    if "glibc" not in platform.libc_ver():
        pytest.skip("another C library than glibc")

    def arenas(**variables: str) -> int:
        line, environment = [sys.executable, "-c", ARENAS], {**os.environ, **variables}
        shown = subprocess.run(line, cwd=REPOSITORY, capture_output=True, text=True, env=environment, check=True)
        return shown.stdout.count("<heap nr=")

    assert arenas() == 1
    assert arenas(MALLOC_ARENA_MAX="3") > 1  # a user's own choice stays


@pytest.mark.skipif(IS_PADDLE_3, reason="Paddle 3 is left as it is")
def test_an_operator_keeps_the_calls_that_made_it_but_not_the_whole_stack():
    """The stack has some sixty calls of pytest: every operator would keep 10 kB of them."""
    with static.program_guard(static.Program(), static.Program()):
        operator = paddle.tanh(static.data("x", [1], "float32")).op
    calls = [line for line in operator.attr("op_callstack") if line.startswith("  File ")]
    assert len(calls) == 8 and any(__file__ in line for line in calls)

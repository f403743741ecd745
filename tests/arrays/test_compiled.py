"""The random numbers of compiled loops equal those of `bert.randomness`."""

import os
import subprocess
import sys
from unittest import mock

import numba
import numpy as np
import pytest

from bert import REPOSITORY
from bert.arrays.compiled import BLOCK, SPARE_BYTES, compiled, copied_wide, draw_at_least
from bert.randomness import hash64, stream_key


def test_machine_code_is_made_anew_when_a_function_it_calls_changes(tmp_path):
    (tmp_path / "caller.py").write_text(
        "from bert.arrays.compiled import compiled\nfrom called import called\n\n\n"
        "@compiled\ndef caller(number):\n    return called(number)\n"
    )
    for factor in (2, 3):
        (tmp_path / "called.py").write_text(
            "from bert.arrays.compiled import compiled\n\n\n"
            "@compiled\ndef called(number):\n"
            f"    return {factor} * number\n"
        )
        found = subprocess.run(
            [sys.executable, "-c", "from caller import caller; print(caller(7))"],
            text=True,
            env={
                **{name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"},
                "PYTHONPATH": f"{tmp_path}:{REPOSITORY}",
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            check=True,
        ).stdout
        assert int(found) == factor * 7
    assert list((tmp_path / "__pycache__").glob("caller.*.nbc"))


def test_without_a_folder_for_machine_code_loops_are_compiled_each_time():
    real = numba.njit

    def njit(*arguments, **settings):
        if settings.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return real(*arguments, **settings)

    with mock.patch.object(numba, "njit", njit):
        assert compiled(lambda number: number + 1)(16) == 17


@compiled
def copy_all(target, source, bounds):
    end = np.int64(0)
    for piece in range(len(bounds) - 1):
        end = copied_wide(target, end, source, bounds[piece], bounds[piece + 1])
    return end


def test_wide_copies_end_where_they_should():
    rng = np.random.default_rng(0)
    bounds = np.cumsum(np.append(0, rng.integers(0, 3 * SPARE_BYTES, 30)))
    source = rng.integers(1, 256, bounds[-1] + SPARE_BYTES).astype(np.uint8)
    target = np.zeros(bounds[-1] + 2 * SPARE_BYTES, np.uint8)
    assert copy_all(target, source, bounds) == bounds[-1]
    assert (target[: bounds[-1]] == source[: bounds[-1]]).all()
    assert not target[bounds[-1] + SPARE_BYTES :].any()


@pytest.mark.parametrize("threshold", [0, 1, 6554, 32768, 65535])
def test_drawn_elements_are_the_bits_of_hashes(threshold):
    key, drawn = stream_key(7, "dropout"), np.full(3 * BLOCK, 7, np.uint8)
    draw_at_least(key, np.uint16(threshold), drawn)
    bits = hash64(key, np.arange(3 * BLOCK // 4)).view(np.uint16)
    assert np.array_equal(drawn, bits >= threshold)

"""The random numbers of compiled loops are those of `bert.randomness`."""

import numpy as np
import pytest

from bert.arrays.hash_loops import BLOCK, draw_at_least
from bert.randomness import hash64, stream_key


@pytest.mark.parametrize("threshold", [0, 1, 6554, 32768, 65535])
def test_drawn_elements_are_the_bits_of_hashes(threshold):
    key, drawn = stream_key(7, "dropout"), np.full(3 * BLOCK, 7, np.uint8)
    draw_at_least(key, np.uint16(threshold), drawn)
    bits = hash64(key, np.arange(3 * BLOCK // 4)).view(np.uint16)
    assert np.array_equal(drawn, bits >= threshold)

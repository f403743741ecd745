"""Connected components against a search of all pairs in plain Python."""

import random

import numpy as np
import pytest

from bert.arrays.components import Components
from tests.references.groups import components


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_links", [0, 8, 30])
def test_the_number_of_a_component_is_its_smallest_node(seed, num_links):
    rng = random.Random(seed)
    links = {(rng.randrange(29), rng.randrange(29)) for _ in range(num_links)}
    found = Components(29)
    for part in (list(links)[::2], list(links)[1::2]):
        found.link(*np.array(part, np.int64).reshape(-1, 2).T)
        found.numbers()  # also between the links
    expected = components(29, lambda one, other: (one, other) in links or (other, one) in links)
    assert found.numbers().tolist() == expected


def test_nodes_with_equal_values_are_linked_and_values_link_each_other():
    found = Components(6)
    found.link_equal(np.array(["a", "b", "a", "c", "d", "e"]))
    found.link_equal(np.array([1, 2, 3, 3, 4, 4]))
    assert found.numbers().tolist() == [0, 1, 0, 0, 4, 4]

"""When texts are the same and who is held out together, in plain Python: sets of words, no hashes, all pairs."""

import re
from collections.abc import Callable, Hashable, Sequence
from functools import cache


@cache
def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Return all sequences of five neighbouring words; a shorter text is one sequence."""
    words = re.findall(r"\w+", text.lower())
    places = range(max(1, len(words) - 4)) if words else ()
    return frozenset(tuple(words[place : place + 5]) for place in places)


def jaccard(one: str, other: str) -> float:
    first, second = shingles(one), shingles(other)
    return len(first & second) / len(first | second) if first | second else float(one.split() == other.split())


def components(number: int, linked: Callable[[int, int], bool]) -> list[int]:
    """Return for each node the smallest node that a chain of links reaches."""
    numbers = list(range(number))
    for first in range(number):
        for second in range(first):
            if linked(first, second):
                old, new = max(numbers[first], numbers[second]), min(numbers[first], numbers[second])
                numbers = [new if value == old else value for value in numbers]
    return numbers


def same_partition(ones: Sequence[Hashable], others: Sequence[Hashable]) -> bool:
    """Tell whether two lists of group names divide the same examples alike."""
    pairs = set(zip(ones, others, strict=True))
    return len(pairs) == len(set(ones)) == len(set(others))

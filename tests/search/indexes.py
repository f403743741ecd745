"""Makes small indexes of random passages for tests, and lists their content."""

import random
from pathlib import Path

import numpy as np

from bert.search.index import Change, SearchIndex
from bert.search.manifest import IndexModel
from bert.search.segments import Passage

WIDTH = 5
MODEL = IndexModel("a model", "fingerprint", 128, WIDTH)
WORDS = [f"word{number}" for number in range(40)]


def passages(number: int, seed: int = 0, first: int = 0) -> list[Passage]:
    """Return passages of 1 to 12 words, with columns of three types."""
    drawn = random.Random(seed)
    return [
        Passage(
            f"id{row}",
            " ".join(drawn.choices(WORDS, k=drawn.randint(1, 12))) + ".",
            source=f"file{row % 3}.csv",
            line=row + 1,
            columns={"year": 1990 + row % 7, "lang": ("en", "de")[row % 2], "open": row % 5 == 0},
        )
        for row in range(first, first + number)
    ]


def vectors(number: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((number, WIDTH)).astype("float32")


def units(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


def change(number: int, seed: int = 0, first: int = 0) -> Change:
    return Change(passages(number, seed, first), vectors(number, seed))


def make(folder: Path, *changes: Change) -> SearchIndex:
    index = SearchIndex.create(folder, MODEL)
    for one in changes:
        index.apply(one)
    return index


def contents(index: SearchIndex) -> dict[str, Passage]:
    """Return the passages that are not deleted, by id."""
    snapshot = index.snapshot
    rows = np.flatnonzero(snapshot.live).tolist()
    found = {passage.id: passage for passage in snapshot.passages(rows)}
    assert len(found) == len(rows) == snapshot.num_live
    return found

"""The files of a mining: negatives of the training pairs, and candidates of the held-out queries, as JSON lines."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert.files import atomic_path, json_of

if TYPE_CHECKING:
    import pandas as pd

NEGATIVES, CANDIDATES, MINED = "negatives.jsonl", "candidates.jsonl", "mined.json"


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial, open(partial, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_negatives(path: Path, pairs: "pd.DataFrame", negatives: Sequence[Sequence[str]]) -> None:
    """Write {"query", "passage", "negatives"} for each pair."""
    texts = zip(pairs["query"], pairs.passage, negatives, strict=True)
    write_lines(path, ({"query": query, "passage": passage, "negatives": each} for query, passage, each in texts))


def read_negatives(path: Path) -> dict[tuple[str, str], list[str]]:
    """(query, passage) -> its negatives. ValueError for a line that is not as `write_negatives` writes it."""
    found = dict[tuple[str, str], list[str]]()
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            row = _row(path, number, line)
            found[row["query"], row["passage"]] = row["negatives"]
    return found


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json_of(line)
        texts = [row["query"], row["passage"], *row["negatives"]]
        is_right = isinstance(row["negatives"], list) and all(isinstance(text, str) and text for text in texts)
    except (ValueError, LookupError, TypeError):
        is_right = False
    if not is_right:
        raise ValueError(
            f"negatives_file={path}, line {number}: must have a query, a passage and a list of negatives, as texts; "
            "mine them again"
        )
    return dict(row)


def with_negatives(pairs: "pd.DataFrame", path: Path, notes: list[str]) -> "pd.DataFrame":
    """The training pairs with the negatives of the file beside their own.

    Raises:
        ValueError: the file is of other pairs.
    """
    mined, keys = read_negatives(path), list(zip(pairs["query"], pairs.passage, strict=True))
    missing, unknown = set(keys) - mined.keys(), mined.keys() - set(keys)
    if missing or unknown:
        raise ValueError(
            f"negatives_file={path} has the negatives of other pairs: {len(missing):,} of the {len(keys):,} training "
            f"pairs are not in it, and {len(unknown):,} of its pairs are not trained on; mine those of these pairs"
        )
    both = [[*dict.fromkeys([*own, *mined[key]])] for own, key in zip(pairs.negatives, keys, strict=True)]
    number = sum(map(len, mined.values()))
    notes.append(f"mined negatives: {number:,} for {sum(map(bool, mined.values())):,} of {len(mined):,} pairs")
    return pairs.assign(negatives=both)

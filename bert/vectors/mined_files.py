"""Writes the files of mining as JSON lines: negatives of training pairs, and candidates of held-out queries."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bert.files import atomic_path

if TYPE_CHECKING:
    import pandas as pd

NEGATIVES, CANDIDATES, MINED = "negatives.jsonl", "candidates.jsonl", "mined.json"


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines. A failed write leaves no file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial, open(partial, "w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def write_negatives(path: Path, pairs: "pd.DataFrame", negatives: Sequence[Sequence[str]]) -> None:
    """Write one line {"query", "passage", "negatives"} for each pair."""
    texts = zip(pairs["query"], pairs.passage, negatives, strict=True)
    write_lines(path, ({"query": query, "passage": passage, "negatives": each} for query, passage, each in texts))

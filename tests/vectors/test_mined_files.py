"""Tests that --pairs reads the file of mined negatives as a table of pairs."""

import json

import pandas as pd

from bert.vectors.mined_files import write_negatives
from bert.vectors.pairs import table_pairs
from data.text.encodings import Decoding


def test_negatives_are_read_as_pairs_with_negatives(tmp_path):
    """A line separator inside a text does not end a line."""
    pairs = pd.DataFrame({"query": ["q1", "q\u2028 \u00e4"], "passage": ["p1", "p2\nmore"]})
    mined = [["n1", "n2"], []]
    write_negatives(file := tmp_path / "mined/negatives.jsonl", pairs, mined)
    assert "\u00e4" in file.read_text(encoding="utf-8")
    rows = list(table_pairs(file, None, None, Decoding(), []))
    assert [row["query"] for row in rows] == pairs["query"].tolist()
    assert [row["passage"] for row in rows] == pairs.passage.tolist()
    assert [row["negatives"] for row in rows] == mined
    assert [json.loads(line)["negatives"] for line in file.read_bytes().split(b"\n")[:-1]] == mined

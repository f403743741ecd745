"""Builds output records: repeated fields of the row, and the result as further fields."""

import json
from collections.abc import Container, Mapping
from itertools import chain, count
from typing import Any

Record = dict[str, Any]


def flat(result: Mapping[str, Any]) -> Record:
    """Flatten a result to columns: one for the probability of each class; lists become JSON text."""
    columns: Record = {}
    for name, value in result.items():
        if isinstance(value, dict):
            columns |= {f"probability_{key}": number for key, number in value.items()}
        else:
            columns[name] = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
    return columns


def joined(record: Mapping[str, Any], result: Mapping[str, Any]) -> Record:
    """Add a result to a record. If the record has a field NAME already, the result's field is predicted_NAME."""
    return {**record, **{free_name(name, record): value for name, value in result.items()}}


def free_name(name: str, taken: Container[str]) -> str:
    """The first of NAME, predicted_NAME, predicted_NAME_2 ... that is not taken."""
    names = chain([name, f"predicted_{name}"], (f"predicted_{name}_{number}" for number in count(2)))
    return next(free for free in names if free not in taken)

"""Records of the output: what is repeated of a row, and the result as further columns."""

import json
from collections.abc import Container, Mapping
from itertools import chain, count
from typing import Any

Record = dict[str, Any]


def flat(result: Mapping[str, Any]) -> Record:
    """A result as columns: the probability of each class has its own, other lists become JSON."""
    columns: Record = {}
    for name, value in result.items():
        if isinstance(value, dict):
            columns |= {f"probability_{key}": number for key, number in value.items()}
        else:
            columns[name] = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
    return columns


def joined(record: Mapping[str, Any], result: Mapping[str, Any]) -> Record:
    """Add a result to a record. A value whose name the record has already is called predicted_NAME."""
    return {**record, **{free_name(name, record): value for name, value in result.items()}}


def free_name(name: str, taken: Container[str]) -> str:
    """The name, or else predicted_NAME, predicted_NAME_2 ..."""
    names = chain([name, f"predicted_{name}"], (f"predicted_{name}_{number}" for number in count(2)))
    return next(free for free in names if free not in taken)

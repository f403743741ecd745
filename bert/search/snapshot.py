"""The passages of an index at one generation: scores, filters, texts. Later changes of the index do not alter it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert.search.postings import WordScores
from bert.search.segments import LARGEST, PREFIX, Passage, Segment, Value, number_of, text_of

Filters = Mapping[str, Any]  # column -> a value, a list of values, or {"from": number, "to": number}
RANGE = ("from", "to")
_SOURCE = "source"  # a name to filter by, also if no column has it


class Snapshot:
    """The passages of an index at one moment, numbered from 0 through all segments; some may be deleted.

    Attributes:
        live: bool [passages], False for a deleted passage.
        words: computes BM25 scores of the passages.
    """

    def __init__(self, segments: Sequence[Segment]) -> None:
        self.segments = tuple(segments)
        self._firsts = np.cumsum([0, *(segment.size for segment in segments)])
        self.live = np.concatenate([*(segment.live for segment in segments), np.zeros(0, bool)])
        self.num_live = int(self.live.sum())
        self.words = WordScores([segment.postings for segment in segments], [segment.live for segment in segments])

    def __len__(self) -> int:
        return int(self._firsts[-1])

    @property
    def columns(self) -> list[str]:
        """The names of the columns to filter by."""
        return list(dict.fromkeys(name for segment in self.segments for name in segment.names))

    def cosines(self, queries: np.ndarray) -> np.ndarray:
        """Cosines of query vectors of length 1 with all passages, deleted ones too: float32 [q, passages]."""
        scores = np.empty((len(queries), len(self)), np.float32)
        for first, segment in zip(self._firsts, self.segments, strict=False):
            np.matmul(queries, segment.vectors.T, out=scores[:, first : first + segment.size])
        return scores

    def matching(self, filters: Filters) -> np.ndarray:
        """Mask of the passages that are not deleted and match all filters: bool [passages].

        Raises:
            ValueError: there is no such column, or the filter is of another form.
        """
        known = {*self.columns, _SOURCE}
        masks = self.live
        for name, wanted in filters.items():
            if name not in known:
                raise ValueError(f"the index has no column {name!r}, only {', '.join(sorted(known))[:300]}")
            parts = [_matches(segment, name, wanted) for segment in self.segments]
            masks = masks & np.concatenate([*parts, np.zeros(0, bool)])
        return masks

    def having_ids(self, ids: Sequence[str]) -> list[np.ndarray]:
        """Masks of the passages that have one of the ids: bool [size] for each segment."""
        return [_is_in(segment, "id", ids) for segment in self.segments]

    def of_sources(self, names: Sequence[str]) -> list[np.ndarray]:
        """Masks of the passages that come from one of the files: bool [size] for each segment."""
        return [_is_in(segment, _SOURCE, names) for segment in self.segments]

    def passages(self, rows: Sequence[int]) -> list[Passage]:
        """Read the passages with these numbers."""
        found = list[Passage]()
        for row in rows:
            place = int(np.searchsorted(self._firsts, row, side="right")) - 1
            found += self.segments[place].passages([int(row - self._firsts[place])])
        return found


def _is_in(segment: Segment, name: str, values: Sequence[str]) -> np.ndarray:
    import pyarrow as pa
    import pyarrow.compute as pc

    found = pc.is_in(segment.column(name), value_set=pa.array(list(values), pa.string()))
    return found.to_numpy()


def _matches(segment: Segment, name: str, wanted: Any) -> np.ndarray:
    """Mask of the passages of a segment that match one filter: bool [size]."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if name in segment.names:
        stored = f"{PREFIX}{name}"
    elif name == _SOURCE:
        stored = _SOURCE
    else:
        return np.zeros(segment.size, bool)
    if isinstance(wanted, Mapping):
        return _within(segment.numbers(stored), name, wanted)
    column = segment.column(stored)
    values: Sequence[Value] = wanted if isinstance(wanted, list) else [wanted]
    if not all(isinstance(value, str | int | float | bool) for value in values):
        raise ValueError(f"the filter of {name!r} must be a value, a list of values, or {{'from': 1, 'to': 2}}")
    equal = [one for value in values if (one := _as_stored(text_of(value), column.type)) is not None]
    return pc.is_in(column, value_set=pa.array(equal, column.type)).to_numpy()


def _as_stored(text: str, kind: Any) -> Value:
    """Convert a text to the value of an Arrow type with this text (`text_of`); None if there is no such value."""
    import pyarrow as pa

    if pa.types.is_string(kind):
        return text
    if pa.types.is_boolean(kind):
        return {"true": True, "false": False}.get(text)
    number = number_of(text)
    if pa.types.is_integer(kind):
        if not number.is_integer() or abs(number) >= LARGEST:
            return None
        number = int(number)
    return number if text_of(number) == text else None


def _within(numbers: np.ndarray, name: str, wanted: Mapping[str, Any]) -> np.ndarray:
    """Mask of the numbers from `from` to `to`, both included; one of the two may be missing."""
    ends = [wanted[key] for key in wanted if key in RANGE]
    if not wanted or len(ends) < len(wanted) or not all(type(end) in (int, float) for end in ends):
        raise ValueError(f"the filter of {name!r} must have 'from' or 'to', or both, which are numbers")
    return (numbers >= wanted.get("from", -np.inf)) & (numbers <= wanted.get("to", np.inf))

"""The passages of an index at one generation: scores, filters, texts. Later changes of the index do not alter it."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert.search.postings import WordScores
from bert.search.segments import PREFIX, Passage, Segment, Value, text_of

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
        column = segment.column(f"{PREFIX}{name}")
    elif name == _SOURCE:
        column = segment.column(_SOURCE)
    else:
        return np.zeros(segment.size, bool)
    if isinstance(wanted, Mapping):
        return _within(column, name, wanted)
    values: Sequence[Value] = wanted if isinstance(wanted, list) else [wanted]
    if not all(isinstance(value, str | int | float | bool) for value in values):
        raise ValueError(f"the filter of {name!r} must be a value, a list of values, or {{'from': 1, 'to': 2}}")
    if pa.types.is_string(column.type):
        texts = pa.array([text_of(value) for value in values], pa.string())
        return pc.is_in(column, value_set=texts).to_numpy()
    texts_of_column = {text_of(value): value for value in pc.unique(column).to_pylist() if value is not None}
    equal = [texts_of_column[text_of(value)] for value in values if text_of(value) in texts_of_column]
    return pc.is_in(column, value_set=pa.array(equal, column.type)).to_numpy()


def _within(column: Any, name: str, wanted: Mapping[str, Any]) -> np.ndarray:
    """Mask of the values that are numbers from `from` to `to`, both included; one of the two may be missing."""
    numbers = [wanted[key] for key in wanted if key in RANGE]
    if not wanted or len(numbers) < len(wanted) or not all(type(number) in (int, float) for number in numbers):
        raise ValueError(f"the filter of {name!r} must have 'from' or 'to', or both, which are numbers")
    values = column.to_numpy() if column.type != "string" else np.array([_number(text) for text in column.to_pylist()])
    if values.dtype == bool:
        return np.zeros(len(values), bool)
    values = values.astype(np.float64)
    return (values >= wanted.get("from", -np.inf)) & (values <= wanted.get("to", np.inf))


def _number(text: str | None) -> float:
    """Parse a number; NaN, which is in no range, if the text is no number."""
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")

"""A segment of an index: passages that were added together, in files that are written once.

segment-NAME.rows.parquet    id, part, text, source, line, words, and a column for each value to filter by
segment-NAME.vectors.npy     float32 [passages, width], of length 1
segment-NAME.words.npy       hashes of the words, and where their entries begin (`Postings.words`)
segment-NAME.entries.npy     passages that have each word, and how often (`Postings.entries`)
segment-NAME.deleted-N.npy   int64, the passages that are deleted, if there are any
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bert.files import atomic_path
from bert.search.postings import Postings

if TYPE_CHECKING:  # it takes a tenth of a second to load
    import pyarrow as pa

Value = str | int | float | bool | None  # a value of a column to filter by
MAKE_AGAIN = "remove the folder, and make the index again"
LARGEST = 1 << 53  # smaller integers are exact as float64
PREFIX = "column."  # precedes the name of a column to filter by in the Parquet file
_GROUP = 128  # passages of a row group, which is read as a whole: texts stay on the disk, and a result takes 0.7 ms
_KINDS = ("rows.parquet", "vectors.npy", "words.npy", "entries.npy")


class UnusableIndexError(ValueError):
    """The files of an index are damaged, missing, or made by another model; no request can change that."""


@dataclass(frozen=True)
class Passage:
    """A passage of an index, with its place in its document.

    Attributes:
        id: id of the document or row; all passages of a long document share it.
        part: number of the passage in its document, from 0.
        source: name of the file; "" if the passage was added without a file.
        line: line of the file where the passage begins; None if the format has no lines, such as PDF.
        columns: values to filter by.
    """

    id: str
    text: str
    part: int = 0
    source: str = ""
    line: int | None = None
    columns: dict[str, Value] = field(default_factory=dict)


class Segment:
    """An open segment of an index. Vectors and postings stay on the disk until they are used.

    Attributes:
        deleted: name of the file of deletions; "" if nothing is deleted.
        live: bool [passages], False for a deleted passage.
    """

    def __init__(self, folder: Path, name: str, width: int) -> None:
        import pyarrow.parquet as pq

        self.name, self.deleted, self._folder = name, "", folder
        self._path = folder / file_of(name, "rows.parquet")
        with _damage_named(self._path):
            self.file: pq.ParquetFile = pq.ParquetFile(self._path, memory_map=True)
        self.size: int = self.file.metadata.num_rows
        self.vectors = read_array(folder / file_of(name, "vectors.npy"), (self.size, width))
        words = read_array(folder / file_of(name, "words.npy"))
        entries = read_array(folder / file_of(name, "entries.npy"))
        self.postings = Postings(words, entries, self._read("words").to_numpy().astype(np.int32))
        self.live = np.ones(self.size, bool)
        self._columns: dict[str, pa.ChunkedArray] = {}
        self._numbers: dict[str, np.ndarray] = {}
        self._groups: dict[int, pa.Table] = {}

    def with_deleted(self, deleted: str) -> "Segment":
        """The same segment with other deletions; both share what they have read into memory."""
        if deleted == self.deleted:
            return self
        other = copy(self)
        other.deleted, other.live = deleted, np.ones(self.size, bool)
        if deleted:
            other.live[read_array(self._folder / deleted)] = False
        return other

    @property
    def names(self) -> list[str]:
        """The names of the columns to filter by."""
        names = self.file.schema_arrow.names
        return [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]

    def files(self) -> list[str]:
        """The names of the segment's files, with the file of deletions if there is one."""
        return [*(file_of(self.name, kind) for kind in _KINDS), *([self.deleted] if self.deleted else [])]

    def column(self, name: str) -> "pa.ChunkedArray":
        """Read a column of the Parquet file; it stays in memory for later calls."""
        if name not in self._columns:
            self._columns[name] = self._read(name)
        return self._columns[name]

    def numbers(self, name: str) -> np.ndarray:
        """Read a column as float64 [passages], NaN for other values; it stays in memory for later calls."""
        if name not in self._numbers:
            column = self.column(name)
            if column.type == "bool":
                self._numbers[name] = np.full(self.size, np.nan)
            elif column.type == "string":
                self._numbers[name] = np.array([number_of(text) for text in column.to_pylist()], np.float64)
            else:
                self._numbers[name] = column.to_numpy().astype(np.float64)
        return self._numbers[name]

    def passages(self, rows: Sequence[int]) -> list[Passage]:
        """Read the passages with these row numbers."""
        return [_passage(self._group(row // _GROUP), row % _GROUP) for row in rows]

    def all_rows(self) -> "pa.Table":
        """All columns of the passages that are not deleted."""
        with _damage_named(self._path):
            return self.file.read(use_threads=False).filter(self.live)

    def _read(self, name: str) -> "pa.ChunkedArray":
        with _damage_named(self._path):
            return self.file.read([name], use_threads=False).column(0)

    def _group(self, number: int) -> "pa.Table":
        """Read a row group of the Parquet file; the groups read last stay in memory."""
        if number not in self._groups:
            while len(self._groups) >= _KEPT_GROUPS:
                self._groups.pop(next(iter(self._groups)), None)
            with _damage_named(self._path):
                self._groups[number] = self.file.read_row_group(number, use_threads=False)
        return self._groups[number]


_KEPT_GROUPS = 256  # most row groups of a segment in memory: some ten megabytes


def _passage(group: "pa.Table", row: int) -> Passage:
    values = {name: group.column(name)[row].as_py() for name in group.schema.names}
    columns = {name.removeprefix(PREFIX): value for name, value in values.items() if name.startswith(PREFIX)}
    columns = {name: value for name, value in columns.items() if value is not None}
    return Passage(values["id"], values["text"], values["part"], values["source"], values["line"], columns)


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Context manager: the error of a damaged file becomes a ValueError with its path; FileNotFoundError passes."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (EOFError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UnusableIndexError(f"{path} is damaged ({reason}); {MAKE_AGAIN}") from None


def read_array(path: Path, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Open an array on the disk, memory-mapped. ValueError if it has another shape or is damaged."""
    with _damage_named(path):
        array = np.load(path, mmap_mode="r")
    if shape is not None and array.shape != shape:
        raise UnusableIndexError(f"{path} has {array.shape} numbers, not {shape}; {MAKE_AGAIN}")
    return array


def file_of(name: str, kind: str) -> str:
    return f"segment-{name}.{kind}"


def write_segment(folder: Path, name: str, passages: Sequence[Passage], vectors: np.ndarray) -> None:
    """Write the files of a new segment; each is whole or not there.

    Args:
        vectors: float32 [passages, width], of length 1.
    """
    postings = Postings.of(passage.text for passage in passages)
    _write(folder, name, _table(passages, postings.lengths), postings, [vectors])


def write_joined(folder: Path, name: str, segments: Sequence[Segment]) -> None:
    """Write one new segment with the passages of several segments, without the deleted ones."""
    import pyarrow as pa

    postings = Postings.joined([segment.postings for segment in segments], [segment.live for segment in segments])
    tables = _with_equal_types([segment.all_rows() for segment in segments])
    table = pa.concat_tables(tables, promote_options="default")
    _write(folder, name, table, postings, (segment.vectors[segment.live] for segment in segments))


def write_deleted(folder: Path, segment: Segment, live: np.ndarray, generation: int) -> str:
    """Write the file of deletions of a segment; returns its name."""
    name = file_of(segment.name, f"deleted-{generation}.npy")
    _save(folder / name, lambda file: np.save(file, np.flatnonzero(~live)))
    return name


def _write(folder: Path, name: str, table: "pa.Table", postings: Postings, vectors: Iterable[np.ndarray]) -> None:
    import pyarrow.parquet as pq

    with atomic_path(folder / file_of(name, "rows.parquet")) as temporary:
        pq.write_table(table, temporary, row_group_size=_GROUP, compression="zstd", use_dictionary=["source"])
    parts = iter(vectors)
    first = next(parts)
    shape = (table.num_rows, first.shape[1])

    def write_vectors(file: Any) -> None:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for part in (first, *parts):
            file.write(np.ascontiguousarray(part, "<f4").data)

    _save(folder / file_of(name, "vectors.npy"), write_vectors)
    _save(folder / file_of(name, "words.npy"), lambda file: np.save(file, postings.words))
    _save(folder / file_of(name, "entries.npy"), lambda file: np.save(file, postings.entries))


def _save(path: Path, write: Callable[[Any], None]) -> None:
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        write(file)


def _table(passages: Sequence[Passage], lengths: np.ndarray) -> "pa.Table":
    import pyarrow as pa

    columns: dict[str, Any] = {
        "id": pa.array([passage.id for passage in passages], pa.string()),
        "part": pa.array([passage.part for passage in passages], pa.int32()),
        "text": pa.array([passage.text for passage in passages], pa.string()),
        "source": pa.array([passage.source for passage in passages], pa.string()),
        "line": pa.array([passage.line for passage in passages], pa.int64()),
        "words": pa.array(lengths, pa.int32()),
    }
    for name in dict.fromkeys(name for passage in passages for name in passage.columns):
        columns[f"{PREFIX}{name}"] = _typed([passage.columns.get(name) for passage in passages])
    return pa.table(columns)


def _typed(values: Sequence[Value]) -> "pa.Array":
    """An Arrow array of values: boolean, int64 or float64 if all values fit, otherwise text."""
    import pyarrow as pa

    kinds = {type(value) for value in values if value is not None}
    types: list[tuple[set[type], Any]] = [({bool}, pa.bool_()), ({int}, pa.int64()), ({int, float}, pa.float64())]
    for allowed, kind in types:
        is_small = all(abs(value) < LARGEST for value in values if type(value) is int)  # larger ones become text
        if kinds and kinds <= allowed and is_small:
            if kind == pa.float64():  # 0.0 in place of -0.0, which Arrow takes for another number
                values = [None if value is None else float(value) + 0.0 for value in values]
            return pa.array(values, kind)
    return pa.array([None if value is None else text_of(value) for value in values], pa.string())


def text_of(value: Value) -> str:
    """A value as text, in the form in which values of different types are compared."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < LARGEST:
        return str(int(value))
    return "" if value is None else str(value)


def number_of(text: str | None) -> float:
    """Parse a number; NaN, which is in no range, if the text is no number."""
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def _with_equal_types(tables: Sequence["pa.Table"]) -> Iterator["pa.Table"]:
    """Convert each column that has different types in different tables to text."""
    import pyarrow as pa

    types: dict[str, set[Any]] = {}
    for table in tables:
        for name, kind in zip(table.schema.names, table.schema.types, strict=True):
            types.setdefault(name, set()).add(kind)
    for table in tables:
        for place, (name, kind) in enumerate(zip(table.schema.names, table.schema.types, strict=True)):
            if len(types[name]) > 1 and kind != pa.string():
                texts = [None if value is None else text_of(value) for value in table.column(name).to_pylist()]
                table = table.set_column(place, name, pa.array(texts, pa.string()))
        yield table

"""Read the fields of files of sentences: tab-separated, comma-separated, JSON, Parquet.

.tsv .txt .tab         fields separated by tabs; quotation marks are plain text
.csv                   fields quoted where needed, as spreadsheets write them
.jsonl .ndjson .json   one JSON object per line, or a list of them
.parquet               columns
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bert.finetuning.text_files import DataError, decoded_blocks, text_lines
from data.text.encodings import NotTextError
from data.text.pieces import whole_lines
from data.text.tables import Column, NoColumnError, Row, TableForm, parquet_rows, rows_of_chunks, rows_of_lines

_KINDS = {
    kind: suffixes.split()
    for kind, suffixes in {
        "tsv": ".tsv .txt .tab",
        "csv": ".csv",
        "jsonl": ".jsonl .ndjson",
        "json": ".json",
        "parquet": ".parquet",
    }.items()
}
_KIND_OF = {suffix: kind for kind, suffixes in _KINDS.items() for suffix in suffixes}
_MAX_SHOWN_CHARACTERS = 60
_HALF_PAIR = re.compile("[\ud800-\udfff]")  # JSON can escape half of a surrogate pair; it is no text


def read_rows(path: Path, columns: Sequence[Column], header: bool) -> Iterator[tuple[int, list[str] | None, str]]:
    """The wanted fields of every row, in bounded memory: line, fields in order or None, problem.

    Args:
        columns: what to read.
        header: whether the first line of a TSV names the columns.
    Raises:
        DataError: the file is missing, not UTF-8, empty, of another format, or lacks a column.
    """
    suffix = path.suffix.lower()
    if (kind := _KIND_OF.get(suffix)) is None:
        raise DataError(f"{path}: the suffix {suffix or '(none)'} is not supported; use .tsv, .csv, .jsonl or .parquet")
    try:
        for row in _table_rows(path, kind, TableForm(columns, header or kind == "csv", True, kind == "csv")):
            if kind == "csv" and row.problem.startswith("is not CSV"):
                # After an open quote, lines cannot be told apart from quoted text: nothing more can be read.
                raise DataError(f"{path}:{row.number}: {row.problem}, or save as TSV, where quotes are text")
            yield _fields(row, columns)
    except NoColumnError as error:
        if str(error) == "is empty":
            raise DataError(f"{path} is empty; download it again") from None
        raise DataError(
            f"{path}:1: {str(error).removeprefix('has ')}. Is it the task's file? For files of your own, use "
            "--task-name custom with --text-column, --text-pair-column and --label-column"
        ) from None
    except NotTextError as error:
        raise DataError(f"{path} {error}") from None


def _table_rows(path: Path, kind: str, form: TableForm) -> Iterator[Row]:
    if kind == "parquet":
        return parquet_rows(path, form)
    counts: Counter = Counter()
    if kind in ("csv", "json"):
        chunks = decoded_blocks(path)
        return (
            rows_of_lines(whole_lines(chunks), kind, form, counts)
            if kind == "csv"
            else rows_of_chunks(chunks, kind, form, counts)
        )
    # Split at line feeds only: a carriage return within a published line is text.
    lines = (line.removesuffix("\n").removesuffix("\r") for line in text_lines(path))
    return rows_of_lines(lines, kind, form, counts)


def _fields(row: Row, columns: Sequence[Column]) -> tuple[int, list[str] | None, str]:
    if row.values is None:
        return row.number, None, row.problem.removeprefix("has ")
    fields: list[str] = []
    for column in columns:
        if column not in row.values:
            keys = ", ".join(shown(str(key)) for key in row.values)[:200]
            return row.number, None, f"no {column}; the row has {keys}"
        value: Any = row.values[column]
        if not isinstance(value, str | int | float):
            problem = f"{column} is {shown(json.dumps(value, default=str))}, neither text nor a number"
            return row.number, None, problem
        if isinstance(value, str) and _HALF_PAIR.search(value):
            return row.number, None, f"{column} is not text, it has half of a surrogate pair: {shown(value)}"
        fields.append(value if isinstance(value, str) else json.dumps(value))
    return row.number, fields, ""


def shown(value: str) -> str:
    return repr(value if len(value) <= _MAX_SHOWN_CHARACTERS else value[:_MAX_SHOWN_CHARACTERS] + "...")

"""Read the lines of files of sentences: tab-separated, comma-separated, JSON.

.tsv .txt .tab         fields separated by tabs; quotation marks are plain text
.csv                   fields separated by commas, quoted where needed, as spreadsheets write them
.jsonl .ndjson .json   one JSON object per line
"""

import csv
import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

from bert.finetuning.glue.task_table import Column
from bert.finetuning.text_files import DataError, text_lines

_MAX_SHOWN_CHARACTERS = 60
_HALF_PAIR = re.compile("[\ud800-\udfff]")  # JSON can escape half of a surrogate pair; it is no text
Row = tuple[int, list[str] | None, str]  # line number; the wanted fields in order, or None and the problem


def read_rows(path: Path, columns: list[Column], header: bool) -> Iterator[Row]:
    """The wanted fields of every line, in bounded memory.

    Args:
        columns: what to read.
        header: whether the first line of a TSV names the columns.
    Raises:
        DataError: the file is missing, not UTF-8, empty, of another format, or lacks a column.
    """
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".ndjson", ".json"):
        return _json_rows(path, [str(column) for column in columns])
    if suffix == ".csv":
        return _csv_rows(path, columns)
    if suffix in (".tsv", ".txt", ".tab"):
        return _tsv_rows(path, columns, header)
    raise DataError(f"{path}: the suffix {suffix or '(none)'} is not supported; use .tsv, .csv or .jsonl")


def _tsv_rows(path: Path, columns: list[Column], header: bool) -> Iterator[Row]:
    # Split at line feeds only: the published texts contain U+0085 and others at which splitlines() also splits.
    lines = _without_last_blanks(text_lines(path))
    opening = next(lines, None)
    if opening is None:
        raise DataError(f"{path} is empty; download it again")
    first = opening.split("\t")
    if header:
        places = [_place(path, first, column) for column in columns]
        width, rule = len(first), f"the first line names {len(first)}"
    else:
        places = [int(column) for column in columns]
        width, rule = max(4, max(places) + 1), "CoLA's files have 4, and no line of names"
    rest = lines if header else itertools.chain([opening], lines)
    for number, line in enumerate(rest, start=2 if header else 1):
        fields = line.split("\t")
        if len(fields) != width:
            yield number, None, f"{len(fields)} fields between tabs, {rule} ({shown(line)})"
        else:
            yield number, [fields[place] for place in places], ""


def _without_last_blanks(lines: Iterator[str]) -> Iterator[str]:
    """Lines without their ends; blank ones at the end of the file are left out."""
    blanks = 0
    for line in lines:
        if line := line.rstrip("\n").removesuffix("\r"):
            yield from itertools.repeat("", blanks)
            yield line
            blanks = 0
        else:
            blanks += 1


def _csv_rows(path: Path, columns: list[Column]) -> Iterator[Row]:
    csv.field_size_limit(1 << 30)
    reader = csv.reader(text_lines(path, ""), strict=True)
    try:
        first = next(reader, None)
        if first is None:
            raise DataError(f"{path} is empty; download it again")
        places = [_place(path, first, column) for column in columns]
        start = reader.line_num + 1
        blanks: list[int] = []  # lines of empty cells, unless they end the file
        for fields in reader:
            if not fields and len(first) == 1:
                blanks.append(start)
            elif fields:
                yield from ((line, [""] * len(places), "") for line in blanks)
                blanks = []
                fits = len(fields) == len(first)
                problem = "" if fits else f"{len(fields)} fields, the first line names {len(first)}"
                yield start, [fields[place] for place in places] if fits else None, problem
            start = reader.line_num + 1
    except csv.Error as error:
        # After an open quote, lines cannot be told apart from quoted text: nothing more can be read.
        raise DataError(
            f"{path}:{reader.line_num}: not CSV ({error}); a quoted field that starts before or here is "
            "not closed, or has text after its quote: double the quotes within fields, or save as TSV, "
            "where quotes are text"
        ) from None


def _json_rows(path: Path, keys: list[str]) -> Iterator[Row]:
    is_first = True
    for number, line in enumerate(text_lines(path), start=1):
        if not line.strip():
            continue
        if is_first and line.lstrip()[0] == "[":
            raise DataError(f"{path}:1: a JSON array; one object a line is needed: convert it, e.g. with jq -c '.[]'")
        is_first = False
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield number, None, f"not JSON ({error}): {shown(line)}"
            continue
        if not isinstance(found, dict):
            yield number, None, f"not a JSON object: {shown(line)}"
        elif missing := [key for key in keys if key not in found]:
            yield number, None, f"no {', '.join(missing)}; its keys are {', '.join(map(shown, found))[:200]}"
        elif unfit := [key for key in keys if not isinstance(found[key], str | int | float)]:
            yield number, None, f"{unfit[0]} is {shown(json.dumps(found[unfit[0]]))}, neither text nor a number"
        elif broken := [key for key in keys if isinstance(found[key], str) and _HALF_PAIR.search(found[key])]:
            yield number, None, f"{broken[0]} is not text, it has half of a surrogate pair: {shown(found[broken[0]])}"
        else:
            yield number, [value if isinstance(value := found[key], str) else json.dumps(value) for key in keys], ""


def _place(path: Path, names: list[str], column: Column) -> int:
    if isinstance(column, int):
        return column
    if names.count(column) == 1:
        return names.index(column)
    listed = ", ".join(shown(name) for name in names[:12]) + (", ..." if len(names) > 12 else "")
    what = "no column" if column not in names else f"{names.count(column)} columns"
    raise DataError(
        f"{path}:1: {what} {column!r}; the first line names {listed}. Is it the task's file? For files of "
        "your own, use --task-name custom with --text-column, --text-pair-column and --label-column"
    )


def shown(value: str) -> str:
    return repr(value if len(value) <= _MAX_SHOWN_CHARACTERS else value[:_MAX_SHOWN_CHARACTERS] + "...")

"""Reads rows of JSON lines, and of JSON documents in memory; each row names its fields.

The name `fields.description` means a field inside of another one. `items[].text` means one in each item of a list: each
gives a row, which repeats the fields outside of the list.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from data.text.columns import MOST_COLUMNS, NoColumnError, Row, TableForm, TextColumn, first_items, has_column
from data.text.encodings import MAX_ROW_CHARACTERS, whole_lines
from data.text.text_check import NotTextError

_TOO_LONG = f"is longer than {MAX_ROW_CHARACTERS} characters"


def with_text(rows: Iterator[Row], form: TableForm) -> Iterator[Row]:
    """Rows of JSON, after choosing the form's text column from the first ones."""
    if form.text is None:
        return rows
    text, names = form.text, form.text.names
    head = first_items(rows, lambda row: len(str(row.values)), lambda row: text.among(row.values or ()) is not None)
    if objects := [row.values for row in head if row.values]:
        try:
            chosen = text.choose(list(dict.fromkeys(key for row in objects for key in row)), objects)
            text.names = list(dict.fromkeys([*names, chosen]))  # objects differ in their keys
        except NoColumnError as error:
            later = next(rows, None)
            if later is None:
                raise
            return _unless_refused(chain(head, [later], rows), text, error)
    return chain(head, rows)


def _unless_refused(rows: Iterator[Row], text: TextColumn, refusal: NoColumnError) -> Iterator[Row]:
    """Yield rows; if the first rows were refused and no later row has a text, raise that error at the end."""
    has_text = False
    for row in rows:
        has_text = has_text or text.among(row.values or ()) is not None
        yield row
    if not has_text:
        raise refusal


def json_rows(lines: Iterable[str | None], form: TableForm) -> Iterator[Row]:
    for number, line in enumerate(lines, start=1):
        if line is None:
            yield Row(number, None, _TOO_LONG)
        elif line.strip():
            try:
                content = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield Row(number, None, f"is not JSON ({error})")
            else:
                yield from _json_rows(number, content, form)


def _json_rows(number: int, content: object, form: TableForm) -> Iterator[Row]:
    row = _json_row(number, content, form)
    if row.values is None or not (paths := form.paths()):
        return iter([row])
    return (row._replace(values=values) for values in nested_rows(row.values, paths))


def nested_rows(content: Mapping[str, Any], paths: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Rows of an object, plus nested fields by the paths that name them."""
    wanted = {path: path for path in paths if path not in content}
    heads = [path.partition("[]")[0].split(".") for path in wanted if "[]" in path]
    lists = {".".join(head[:number]) for head in heads for number in range(1, len(head) + 1)}
    outside = {key: value for key, value in content.items() if key not in lists}
    return (outside | nested for nested in _inside(content, wanted))


def _inside(content: object, wanted: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """The wanted fields of each row; `wanted`: path -> its part below this value."""
    fields, lists = dict[str, Any](), dict[str, tuple[list, dict[str, str]]]()
    for path, below in wanted.items():
        head, is_list, rest = below.partition("[]")
        value = _below(content, head.strip("."))
        if not is_list and value is not None:
            fields[path] = value
        elif isinstance(value, list):
            lists.setdefault(head, (value, {}))[1][path] = rest
    if not lists:
        yield fields
    for items, paths in lists.values():
        for item in items:
            yield from (fields | row for row in _inside(item, paths))


def _below(content: object, path: str) -> Any:
    """Value below a path of keys joined by dots; keys may contain dots. None if it is missing."""
    if not path:
        return content
    if isinstance(content, Mapping):
        keys = path.split(".")
        for number in range(1, len(keys) + 1):
            if (key := ".".join(keys[:number])) in content:
                value = _below(content[key], ".".join(keys[number:]))
                if value is not None:
                    return value
    return None


def _json_row(number: int, content: object, form: TableForm) -> Row:
    columns = [*(form.text.names[:1] if form.text else ()), *(form.columns or ())]
    if isinstance(content, str) and len(columns) == 1:
        return Row(number, {columns[0]: content})
    if isinstance(content, dict) and len(content) > MOST_COLUMNS:
        return Row(number, None, f"has {len(content):,} fields, more than {MOST_COLUMNS:,}")
    if isinstance(content, dict):
        return Row(number, content)
    return Row(number, None, f"is a {type(content).__name__}, not an object")


def document_rows(chunks: Iterable[str], form: TableForm) -> Iterator[Row]:
    """Rows of a JSON document, or of JSON lines under its name; the first column is required."""
    text = ""
    for chunk in chunks:
        text += chunk
        if len(text) > MAX_ROW_CHARACTERS:
            raise NotTextError(f"is JSON of more than {MAX_ROW_CHARACTERS} characters; write JSON Lines (.jsonl)")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        of_lines = json_rows(whole_lines([text]), form)
        first = next(of_lines, None)
        if first is None or first.problem:
            raise NotTextError(f"is not JSON ({error})") from error
        yield first
        yield from of_lines
        return
    items = content if isinstance(content, list) else [content]
    unnumbered = chain.from_iterable(_json_rows(0, item, form) for item in items)
    rows = [row._replace(number=number) for number, row in enumerate(unnumbered, start=1)]
    if form.text is None and form.columns and not any(has_column(row.values or (), form.columns[0]) for row in rows):
        names = list(dict.fromkeys(name for row in rows for name in row.values or ()))
        raise NoColumnError(f"is JSON without a field {form.columns[0]!r}", form.columns[0], names)
    yield from rows

"""Reads the rows of Excel workbooks, without hidden sheets, rows and columns."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple
from xml.parsers import expat

from data.text.archives import open_archive, refuse_entities
from data.text.columns import Row, TableForm, check_number_of_columns, first_items, numbered_names, row_size
from data.text.header_check import REPEATED_NAMES, ROWS_OF_TYPES, are_types, refuse_names_below, repeats_names
from data.text.json_rows import with_text
from data.text.size_limits import no_bomb
from data.text.text_check import NotTextError

if TYPE_CHECKING:
    from openpyxl.worksheet._read_only import ReadOnlyWorksheet

_CHUNK_BYTES = 1 << 16
_MOST_COLUMNS = 1 << 14  # of Excel
_ON = ("1", "true")


class _Hidden(NamedTuple):
    """Hidden rows and columns of a sheet, by positions from 1."""

    rows: frozenset[int]
    columns: frozenset[int]


def xlsx_rows(path: Path, form: TableForm, counts: Counter) -> Iterator[Row]:
    """Rows of all sheets, numbered through the sheets. Each sheet begins with its column names.

    Args:
        counts: gets how many sheets, rows and columns are hidden, and not read. A column that the form names is read.
    """
    from openpyxl import load_workbook

    open_archive(path).close()
    workbook = load_workbook(path, read_only=True, data_only=True)
    sheets = [sheet for sheet in workbook.worksheets if sheet.sheet_state == "visible"]
    counts["hidden sheets, not read"] += len(workbook.worksheets) - len(sheets)
    if workbook.worksheets and not sheets:
        raise NotTextError("has hidden sheets alone; show those that may be read, and save it")
    number, refusals = 0, 0
    for sheet in sheets:
        hidden = _hidden_parts(sheet)
        sheet.reset_dimensions()  # what a file says of its size is often wrong, and would cut it
        rows = enumerate(sheet.iter_rows(values_only=True), start=1)
        _, header = next(rows, (0, ()))
        head = first_items(rows, lambda _: 0)
        texts = _texts(header)
        names = numbered_names(texts)
        hidden_names = [names[place - 1] for place in sorted(hidden.columns) if place <= len(names)]
        left_out = set(hidden_names) - _named_columns(form)
        counts["hidden columns, not read"] += len(left_out)
        objects = (
            Row(number_before + place, _cells(names, cells, left_out, counts))
            for number_before in (number,)
            for place, cells in chain(head, rows)
            if any(cell is not None for cell in cells)
            and not _is_hidden(place, hidden, counts)
            and not _is_no_row(place, cells, texts, counts)
        )
        try:
            check_number_of_columns(len(texts))
            refuse_names_below(texts, [(place, _texts(cells)) for place, cells in head], "row")
            if left_out and left_out.issuperset(filter(None, names)):
                raise NotTextError("has no column that is shown")
            for row in with_text(no_bomb(path, objects, row_size), form):
                number = row.number
                yield row
        except NotTextError as error:
            refusals += 1
            if left_out:
                error.args = (f"{error}; its hidden columns {sorted(left_out)} are read if they are named",)
            error.args = (f"sheet {sheet.title!r} {error}",)
            if refusals == len(sheets):
                raise
            yield Row(number + 1, None, str(error))
        number += 1
    workbook.close()


def _texts(cells: Sequence[object]) -> list[str]:
    return ["" if cell is None else str(cell).strip() for cell in cells]


def _is_no_row(place: int, cells: Sequence[object], names: Sequence[str], counts: Counter) -> bool:
    """Whether cells repeat the column names, or are their types; such rows are counted."""
    is_types, is_repeated = place == 2 and are_types(cells), repeats_names([*cells], names)
    counts[ROWS_OF_TYPES] += is_types
    counts[REPEATED_NAMES] += is_repeated
    return is_types or is_repeated


def _named_columns(form: TableForm) -> set[str]:
    """Columns that the user named, which are read even if hidden."""
    text = form.text.names if form.text is not None and form.text.is_named else []
    return {str(name) for name in (*text, *(form.columns or ()), form.optional)}


def _cells(names: list[str], cells: tuple, left_out: set[str], counts: Counter) -> dict[str, object]:
    row = dict(zip(names, cells, strict=False))
    counts["cells right of the columns that have a name, not read"] += sum(map(bool, _texts(cells[len(names) :])))
    return {name: value for name, value in row.items() if name not in left_out} if left_out else row


def _is_hidden(row: int, hidden: _Hidden, counts: Counter) -> bool:
    counts["hidden rows, not read"] += row in hidden.rows
    return row in hidden.rows


def _hidden_parts(sheet: "ReadOnlyWorksheet") -> _Hidden:
    with sheet._get_source() as file:  # openpyxl does not read how rows and columns are shown in a sheet of this kind
        return _hidden_of(file)


def _hidden_of(file: IO[bytes]) -> _Hidden:
    rows, columns = set[int](), set[int]()
    number = 0

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal number
        name = name.rpartition(" ")[2]
        if name == "row":
            place = attributes.get("r", "")
            number = int(place) if place.isdecimal() else number + 1
            if attributes.get("hidden") in _ON:
                rows.add(number)
        elif name == "col" and attributes.get("hidden") in _ON:
            first, last = attributes.get("min", ""), attributes.get("max", "")
            if first.isdecimal() and last.isdecimal():
                columns.update(range(int(first), min(int(last), _MOST_COLUMNS) + 1))

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EntityDeclHandler = start, refuse_entities
    while chunk := file.read(_CHUNK_BYTES):
        parser.Parse(chunk)
    return _Hidden(frozenset(rows), frozenset(columns))

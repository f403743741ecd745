"""The line with a table's column names, rows without data, and tables with very many columns."""

import json
import time
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert.labels.columns import survey
from bert.labels.examples import read_examples
from bert.labels.schema import own_schema
from data.text.columns import MOST_COLUMNS, NoColumnError, Row, TableForm, TextColumn
from data.text.file_formats import Input
from data.text.findings import Findings
from data.text.header_check import NoHeaderError
from data.text.json_rows import nested_rows
from data.text.tables import open_table, user_table
from data.text.text_check import NotTextError

ALL = TableForm(None, quotes="cells")
TEXTS = ["A pump in the hall leaks again and again.", "The lift stops between two floors each day.", "No light here."]
LONG = [f"{text} It was so in May." for text in TEXTS]  # enough of it to be guessed
RUSSIAN = "\u2116,\u0442\u0435\u043a\u0441\u0442,label"


def guessed() -> TableForm:
    return TableForm((), text=TextColumn(None))


def read(path: Path, form: TableForm, kind: str) -> tuple[list[Row], Findings]:
    findings = Findings()
    return list(open_table(Input(path, path.name, kind, ""), form, findings).rows), findings


def workbook(path: Path, *sheets) -> Path:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"S{number}")
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


@pytest.mark.parametrize("form", [ALL, guessed(), TableForm(["text", "label"], quotes="cells")])
@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (["Report 2024,,", "id,text,label", *(f"{n},{text},a" for n, text in enumerate(TEXTS))], 2),
        (["Report 2024", "", "id;text;label", *(f"{n};{text};a" for n, text in enumerate(TEXTS))], 3),
        (["", "id,text,label", *(f"{n},{text},a" for n, text in enumerate(TEXTS))], 2),
        (["All tickets", "of May", "id\ttext\tlabel", *(f"{n}\t{text}\ta" for n, text in enumerate(TEXTS))], 3),
        (["Customer,,Ticket,", "name,age,text,label", *(f"Ann,{n},{text},a" for n, text in enumerate(TEXTS))], 2),
        (["Customer,Customer,Ticket", "name,age,text", *(f"Ann,{n},{text}" for n, text in enumerate(TEXTS))], 2),
        (["\u041e\u0442\u0447\u0451\u0442,,", RUSSIAN, *(f"{n},{text},a" for n, text in enumerate(TEXTS))], 2),
    ],
)  # fmt: skip
def test_the_line_that_holds_the_names_is_named(tmp_path, lines, place, form):
    (file := tmp_path / "a.csv").write_text("\n".join(lines))
    with pytest.raises(
        NoHeaderError, match=rf"has the names of its columns in line {place} \(.*\), below '.*'; delete"
    ):
        user_table(file, form)


@pytest.mark.parametrize(
    "lines",
    [
        [",remark", *(f"{n},{text}" for n, text in enumerate(LONG))],  # an index of pandas
        ["remark,,", *(f"{text},," for text in LONG)],  # empty columns of Excel
        ["remark,when,,", *(f"{text},May,x,y" for text in LONG)],
        ["remark", *(f"{text}, or not" for text in LONG)],
        ["remark,2023,2024", *(f"{text},1,2" for text in LONG)],
        ["remark", *LONG],
    ],
)
def test_other_first_lines_are_names(tmp_path, lines):
    (file := tmp_path / "a.csv").write_text("\n".join(lines))
    rows, _ = read(file, guessed(), "csv")
    assert len(rows) == len(TEXTS) and all(row.values for row in rows)


def test_a_workbook_names_the_row_and_the_sheet(tmp_path):
    body = [[n, text, "a"] for n, text in enumerate(TEXTS)]
    titled = [["Report 2024", None, None], [None, None, None], ["id", "text", "label"], *body]
    merged = [
        ["Customer", None, "Ticket"],
        ["name", "age", "text"],
        *[["Ann", n, text] for n, text in enumerate(TEXTS)],
    ]
    for rows, place in ((titled, 3), (merged, 2)):
        file = workbook(tmp_path / "a.xlsx", rows)
        with pytest.raises(NotTextError, match=rf"^sheet 'S0' has the names of its columns in row {place} \("):
            read(file, guessed(), "xlsx")
    good = [["id", "text", "label"], *body]
    rows, _ = read(workbook(tmp_path / "a.xlsx", good, titled), guessed(), "xlsx")
    assert [row.values["text"] for row in rows[:3]] == TEXTS
    assert rows[3].problem.startswith("sheet 'S1' has the names of its columns in row 3")
    file = workbook(tmp_path / "a.xlsx", [["id", None], [1, "x"]], [["n", "m"], [1, 2]])
    with pytest.raises(NoColumnError, match=r"^sheet 'S1' has no column 'text', only \['n', 'm'\]"):
        read(file, guessed(), "xlsx")


TYPED = [["id", "text", "label"], ["int64", "string", "category"], ["1", TEXTS[0], "a"], ["id", "text", "label"]]
TYPED += [["2", TEXTS[1], "b"], ["string", "string", "date"]]
KEPT = [TEXTS[0], TEXTS[1], "string"]


@pytest.mark.parametrize("kind", ["csv", "xlsx"])
def test_a_row_of_types_and_names_that_come_again_are_no_rows(tmp_path, kind):
    """Types are recognised only directly below the names."""
    file = tmp_path / f"a.{kind}"
    if kind == "csv":
        file.write_text("\n".join(";".join(row) for row in TYPED))
    else:
        workbook(file, TYPED)
    for form in (ALL, guessed()) if kind == "csv" else (guessed(),):
        rows, findings = read(file, form, kind)
        assert [row.values["text"] for row in rows] == KEPT
        assert findings.row_lines() == [
            "dropped: rows that repeat the names of the columns: 1",
            "dropped: rows that name the types of the columns: 1",
        ]


def test_a_row_of_types_is_no_example_and_is_named(tmp_path):
    (file := tmp_path / "a.csv").write_text("\n".join(",".join(row) for row in TYPED[:-1]))
    schema = own_schema(("text",), "label")
    examples = read_examples(file, schema.split("train"), schema)
    assert (examples.texts[0], examples.labels) == (KEPT[:2], ["a", "b"])
    assert f"{file}: dropped: rows that name the types of the columns: 1" in examples.warnings
    assert survey(file, {}).rows == 2


def test_names_that_come_again_are_no_rows_of_json_and_parquet(tmp_path):
    rows = [{"id": "1", "text": "One."}, {"id": "id", "text": "text"}, {"id": "2", "text": "text"}]
    (lines := tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (document := tmp_path / "a.json").write_text(json.dumps(rows))
    pq.write_table(pa.Table.from_pylist(rows), parquet := tmp_path / "a.parquet")
    for file in (lines, document, parquet):
        found, findings = read(file, ALL, file.suffix[1:])
        assert [row.values for row in found] == [rows[0], rows[2]]
        assert len(findings.row_lines()) == 1


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("text\nOne.\ntext\nTwo.\n", ["One.", "Two."]),  # joined files of one column
        ("spam\nspam\n\nspam\n", ["spam", "", "spam"]),  # a check box
        ("id\nlong\nshort\n", ["long", "short"]),
    ],
)
def test_a_table_of_one_column_keeps_its_cells(tmp_path, text, values):
    (file := tmp_path / "a.csv").write_text(text)
    rows, _ = read(file, ALL, "csv")
    assert [next(iter(row.values.values())) for row in rows] == values


def test_keys_with_dots_are_found_at_every_depth():
    row = {
        "a": {"b.c": "one", "d": {"e.f.g": "two"}},
        "h.i": {"j": "three"},
        "k.l": [{"m.n": "four"}, {"m": {"n": "five"}}],
    }
    paths = ["a.b.c", "a.d.e.f.g", "h.i.j", "a.x", "k.l[].m.n"]
    first, second = nested_rows(row, paths)
    assert [first[path] for path in paths if path in first] == ["one", "two", "three", "four"]
    assert second["k.l[].m.n"] == "five" and "k.l" not in first and first["a"] is row["a"]
    assert list(nested_rows({"a": {"b": {"c": 1}, "b.c": 2}}, ["a.b.c"]))[0]["a.b.c"] == 1


def test_the_hint_for_a_key_with_dots_is_a_path_that_is_read(tmp_path):
    rows = [{"_source": {"ticket.text": text, "ticket.id": n}} for n, text in enumerate(TEXTS * 3)]
    (file := tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(NoColumnError, match=r"did you mean '_source.ticket.text'\?"):
        read(file, guessed(), "jsonl")
    found, _ = read(file, TableForm((), text=TextColumn("_source.ticket.text")), "jsonl")
    assert [row.values["_source.ticket.text"] for row in found] == TEXTS * 3


def test_a_text_inside_of_structs_and_lists_of_parquet_is_read_by_its_path(tmp_path):
    rows = [{"id": n, "of": {"body": t}, "parts": [{"body": t}, {"body": "x"}]} for n, t in enumerate(TEXTS * 3)]
    pq.write_table(pa.Table.from_pylist(rows), file := tmp_path / "a.parquet")
    hint = r"only \['id', 'of', 'parts'\] \(did you mean '(of|parts\[\])\.body'\?\)"
    with pytest.raises(NoColumnError, match=hint):
        read(file, guessed(), "parquet")
    found, _ = read(file, TableForm(["id"], text=TextColumn("of.body")), "parquet")
    assert [(row.values["id"], row.values["of.body"]) for row in found] == [*enumerate(TEXTS * 3)]
    found, _ = read(file, TableForm((), text=TextColumn("parts[].body")), "parquet")
    assert [row.values["parts[].body"] for row in found][:4] == [TEXTS[0], "x", TEXTS[1], "x"]


def wide(folder: Path, kind: str, number: int) -> Path:
    names = [f"c{place}" for place in range(number - 2)] + ["text", "label"]
    rows = [["1"] * (number - 2) + [text, "ab"[n % 2]] for n, text in enumerate(TEXTS * 2)]
    file = folder / f"wide.{kind}"
    if kind == "csv":
        file.write_text("\n".join(",".join(row) for row in [names, *rows]))
    else:
        file.write_text(json.dumps([dict(zip(names, row, strict=True)) for row in rows]))
    return file


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_the_time_grows_with_the_columns_not_with_their_square(tmp_path, kind):
    """An earlier version took 100 times as long for 20,000 columns, which need a tenth of the limit of a CPU second."""
    file = wide(tmp_path, kind, 20_000)
    begun = time.process_time()
    rows, _ = read(file, TableForm((), text=TextColumn(None)), kind)
    with pytest.raises(NoColumnError, match=r"has no column 'txt', only \['c0', "):
        read(file, TableForm((), text=TextColumn("txt")), kind)
    found, _ = read(file, ALL, kind)
    assert len(rows) == len(found) == 6 and found[0].values["c19997"] == "1"
    assert time.process_time() - begun < 3


def test_too_many_columns_are_refused_with_a_sentence(tmp_path):
    (file := tmp_path / "a.csv").write_text(",".join(f"c{place}" for place in range(300_000)) + "\n1\n")
    begun = time.process_time()
    for form in (ALL, guessed()):
        with pytest.raises(NotTextError, match=f"has 300,000 columns, more than {MOST_COLUMNS:,}; is it"):
            user_table(file, form)
    assert time.process_time() - begun < 3


def test_rows_of_other_lengths_are_named_and_a_short_one_has_empty_cells(tmp_path):
    (file := tmp_path / "a.csv").write_text("text;label\nOne.;a\nTwo.\nThree.;b;c\n")
    one, two, three = user_table(file, ALL).rows
    assert (one.problem, two.values, two.problem) == ("", {"text": "Two.", "label": ""}, "")
    assert three.problem.startswith("has 3 fields, the first row 2")

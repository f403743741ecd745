"""Tests of reading users' tables, also damaged ones, whose errors name line, value and remedy."""

import json

import numpy as np
import pandas as pd
import pytest

from bert.conversion.task_file import read_usage
from bert.conversion.usage import Usage
from bert.labels.columns import survey
from bert.labels.examples import discover_labels, read_examples
from bert.labels.schema import own_schema
from bert.labels.table import Split, own_rows
from data.text.encodings import Decoding

OWN = own_schema(("first", "second"), "kind")


def custom(tmp_path, name, content, *, labels=None, regression=False, index=None):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    task = own_schema(("first", "second"), "kind", index, is_regression=regression)
    return read_examples(path, task.train, task.with_labels(labels))


ROWS = [('It said "hi", twice.', "line one", "good"), ("ü, 漢字", "x", "bad"), ("a", "b\tc", "good")]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "json", "parquet", "tsv"])
def test_the_same_rows_are_read_from_each_format(tmp_path, suffix):
    rows = pd.DataFrame(ROWS if suffix != "tsv" else ROWS[:2], columns=["first", "second", "kind"])
    writers = {
        "csv": lambda: rows[["kind", "first", "second"]].to_csv(index=False),
        "jsonl": lambda: rows.assign(more=1).to_json(orient="records", lines=True),
        "json": lambda: rows.to_json(orient="records"),
        "parquet": rows.to_parquet,
        "tsv": lambda: "".join("\t".join(row) + "\n" for row in [rows.columns, *rows.to_numpy()]),
    }
    examples = custom(tmp_path, f"mine.{suffix}", writers[suffix]())
    assert [[*row] for row in zip(*examples.texts, examples.labels, strict=True)] == rows.to_numpy().tolist()
    assert discover_labels(examples, OWN) == ("bad", "good")


@pytest.mark.parametrize(
    ("content", "note"),
    [
        (("kind;first;second\n" + "gut;Grüße;b\n" * 20).encode("cp1252"), "read as cp1252"),
        ("kind\tfirst\tsecond\ngut\tGrüße\tb\n".encode("utf-16"), "read as utf-16"),
        ("kind,first,second\ngut,Grüße,b\n".encode("utf-8-sig"), ""),
        ('first,second,kind\n"Grüße",b,"gut"\n'.encode(), ""),
        ('kind,second,first\ngut,b,Grüße\n"gut",b,"Grüße\n'.encode(), ""),  # an open quote is text
    ],
)
def test_a_table_of_any_form_and_encoding_is_read(tmp_path, content, note):
    examples = custom(tmp_path, "mine.csv", content)
    assert examples.texts[0][0] == "Grüße" and examples.texts[1][0] == "b" and examples.labels[0] == "gut"
    assert note in "".join(examples.warnings) and bool(note) == bool(examples.warnings)


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_several_labels_of_a_text(tmp_path, name):
    lists = ["b; a", "", "a"] if name == "a.csv" else [["b", "a"], [], ["a"]]
    rows = pd.DataFrame({"first": ["x", "y", "z"], "kind": lists})
    rows.to_csv(tmp_path / name) if name == "a.csv" else rows.to_json(tmp_path / name, orient="records", lines=True)
    task = own_schema(("first",), "kind", separator=";")
    examples = read_examples(tmp_path / name, task.train, task)
    labels = discover_labels(examples, task)
    assert labels == ("a", "b")
    assert task.with_labels(labels).encode(examples.labels).tolist() == [[1, 1], [0, 0], [1, 0]]
    with pytest.raises(ValueError, match="line .: label 'a' is not one of b, c"):
        read_examples(tmp_path / name, task.train, task.with_labels(("b", "c")))


def test_a_csv_field_may_hold_lines(tmp_path):
    examples = custom(tmp_path, "a.csv", 'first,second,kind\r\n"one\ntwo",b,x\r\nc,d,y\r\n')
    assert examples.texts == (["one\ntwo", "c"], ["b", "d"])


def test_an_empty_line_of_a_csv_of_one_column_is_an_empty_cell(tmp_path):
    """Every line has its prediction, as in the other formats; empty lines at the end are no cells."""
    (path := tmp_path / "a.csv").write_text('first\none\n\n\n"t\nwo"\n""\nthree\n\n\n')
    rows = list(own_rows(path, Split((), ("first",)), []))
    found = [(2, "one"), (3, ""), (4, ""), (5, "t\nwo"), (7, ""), (8, "three")]
    assert [(row.number, row.values) for row in rows] == [(line, {"first": text}) for line, text in found]
    (path := tmp_path / "b.csv").write_text("first,second\none,1\n\ntwo,2\n")
    assert [row.values for row in own_rows(path, Split((), ("first",)), [])] == [{"first": "one"}, {"first": "two"}]


def test_json_labels_may_be_numbers_or_booleans(tmp_path):
    lines = [{"first": "a", "second": "b", "kind": kind} for kind in (10, 9, 10, -1)]
    examples = custom(tmp_path, "a.jsonl", "\n".join(map(json.dumps, lines)))
    assert discover_labels(examples, OWN) == ("-1", "9", "10")
    lines = [{"first": "a", "second": "b", "kind": kind} for kind in (True, False)]
    assert custom(tmp_path, "a.jsonl", "\n".join(map(json.dumps, lines))).labels == ["true", "false"]


def test_numbers_to_be_predicted(tmp_path):
    examples = custom(tmp_path, "a.csv", "first,second,kind\na,b,-3.5\nc,d,1e3\n", regression=True)
    task = own_schema(("first",), "kind", is_regression=True)
    np.testing.assert_array_equal(task.encode(examples.labels), [-3.5, 1000])


HOSTILE = {
    "c.csv": ("first,second,kind\na,b\n", ["line 2: no kind"]),
    "d.csv": ("one,two\na,b\n", [": no column 'first'", "'one'", "--text-column names the right one"]),
    "e.csv": ("first;second;kinds\na;b;x\n", [": no column 'kind'", "did you mean kinds?"]),
    "f.csv": ("first,second,kind\na,b,c,x\n", ["line 2: 4 fields, the first row 3; quote"]),
    "a.jsonl": ('{"first": "a", "second": "b", "kind": 1}\n{"first": \n', ["line 2: is not JSON"]),
    "b.jsonl": ('{"first": "a", "second": "b", "label": 1}\n', ["line 1: no kind", "'label'"]),
    "c.jsonl": ('[{"first": "a"}]', ["line 1: is a list, not an object"]),
    "d.jsonl": ('"text"\n', ["line 1: is a str, not an object"]),
    "e.jsonl": ('{"first": ["a"], "second": "b", "kind": 1}\n', ["first is", "neither text nor a number"]),
    "f.jsonl": ('{"first": null, "second": "b", "kind": 1}\n', ["first is 'null'"]),
    "g.jsonl": ("[" * 100_000, ["JSON"]),
    "h.jsonl": ('{"first": ' + "[" * 100_000, ["line 1: is not JSON"]),
    "i.jsonl": ('{"first": "a\\ud800", "second": "b", "kind": 1}\n', ["line 1: first is not text", "'a\\ud800'"]),
    "j.jsonl": ('{"first": "a", "second": "b", "kind": "x\\ty"}\n', ["line 1: 'x\\ty' has a tab or a line break"]),
    "l.jsonl": ('{"first": "a", "second": "b", "kind": "x\\u001b[2J"}\n', [r"'x\x1b[2J' has a control character"]),
    "a.xlsx": ("x", ["is an office document", ".csv"]),
    "a.bin": ("x", ["is of no format that is read (.bin)"]),
    "k.tsv": ("first\tsecond\tkind\na\tb\t \n", ["line 2: its label is empty"]),
}


def test_hostile_files_are_refused_with_line_value_and_remedy(tmp_path):
    wrong = {}
    for name, (content, phrases) in HOSTILE.items():
        with pytest.raises(ValueError) as error:
            custom(tmp_path, name, content)
        if missing := [phrase for phrase in (str(tmp_path / name), *phrases) if phrase not in str(error.value)]:
            wrong[name] = missing, str(error.value)
    assert not wrong


def test_an_index_that_would_break_the_lines_of_the_predictions_is_refused(tmp_path):
    for index, shown in (("a\tb", r"'a\\tb'"), ("a\nb", r"'a\\nb'"), ("a\r", r"'a\\r'")):
        line = json.dumps({"first": "a\tb", "second": "b\n", "kind": "x", "id": index})
        with pytest.raises(ValueError, match=f"line 1: {shown} has a tab or a line break, which predictions"):
            custom(tmp_path, "a.jsonl", line, index="id")
    pair = json.dumps({"first": "\U0001f600", "second": "b", "kind": "x", "id": 7})
    assert custom(tmp_path, "a.jsonl", pair, index="id").texts == (["\U0001f600"], ["b"])


def test_labels_that_are_one_or_endless_are_refused(tmp_path):
    one = custom(tmp_path, "a.csv", "first,second,kind\na,b,x\nc,d,x\n")
    with pytest.raises(ValueError, match="every label is 'x'.*--label-column"):
        discover_labels(one, OWN)
    many = custom(tmp_path, "a.csv", "first,second,kind\n" + "".join(f"a,b,{i}.5\n" for i in range(200)))
    with pytest.raises(ValueError, match="200 different labels in 200 lines.*--regression"):
        discover_labels(many, OWN)


def test_a_file_without_rows_is_named(tmp_path):
    task = own_schema(("a",), "b")
    (tmp_path / "mine.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match=r"mine.csv has no examples: it has no rows; check the file$"):
        read_examples(tmp_path / "mine.csv", task.train, task)


def own(tmp_path, text: str, name: str = "a.csv", **named):
    (path := tmp_path / name).write_text(text)
    found = survey(path, {}, Decoding(**named))
    columns = found.columns["text_column"], found.columns["label_column"]
    schema = own_schema(
        (columns[0],), columns[1], None, None, found.label_separator, found.regression, Decoding(**named)
    )
    examples = read_examples(path, schema.train, schema)
    return schema if schema.is_regression else schema.with_labels(discover_labels(examples, schema)), examples


def test_a_table_without_a_header_is_read_when_it_is_said(tmp_path):
    rows = "".join(f"a short text {number},{'pos' if number % 3 else 'neg'}\n" for number in range(12))
    with pytest.raises(ValueError, match=r"a row \('neg'\); add a line of names, or pass --no-header"):
        own(tmp_path, rows)
    for label in ("0.963", "K0"):  # a regression; of many classes
        with pytest.raises(ValueError, match=f"a row .'{label}'.; add a line of names"):
            own(tmp_path, "".join(f"a text {n},{label if n == 0 else label[:-1] + str(n % 40)}\n" for n in range(120)))
    with pytest.raises(ValueError, match="neither text nor a number; name what is in it, such as ticket.body"):
        own(tmp_path, '{"ticket": {"body": "a"}, "label": 1}\n{"ticket": {"body": "b"}, "label": 2}\n', "a.jsonl")
    schema, examples = own(tmp_path, rows, header=False)
    assert (len(examples), schema.train.texts, schema.train.label) == (12, ("column 1",), "column 2")
    _, examples = own(tmp_path, "nice,rare\n" + "good,a\nbad,b\n" * 9)  # which may be a row; nothing else shows it
    (note,) = examples.warnings
    assert note.endswith("a.csv: header: 'nice', 'rare'; --no-header if this is a row")
    _, examples = own(tmp_path, "nice,rare,c,d,e,f,g,h,i\n" + "good,a,1,2,3,4,5,6,7\nbad,b,1,2,3,4,5,6,7\n" * 9)
    assert "'g', 'h', ...; --no-header" in examples.warnings[0]
    pandas = "0,1\n" + rows.replace("pos", "1").replace("neg", "0")  # as to_csv names the columns of a plain array
    assert len(own(tmp_path, pandas)[1]) == 12


def test_excels_line_before_the_header_names_the_separator(tmp_path):
    for line in ("sep=;", '"sep=;"'):
        assert own(tmp_path, f"{line}\ntext;label\none, two;x\nthree;y\n")[1].texts[0] == ["one, two", "three"]
    with pytest.raises(ValueError, match="line 4: its label is empty"):
        own(tmp_path, "sep=;\ntext;label\none, two;x\nthree;\n")


def test_decimal_commas_and_percentages_are_numbers_and_thousands_are_asked_about(tmp_path):
    schema, examples = own(tmp_path, "text;label\na;2,5\nb;-1,75\nc;3\nd;1.234,5\n")
    assert schema.is_regression and schema.encode(examples.labels).tolist() == [2.5, -1.75, 3, 1234.5]
    schema, examples = own(tmp_path, "text,label\n" + "".join(f"a{n},{n}%\n" for n in range(30)))
    assert schema.is_regression and schema.encode(examples.labels).tolist() == [*range(30)]
    with pytest.raises(ValueError, match="such as 1,250, may be thousands or fractions; write them as 1250 or 1.250"):
        own(tmp_path, "text;label\na;1,250\nb;3,500\n")


@pytest.mark.parametrize(
    ("cells", "labels", "encoded"),
    [
        (("['joy', 'love']", "['anger']"), ("anger", "joy", "love"), [[0, 1, 1], [1, 0, 0]]),
        (("['joy' 'love']", "['it, too']"), ("it, too", "joy", "love"), [[0, 1, 1], [1, 0, 0]]),  # as NumPy prints
        (("[1234567.0, 0.5]", "[1234568.0]"), ("1234567", "1234568", "0.5"), [[1, 0, 1], [0, 1, 0]]),
        (("[1 0]", "[1. 1.]"), ("position 1", "position 2"), [[1, 0], [1, 1]]),
        (("[1, 0]", "[1, 1]"), ("position 1", "position 2"), [[1, 0], [1, 1]]),
        (("[3, 0]", "[1]"), ("0", "1", "3"), [[1, 0, 1], [0, 1, 0]]),
    ],
)
def test_lists_in_cells_are_several_labels(tmp_path, cells, labels, encoded):
    schema, examples = own(tmp_path, "text;label\n" + "".join(f"a text;{cell}\n" for cell in cells))
    assert schema.labels == labels and schema.encode(examples.labels).tolist() == encoded
    lines = "".join(json.dumps({"text": "a", "label": names}) + "\n" for names in (["joy", "love"], ["anger"]))
    assert own(tmp_path, lines, "a.jsonl")[0].labels == ("anger", "joy", "love")


def test_jsons_true_is_pythons_true(tmp_path):
    schema, _ = own(tmp_path, "text,label\na,True\nb,False\n")
    (path := tmp_path / "b.jsonl").write_text('{"text": "a", "label": true}\n{"text": "b", "label": false}\n')
    assert read_examples(path, schema.train, schema).labels == ["True", "False"]


@pytest.mark.parametrize("separator", [None, ";"])
def test_labels_that_look_equal_are_one_class_and_that_is_said(tmp_path, separator):
    """A class in NFC, in NFD and with a soft hyphen is one class in training and for earlier files and models."""
    composed, decomposed, hyphened = "St\u00f6rung", "Sto\u0308rung", "St\u00f6\u00adrung"
    labels = ["Lob", composed, decomposed, hyphened]
    (path := tmp_path / "a.csv").write_text("text,label\n" + "".join(f"a text,{label}\n" for label in labels))
    schema = own_schema(("text",), "label", separator=separator)
    examples = read_examples(path, schema.train, schema)
    assert examples.labels == ["Lob", composed, composed, composed]
    assert discover_labels(examples, schema) == ("Lob", composed)
    assert [line for line in examples.warnings if "2 labels are written in other code points" in line]
    old = schema.with_labels(("Lob", decomposed))  # of a model that was trained before letters were equal
    assert read_examples(path, old.train, old).labels == ["Lob", *[decomposed] * 3]
    if separator:
        assert schema.spelled("Lob") == "Lob" and old.spelled(f"Lob; {composed}") == f"Lob;{decomposed}"


def test_how_files_were_decoded_stands_beside_the_model(tmp_path):
    usage = Usage("custom", 9, ("text",), encoding="auto:cp1250", language="pl", header=False)
    for written in (usage, Usage("custom", 9)):
        (tmp_path / "task.json").write_text(written.to_json())
        assert read_usage(tmp_path) == written

"""Tests of input rows: splitting and decoding of lines, pauses of a pipe, and requests or errors of lines."""

import os
import threading
from dataclasses import replace

import pytest

from bert.commands.predict import windows_of
from bert.inference import rows
from bert.inference.rows import (
    PAIR_KEYS,
    SINGLE_KEYS,
    InputRow,
    Line,
    RowForm,
    Rows,
    _LineParser,
    filled_rows,
    kind_of,
    read_lines,
    texts_of,
)
from data.text.encodings import Decoding


def lines_of(*parts: bytes, pause: threading.Event | None = None) -> list:
    """Return the lines of a pipe that is fed these parts; after the first part the writer waits for `pause`."""
    reader, writer = os.pipe()

    def feed():
        for number, part in enumerate(parts):
            if number == 1 and pause is not None:
                assert pause.wait(20)
            os.write(writer, part)
        os.close(writer)

    thread = threading.Thread(target=feed)
    thread.start()
    found = []
    for line in read_lines(reader):
        found.append(line and (line.number, line.text))
        if line is None and pause is not None:
            pause.set()
    thread.join()
    os.close(reader)
    return [line for line in found if line is not None or pause is not None]


def test_lines_are_split_decoded_and_numbered():
    data = "\ufeffone\r\ntwö\n\nlast".encode()
    wanted = [(1, "one"), (2, "twö"), (3, ""), (4, "last")]
    assert lines_of(data) == wanted
    assert lines_of(*(data[i : i + 1] for i in range(len(data)))) == wanted
    assert lines_of(b"") == [] and lines_of(b"a\n") == [(1, "a")]


def test_a_pause_of_the_writer_is_told():
    assert lines_of(b"one\n", b"two\n", pause=threading.Event()) == [(1, "one"), None, (2, "two")]


def test_rows_before_a_pause_run_together():
    first, second, third = (InputRow({}, (text,), "", "") for text in "abc")
    assert list(windows_of([first, second, None, third, None])) == [[first, second], [third]]


def form_of(kind: str = "auto", splits_tabs: bool = False, keys=(*PAIR_KEYS, *SINGLE_KEYS)) -> RowForm:
    return RowForm(keys, lambda raw: texts_of(raw, keys), kind, splits_tabs)


def test_lines_that_cannot_be_read_do_not_end_the_reading(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "_LONGEST", 10)
    monkeypatch.setattr(rows, "_READ", 4)
    (tmp_path / "in.txt").write_bytes(b"a\nb\xff\n" + b"c" * 50 + b"\nd\r\n" + b"e" * 50)
    read = Rows([tmp_path / "in.txt"], replace(form_of(), decoding=Decoding("utf-8")))
    found = [(row.texts, row.error[:8], row.record.get("line")) for row in read if row is not None]
    assert found == [
        (("a",), "", None),
        ((), "byte 0xf", 2),
        ((), "the line", 3),
        (("d",), "", None),
        ((), "the line", 5),
    ]
    assert read.num_bytes == (tmp_path / "in.txt").stat().st_size


@pytest.mark.parametrize(
    ("name", "content", "kind", "wanted"),
    [
        ("a.csv", "", "auto", ("csv", True)),
        ("a.CSV.gz", "", "auto", ("csv", True)),
        ("a.tsv", "", "auto", ("tsv", True)),
        ("a.tab", "", "auto", ("tsv", True)),
        ("a.pq", "", "auto", ("parquet", True)),
        ("a.txt", "", "auto", ("text", False)),
        ("a.jsonl", "", "auto", ("jsonl", False)),
        ("a.jsonl.gz", "", "auto", ("jsonl", True)),
        ("a.json", '{"text": "a"}\n{"text": "b"}\n', "auto", ("jsonl", False)),
        ("a.json", '[{"text": "a"}]', "auto", ("json", True)),
        ("a.json", '{"data": [1]}', "auto", ("json", True)),
        ("a.json", '{\n"text": "a"}', "auto", ("json", True)),
        ("a.json", "", "auto", ("jsonl", False)),
        ("a.log", "", "auto", ("auto", False)),
        ("a.csv", "", "text", ("text", False)),
        ("a.csv", "", "tsv", ("tsv", False)),
        ("a.txt", "", "csv", ("csv", True)),
    ],
)
def test_a_file_is_read_by_its_name_unless_the_flag_says_how(tmp_path, name, content, kind, wanted):
    (tmp_path / name).write_text(content)
    assert kind_of(tmp_path / name, kind) == wanted
    assert kind_of(None, "auto") == ("auto", False) and kind_of(None, "csv") == ("csv", True)


def test_a_line_has_at_most_four_megabytes(tmp_path):
    longest = 4 << 20
    (tmp_path / "in.txt").write_bytes(b"a" * longest + b"\n" + b"b" * (longest + 1) + b"\nlast\n" + b"c" * longest)
    found = [row for row in Rows([tmp_path / "in.txt"], form_of()) if row is not None]
    assert [len("".join(row.texts)) for row in found] == [longest, 0, 4, longest]
    assert found[1].error == "the line is longer than 4 MB; split it" and found[1].where.endswith(":2")


def test_what_separates_the_columns_is_kept_for_the_output(tmp_path):
    """The first table alone decides: a later table may have another separator."""
    (tmp_path / "a.csv").write_bytes("\ufeffid;text\n1;one\n".encode())
    (tmp_path / "b.csv").write_text("id,text\n2,two\n")
    read = Rows([tmp_path / "a.csv", tmp_path / "b.csv"], form_of())
    assert [row.record for row in read] == [{"id": "1", "text": "one"}, {"id": "2", "text": "two"}]
    assert (read.delimiter, read.mark, [*read.columns], [*read.names]) == (
        ";",
        "\ufeff",
        ["id", "text"],
        ["id", "text"],
    )
    (tmp_path / "c.tsv").write_text("id\ttext\n2\ttwo\n")
    read = Rows([tmp_path / "c.tsv"], form_of())
    assert [row.texts for row in read] == [("two",)] and (read.delimiter, read.mark) == (",", "")


@pytest.mark.parametrize(
    ("kind", "splits_tabs", "line", "texts", "record"),
    [
        ("auto", False, "one\ttwo", ("one\ttwo",), {"text": "one\ttwo"}),
        ("auto", True, "one\t two ", ("one", "two"), {"text": "one", "text_pair": "two"}),
        ("tsv", False, "one\ttwo", ("one", "two"), {"text": "one", "text_pair": "two"}),
        ("tsv", False, "label\tsentence\n1\tGood film", ("Good film",), {"label": "1", "sentence": "Good film"}),
        ("text", True, "label\tsentence", ("label", "sentence"), {"text": "label", "text_pair": "sentence"}),
        ("auto", False, '{"text": "ä", "id": [1]}', ("ä",), {"text": "ä", "id": [1]}),
        ("text", False, '{"text": "ä"}', ('{"text": "ä"}',), {"text": '{"text": "ä"}'}),
        ("jsonl", False, '"ä"', ("ä",), {"text": "ä"}),
        ("jsonl", False, " ", (), {"line": 1, "error": "the line is empty"}),
        ("jsonl", False, "{", (), {"line": 1, "error": "not JSON (Expecting property name enclosed in"}),
        ("jsonl", False, "[1]", (), {"line": 1, "error": "JSON of another kind than an object: [1]"}),
        ("jsonl", False, '{"line": 7}', (), {"line": 7, "predicted_line": 1, "error": "the object has the keys line;"}),
        ("tsv", False, "sentence\tx\n1\ta\tb", (), {"line": 2, "error": "3 columns, but the header has 2"}),
    ],
)
def test_what_a_line_gives(tmp_path, kind, splits_tabs, line, texts, record):
    (tmp_path / "in").write_text(line)
    *_, row = [row for row in Rows([tmp_path / "in"], form_of(kind, splits_tabs)) if row is not None]
    assert row.texts == texts and row.record == record | {"error": row.error} if row.error else row.record == record
    assert row.error.startswith(record.get("error", "")) and row.where == f"{tmp_path / 'in'}:{1 + line.count(chr(10))}"


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_text_inside_of_other_fields_is_predicted_by_its_path(tmp_path, name):
    keys = (("fields.text",),)
    (tmp_path / name).write_text('{"id": 1, "fields": {"text": "Good."}}\n')
    (row,) = filled_rows(tmp_path / name, replace(form_of(), keys=keys))
    assert row.texts == ("Good.",) and row.record == {"id": 1, "fields": {"text": "Good."}, "fields.text": "Good."}


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_list_of_texts_gives_rows(tmp_path, name):
    (tmp_path / name).write_text('{"items": [{"text": "A."}, {"text": "B."}]}\n')
    found = filled_rows(tmp_path / name, replace(form_of(), keys=(("items[].text",),)))
    assert [(row.texts, row.record) for row in found] == [((text,), {"items[].text": text}) for text in ("A.", "B.")]


def test_a_list_of_texts_in_a_line_of_a_pipe_is_refused():
    parser = _LineParser("jsonl", replace(form_of(), keys=(("items[].text",),)))
    request = parser.request(Line(1, '{"items": [{"text": "A."}, {"text": "B."}]}'))
    assert str(request) == "2 texts in one line; write each on a line, or name a file"


def test_empty_lines_are_no_rows_of_a_file_of_sentences(tmp_path):
    (tmp_path / "in.txt").write_text("\none\n\n")
    assert [row.texts for row in filled_rows(tmp_path / "in.txt", form_of())] == [("one",)]


def test_files_are_decoded_as_those_of_the_training_unless_they_are_utf8(tmp_path, capsys):
    (tmp_path / "a.txt").write_bytes("żółta ściana\n".encode("cp1250") + "żółta ściana\n".encode())
    (tmp_path / "a.csv").write_bytes("Text;id\nżółta ściana;1\n".encode("cp1250"))
    for decoding in (Decoding("auto:cp1250"), Decoding("auto", "pl")):
        read = Rows([tmp_path / "a.txt", tmp_path / "a.csv"], replace(form_of(), decoding=decoding))
        assert [(row.texts, row.error) for row in read] == [(("żółta ściana",), "")] * 3
    assert "a.csv: read as cp1250 (likeliest), e.g. 'żółta ściana;1'" in capsys.readouterr().err


def test_a_column_may_be_written_in_another_case_and_a_table_have_no_header(tmp_path):
    (tmp_path / "a.csv").write_text("Text,id\none,1\n")
    assert [row.texts for row in Rows([tmp_path / "a.csv"], form_of())] == [("one",)]
    (tmp_path / "b.csv").write_text("one,1\ntwo,2\n")
    form = replace(form_of(keys=[("column 1",)]), decoding=Decoding(header=False))
    assert [row.texts for row in Rows([tmp_path / "b.csv"], form)] == [("one",), ("two",)]

import gzip
import io
import json
import os
import re
import tarfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data import import_text
from data.text.columns import Row, TableForm
from data.text.delimited import LOOSE_DELIMITERS, LOOSE_MARKS
from data.text.file_formats import Input
from data.text.findings import Findings
from data.text.html_text import text_of_html
from data.text.json_rows import nested_rows
from data.text.readers import Reading, read_pieces
from data.text.tables import table_of_text
from data.text.text_check import NotTextError
from tests.support.commands import refused

TAR = io.BytesIO()
with tarfile.open(fileobj=TAR, mode="w") as archive:
    archive.addfile(tarfile.TarInfo("a.txt"), io.BytesIO())
READ = {
    "notes.txt": (b"Plain text.", {"notes": "Plain text."}),
    "readme.md": (b"# Title\n\nSome *words*.", {"readme": "# Title Some *words*."}),
    "manual.rst": (b"Title\n=====\n\nWords.", {"manual": "Title ===== Words."}),
    "today.log": (b"It began.\n", {"today": "It began."}),
    "LICENSE": (b"You may.\n", {"LICENSE": "You may."}),
    "49960": (b"A message.\n", {"49960": "A message."}),
    "page.html": (b"<html><head><title>t</title></head><body><p>One.<p>Two.</html>", {"page": "One. Two."}),
    "more/page.HTM.gz": (gzip.compress(b"<p>Zipped &amp; more"), {"more/page": "Zipped & more"}),
    "rows.csv": (b'id,text\n1,"One, with\na line."\n\n2,Two.\n', {"rows:2": "One, with a line.", "rows:5": "Two."}),
    "german.csv": (b"text;n\nEins, zwei.;1\n", {"german:2": "Eins, zwei."}),
    "indexed.csv": (  # as pandas writes it with its index, whose column has no name
        b",remark\n" + b"".join(b"%d,A pump in the hall leaks again and again.\n" % n for n in range(4)),
        {f"indexed:{n}": "A pump in the hall leaks again and again." for n in range(2, 6)},
    ),
    "rows2.tsv": (b'n\ttext\n1\tTab "here".\n', {"rows2:2": 'Tab "here".'}),
    "list.json": (b'[{"text": "One."}, {"text": "Two."}, 3]', {"list:1": "One.", "list:2": "Two."}),
    "texts.json": (b'["One.", "Two."]', {"texts:1": "One.", "texts:2": "Two."}),
    "object.json": (b'{"text": "One.", "n": 1}', {"object:1": "One."}),
    "lines.json": (b'{"text": "One."}\n{"text": "Two."}\n', {"lines:1": "One.", "lines:2": "Two."}),
    "lines.jsonl": (b'{"text": "Line."}\n', {"lines:1": "Line."}),
}
LEFT_OUT = {
    "slides.ppt": (b"%PDF-1.4", "is a presentation, which is not read; save it as pdf"),
    "letter.docx": (b"PK\x03\x04", "is damaged or cut off (File is not a zip file)"),
    "letter.docx.gz": (gzip.compress(b"PK"), "is compressed docx; unpack it"),
    "all.zip": (b"PK\x03\x04", "is an archive; unpack it"),
    "all.tar.gz": (b"", "is an archive; unpack it"),
    "photo.png": (b"\x89PNG\r\n", "is of no format that is read (.png)"),
    "code.py": (b"print(1)", "is source code (.py); pass --source-code to read it"),
    "Makefile": (b"all:\n", "is a build file by its name"),
    "program": (b"#!/bin/sh\n", "is a program (#!)"),
    "false.txt": (b"\x89PNG\r\n\x1a\n", "is not text (PNG signature)"),
    "bundle": (TAR.getvalue(), "is not text (tar signature)"),
    "old.txt~": (b"Old.", "is a backup or temporary file"),
    "~$letter.docx": (b"Ann", "is a backup or temporary file"),  # beside a document that is open
    "paper.xml": (b"<article><p>Text.</p></article>", "is XML; name it *.html to read its text without the markup"),
    "rows.tsv": (b"0\t%s\n" % (b"A first row of text. " * 9) * 20, "has no names of columns in its first line"),
    "nested.jsonl": (
        b'{"id": 1, "body": {"de": "Text."}}\n' * 60,
        "has no column 'text', only ['id', 'body'] (did you mean 'body.de'?); name the right one",
    ),
    "asked.jsonl": (
        json.dumps(
            {"What is it that you would like to tell the next person who asks?": "A long answer. " * 9}
        ).encode(),
        "has no column 'text', only ['What is it",
    ),
    ".hidden.txt": (b"Hidden.", "is hidden"),
    "other.csv": (b"a,b\n1,2\n", "has no column 'text', only ['a', 'b']; name the right one with --text-column"),
    "package.json": (b'{"name": "x"}', "has no column 'text', only ['name']; name the right one with --text-column"),
    "cut.txt.gz": (gzip.compress(b"Cut off.")[:-9], "is damaged or cut off"),
    "broken.json": (b'{"name": ', "is not JSON"),
    "packed.parquet.gz": (gzip.compress(b"PAR1"), "is compressed parquet; unpack it"),
}


def run(folder, *arguments) -> dict:
    import_text.main(["--input", str(folder), "--output-dir", str(folder / ".out"), *arguments])
    return json.loads((folder / ".out/report.json").read_text())


def documents(folder) -> dict[str, str]:
    lines = (folder / ".out/source/en/0.txt").read_text().splitlines()
    return dict(line.split(" ", 1) for line in lines)


def test_a_folder_of_odd_files_is_read_and_what_is_left_out_is_named(tmp_path, capsys):
    for name, (data, _) in {**READ, **LEFT_OUT}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    (tmp_path / ".git").mkdir()
    for name in ("config", "HEAD"):
        (tmp_path / ".git" / name).write_text("x")
    (tmp_path / "gone.txt").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    report = run(tmp_path)
    expected = {**READ, "lines.jsonl": (b"", {"lines-2:1": "Line."})}  # beside lines.json
    assert documents(tmp_path) == {name: text for _, texts in expected.values() for name, text in texts.items()}
    reasons = dict(line.removeprefix(f"{tmp_path}/").split(": ", 1) for line in report["left out"])
    assert set(reasons) == {*LEFT_OUT, ".git", "gone.txt", "pipe"}
    assert all(reasons[name].startswith(reason) for name, (_, reason) in LEFT_OUT.items()), reasons
    printed = capsys.readouterr().out
    assert f"left out:\n  {tmp_path}/gone.txt: is a broken link, a pipe or a device\n" in printed
    assert f"  {tmp_path}/.git: is hidden\n" in printed
    assert "undecodable" not in printed  # a count of 0


def test_what_this_user_may_not_read_is_left_out_of_a_folder_and_named(tmp_path, monkeypatch):
    for name in ("a.txt", "b.txt", "closed/c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("Some text.")
    access, scandir = os.access, os.scandir

    def refuse(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "b.txt" and access(path, mode))
    monkeypatch.setattr(os, "scandir", refuse)  # the tests may run as root, who may read everything
    report = run(tmp_path)
    assert documents(tmp_path) == {"a": "Some text."}
    reason = "may not be read by this user; allow it (chmod +r), or leave it out"
    assert report["left out"] == [f"{tmp_path}/closed: {reason}", f"{tmp_path}/b.txt: {reason}"]
    assert report["counts"]["unreadable files and folders left out"] == 2


def test_the_list_on_the_screen_is_bounded_and_the_report_has_the_rest(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("Some text.")
    for number in range(30):
        (tmp_path / f"{number:02}.png").write_bytes(b"x")
    report = run(tmp_path)
    printed = capsys.readouterr().out
    assert printed.count(".png: is of no format") == 20 and f"... and 10 more in {tmp_path}/.out/report.json" in printed
    assert len(report["left out"]) == 30 == report["counts"]["files of other kinds left out"]
    (tmp_path / "zz.zip").write_bytes(b"PK")
    run(tmp_path, "--output-dir", str(tmp_path / ".more"))
    assert "zz.zip: is an archive" in capsys.readouterr().out  # another reason is shown before the twentieth picture
    findings = Findings()
    for number in range(20_000):
        findings.leave_out("x", str(number), "is x")
    assert len(findings.left_out) == 10_000 and findings.counts["x"] == 20_000


def test_an_empty_table_and_a_field_without_text_are_named_as_what_they_are(tmp_path):
    (tmp_path / "a.csv").write_text("")
    (tmp_path / "b.jsonl").write_text('{"body": "%s"}\n{"body": null}\n' % ("word " * 60))
    with refused(r"a\.csv: is empty; its first line must name the columns$"):
        import_text.main(["--input", str(tmp_path / "a.csv"), "--output-dir", str(tmp_path / "out")])
    report = run(tmp_path)
    assert any("field 'body' holds no text" in problem for problem in report["problems"]), report


def test_empty_and_short_documents_are_named(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("Some longer text.")
    (tmp_path / "b.txt").write_text(" \n")
    (tmp_path / "c.txt").write_text("Short.")
    assert run(tmp_path, "--min-characters", "10")["left out"] == ["b: is empty", "c: is short"]


LONG = [f"The report of case {number}, which is longer than the rest." for number in range(4)]
ROWS = [{"n": f"{number}", "date": "2024-01-02 10:00", "report": text} for number, text in enumerate(LONG)]
TABLES = {
    "a.csv": "n;date;report\n" + "".join(f"{row['n']};{row['date']};{row['report']}\n" for row in ROWS),
    "a.jsonl": "".join(json.dumps(row) + "\n" for row in ROWS),
    "a.json": json.dumps(ROWS),
    "a.parquet": None,
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("field", [None, "text,report,body"])
def test_a_text_column_is_guessed_by_what_it_holds_or_is_one_of_several_names(tmp_path, capsys, name, field):
    if (content := TABLES[name]) is None:
        pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / name)
    else:
        (tmp_path / name).write_text(content)
    report = run(tmp_path, *(() if field is None else ("--text-field", field)))
    assert list(documents(tmp_path).values()) == LONG
    guessed = [f"{tmp_path}/{name}: column 'report', the longest text"] * (field is None)
    assert report["guessed"] == guessed and ("(--text-column names others)" in capsys.readouterr().out) == bool(guessed)


JIRA = {"id": 7, "fields": {"description": "The printer on the second floor prints nothing. " * 3 + "Now.", "by": "it"}}
EXPORT = {
    "by": "us",
    "items": [
        {"ticket": {"text": f"The printer on floor {floor} does not print any pages since Monday."}, "tags": ["a", "b"]}
        for floor in (1, 2)
    ],
}


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_text_inside_of_other_fields_is_named_by_its_path(tmp_path, name):
    for content, path in ((JIRA, "fields.description"), (EXPORT, "items[].ticket.text")):
        (tmp_path / path).mkdir()
        (tmp_path / path / name).write_text(json.dumps(content) + "\n")
        with refused(rf"\(did you mean '{re.escape(path)}'\?\); name the right one with --text-column"):
            run(tmp_path / path)
    run(tmp_path / "fields.description", "--text-field", "none,fields.description", "--id-field", "fields.by")
    assert documents(tmp_path / "fields.description") == {"it": JIRA["fields"]["description"]}
    report = run(tmp_path / "items[].ticket.text", "--text-field", "items[].ticket.text")
    texts = [item["ticket"]["text"] for item in EXPORT["items"]]
    assert report["counts"]["documents"] == 2
    assert list(documents(tmp_path / "items[].ticket.text").values()) == (texts if name == "a.json" else texts[1:])


def test_a_row_of_a_list_has_the_fields_outside_of_it():
    rows = list(nested_rows(EXPORT, ["items[].tags[]", "items[].ticket.text", "none.at", "by.them"]))
    assert [row["items[].tags[]"] for row in rows] == ["a", "b", "a", "b"]
    assert rows[3] == {"by": "us", "items[].tags[]": "b", "items[].ticket.text": EXPORT["items"][1]["ticket"]["text"]}
    assert list(nested_rows({"a.b": 1, "a": 2}, ["a.b"])) == [{"a.b": 1, "a": 2}]


def test_rows_may_have_their_text_in_different_fields(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "One."}\n{"body": "Two."}\n{"text": null, "body": "Three."}\n')
    run(tmp_path, "--text-field", "text, body")
    assert list(documents(tmp_path).values()) == ["One.", "Two.", "Three."]


@pytest.mark.parametrize(
    ("name", "content", "field", "message"),
    [
        ("a.csv", "n,reports\n1,x\n", "report", r"a.csv: has no column 'report', only .*did you mean 'reports'\?"),
        (
            "a.csv",
            TABLES["a.csv"],
            "body",
            r"only \['n', 'date', 'report'\] \(did you mean 'report'\?\); name the .*--text-column",
        ),
        ("a.csv", "id,name\n1,Ann\n2,Bob\n", None, r"has no column 'text', only \['id', 'name'\]; name"),
        ("a.csv", "x" * 200_000 + "\n", None, "a.csv: has no column 'text'"),
        ("a.jsonl", '{"a": 1}\n', "b,c", "a.jsonl: has no column 'b' or 'c', only"),
    ],
)
def test_a_table_without_the_column_names_itself_its_columns_and_the_likeliest(tmp_path, name, content, field, message):
    (tmp_path / name).write_text(content)
    with refused(message):
        options = () if field is None else ("--text-field", field)
        import_text.main(["--input", str(tmp_path / name), "--output-dir", str(tmp_path / "out"), *options])


QUOTES, DELIMITERS = LOOSE_MARKS, LOOSE_DELIMITERS


@pytest.mark.parametrize(
    ("name", "content", "texts", "counts"),
    [
        ("a.csv", "text\nA, b, c.\n\nPlain.\n", ["A, b, c.", "Plain."], {DELIMITERS: 1}),
        ("a.csv", 'id,text\n1,"A ""b"",\nc"\n2,D,\n', ['A "b", c', "D"], {}),
        ("a.csv", "text,n\nA, b,1\nC,2,,\n", ["C"], {"bad rows": 1}),
        ("a.csv", 'text\n"two\n\nlines",\n"open, to\nthe end\n', ["two lines", "open, to", "the end"], None),
        ("a.csv", 'text\n"one" two\n"an ""apt"" one"\n', ['"one" two', 'an "apt" one'], {QUOTES: 1}),
        ("a.csv", 'text,n\n"Hello, world" ,1\n"x",2\n', ["Hello, world", "x"], {QUOTES: 1}),
        ("a.csv", 'text,comment\n"line1, x\nline2"\nend,\n', ["line1, x line2", "end"], {}),
        ("a.csv", 'a,text\nx",y\n"z,A\n"z,B\n', ["y", "A", "B"], {QUOTES: 2}),
        ("a.tsv", 't\ttext\n"Quiet\tA.\nb\tB.\n"c" x\tC.\nd\t"D\td"\n', ["A.", "B.", "C.", "D d"], {QUOTES: 2}),
        ("a.tsv", 'text\tt\n"A.\t1\nB.\t2\n"C.\t3\n', ['"A.', "B.", '"C.'], {QUOTES: 2}),
    ],
)
def test_a_table_with_loose_marks_loses_no_text(tmp_path, name, content, texts, counts):
    (tmp_path / name).write_text(content)
    report = run(tmp_path)
    assert list(documents(tmp_path).values()) == texts
    found = {key: report["counts"][key] for key in (QUOTES, DELIMITERS, "bad rows") if key in report["counts"]}
    assert counts is None or found == counts
    if "bad rows" in found:
        assert "a.csv:2: has 3 fields, the first row 2; quote a text with ',' in it" in report["problems"][0]


@pytest.mark.parametrize("text", ["a,text,b\n" + 'x",Text {0}.,"z\n' * 100, "a,text\n" + '"{0},Text {0}.\n' * 100])
def test_a_table_full_of_loose_marks_loses_no_row(tmp_path, text):
    """The mark of the first row seems to quote the rest of the file."""
    (tmp_path / "a.csv").write_text(text.replace("{0}", "1"))
    report = run(tmp_path)
    assert list(documents(tmp_path).values()) == ["Text 1."] * 100
    assert report["counts"][QUOTES] == 100


def test_a_field_may_be_longer_than_the_csv_module_has_it(tmp_path):
    text = " ".join(["word"] * 50_000)
    (tmp_path / "a.csv").write_text(f'n,text\n1,"{text}"\n2,After.\n')
    run(tmp_path)
    assert documents(tmp_path) == {"a:2": text, "a:3": "After."}


EXACT = {
    "none": (
        'text\tn\n"open\t1\n\nb\n"c"\t3\n\n',
        [(2, {"n": "1", "text": '"open'}), (3, None), (4, None), (5, {"n": "3", "text": '"c"'})],
    ),
    "cells, one column": (
        'text\none\n\n"t\nwo"\nthree\n\n',
        [(2, {"text": "one"}), (3, {"text": ""}), (4, {"text": "t\nwo"}), (6, {"text": "three"})],
    ),
}


def table(content: str, form: TableForm, kind: str = "csv") -> list[Row]:
    return list(table_of_text([content], kind, form, Findings()).rows)


@pytest.mark.parametrize("name", EXACT)
def test_a_table_can_be_read_exactly(name):
    content, expected = EXACT[name]
    quotes, _, one_column = name.partition(", ")
    columns = ["text"] if one_column else ["n", "text"]
    rows = table(content, TableForm(columns, quotes=quotes), "tsv" if quotes == "none" else "csv")
    assert [(row.number, row.values) for row in rows] == expected
    assert all((row.values is None) == bool(row.problem) for row in rows)


def test_a_table_without_names_has_positions():
    form = TableForm([3, 1], header=False, quotes="none")
    good, bad = table("gj04\t1\t\tGood.\nbad\n", form, "tsv")
    assert good.values == {3: "Good.", 1: "1"} and "has 1 fields, the first row 4" in bad.problem


@pytest.mark.parametrize(
    ("content", "problem"), [("", "is empty"), ("text,text\n", "has 2 columns 'text'"), ("a\n", "no column")]
)
def test_a_table_without_its_column_is_refused(content, problem):
    with pytest.raises(NotTextError, match=problem):
        table(content, TableForm(["text"]))


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("a<b>b</b>c<br>d<p>e", "abc d e"),
        ("<head><title>x<body>one<script>if (a < b) '<p>'</script>two", "one two"),
        ("<p>one<!-- two --><style>p {}</style> three &eacute;&#65;", "one three \u00e9A"),
        ("<nav><ul><li>menu</ul></nav><table><tr><td>1<td>2</table>", "1 2"),
        ("a < b and <unknown>c</unknown>", "a < b and c"),
        ("<svg><text>x</text></svg></svg></p>end", "end"),
        ("<!doctype html><head><meta charset=utf-8><title>t</title><p>Without end of head.", "Without end of head."),
        ("<head><noscript><style>a</style></noscript><title>t</title><link rel=x></head>one", "one"),
        ("<nav><a>Menu</a><button>x<main><p>The text.", "The text."),
        ("<nav><h1>Site</h1><ul><li>Home</ul></nav><p>The text.", "The text."),
        ("<template><article>no</article></template><nav><p>no</p></nav>yes", "yes"),
        (
            "<p><u>F</u>ile un<u>believ</u>able wo<tt>rd</tt> 20<time>24</time> Word<o:p></o:p>s",
            "File unbelievable word 2024 Words",
        ),
        (
            "Donau<wbr>dampf<wbr/>schiff in<var>n</var>er <my-mark>a</my-mark>b <label>c</label>d e<img src=x>f",
            "Donaudampfschiff inner ab cd ef",
        ),
        ("<ruby>\u6771<rp>(</rp><rt>tou</rt><rp>)</rp>\u4eac<rt>kyou</ruby>x <ruby>a<rt>b<p>c", "\u6771\u4eacx a c"),
        (
            "<dt>one<dd>two<h2>three</h2>four<figcaption>five</figcaption>six<option>seven",
            "one two three four five six seven",
        ),
        ('<?xml version="1.0"?><row><name>Ann</name><text>T<hi>ex</hi>t</text></row>', "Ann Text"),
        ('<?xml version="1.0"?><!DOCTYPE html><html><body><p>wo<tt>r</tt><x-y>d</x-y>', "word"),
    ],
)
def test_html_loses_its_markup_wherever_the_pieces_are_cut(html, text):
    for size in (1, 3, 1000):
        chunks = [html[place : place + size] for place in range(0, len(html), size)]
        assert " ".join("".join(text_of_html(chunks)).split()) == text


def test_the_arrow_file_of_a_saved_data_set_has_its_remedy(tmp_path):
    (tmp_path / "data-00000-of-00001.arrow").write_bytes(b"ARROW1")
    with refused(r"arrow: is Arrow; write Parquet, of a folder of datasets with load_from_disk\(FOLDER\)\.to_parquet"):
        run(tmp_path)


def test_colours_of_a_terminal_are_no_text_wherever_a_piece_ends(tmp_path, monkeypatch):
    """An earlier version gave `[32mINFO[0m` to the vocabulary. Pieces of one byte cut every sequence."""
    coloured = "\x1b[32mINFO\x1b[0m up \x1b]0;a title\x07on \x1b[1;31m80\x1b[m\x1b(B ok\x1b[K \x1bMend"
    (tmp_path / "a.log").write_text(coloured)
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": coloured}))
    for size in (1, 3, 1 << 20):
        monkeypatch.setattr("data.text.readers.read_chunks", lambda *_, size=size: iter(()))
        monkeypatch.setattr("data.text.contents.read_chunks", lambda path, _, size=size: pieces(path, size))
        monkeypatch.setattr("data.text.readers.CHUNK_BYTES", size)
        for name in ("a.log", "b.jsonl"):
            source = Input(tmp_path / name, "a", name.partition(".")[2], "")
            read = [*read_pieces(source, Reading(), findings := Findings())]
            assert "".join(piece.text for piece in read) == "INFO up on 80 ok end", (size, name)
            assert findings.counts["escape sequences of a terminal removed"] == 8
    stripped = read_pieces(Input(tmp_path / "a.log", "a", "log", ""), Reading(strip_log_stamps=True), Findings())
    assert "".join(piece.text for piece in stripped) == "up on 80 ok end"


def pieces(path: Path, size: int):
    content = path.read_bytes()
    return (content[start : start + size] for start in range(0, len(content), size))

"""Lines of files and pipes: bounded, decoded, refused one by one; entities keep their places in the text."""

import os
import threading
from pathlib import Path

import pytest

from bert.inference import lines
from bert.inference.heads import split_words
from bert.inference.lines import LineFormat, read_lines


def read(*parts: bytes, pause: threading.Event | None = None) -> list:
    """The lines of a pipe that is fed these parts; after the first part the writer waits for `pause`."""
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
    assert read(data) == wanted
    assert read(*(data[i : i + 1] for i in range(len(data)))) == wanted
    assert read(b"") == [] and read(b"a\n") == [(1, "a")]


def test_a_pause_of_the_writer_is_told():
    assert read(b"one\n", b"two\n", pause=threading.Event()) == [(1, "one"), None, (2, "two")]


def test_lines_that_cannot_be_read_do_not_end_the_reading(monkeypatch):
    monkeypatch.setattr(lines, "_LONGEST", 10)
    monkeypatch.setattr(lines, "_READ", 4)
    assert read(b"a\nb\xff\n" + b"c" * 50 + b"\nd\n" + b"e" * 50) == [
        (1, "a"),
        (2, None),
        (3, None),
        (4, "d"),
        (5, None),
    ]
    assert "not UTF-8" in lines._decoded(2, b"b\xff").error


@pytest.mark.parametrize(
    ("kind", "splits_tabs", "line", "given"),
    [
        ("auto", False, "one\ttwo", "one\ttwo"),
        ("auto", True, "one\t two ", ["one", "two"]),
        ("tsv", False, "one\ttwo", ["one", "two"]),
        ("auto", False, '{"text": "ä"}', {"text": "ä"}),
        ("text", False, '{"text": "ä"}', '{"text": "ä"}'),
        ("jsonl", False, '"ä"', "ä"),
    ],
)
def test_what_a_line_gives(kind, splits_tabs, line, given):
    assert LineFormat(kind, None, splits_tabs).parse(line) == given


@pytest.mark.parametrize(("line", "message"), [(" ", "empty"), ("{", "not JSON"), ("[1]", "of another kind")])
def test_a_line_that_is_no_request(line, message):
    with pytest.raises(ValueError, match=message):
        LineFormat("jsonl", None, False).parse(line)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Anna Lindqvist visited Malmo.", "Anna Lindqvist visited Malmo ."),
        ("The U.N.'s envoy, John O'Brien, left.", "The U.N. 's envoy , John O'Brien , left ."),
        ("Well-known (AT&T) paid $1,000.50 on 3/4.", "Well-known ( AT&T ) paid $ 1,000.50 on 3/4 ."),
        ("Malmö\u2019s Café\u2026", "Malmö \u2019s Café \u2026"),
        ("東京 Tower", "東 京 Tower"),
        ("e-mail a_b@c.de!", "e-mail a_b@c.de !"),
        ("  ", ""),
    ],
)
def test_plain_text_is_split_as_conll_files_are(text, words):
    found = split_words(text)
    assert [text[start:end] for start, end in found] == words.split()


def test_a_tsv_with_a_header_gives_its_columns_by_name():
    keys = [("sentence",), ("question", "context")]
    form = LineFormat("auto", Path("a.tsv"), False, keys)
    assert form.is_header(lines.Line(1, "label\tsentence")) and not form.is_header(lines.Line(2, "label\tsentence"))
    assert form.parse("1\tGood film") == {"label": "1", "sentence": "Good film"}
    with pytest.raises(ValueError, match="3 columns, but the header has 2"):
        form.parse("1\ta\tb")
    for path, first in (("a.tsv", "What question?\tSome context."), ("a.txt", "label\tsentence")):
        plain = LineFormat("auto", Path(path), True, keys)
        assert not plain.is_header(lines.Line(1, first)) and plain.parse("a\tb") == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content", "refused"),
    [
        ("a.json", '[{"text": "a"}]', "one JSON document.*jq"),
        ("a.json", '{\n"data": []}', "one JSON document.*run_squad.py"),
        ("a.json", '{"text": "a"}\n{"text": "b"}', ""),
        ("a.json", "", ""),
        ("a.csv", "text,label", "separated by commas"),
        ("a.jsonl", "[", ""),
    ],
)
def test_a_file_that_is_not_made_of_lines_is_refused(tmp_path, name, content, refused):
    (tmp_path / name).write_text(content)
    if refused:
        with pytest.raises(ValueError, match=refused):
            lines.refuse_documents(tmp_path / name, "auto")
    else:
        lines.refuse_documents(tmp_path / name, "auto")
    lines.refuse_documents(tmp_path / name, "text")

"""Notices about a text, and texts without any."""

import json
from pathlib import Path

import pytest

from data import import_text
from data.text.notices import LOST, TAGS, WRONG, DocumentNotices, Notices
from data.text.readers import Reading
from data.text.survey import survey
from tests.support.commands import refused

NATURAL = (
    "Prüfbericht über die Größe der Öfen. „Ä“ und „Ö“ – so weit, „Spaß“…",
    "« Déjà », dit l’hôte ; il est né à « Orléans »… À 5 €, ça va !",
    "Ele disse: “Não à MANHÔ – e a AÇÃO… LÃ”.",
    "På sjøen… ÅRÅS” BLÅ–GUL, VÄSTERÅS…",
    "Það er ekki í áætlun, æði og óðaá.",
    "Việt Nam: QUẦN ÁO “ĐẸP” – HÀ NỘI…",
    "РСФСР и РСЯ: Россия, СССР, Ёлка. Сім’я, «Рік» і Їжак.",
    "Αυτό είναι το βιβλίο μου. ΟΔΟΣ «ΑΘΗΝΑ»…",
    "هذا كتابي وهو ليس جديدا. Øre og Ùna.",
    "日本語の文です。한국어 문장입니다. हिन्दी में।",
    "x = √2, a√b; 20 °C ± 1; “ð” and “Ð” are letters.",
    "If a < b and c > d, then 3 <4> and AT&T; see <https://x.org>.",
)


def noticed(*documents: str, has_markup: bool = False) -> Notices:
    notices = Notices()
    for number, text in enumerate(documents):
        DocumentNotices(notices, has_markup, has_lines=True).add(f"d{number}", text, ends=True)
    return notices


@pytest.mark.parametrize("text", NATURAL)
def test_natural_text_has_nothing_to_notice(text):
    assert [*noticed(text, text + " More.").sentences()] == []


GERMAN, FRENCH, RUSSIAN = "Prüfbericht über die Größe", "Déjà vu, dit l’hôte à midi", "Секретный отчёт о поездке"


@pytest.mark.parametrize(
    ("text", "written", "read"),
    [
        *((text, "utf-8", read) for text in (GERMAN, FRENCH) for read in ("cp1252", "latin-1", "cp1251", "cp1250")),
        (GERMAN, "utf-8", "mac-roman"),
        ("It’s “quoted – so", "utf-8", "cp1252"),
        ("It’s quoted", "cp1252", "latin-1"),
        ("Gęś i żółw", "utf-8", "cp1252"),
        ("değil ve güneş", "utf-8", "cp1252"),
        *((RUSSIAN, written, read) for written, read in (("utf-8", "latin-1"), ("utf-8", "cp1251"))),
        *((RUSSIAN, written, "latin-1") for written in ("cp1251", "koi8-r", "iso8859-5")),
        ("Αυτό είναι το βιβλίο", "utf-8", "latin-1"),
        ("هذا كتابي", "utf-8", "latin-1"),
        ("שלום עולם", "utf-8", "latin-1"),
        ("日本語の文です", "utf-8", "latin-1"),
        ("한국어 문장", "utf-8", "latin-1"),
        ("हिन्दी में", "utf-8", "latin-1"),
        ("Schön 😀", "utf-8", "latin-1"),
    ],
)
def test_text_that_was_decoded_wrongly_is_counted_with_an_example(text, written, read):
    notices = noticed(text.encode(written).decode(read))
    assert notices.counts[WRONG.name] >= 1 and notices.examples[WRONG.name].endswith(" in d0")
    (sentence,) = [line for line in notices.sentences() if WRONG.name in line]
    assert sentence.startswith("warning: ") and "save the files again" in sentence


def test_lost_characters_and_tags_are_counted_in_the_import_and_the_plan(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("Die \ufffdyelik ist \ufffdber der T\ufffcr.\n" + "Ein guter Satz. " * 9)
    (tmp_path / "b.txt").write_text("<p>Ein <b>Absatz</b>&nbsp;hier.</p>\n")
    (tmp_path / "c.csv").write_text("n,text\n1,<div class=x>Eine Zelle<br/></div>\n")
    (tmp_path / "d.html").write_text("<p>&lt;p&gt; is a tag.")
    import_text.main(["--input", str(tmp_path), "--output-dir", str(tmp_path / ".out")])
    report = json.loads((tmp_path / ".out/report.json").read_text())
    lost, tags = report["noticed"]
    assert lost.startswith(
        f"warning: {LOST.name}: 2, e.g. 'Die \ufffdyelik ist \ufffdber der' in a; save the files again"
    )
    assert tags.startswith(f"warning: {TAGS.name}: 8, e.g. '<p>Ein <b>Absatz</b>' in b; name text files *.html")
    assert "warning: HTML tags and entities read as words: 8" in capsys.readouterr().out
    found = survey([tmp_path / name for name in ("a.txt", "b.txt", "c.csv", "d.html")], Reading())
    lines = [" ".join(line.split()) for line in found.lines()]
    assert [line for line in lines if line in report["noticed"]] == report["noticed"]


def test_a_little_damage_is_no_warning():
    (line,) = noticed("Das ist ein Satz ohne Fehler. " * 500 + "\ufffd").sentences()
    assert line == f"{LOST.name}: 1, e.g. 'n Satz ohne Fehler. \ufffd' in d0"


LICENCE = "This eBook is for the use of anyone anywhere at no cost and with few restrictions."


def test_the_licence_of_project_gutenberg_is_noticed():
    books = [
        f"The Project Gutenberg eBook of Book {name}\n{LICENCE}\n*** START OF THE PROJECT GUTENBERG EBOOK {name} ***\n"
        f"The story of {name} begins here.\n*** END OF THE PROJECT GUTENBERG EBOOK {name} ***\n"
        for name in "ABCD"
    ]
    first, second = noticed(*books).sentences()
    assert first.startswith("warning: documents with the licence of Project Gutenberg: 4; cut what stands before '***")
    assert second.startswith("lines that 4 documents begin or end with") and repr(LICENCE[:40]) in second
    assert "licence of Project Gutenberg: 1;" in next(noticed(books[0]).sentences())


def test_lines_that_many_documents_share_are_noticed_with_the_most_frequent():
    footer = "This message is confidential and for its addressee alone."
    texts = [f"Report {n} has its own words.\n" * 2 + footer * (n % 2) for n in range(40)]
    (line,) = noticed(*texts).sentences()
    assert line.startswith("lines that 40 documents begin or end with, each in over 8%: 1, e.g. ") and "(in 20)" in line
    assert [*noticed(*texts[:4]).sentences()] == []  # two of them


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        (
            "a.ipynb",
            json.dumps(
                {
                    "cells": [
                        {"cell_type": "markdown", "source": ["# Title\n", "Some words."]},
                        {"cell_type": "code", "source": ["x = 1"], "outputs": [{"text": ["secret"]}]},
                        {"cell_type": "markdown", "source": "More ![a](data:image/png;base64,iVBOR) here."},
                    ]
                }
            ),
            "# Title Some words. More here.",
        ),
        ("old.ipynb", json.dumps({"worksheets": [{"cells": [{"cell_type": "heading", "source": ["Old."]}]}]}), "Old."),
        (
            "a.srt",
            "\ufeff1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>Hello</i> {\\an8}there,\r\n2 of you.\r\n\r\n"
            "2\r\n00:00:03,000 --> 00:00:04,000 X1:1\r\n2 of you.\r\nBye.",
            "Hello there, 2 of you. Bye.",
        ),
        (
            "a.vtt",
            "WEBVTT - a title\nKind: captions\n\nNOTE a note\n\nSTYLE\n::cue { color: red }\n\nintro\n"
            "00:01.000 --> 00:02.000 align:start\n<v Ann>One &amp; <00:01.500>two.\n\n"
            "00:03.000 --> 00:04.000\nNOTE this.\n",
            "One & two. NOTE this.",
        ),
        ("page", "<!DOCTYPE html>\n<html><p>A <u>p</u>age.", "A page."),
        ("page.txt", "\n<HTML><body><p>A page.", "A page."),
    ],
)
def test_notebooks_subtitles_and_pages_by_another_name_are_read(tmp_path, name, content, text):
    (tmp_path / name).write_bytes(content.encode())
    import_text.main(["--input", str(tmp_path), "--output-dir", str(tmp_path / ".out")])
    assert (tmp_path / ".out/source/en/0.txt").read_text().partition(" ")[2] == text + "\n"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.ipynb", '{"cells": [{"cell_type": "code", "source": "x"}]}', "is a notebook without cells of text"),
        ("a.ipynb", "{", "is no notebook: it is not JSON"),
        ("a.ipynb", '["x"]', "is a notebook without cells of text"),
        ("a.srt", "Just some words.\n", "has no times of subtitles"),
        ("a.warc", "WARC/1.0\n", r"is a web archive; write its pages as \*.html files"),
        ("a.mhtml", "MIME", "is a saved page of a browser; save it as a page of HTML alone"),
        ("a.vcf", "BEGIN:VCARD\n", "holds contacts or dates, or variants of genes, and no prose"),
        ("a.tex", "\\section{x}", "is TeX; convert it to text, e.g. with pandoc"),
        ("a.ass", "[Script Info]", r"are subtitles of another form; convert them to \*.srt"),
        ("a.pptx", "PK", "is a presentation, which is not read; save it as pdf"),
        ("a.emlx", "9\nSubject: x", r"is a mail of Apple Mail; export the mailbox as \*.mbox"),
        ("a.yaml", "a: 1", "holds settings, and no prose"),
    ],
)
def test_a_file_without_prose_names_what_to_convert(tmp_path, name, content, reason):
    (tmp_path / name).write_text(content)
    with refused(rf"{name}: {reason}"):
        import_text.main(["--input", str(tmp_path / name), "--output-dir", str(tmp_path / "out")])


def test_a_folder_of_own_words_has_nothing_to_notice(tmp_path):
    for number in range(9):
        Path(tmp_path / f"{number}.txt").write_text(f"Text {number} is here.\n" * 3)
    import_text.main(["--input", str(tmp_path), "--output-dir", str(tmp_path / ".out")])
    assert json.loads((tmp_path / ".out/report.json").read_text())["noticed"] == []

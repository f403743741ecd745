import gzip
import json
import os
from pathlib import Path

import pytest

from data import download_books
from data.download_books import read_list
from data.text.readers import book_of
from tests.support.commands import refused
from tests.support.faulty_server import Served, serving

BODY = "\n\n".join(
    f"CHAPTER {number}\n\nThe old man went down to the river,\nand there he saw {number} boats. " * 8
    for number in range(1, 5)
)
LICENCE = "This eBook is for the use of anyone anywhere at no cost.\n\nProject Gutenberg is a mark.\n"
MODERN = (
    f"The Project Gutenberg eBook of A Book\n\n{LICENCE}\n*** START OF THE PROJECT GUTENBERG EBOOK A BOOK ***\n\n"
    f"Produced by A. Volunteer and\nothers at a site\n\n{BODY}\n\n"
    f"*** END OF THE PROJECT GUTENBERG EBOOK A BOOK ***\n\n{LICENCE}"
)
OLDER = (
    f"{LICENCE}\n***START OF THIS PROJECT GUTENBERG EBOOK WITH A TITLE\nTHAT IS LONG***\n\n"
    f"E-text prepared by A.\n\n{BODY}\n\n"
    f"End of Project Gutenberg's A Book, by B\n\n***END OF THIS PROJECT GUTENBERG EBOOK***\n{LICENCE}"
)
OLDEST = f"**Welcome**\n{LICENCE}*END*THE SMALL PRINT! FOR PUBLIC DOMAIN ETEXTS*Ver.04.29.93*END*\n\n{BODY}"


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("text", [MODERN, OLDER, OLDEST, OLDER.replace("\n\n", "\n \n\n")])
def test_the_licence_and_the_credits_go_and_the_book_stays(text):
    book, found = book_of(text)
    assert found and one_line(book) == one_line(BODY)


@pytest.mark.parametrize("text", [BODY, "", "He said: *** START *** and went.", "The End of the story."])
def test_a_text_without_a_licence_is_left_alone(text):
    assert book_of(text) == (text, False)


def lines(output: Path) -> list[str]:
    return (output / "source/en/0.txt").read_text().splitlines()


def test_books_are_downloaded_stripped_and_written_one_per_line(tmp_path, capsys):
    files = {
        "/a/1.txt": Served(MODERN.encode()),
        "/b/1.txt": Served(b"\xef\xbb\xbf" + OLDER.replace("man", "hag").encode()),
        "/c.txt.gz": Served(
            gzip.compress(OLDEST.replace("man", "caf\u00e9").encode("latin-1")),
            drops=[100],
            headers={"Content-Encoding": "x-gzip"},
        ),
        "/copy.txt": Served(MODERN.encode()),
        "/short.txt": Served(b"No book."),
    }
    with serving(files) as url:
        addresses = "\n".join(f"{url}{path}" for path in files)
        (tmp_path / "list").write_text(f"# books\n\n{addresses}\n{url}/a/1.txt\n")
        command = ["--outdir", str(tmp_path / "out"), "--url-list", str(tmp_path / "list")]
        download_books.main(command)
        first = lines(tmp_path / "out")
        download_books.main(command)
    assert [len(served.requests) for served in files.values()] == [1, 1, 2, 1, 1]  # nothing is fetched again
    assert lines(tmp_path / "out") == first and len(first) == 3
    assert [line.split(" ", 1)[1] for line in first] == [
        one_line(BODY),
        one_line(BODY.replace("man", "hag")),
        one_line(BODY.replace("man", "caf\u00e9")),
    ]
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["counts"] == {
        "books": 3,
        "files read": 5,
        "with Project Gutenberg's licence": 4,
        "dropped: short": 1,
        "dropped: duplicate": 1,
        "undecodable bytes": 0,
    }
    assert "3 books" in capsys.readouterr().out


def test_missing_books_are_named_and_left_out_only_on_request(tmp_path):
    files = {"/1.txt": Served(MODERN.encode()), "/page.txt": Served(b"<html>", headers={"Content-Type": "text/html"})}
    with serving(files) as url:
        names = ("1.txt", "gone.txt", "page.txt", f"1.txt?x sha256:{'0' * 64}")
        (tmp_path / "list").write_text("".join(f"{url}/{name}\n" for name in names))
        command = ["--outdir", str(tmp_path / "out"), "--url-list", str(tmp_path / "list")]
        with refused("3 books could not be downloaded, e.g. .*gone.txt: the .* answered 404"):
            download_books.main(command)
        assert not (tmp_path / "out/source").exists()
        download_books.main([*command, "--allow-missing"])
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["counts"]["dropped: not downloaded"] == 3 and len(report["failures"]) == 3
    assert len(lines(tmp_path / "out")) == 1


def test_local_books_are_read_too(tmp_path):
    (tmp_path / "in; rm -rf").mkdir()
    (tmp_path / "in; rm -rf" / "a b.txt").write_text(MODERN)
    download_books.main(["--outdir", str(tmp_path / "out"), "--local-books", str(tmp_path / "in; rm -rf")])
    assert lines(tmp_path / "out") == ["book-a_b.txt " + one_line(BODY)]


def test_names_that_are_not_utf8_are_shown_with_their_bytes(tmp_path):
    (tmp_path / os.fsdecode(b"b\xff.txt")).write_text(BODY)
    download_books.main(["--outdir", str(tmp_path / "out"), "--local-books", str(tmp_path)])
    assert lines(tmp_path / "out") == [r"book-b\xff.txt " + one_line(BODY)]


def test_suffixes_in_capitals_are_read_and_backups_are_left_out(tmp_path):
    folder, other = tmp_path / "in", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (folder / "more").symlink_to(other)
    (other / "C2.TXT.GZ").write_bytes(gzip.compress(BODY.encode()))
    for name in ("b.txt", "b.txt~", "b.txt.bak", ".b.txt.swp", "cover.png"):
        (folder / name).write_text(BODY + name)
    download_books.main(["--outdir", str(tmp_path / "out"), "--local-books", str(folder)])
    assert [line.split(" ")[0] for line in lines(tmp_path / "out")] == ["book-b.txt", "book-C2.TXT.GZ"]
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["counts"]["files of other kinds left out"] == 4


def test_what_is_no_text_is_refused_or_left_out_of_a_folder(tmp_path, capsys):
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_bytes(b"PK\x03\x04" + b"words " * 1000)
    (tmp_path / "in/b.txt").write_text(BODY)
    command = ["--outdir", str(tmp_path / "out"), "--local-books"]
    with refused(r"in/a\.txt: is not text \(zip, docx, odt or epub signature\).*--allow-missing"):
        download_books.main([*command, str(tmp_path / "in/a.txt"), str(tmp_path / "in/b.txt")])
    with serving({"/z.txt": Served(b"%PDF-1.4" + b"words " * 1000), "/b.txt": Served(BODY.encode())}) as url:
        (tmp_path / "list").write_text(f"{url}/z.txt\n{url}/b.txt\n")
        listed = ["--outdir", str(tmp_path / "listed"), "--url-list", str(tmp_path / "list")]
        with refused(r"z\.txt: is not text \(PDF signature\); .*--allow-missing"):
            download_books.main(listed)
        download_books.main([*listed, "--allow-missing"])
    download_books.main([*command, str(tmp_path / "in")])
    for output in (tmp_path / "out", tmp_path / "listed"):
        report = json.loads((output / "report.json").read_text())
        assert report["counts"]["files that are no text left out"] == 1 and ".txt: is not text" in report["failures"][0]
        assert len(lines(output)) == 1
    assert "in/a.txt: is not text" in capsys.readouterr().out


def test_other_text_in_files_of_the_same_names_is_not_taken_for_done(tmp_path):
    for name, text in (("d1", BODY), ("d2", BODY.replace("man", "hag")), ("d3", BODY)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(text)
    command = ["--outdir", str(tmp_path / "out"), "--local-books"]
    download_books.main([*command, str(tmp_path / "d1")])
    with refused("source/en: contains other text already.*choose another folder"):
        download_books.main([*command, str(tmp_path / "d2")])
    download_books.main([*command, str(tmp_path / "d3")])  # the same text: nothing is left to do
    assert lines(tmp_path / "out") == ["book-a.txt " + one_line(BODY)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no address"),
        ("# only\n", "holds no address"),
        ("http://a/b\n/etc/passwd\n", "list:2: url='/etc/passwd'"),
        ("file:///etc/passwd", "list:1: "),
        ("http://a/b md5:1", "list:1: checksum="),
        ("http://a/b c d", "list:1: holds 3 words"),
    ],
)
def test_a_bad_list_is_refused_with_the_line(tmp_path, content, message):
    (tmp_path / "list").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_list(tmp_path / "list")


def test_names_of_files_are_safe_and_unique(tmp_path):
    (tmp_path / "list").write_text(
        "http://h/a/x.txt\nhttp://h/b/x.txt\nhttp://h/..%2f..%2fetc%2fpasswd\nhttp://h/\n"
        "http://h/%3B%20rm%20-rf%20$(x).txt\n" + f"http://h/{'y' * 300}.txt\n"
    )
    names = list(read_list(tmp_path / "list"))
    assert len(set(names)) == 6 and all(Path(name).name == name and len(name) < 100 for name in names)
    assert not any(character in name for name in names for character in ";$ /()")

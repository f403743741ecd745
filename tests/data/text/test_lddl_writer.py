"""Source files: division of lines among files, the order of documents, and a full disk."""

import errno
import hashlib
from collections import namedtuple

import pytest

from data.text import lddl_writer
from data.text.lddl_writer import (
    ShuffledWriter,
    SourceWriter,
    WrittenFile,
    character_start,
    check_room,
    counts_line,
    fresh_folder,
    publish,
    utf8,
)


def test_a_file_ends_with_the_line_that_reaches_its_size(tmp_path):
    with SourceWriter(tmp_path / "new", 10, "part-") as writer:
        for line in (b"a 12345\n", b"b 1\n", b"c 12345\n", b"d 1"):
            writer.write(line)
        writer.write(b"234567890123", is_start=False, is_end=False)
        writer.write(b"\n", is_start=False)
        writer.write(b"e\n")
    contents = [b"a 12345\nb 1\n", b"c 12345\nd 1", b"234567890123\n", b"e\n"]
    assert [path.read_bytes() for path in sorted((tmp_path / "new").iterdir())] == contents
    documents = (2, 2, 0, 1)
    assert writer.files == [
        WrittenFile(f"part-{number}.txt", count, len(content))
        for number, (count, content) in enumerate(zip(documents, contents, strict=True))
    ]


@pytest.mark.parametrize("held", [1, 50, 1 << 20])
@pytest.mark.parametrize("num_files", [1, 3])
def test_documents_are_in_the_order_of_their_hashes_in_the_file_of_their_beginning(
    tmp_path, monkeypatch, held, num_files
):
    monkeypatch.setattr(lddl_writer, "_MOST_HELD", held * num_files)
    monkeypatch.setattr(lddl_writer, "_LEAST_HELD", held)
    writer, texts = ShuffledWriter(tmp_path, num_files), {}
    for number in range(40):
        begin, rest = b"The sea %d. " % (number % 37), b"It runs. " * (number % 4) + b"\n"
        writer.write(b"id-%d " % number, is_end=False)
        writer.write(begin, is_start=False, is_end=not rest)
        writer.write(rest, is_start=False)
        texts[b"id-%d" % number] = (begin, begin + rest)
    writer.close()
    rows: dict[int, list[tuple[bytes, bytes]]] = {}
    for identifier, (begin, text) in texts.items():
        number = int.from_bytes(hashlib.sha256(begin).digest()[-8:], "big") % num_files
        rows.setdefault(number, []).append((hashlib.sha256(text[:-1]).digest(), identifier + b" " + text))
    expected = [b"".join(line for _, line in sorted(own)) for _, own in sorted(rows.items())]
    written = [(tmp_path / file.name).read_bytes() for file in writer.files]
    assert sorted(written[0].splitlines()) == sorted(expected[0].splitlines()) and len(written) == len(expected)
    hashes = [[hashlib.sha256(line.partition(b" ")[2]).digest() for line in file.splitlines()] for file in written]
    assert all(own == sorted(own) for own in hashes)
    assert [file.name for file in writer.files] == [f"{number}.txt" for number in range(len(expected))]
    assert [file.documents for file in writer.files] == [len(own) for _, own in sorted(rows.items())]
    assert [file.num_bytes for file in writer.files] == [*map(len, expected)]
    assert len([*tmp_path.iterdir()]) == len(expected)


def test_files_without_a_document_are_left_out_and_a_huge_one_keeps_its_order(tmp_path, monkeypatch):
    monkeypatch.setattr(lddl_writer, "MAX_FILE_BYTES", 10)
    writer = ShuffledWriter(tmp_path, 50)
    for number in range(9):
        writer.write(b"%d " % number, is_end=False)
        writer.write(b"one beginning\n", is_start=False)
    writer.close()
    assert [(file.name, file.documents) for file in writer.files] == [("0.txt", 9)]
    assert (tmp_path / "0.txt").read_bytes() == b"".join(b"%d one beginning\n" % number for number in range(9))


def test_half_a_character_is_marked_and_the_next_one_found():
    assert utf8("a\u00e9\U0001f600") == "a\u00e9\U0001f600".encode() and utf8("a\ud800b") == "a\ufffdb".encode()
    text = "a\U0001f600b".encode()
    assert [character_start(text, place) for place in range(8)] == [0, 1, 5, 5, 5, 5, 6, 7]


def test_a_finished_folder_takes_the_place_of_an_empty_one_alone(tmp_path):
    for name in ("one", "two"):
        fresh_folder(tmp_path / name)
        (tmp_path / name / "0.txt").write_text(name)
    (tmp_path / "out/final").mkdir(parents=True)
    publish(tmp_path / "one", tmp_path / "out/final")
    assert (tmp_path / "out/final/0.txt").read_text() == "one" and not (tmp_path / "one").exists()
    with pytest.raises(ValueError, match="contains other text already, e.g. 0.txt; choose another folder"):
        publish(tmp_path / "two", tmp_path / "out/final")
    publish(tmp_path / "two", tmp_path / "new/deep")
    assert (tmp_path / "new/deep/0.txt").exists()
    assert not [*fresh_folder(tmp_path / "new/deep").iterdir()]


@pytest.mark.parametrize(
    ("total", "free", "needed", "has_room"),
    [
        (100 << 30, (1 << 30), 0, True),  # 1 GiB of a large disk is left to others
        (100 << 30, (1 << 30) - 1, 0, False),
        (100 << 30, (1 << 30) + 5, 5, True),
        (100 << 30, (1 << 30) + 4, 5, False),
        (1000, 20, 0, True),  # 2% of a small one
        (1000, 19, 0, False),
    ],
)
def test_a_disk_is_not_filled(tmp_path, monkeypatch, total, free, needed, has_room):
    usage = namedtuple("usage", "total used free")(total, total - free, free)
    monkeypatch.setattr(lddl_writer.shutil, "disk_usage", lambda _: usage)
    if has_room:
        check_room(tmp_path, needed)
        return
    with pytest.raises(OSError, match="of the disk are free") as error:
        check_room(tmp_path, needed)
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(tmp_path))
    assert ("are to be written" in error.value.strerror) == (needed > 0)


def test_counts_are_one_line():
    assert counts_line({"documents": 3, "bytes": 40}) == "documents: 3; bytes: 40" and counts_line({}) == ""

"""Source text that a command of this project wrote is read back as the same documents, without their ids."""

import bz2
import json
from pathlib import Path

import pytest

from bert.vectors.pairs import text_pairs
from data import import_text
from data.text.encodings import DETECTED
from data.text.file_formats import SOURCE_TEXT
from data.text.findings import Findings
from data.text.inputs import list_inputs
from data.text.readers import Piece, Reading, read_pieces
from data.text.survey import survey
from tests.support.commands import refused

LINES = [f"wiki-{number} Page {number} is about fish. It has {number} lines.\n" for number in range(1, 31)]
REPORT = {"settings": {"language": "fi"}, "counts": {"articles": 30}}


def write_corpus(folder: Path, lines=LINES, report=None) -> Path:
    (folder / "source/fi").mkdir(parents=True)
    (folder / "source/fi/0.txt").write_text("".join(lines[:20]))
    (folder / "source/fi/1.txt").write_text("".join(lines[20:]))
    if report is not None:
        (folder / "report.json").write_text(json.dumps(report))
    return folder


def read(*paths: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for source in list_inputs(paths, "auto", Findings()):
        for piece in read_pieces(source, Reading(), Findings()):
            texts[piece.id] = texts.get(piece.id, "") + piece.text
    return texts


@pytest.mark.parametrize("report", [None, REPORT])
@pytest.mark.parametrize("place", ["", "source", "source/fi"])
def test_each_line_is_a_document_and_its_first_word_is_no_text(tmp_path, place, report):
    texts = read(write_corpus(tmp_path / "w", report=report) / place)
    assert len(texts) == 30
    assert texts["wiki-7"] == "Page 7 is about fish. It has 7 lines."


def test_short_ids_are_those_of_source_text_only_beside_its_report(tmp_path):
    lines = ["birds are here\n", "fish are there\n"]
    assert read(write_corpus(tmp_path / "w", lines, REPORT)) == {"birds": "are here", "fish": "are there"}
    assert read(write_corpus(tmp_path / "raw", lines))["source/fi/0"] == "".join(lines), "a folder of the user's"
    another = {"rows": 3}  # of another program
    assert read(write_corpus(tmp_path / "other", lines, another))["source/fi/0"] == "".join(lines)


def test_an_id_is_found_wherever_a_chunk_ends(tmp_path, monkeypatch):
    corpus = write_corpus(tmp_path / "w", ["wiki-1 one two\n", "\n", "wiki-2\n", "  wiki-3 three\n", "wiki-4"], REPORT)
    (source, _) = list_inputs([corpus], "auto", Findings())
    assert source.kind == SOURCE_TEXT
    for size in (1, 3, 8, 100):
        content = source.path.read_text()
        chunks = [content[start : start + size] for start in range(0, len(content), size)]
        monkeypatch.setattr("data.text.readers.text_chunks", lambda *_, chunks=chunks: iter(chunks))
        documents: dict[str, list[Piece]] = {}
        for piece in read_pieces(source, Reading(), Findings()):
            documents.setdefault(piece.id, []).append(piece)
        texts = {name: "".join(piece.text for piece in pieces).rstrip() for name, pieces in documents.items()}
        assert texts == {"wiki-1": "one two", "wiki-2": "", "wiki-3": "three", "wiki-4": ""}
        assert all(
            [piece.ends for piece in pieces] == [*[False] * (len(pieces) - 1), True] for pieces in documents.values()
        )


def test_an_import_of_an_import_changes_no_byte(tmp_path):
    """The text includes source code, whose line breaks are kept."""
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a.py").write_text("def f():\n    return 1\n\nprint(f())\n")
    (tmp_path / "raw/b.txt").write_text("One bird.\n\nTwo fish.\n")
    import_text.main(f"--input {tmp_path}/raw --source-code --output-dir {tmp_path}/once".split())
    import_text.main(f"--input {tmp_path}/once --output-dir {tmp_path}/twice".split())
    once, twice = ((tmp_path / name / "source/en/0.txt").read_bytes() for name in ("once", "twice"))
    assert once == twice == "a def f():\u2028return 1\u2028print(f())\nb One bird. Two fish.\n".encode()


def test_the_report_and_the_download_beside_the_text_are_no_text_and_count_as_nothing_lost(tmp_path):
    corpus = write_corpus(tmp_path / "w", report=REPORT)
    (corpus / "download").mkdir()
    (corpus / "download/fiwiki.xml.bz2").write_bytes(b"x" * 10_000)
    found = survey([corpus], Reading())
    assert list(found.lines()) == ["read: 2 source text (30 documents)"]


def test_a_held_out_part_is_never_read_with_its_training_part(tmp_path):
    for part in ("train", "held_out"):
        write_corpus(tmp_path / "w" / part)
    with pytest.raises(ValueError, match=r"text=.*/w: holds .*/w/held_out, which is not for training, beside"):
        list_inputs([tmp_path], "auto", Findings(), flag="text")
    assert len(read(tmp_path / "w/train")) == len(read(tmp_path / "w/held_out")) == 30


def test_pairs_are_made_of_each_document(tmp_path):
    pairs = list(text_pairs(write_corpus(tmp_path / "w", report=REPORT), DETECTED, []))
    assert len(pairs) == 30
    assert (pairs[0]["query"], pairs[0]["passage"]) == ("Page 1 is about fish.", "It has 1 lines.")


@pytest.mark.parametrize("name", ["fiwiki.xml", "fiwiki.xml.bz2"])
def test_a_dump_is_answered_with_the_command_that_reads_it(tmp_path, name):
    dump = b'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="fi">\n<siteinfo>'
    (tmp_path / name).write_bytes(bz2.compress(dump) if name.endswith("bz2") else dump)
    command = f"data.download_wikipedia --language fi --local-dump {tmp_path / name} --output-dir FOLDER$"
    with refused(f"is a dump of a wiki; extract its articles, and give FOLDER instead: .* -m {command}"):
        import_text.main(["--input", str(tmp_path / name), "--output-dir", str(tmp_path / "o")])

import gzip
import json
from pathlib import Path

import pytest

from data.examples import machine_documentation
from data.examples.machine_documentation import build, documentation_files, kind_of, prose_in

FIRST = "The door that leads to the garden is open, and the key of it should be returned to the owner."
SECOND = "All of the other doors have two locks, and both of them must be opened before they can be used again."
THIRD = "When it rains in the garden, the door should be closed by the visitor who has been there as the last one."


@pytest.fixture
def roots(tmp_path):
    package, share = tmp_path / "site-packages", tmp_path / "share"
    (package / "house" / "tests").mkdir(parents=True)
    (package / "house" / "door.py").write_text(f'"""{FIRST}\n\n{SECOND}\n"""\n\n\ndef f():\n    """{THIRD}"""\n')
    (package / "house" / "tests" / "test_door.py").write_text(f'"""{FIRST} {THIRD}"""\n')
    (package / "README.md").write_text(f"# House\n\n{SECOND}\n\n- {THIRD} This one is new, and it is long.\n- \n")
    for folder in ("man/man1", "man/de/man1"):
        (share / folder).mkdir(parents=True)
        page = f".TH HOUSE 1\n.SH NAME\nhouse\n.PP\n{FIRST}\nIt has\n.B many\n\\fIother\\fR rooms that are in use.\n"
        page += f".PP\n{THIRD} And this is all that there is to say about it, as far as it is known.\n"
        (share / folder / "house.1.gz").write_bytes(gzip.compress(page.encode()))
    (share / "broken.txt.gz").write_bytes(b"\x1f\x8bnonsense")
    return [package, share]


def test_files_are_found_by_kind_without_tests_and_translations(roots):
    found = {path.name: kind for path, kind in documentation_files(roots)}
    assert found == {
        "door.py": "docstrings",
        "README.md": "documentation",
        "house.1.gz": "man pages",
        "broken.txt.gz": "documentation",
    }
    assert [path.parent.name for path, kind in documentation_files(roots) if kind == "man pages"] == ["man1"]
    assert len(list(documentation_files([*roots, *roots]))) == 4
    assert kind_of(Path("/usr/share/man/de/man1/house.1.gz")) is None
    assert kind_of(Path("/usr/share/doc/house/picture.png")) is None


def test_man_pages_lose_their_requests(roots):
    pages = [path for path, kind in documentation_files(roots) if kind == "man pages"]
    first, _ = prose_in(pages[0], "man pages")
    assert first == FIRST + " It has many other rooms that are in use."


def test_no_paragraph_occurs_twice_and_what_is_dropped_is_counted(roots, tmp_path):
    report = build(tmp_path / "out", roots, num_workers=2)
    lines = (tmp_path / "out" / machine_documentation.FILE_NAME).read_text().splitlines()
    texts = {Path(line["id"]).name: line["text"].split("\n\n") for line in map(json.loads, lines)}
    assert texts["README.md"] == [SECOND, THIRD + " This one is new, and it is long."]
    assert texts["door.py"] == [FIRST, THIRD]
    assert len(texts["house.1.gz"]) == 2
    assert report["counts"] == {
        "files read": 4,
        "repeated paragraphs dropped": 1,
        "files with too little prose dropped": 1,
    }
    assert report["documents"] == 3
    assert report == json.loads((tmp_path / "out" / "report.json").read_text())
    assert machine_documentation.summary(report).startswith("3 documents, ")


def test_a_limit_ends_the_collection_and_no_prose_is_refused(roots, tmp_path):
    assert build(tmp_path / "out", roots, max_megabytes=1e-6)["documents"] == 1
    with pytest.raises(ValueError, match="no documentation"):
        build(tmp_path / "none", [tmp_path / "share" / "man" / "de"])

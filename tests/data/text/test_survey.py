from base64 import b64encode
from pathlib import Path

import pytest

from data import import_text
from data.text.readers import Reading
from data.text.survey import survey
from tests.support.commands import refused
from tests.support.hospital import note, write_hospital


def test_a_survey_names_what_is_read_and_what_mends_the_rest(tmp_path):
    write_hospital(tmp_path / "ward")
    found = survey([tmp_path / "ward"], Reading())
    lines = list(found.lines())
    assert sum(path.is_file() for path in (tmp_path / "ward").rglob("*")) == 48
    assert lines[0].startswith("read: 26 txt (26 documents), ")
    for part in ("2 html (2", "1 jsonl (10", "1 csv (30", "2 docx (2", "1 odt (1", "1 epub (1"):
        assert f"{part} document" in lines[0]
    for kind, package in (
        ("2 pdf (2 documents)", "pypdf"),
        ("1 rtf (1 document)", "striprtf"),
        ("1 xlsx (5 documents)", "openpyxl"),
    ):
        assert (kind in lines[0]) != any(f"  needs the package {package}; install" in line for line in lines)
    for line in (
        "  text is column 'body', the longest text; --text-column names another: letters.jsonl",
        "  text is column 'report', the longest text; --text-column names another: reports.csv",
        "  is an archive; unpack it: backup.zip",
        "  has no column 'text', only ['a', 'b']; name the right one with --text-column: numbers.csv",
        "rows left out: 1",
    ):
        assert line in lines
    assert any(line.startswith("  is damaged or cut off") and line.endswith(": cut.txt.gz") for line in lines)
    assert any(line.startswith("  is not text: ") and line.endswith(": noise.txt") for line in lines)
    assert any(
        line.startswith("warning: ") and line.endswith("% of the bytes of these files are not used") for line in lines
    )


def test_the_share_of_bytes_that_is_left_out_counts_each_file_once(tmp_path):
    (tmp_path / "a.txt").write_text("x" * 30)
    (tmp_path / "refused.csv").write_text("id,value\n1,2\n".ljust(60, "2"))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG" * 15)
    lines = list(survey([tmp_path], Reading()).lines())
    assert "left out: 2 files, 120 bytes, 80% of the bytes" in lines
    assert "warning: 80% of the bytes of these files are not used" in lines


def test_what_a_flag_mends_comes_first_and_bad_rows_are_named_of_each_file(tmp_path):
    for number in range(25):
        (tmp_path / f"a.kind{number}").write_text("x")
    (tmp_path / "table.csv").write_text("id,value\n1,2\n")
    (tmp_path / "lists.jsonl").write_text('{"text": "Good."}\n' + "[1, 2]\n" * 250)
    (tmp_path / "one.jsonl").write_text('{"text": "Good."}\n{"text": null}\n')
    lines = list(survey([tmp_path], Reading()).lines())
    assert lines[2].startswith("  has no column 'text', only ['id', 'value']; name the right one with --text-column")
    assert "  ... and 6 more reasons; report.json of the import has all" in lines
    assert lines[-3:] == [
        "rows left out: 251",
        "  lists.jsonl:2: is a list, not an object (the first of 250)",
        "  one.jsonl:2: field 'text' holds no text (the first of 1)",
    ]


def test_a_survey_says_that_it_read_a_part(tmp_path, monkeypatch):
    for number in range(90):
        (tmp_path / f"{number:02}.txt").write_text("Some words of a text. " * 100)
    monkeypatch.setattr("data.text.survey.MOST_READ_BYTES", 50_000)
    found = survey([tmp_path], Reading())
    assert next(found.lines()) == "read: 23 txt (23 documents) (of 1 file in 4; the import names all)"


def test_errors_name_the_flag_that_was_typed():
    with pytest.raises(ValueError, match="^text=/nowhere: no such file or folder"):
        survey([Path("/nowhere")], Reading(), flag="text")


def part(folder: Path, name: str) -> dict[str, str]:
    """Return text by id."""
    lines = (line for file in (folder / name).rglob("*.txt") for line in file.read_text().splitlines())
    return dict(line.split(" ", 1) for line in lines)


@pytest.mark.parametrize(
    ("group_by", "group_of"),
    [
        ("folder", lambda name: name.rpartition("/")[0]),
        ("folder:1", lambda name: name.split("/")[0]),
        ("patient", lambda name: str(int(name.partition(":")[2]) % 9) if "rows" in name else name),
    ],
)
def test_groups_are_held_out_whole(tmp_path, group_by, group_of):
    for number in range(60):
        folder = tmp_path / f"in/{number % 10}/{number % 3}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(f"{note(number, 90)}")
    rows = "".join(f'{n % 9},"{note(100 + n)}"\n' for n in range(2, 40))
    (tmp_path / "in/rows.csv").write_text(f"patient,text\n{rows}")
    main = ["--input", str(tmp_path / "in"), "--output-dir", str(tmp_path / "out"), "--held-out-fraction", "0.5"]
    import_text.main([*main, "--group-by", group_by])
    train, held_out = (part(tmp_path / "out", name) for name in ("train", "held_out"))
    assert len(train) + len(held_out) == 60 + 38 and not any("#" in name for name in [*train, *held_out])
    in_folder = [name for name in [*train, *held_out] if ("rows" in name) == (group_by == "patient")]
    sides: dict[str, set[bool]] = {}
    for name in in_folder:
        sides.setdefault(group_of(name), set()).add(name in train)
    assert all(len(side) == 1 for side in sides.values())
    assert {True} in sides.values() and {False} in sides.values()
    assert found_groups(tmp_path / "in", group_by) == len(sides)


def found_groups(folder: Path, group_by: str) -> int:
    return len(survey([folder], Reading(group_by=group_by)).groups)


def test_a_group_that_nothing_has_is_refused_before_anything_is_written(tmp_path):
    (tmp_path / "a.txt").write_text("Some text.")
    with pytest.raises(ValueError, match="group_by=patient: no document has a group; name a column"):
        survey([tmp_path], Reading(group_by="patient"))
    with refused("group_by=patient: no document has a group"):
        import_text.main(
            ["--input", str(tmp_path), "--output-dir", str(tmp_path / "out"), "--held-out-fraction", "0.2"]
            + ["--group-by", "patient"]
        )


def test_an_encoded_file_is_no_text_to_plan_with(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("A pump in hall 3 leaks.\n" * 40)
    (tmp_path / "b.txt").write_text(b64encode(bytes(range(256)) * 9000).decode())
    found = survey([tmp_path], Reading())
    assert (found.text_bytes, found.script.words, found.documents["txt"]) == (40 * 24, 240, 1)
    assert "pump" in found.sample[0] and len(found.sample) == 1
    assert any("is mostly base64: b" in line for line in found.lines())
    monkeypatch.setattr("data.text.survey.MOST_READ_BYTES", 300_000)
    beginning = survey([tmp_path / "b.txt"], Reading())
    assert beginning.file_bytes == 1 << 20 < (tmp_path / "b.txt").stat().st_size and not beginning.documents["txt"]


def test_a_letter_that_comes_late_decides_the_code_page(tmp_path):
    (tmp_path / "late.txt").write_text("plain words of a line of text \n" * 2_000 + "and a caf\xe9\n", "latin-1")
    assert any("caf\xe9" in line for line in survey([tmp_path / "late.txt"], Reading()).lines())

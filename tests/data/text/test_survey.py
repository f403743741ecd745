from pathlib import Path

import pytest

from data.text.readers import Reading
from data.text.survey import survey
from tests.support.hospital import write_hospital


def test_a_survey_names_what_is_read_and_what_mends_the_rest(tmp_path):
    write_hospital(tmp_path / "ward")
    found = survey([tmp_path / "ward"], Reading())
    lines = list(found.lines())
    assert lines[0].startswith("read: 26 txt (26 documents), ")
    for part in ("2 html (2", "1 jsonl (10", "1 csv (30", "2 docx (2", "1 odt (1", "1 epub (1"):
        assert f"{part} document" in lines[0]
    for kind, package in (("2 pdf (2 documents)", "pypdf"), ("1 rtf (1 document)", "striprtf")):
        assert (kind in lines[0]) != any(f"  needs the package {package}; install" in line for line in lines)
    for line in (
        "  text is column 'body', the longest text; --text-field names another: letters.jsonl",
        "  text is column 'report', the longest text; --text-field names another: reports.csv",
        "  is an archive; unpack it: backup.zip",
        "  has no column 'text', only ['a', 'b']; name the right one with --text-field or --id-field: numbers.csv",
        "rows left out: 1",
    ):
        assert line in lines
    assert any(line.startswith("  is damaged or cut off") and line.endswith(": cut.txt.gz") for line in lines)
    assert any(line.startswith("  is not text: ") and line.endswith(": noise.txt") for line in lines)
    assert any(
        line.startswith("warning: ") and line.endswith("% of the bytes of these files are not used") for line in lines
    )


def test_a_survey_says_that_it_read_a_part(tmp_path, monkeypatch):
    for number in range(90):
        (tmp_path / f"{number:02}.txt").write_text("Some words of a text. " * 100)
    monkeypatch.setattr("data.text.survey.MOST_READ_BYTES", 50_000)
    found = survey([tmp_path], Reading())
    assert next(found.lines()) == "read: 23 txt (23 documents) (of 1 file in 4; the import names all)"


def test_errors_name_the_flag_that_was_typed():
    with pytest.raises(ValueError, match="^text=/nowhere: no such file or folder"):
        survey([Path("/nowhere")], Reading(), flag="text")

"""Files of predictions are resumed after whole rows, wherever a kill cut them; other commands' files are refused."""

import csv
import errno
import io
import json
import os

import pytest

from bert.files import lock
from bert.finetuning import prediction_files
from bert.finetuning.prediction_files import PredictionFiles, csv_ends, json_ends, line_ends, tsv_ends


def csv_rows() -> list[bytes]:
    rows = []
    for row in (
        ["id", 'a "name"\nof two lines'],
        ["1", "plain"],
        ["2", 'two\n\n"lines", and more'],
        ["3", '"'],
        ["4", ""],
    ):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerow(row)
        rows.append(text.getvalue().encode())
    return [rows[0] + rows[1], *rows[2:]]


def json_rows() -> list[bytes]:
    entries = {"a": [{"text": "x,\n", "start": 1}, {"text": "]"}], "b": "c,", "ü": [], "d": 1.5, "e": [{"t": {}}]}
    rows = [json.dumps({name: value}, indent=1)[2:-2].encode() for name, value in entries.items()]
    return [b"{\n" + rows[0], *(b",\n" + row for row in rows[1:])]


FORMS = {
    "lines": (line_ends, [b'{"a": 1}\n', b'"\n', b"\n", b"last\n"], b""),
    "table": (tsv_ends, [b'index\tlabel\n0\t"x\n', b"1\ty\n", b'2\tz"\n'], b""),
    "csv": (csv_ends, csv_rows(), b""),
    "json": (json_ends, json_rows(), b"\n}\n"),
}


def write(target, ends, rows, tail=b"", command=None, until=None, said=None):
    """Write the missing rows and return the number of the first; KeyboardInterrupt after `until` rows."""
    log = [].append if said is None else said.append
    with PredictionFiles({target: ends}, command or {"a": 1}, flag="--output", unit="lines", log=log) as files:
        for number in range(files.rows, len(rows)):
            if number == until:
                raise KeyboardInterrupt
            files.append([rows[number]], number)
        files.append([tail])
    return files.rows


@pytest.mark.parametrize("form", FORMS)
def test_every_beginning_of_a_file_is_continued_after_its_whole_rows(form, tmp_path, monkeypatch):
    monkeypatch.setattr(prediction_files.os, "fsync", lambda descriptor: None)  # thousands
    ends, rows, tail = FORMS[form]
    target, partial = tmp_path / "out", tmp_path / "out.partial"
    write(target, ends, rows, tail)
    whole = target.read_bytes()
    assert whole == b"".join(rows) + tail and (form != "json" or json.loads(whole))
    with pytest.raises(KeyboardInterrupt):
        write(target, ends, rows, tail, until=1)
    manifest = (tmp_path / "out.partial.json").read_bytes()
    counted = set()
    for size in range(len(whole) + 1):
        for content in (whole[:size], whole[:size] + b"\0" * 9 + b"\n"):  # the power was lost
            partial.write_bytes(content)
            (tmp_path / "out.partial.json").write_bytes(manifest)
            counted.add(number := write(target, ends, rows, tail))
            assert target.read_bytes() == whole, (size, number)
            assert len(b"".join(rows[:number])) <= size
    assert counted == set(range(len(rows) + (form != "json"))) and sorted(os.listdir(tmp_path)) == ["out"]


def test_several_files_continue_together(tmp_path):
    targets = {tmp_path / "a": line_ends, tmp_path / "b": tsv_ends}
    form = {"flag": "--output", "unit": "lines", "log": print}
    with pytest.raises(KeyboardInterrupt), PredictionFiles(targets, {}, **form) as files:
        files.append([b"1\n2\n", b"name\n1\n2\n"], 0)
        raise KeyboardInterrupt
    with open(tmp_path / "a.partial", "ab") as file:
        file.write(b"3\n")
    with PredictionFiles(targets, {}, **form) as files:
        assert files.rows == 2
        files.append([b"two\n", b"two\n"], 1)  # a row may be written again
    assert [target.read_bytes() for target in targets] == [b"1\ntwo\n", b"name\n1\ntwo\n"]


def test_rows_of_another_command_are_kept_and_refused(tmp_path, monkeypatch):
    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "out", line_ends, [b"1\n", b"2\n"], until=1, said=said)
    assert said == ["interrupted; the results so far are kept: start again to continue"]
    with pytest.raises(
        ValueError, match="out.partial: holds the results of another command .* continue that one, name"
    ):
        write(tmp_path / "out", line_ends, [b"x\n"], command={"a": 2})
    with monkeypatch.context() as other, pytest.raises(ValueError, match="another command .*version"):
        other.setattr(prediction_files, "__version__", "0.0.1")
        write(tmp_path / "out", line_ends, [b"x\n"])
    assert write(tmp_path / "out", line_ends, [b"1\n", b"2\n"], said=said) == 1
    assert said[1:] == [f"continuing after 1 lines, whose results are in {tmp_path / 'out.partial'}"]


@pytest.mark.parametrize("manifest", [None, "", "{", "[1]"])
def test_rows_without_a_manifest_are_begun_anew(tmp_path, manifest):
    (tmp_path / "out.partial").write_bytes(b"old\n")
    if manifest is not None:
        (tmp_path / "out.partial.json").write_text(manifest)
    assert write(tmp_path / "out", line_ends, [b"new\n"]) == 0
    assert (tmp_path / "out").read_bytes() == b"new\n"


def test_a_mistake_leaves_nothing_and_a_full_disk_names_the_file(tmp_path):
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for error, left in ((ValueError("bad input"), []), (full, ["out.partial", "out.partial.json"])):
        output = PredictionFiles({tmp_path / "out": line_ends}, {}, flag="--output", unit="lines", log=print)
        with pytest.raises(type(error)), output:
            raise error
        assert sorted(os.listdir(tmp_path)) == left
    assert full.filename == str(tmp_path / "out")


def test_only_one_process_writes(tmp_path, monkeypatch):
    target, partial = tmp_path / "out", tmp_path / "out.partial"
    partial.write_bytes(b"whole")
    with open(partial, "r+b") as taken, pytest.raises(ValueError, match="another process writes .*out.partial; wait"):
        lock(taken)
        write(target, line_ends, [b"1\n"])
    monkeypatch.setattr(prediction_files, "lock", lambda file: partial.rename(target))  # it has just ended
    with pytest.raises(ValueError, match="another process writes"):
        write(target, line_ends, [b"1\n"])
    assert target.read_bytes() == b"whole"

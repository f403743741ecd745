"""The record of a job as other packages read it, of this version and the previous one."""

import json

import pytest

from bert.reporting.job_file import job_facts, job_file, read_job

FACTS = {"plan": {"model": "mini"}}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("job.json", {"seconds_used": 7.5, "facts": {"own_text": FACTS}}),
        ("own_text.json", {**FACTS, "seconds_used": 7.5}),
    ],
)
def test_a_record_of_either_version_has_seconds_and_facts(tmp_path, name, content):
    (tmp_path / name).write_text(json.dumps(content))
    assert read_job(tmp_path) == {"seconds_used": 7.5, "facts": {"own_text": FACTS}}
    assert job_facts(tmp_path, "own_text") == FACTS and job_facts(tmp_path, "other") == {}
    assert job_file(tmp_path) == tmp_path / name


def test_the_record_of_this_version_is_read_where_both_are(tmp_path):
    (tmp_path / "own_text.json").write_text(json.dumps({"seconds_used": 1.0}))
    (tmp_path / "job.json").write_text(json.dumps({"seconds_used": 2.0, "facts": {}}))
    assert read_job(tmp_path)["seconds_used"] == 2.0


@pytest.mark.parametrize("content", ["{cut", "[]", '{"facts": []}', '{"facts": {"own_text": [1]}}'])
@pytest.mark.parametrize("name", ["job.json", "own_text.json"])
def test_a_damaged_record_has_no_facts(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    assert job_facts(tmp_path, "facts" if name == "job.json" else "plan") == {}


def test_a_folder_without_a_record_has_no_facts(tmp_path):
    assert read_job(tmp_path) == {} and job_facts(tmp_path, "own_text") == {}

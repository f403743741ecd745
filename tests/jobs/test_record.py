"""The record of a job: time used by all starts, and facts that steps store."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from bert import REPOSITORY
from bert.jobs import record as module
from bert.jobs.record import JobRecord, command_began
from tests.support.waiting import wait_until


class Clock:
    """Takes the place of the module `time`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def seconds_in(folder) -> float:
    return json.loads((folder / "job.json").read_text())["seconds_used"]


def test_the_seconds_of_all_starts_are_added_up(tmp_path, clock):
    for begun, ended, used in ((1000.0, 1030.0, 30.0), (5000.0, 5007.0, 37.0)):
        record, clock.now = JobRecord.of(tmp_path), begun + 2
        with record.clock(begun):
            clock.now = ended
            assert (record.used(), record.used_now()) == (used, ended - begun)
        assert (record.used(), record.used_now()) == (used, 0.0)
        assert seconds_in(tmp_path) == used
        clock.now += 100  # between the starts


def test_the_seconds_of_a_start_that_fails_count(tmp_path, clock):
    with pytest.raises(SystemExit), JobRecord.of(tmp_path).clock(990.0):
        clock.now = 1005.0
        raise SystemExit(2)
    assert seconds_in(tmp_path) == 15.0


KILLED = """
import sys, time
from pathlib import Path
from bert.jobs import record
record._TICK_SECONDS = 0.01
kept = record.JobRecord.of(Path(sys.argv[1]))
kept.facts["text"] = "of Monday"
with kept.clock(time.monotonic() - 100):
    print("begun", flush=True)
    time.sleep(60)
"""


def test_the_seconds_of_a_start_that_is_killed_count(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "begun\n"
    wait_until(lambda: seconds_in(tmp_path) > 100.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    record = JobRecord.of(tmp_path)
    assert 100 < record.used() < 160 and record.facts == {"text": "of Monday"}


def test_a_disk_that_is_full_for_a_while_ends_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_TICK_SECONDS", 0.01)
    saved, failures = [], [OSError(28, "No space left on device")]

    def write(path, data):
        if saved and failures:
            raise failures.pop()
        saved.append(json.loads(data))

    monkeypatch.setattr(module, "write_atomically", write)
    with JobRecord.of(tmp_path).clock(time.monotonic()):
        wait_until(lambda: not failures and len(saved) > 2)
    assert saved[-1]["seconds_used"] >= saved[0]["seconds_used"]


def test_a_folder_without_a_record_has_a_new_one(tmp_path):
    record = JobRecord.of(tmp_path / "none")
    assert record.used() == 0.0 and record.facts == {} and not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "content", ["{cut", "[]", '{"seconds_used": "7"}', '{"seconds_used": 7, "facts": [1]}', "null", ""]
)
@pytest.mark.parametrize("name", ["job.json", "own_text.json"])
def test_a_damaged_record_is_refused_by_its_name(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    if name == "own_text.json" and "facts" in content:
        return  # its facts are not apart
    with pytest.raises(ValueError, match=f"{tmp_path}/{name} is damaged; restore it, or pass another --output-dir"):
        JobRecord.of(tmp_path)


def test_the_record_of_the_version_before_is_continued(tmp_path, clock):
    """The old file is left as it is, so that the earlier version can be used again."""
    old = json.dumps({"plan": {"model": "mini"}, "seconds_used": 500.0})
    (tmp_path / "own_text.json").write_text(old)
    record = JobRecord.of(tmp_path)
    assert record.facts == {"own_text": {"plan": {"model": "mini"}}}
    with record.clock(clock.now):
        clock.now += 20
    assert JobRecord.of(tmp_path).used() == 520.0 and (tmp_path / "own_text.json").read_text() == old
    assert JobRecord.of(tmp_path).facts == record.facts


def test_the_time_of_a_command_begins_with_its_shell(monkeypatch):
    """An installation of packages, for which a shell waits, is not counted."""
    for age, counted in ((3.0, 3.0), (500.0, module._MOST_SECONDS_OF_A_SHELL)):
        created = time.time() - age
        monkeypatch.setattr(psutil, "Process", lambda created=created: FakeProcess(created))
        assert time.monotonic() - command_began(time.time()) == pytest.approx(counted, abs=0.5)


class FakeProcess:
    def __init__(self, created: float) -> None:
        self._created = created

    def create_time(self) -> float:
        return self._created

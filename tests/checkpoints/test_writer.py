"""Saving beside the training: the caller waits for the copy alone, and no error is lost."""

import json
import re
import threading
from pathlib import Path

import pytest

from bert.checkpoints.directories import BEST, step_directory
from bert.checkpoints.writer import CheckpointWriter, DiskForecast, SaveFailed
from tests.support.waiting import wait_until


class Disk:
    """Writes take until `release`; what they wrote is in `written`."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.release = threading.Event()

    def save_of(self, step: int):
        def write() -> None:
            assert self.release.wait(10)
            self.written.append(step)

        return lambda: write


def fails() -> None:
    raise OSError(28, "No space left on device")


def test_the_caller_waits_for_the_copy_and_not_for_the_disk():
    disk, writer = Disk(), CheckpointWriter(asynchronous=True)
    writer.save(3, disk.save_of(3))
    assert disk.written == [] and writer.check() == []
    disk.release.set()
    writer.finish()
    (times,) = writer.check()
    assert disk.written == [3] and times.step == 3 and writer.check() == []


def test_one_save_is_in_flight_and_the_next_waits_for_it():
    disk, writer, copies = Disk(), CheckpointWriter(asynchronous=True), []
    writer.save(3, disk.save_of(3))
    threading.Timer(0.3, disk.release.set).start()
    writer.save(4, lambda: copies.append(list(disk.written)) or (lambda: disk.written.append(4)))
    assert copies == [[3]], "the second copy was made before the first was on the disk"
    writer.finish()
    first, second = writer.check()
    assert disk.written == [3, 4]
    assert second.wait_seconds > 0.2 > first.wait_seconds and first.write_seconds > 0.2


@pytest.mark.parametrize("where", ["check", "finish", "save"])
def test_an_error_of_the_disk_is_raised_in_the_training_once(where):
    writer = CheckpointWriter(asynchronous=True)
    writer.save(7, lambda: fails)
    wait_until(lambda: not any(thread.name == "checkpoint" for thread in threading.enumerate()))
    call = {"check": writer.check, "finish": writer.finish, "save": lambda: writer.save(8, lambda: fails)}[where]
    with pytest.raises(SaveFailed, match="step 7 could not be written .*No space left.*; earlier .* are complete"):
        call()
    assert writer.check() == []
    writer.finish()


def test_without_a_thread_the_caller_waits_and_hears_at_once():
    writer, written = CheckpointWriter(asynchronous=False), []
    writer.save(1, lambda: lambda: written.append(1))
    assert written == [1] and [times.step for times in writer.check()] == [1]
    with pytest.raises(SaveFailed, match="step 2"):
        writer.save(2, lambda: fails)


def warnings(rooms, seconds: float = 1800.0) -> list[tuple[int, int]]:
    """(number of the save, hours that are left) of each warning, of rooms in GB; checkpoints need 4 GB."""
    now, announced = 0.0, []
    forecast = DiskForecast(lambda: now)
    for number, room in enumerate(rooms):
        now = seconds * number
        if (warning := forecast.observe(max(0, int(room * 1e9)), 4 * 10**9, Path("run"))) is not None:
            announced.append((number, int(float(re.search(r"in about (\S+) hours", warning)[1]))))
    return announced


SLOW_FILL = [100 - number / 2 for number in range(200)]


@pytest.mark.parametrize(
    ("rooms", "seconds", "expected"),
    [
        ([100] * 99, 1800, []),
        ([100 + number for number in range(99)], 1800, []),
        (SLOW_FILL, 1800, [(145, 24), (169, 12), (181, 5), (187, 2), (190, 1), (192, 0)]),
        ([100] * 4 + [50] * 40, 1800, []),  # someone's copy
        ([*SLOW_FILL[:150], *[100] * 40, *SLOW_FILL[:150]], 1800, [(145, 24), (335, 24)]),
        ([100 - number for number in range(90)], 60, [(30, 1), (64, 0), (81, 0), (89, 0)]),
    ],
    ids=["steady", "growing", "slow fill", "copy", "another fill", "a save each minute"],
)
def test_a_disk_that_fills_slowly_is_announced_hours_ahead(rooms, seconds, expected):
    assert warnings(rooms, seconds) == expected


def test_the_best_checkpoint_needs_room_too(tmp_path, monkeypatch):
    forecast, needs = DiskForecast(), []
    monkeypatch.setattr(forecast, "observe", lambda room, needed, parent: needs.append(needed))
    for step in (3, 7):
        step_directory(tmp_path, step).mkdir()
        (step_directory(tmp_path, step) / "weights").write_bytes(b"0123456789")
    for best in (None, 3):
        (tmp_path / BEST).write_text(json.dumps({"step": best}))
        forecast.after_save(step_directory(tmp_path, 7), keep=2)
    assert needs == [30, 40]

"""Saving in the background: training waits only for the copy, and no error is lost."""

import re
import shutil
import threading

import pytest

from bert.checkpoints.writer import CheckpointWriter, DiskWatch, SaveFailed, SaveTimes
from tests.support.waiting import wait_until


class Disk:
    """Stands in for a disk: writes block until `release`; finished writes are in `written`."""

    def __init__(self) -> None:
        self.written: list[int] = []
        self.release = threading.Event()

    def save_of(self, step: int):
        def write() -> None:
            assert self.release.wait(60)
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
    """The clock is a stand-in: the write of step 3 moves it by 5 s, the copy by 2 s and the write of step 4 by 1 s."""
    disk, now, copies = Disk(), [0.0], []

    def clock() -> float:
        if waiting:
            disk.release.set()
        return now[0]

    def writes(step: int, seconds: float):
        write = disk.save_of(step)()

        def timed() -> None:
            write()
            now[0] += seconds

        return timed

    def copy():
        copies.append(list(disk.written))
        now[0] += 2.0
        return writes(4, 1.0)

    waiting = False
    writer = CheckpointWriter(asynchronous=True, clock=clock)
    writer.save(3, lambda: writes(3, 5.0))
    waiting = True
    writer.save(4, copy)
    assert copies == [[3]], "the second copy was made before the first was on the disk"
    writer.finish()
    assert writer.check() == [SaveTimes(3, 0.0, 0.0, 5.0), SaveTimes(4, 5.0, 2.0, 1.0)] and disk.written == [3, 4]


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


def test_the_error_of_a_save_does_not_replace_the_one_that_ended_the_training(capsys):
    with pytest.raises(SaveFailed, match="step 7 could not be written"), CheckpointWriter(asynchronous=True) as writer:
        writer.save(7, lambda: fails)
    with pytest.raises(KeyError), CheckpointWriter(asynchronous=True) as writer:
        writer.save(8, lambda: fails)
        raise KeyError
    assert "error: the checkpoint of step 8 could not be written" in capsys.readouterr().err


def test_an_amendment_is_written_after_the_save_that_it_belongs_to():
    disk, writer = Disk(), CheckpointWriter(asynchronous=True)
    writer.save(3, disk.save_of(3))
    threading.Timer(0.1, disk.release.set).start()
    writer.amend(3, lambda: disk.written.append("amended"))
    assert disk.written == [3, "amended"]
    with pytest.raises(SaveFailed, match="the checkpoint of step 3 could not be written"):
        writer.amend(3, fails)


def test_without_a_thread_the_caller_waits_and_hears_at_once():
    writer, written = CheckpointWriter(asynchronous=False), []
    writer.save(1, lambda: lambda: written.append(1))
    assert written == [1] and [times.step for times in writer.check()] == [1]
    with pytest.raises(SaveFailed, match="step 2"):
        writer.save(2, lambda: fails)


def test_a_disk_with_little_room_is_announced_again_when_half_of_it_is_gone(tmp_path, monkeypatch):
    (tmp_path / "weights").write_bytes(bytes(10))
    disk, announced = DiskWatch(), []
    for room in (500, 40, 39, 20, 19, 18, 12, 400, 8, 0, 0):
        usage = shutil.disk_usage(tmp_path)._replace(free=room)
        with monkeypatch.context() as patch:
            patch.setattr("bert.checkpoints.writer.shutil.disk_usage", lambda path, usage=usage: usage)
            if (warning := disk.after_save(tmp_path)) is not None:
                announced.append(re.search(r"room for (\S+) checkpoints: free space", warning)[1])
    assert announced == ["3.9", "1.9", "0.8", "0.0"]

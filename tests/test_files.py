"""Atomic writes, hashes and locks: order of disk operations, and waiting for a lock."""

import errno
import hashlib
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from bert import REPOSITORY, files
from bert.files import (
    atomic_path,
    checksum_of,
    checksum_of_file,
    json_of,
    lock,
    only_writer,
    read_json,
    require_writable,
    sha256_of,
    sha256_of_file,
    shown,
    temporary_folder,
    unset_variable,
    waiting_lock,
    write_atomically,
)


@pytest.fixture
def calls(monkeypatch) -> list[str]:
    """Return flushes and renames, in order."""
    made: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flush(descriptor):
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        made.append(f"flush {path.read_bytes().decode()}")
        fsync(descriptor)

    def rename(old, new):
        made.append(f"rename to {Path(new).name}")
        replace(old, new)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", rename)
    return made


def test_a_file_is_flushed_with_its_content_before_it_gets_its_name(tmp_path, calls):
    (tmp_path / "names.txt").write_text("old")
    write_atomically(tmp_path / "names.txt", b"new")
    assert calls == ["flush new", "rename to names.txt"]
    assert (tmp_path / "names.txt").read_bytes() == b"new" and len(list(tmp_path.iterdir())) == 1


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "names.txt"
    path.write_text("old")
    with pytest.raises(OSError, match="No space left") as error, atomic_path(path) as temporary:
        temporary.write_text("half")
        assert temporary.parent == tmp_path and temporary.name.startswith(".names.txt.")
        assert temporary.name.endswith(f"{os.getpid()}.tmp") and os.uname().nodename in temporary.name
        raise OSError(errno.ENOSPC, "No space left on device")
    assert error.value.filename == str(path)
    with pytest.raises(OSError) as error, atomic_path(path):
        raise OSError(errno.EIO, "Input/output error", "another")
    assert error.value.filename == "another"
    with pytest.raises(OSError, match="No space left") as error, atomic_path(path):
        raise OSError("36192 requested and 8192 written")  # as numpy.save on a full disk
    assert (error.value.errno, error.value.filename) == (errno.ENOSPC, str(path))
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_json_that_is_no_object_is_read_as_an_empty_one(tmp_path):
    path = tmp_path / "values.json"
    assert read_json(path) == {}
    for text, values in (('{"a": 1}', {"a": 1}), ("[1]", {}), ("{", {}), ("[" * 100_000, {}), ('"a"', {})):
        path.write_text(text)
        assert read_json(path) == values, text[:9]
    with pytest.raises(ValueError):
        json_of("[" * 100_000)
    assert json_of(b"[1, 2]") == [1, 2]


def test_hashes_are_those_of_the_standard_tools(tmp_path):
    """The file is larger than one block of reading; XXH128's values are from its specification."""
    content = bytes(range(256)) * 4096
    (tmp_path / "file").write_bytes(content)
    assert sha256_of(content) == sha256_of_file(tmp_path / "file") == hashlib.sha256(content).hexdigest()
    assert checksum_of(b"") == "99aa06d3014798d86001c324468d497f"
    assert checksum_of_file(tmp_path / "file") == checksum_of(content) != checksum_of(content[:-1])


HOLD = """
import sys
sys.path.insert(0, sys.argv[1])
from bert.files import lock
file = open(sys.argv[2], "a")
lock(file)
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path):
    """Start another process that holds the lock of `tmp_path`/lock until it gets a line."""
    command = [sys.executable, "-c", HOLD, str(REPOSITORY), str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


class Clock:
    """Moves when the code under test sleeps; after `seconds` something happens."""

    def __init__(self, monkeypatch, seconds=math.inf, then=None):
        self.now, self.slept, self._at, self._then = 100.0, 0, seconds, then
        monkeypatch.setattr(files.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(files.time, "sleep", self.sleep)

    def sleep(self, seconds):
        assert self.slept < 1000, "it waits without an end"
        self.now, self.slept = self.now + seconds, self.slept + 1
        if self.now >= 100 + self._at:
            self._at = math.inf
            self._then()


def test_a_lock_is_waited_for_as_long_as_was_said(tmp_path, holder, monkeypatch):
    clock = Clock(monkeypatch)
    with open(tmp_path / "lock", "a") as file:
        with pytest.raises(BlockingIOError):
            lock(file)
        assert clock.slept == 0
        with pytest.raises(BlockingIOError):
            lock(file, 2.0)
        assert 2.0 <= clock.now - 100 <= 2.15
        clock = Clock(monkeypatch, 60.0, lambda: (holder.stdin.write("go\n"), holder.stdin.flush(), holder.wait()))
        assert lock(file, math.inf) is True
        assert clock.now >= 160


def test_who_waits_for_a_lock_says_for_whom(tmp_path, holder, monkeypatch, capsys):
    Clock(monkeypatch, 5.0, lambda: (holder.stdin.write("go\n"), holder.stdin.flush(), holder.wait()))
    with waiting_lock(tmp_path / "lock", "download of the model"):
        assert capsys.readouterr().err == "waiting for another download of the model\n"
    with waiting_lock(tmp_path / "new/er/lock", "download"):
        assert (tmp_path / "new/er/lock").read_bytes() == b"" and capsys.readouterr().err == ""


def test_a_file_system_without_locks_locks_nothing(monkeypatch, tmp_path):
    def flock(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(files.fcntl, "flock", flock)
    with open(tmp_path / "lock", "a") as file:
        assert lock(file) is False


def test_a_second_writer_of_a_folder_is_refused_after_two_seconds(tmp_path, monkeypatch):
    clock = Clock(monkeypatch)
    with only_writer(tmp_path / "a" / "b"):
        (tmp_path / "a" / "b" / "file").touch()
        with (
            pytest.raises(ValueError, match=f"{tmp_path}/a/b: another run is writing to it; wait until it ends, or"),
            only_writer(tmp_path / "a" / "b"),
        ):
            pass
        assert 2.0 <= clock.now - 100 <= 2.15, "the workers of a killed run release its lock a little later"
    with only_writer(tmp_path / "a" / "b"):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "b", "file"], "no lock file"


def test_folders_that_a_writer_made_and_left_empty_are_removed(tmp_path):
    (tmp_path / "mine").mkdir()
    with only_writer(tmp_path / "mine" / "new" / "newer"):
        assert (tmp_path / "mine/new/newer").is_dir()
    with pytest.raises(RuntimeError), only_writer(tmp_path / "mine" / "other"):
        raise RuntimeError
    assert [path.name for path in tmp_path.rglob("*")] == ["mine"], "and none that was there before"


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    require_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []

    def refuse(dir):
        raise PermissionError(errno.EACCES, "Permission denied", str(dir / "tmpxyz"))

    monkeypatch.setattr(files.tempfile, "TemporaryFile", refuse)
    with pytest.raises(PermissionError) as error:
        require_writable(tmp_path)
    assert error.value.filename == str(tmp_path) and error.value.errno == errno.EACCES


def test_names_of_any_bytes_can_be_shown():
    assert shown(b"/data/\xff\xc3\xa9") == shown(Path(os.fsdecode(b"/data/\xff\xc3\xa9"))) == "/data/\\xffé"
    assert unset_variable(Path("/data/$HOME2")) == " (the environment variable in /data/$HOME2 is not set)"
    assert unset_variable(Path("/data")) == ""


KILLED = """
import sys, time
from bert.files import temporary_folder
with temporary_folder("killed") as folder:
    (folder / "inside").mkdir()
    print(folder, flush=True)
    time.sleep(60)
"""


def test_a_temporary_folder_that_a_killed_process_left_is_removed_by_the_next(tmp_path, monkeypatch):
    """The folder of a process that lives stays, and so does a folder of another kind."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    words = [sys.executable, "-c", KILLED]
    processes = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) for _ in range(2)]
    killed, alive = (Path(process.stdout.readline().strip()) for process in processes)
    other = tmp_path / "bert-other-1"
    other.mkdir()
    try:
        processes[0].kill()
        processes[0].wait()
        assert killed.is_dir() and alive.is_dir()
        with pytest.raises(FileNotFoundError, match="of the block"):
            with temporary_folder("killed") as own:
                assert not killed.exists() and alive.is_dir() and other.is_dir() and own.is_dir()
                raise FileNotFoundError("of the block")
        assert not own.exists()
    finally:
        processes[1].kill()
        processes[1].wait()
        for process in processes:
            process.stdout.close()

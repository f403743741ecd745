"""A checkpoint directory is whole or absent, whatever happens while it is written; damage is never read as data."""

import errno
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from bert import REPOSITORY
from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints.directories import (
    MANIFEST,
    CheckpointError,
    amend_checkpoint,
    list_steps,
    make_room,
    newest_valid,
    prune,
    remove_temporaries,
    require_space,
    run_lock,
    verify,
    write_checkpoint,
)
from bert.files import only_writer
from data.fetching.transfer import exclusive

CONTENTS = {"bert.safetensors": bytes(range(256)) * 4, "bert_progress.json": b'{"step": 5}', "vocab.txt": b"[PAD]\n"}


def files(contents: dict[str, bytes] = CONTENTS):
    def write(directory: Path) -> None:
        for name, content in contents.items():
            (directory / name).write_bytes(content)

    return write


def contents_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != MANIFEST}


@pytest.fixture
def refusals(caplog):
    """The log lines about checkpoints that do not verify."""
    return lambda: [record.getMessage() for record in caplog.records]


def test_what_is_written_verifies_and_leaves_nothing_else(tmp_path, refusals):
    directory = write_checkpoint(tmp_path, 5, files())
    assert directory == tmp_path / "5"
    manifest = verify(directory).manifest
    assert (manifest["format_version"], manifest["step"], set(manifest["files"])) == (1, 5, set(CONTENTS))
    assert contents_of(directory) == CONTENTS
    assert [path.name for path in tmp_path.iterdir()] == ["5"]
    assert newest_valid(tmp_path).directory == directory and not refusals()


def test_every_file_is_synced_before_the_rename_and_the_parent_after(tmp_path, monkeypatch):
    events = []
    fsync, rename = os.fsync, Path.rename
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(Path(os.readlink(f"/proc/self/fd/{fd}"))), fsync(fd)))
    monkeypatch.setattr(Path, "rename", lambda path, to: (events.append(f"rename to {to.name}"), rename(path, to))[1])
    write_checkpoint(tmp_path, 5, files())
    (at,) = [i for i, event in enumerate(events) if isinstance(event, str)]
    synced = [path.name for path in events[:at]]
    assert sorted(synced[:3]) == sorted(CONTENTS)
    assert synced[3] == MANIFEST
    assert synced[4].startswith(".saving-5")
    assert events[at:] == ["rename to 5", tmp_path]


# Damage


@pytest.mark.parametrize("name", [*CONTENTS, MANIFEST])
def test_truncation_is_refused_and_the_file_named(tmp_path, name):
    directory = write_checkpoint(tmp_path, 5, files())
    whole = (directory / name).read_bytes()
    for length in {0, 1, len(whole) // 2, len(whole) - 1}:
        (directory / name).write_bytes(whole[:length])
        with pytest.raises(CheckpointError, match=name):
            verify(directory)


def test_no_flipped_bit_is_read_as_data(tmp_path):
    """400 single-bit flips at random places of all files, the manifest included, none silent."""
    directory = write_checkpoint(tmp_path, 5, files())
    accepted = verify(directory)
    generator = random.Random(7)
    harmless = 0
    for _ in range(400):
        path = directory / generator.choice([*CONTENTS, MANIFEST])
        whole = path.read_bytes()
        place, bit = generator.randrange(len(whole)), generator.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
        try:
            found = verify(directory)
        except CheckpointError as error:
            assert str(directory) in str(error)
        else:
            # Only a manifest that still says the same of every file may pass: its step, or white space.
            assert path.name == MANIFEST and found.manifest["files"] == accepted.manifest["files"]
            harmless += 1
        path.write_bytes(whole)
    assert harmless < 25
    verify(directory)


@pytest.mark.parametrize(
    "damage,message",
    [
        (lambda d: (d / "vocab.txt").unlink(), "lacks vocab.txt"),
        (lambda d: (d / "other.bin").write_bytes(b""), "has other.bin, which its manifest.json does not list"),
        (lambda d: (d / MANIFEST).unlink(), "has no manifest.json"),
        (lambda d: (d / MANIFEST).write_text("[]"), "is not a manifest"),
        (
            lambda d: (d / MANIFEST).write_text('{"format_version": 1, "files": {"vocab.txt": {}}}'),
            "does not list bytes",
        ),
        (lambda d: (d / MANIFEST).write_text('{"format_version": 1, "files": {"vocab.txt": 3}}'), "manifest"),
        (
            lambda d: (d / MANIFEST).write_text('{"format_version": 2, "files": {}}'),
            "format_version 2, this program reads",
        ),
        (lambda d: (d / MANIFEST).write_bytes(b"\xff\xfe\x00"), "is not a manifest"),
        (lambda d: [path.unlink() for path in d.iterdir()], "is not a complete checkpoint"),
        (lambda d: ((d / "vocab.txt").unlink(), (d / "vocab.txt").mkdir()), "vocab.txt"),
    ],
    ids=range(10),
)
def test_missing_added_and_foreign_files_are_refused_with_the_reason(tmp_path, refusals, damage, message):
    directory = write_checkpoint(tmp_path, 5, files())
    damage(directory)
    with pytest.raises(CheckpointError, match=message):
        verify(directory)
    write_checkpoint(tmp_path, 4, files())
    assert newest_valid(tmp_path).directory == tmp_path / "4"
    assert len(refusals()) == 1 and message in refusals()[0]


def test_newest_valid_falls_back_step_by_step_and_counts_by_number(tmp_path, refusals):
    for step in (9, 100, 20):
        write_checkpoint(tmp_path, step, files())
    os.utime(tmp_path / "9")  # the newest by clock is not the newest
    assert newest_valid(tmp_path).directory == tmp_path / "100" and not refusals()
    (tmp_path / "100" / "vocab.txt").write_bytes(b"")
    assert newest_valid(tmp_path).directory == tmp_path / "20"
    (tmp_path / "20" / MANIFEST).unlink()
    (tmp_path / "9" / "bert.safetensors").unlink()
    assert newest_valid(tmp_path) is None
    assert len(refusals()) == 4
    assert newest_valid(tmp_path / "nowhere") is None and len(refusals()) == 4


def test_only_numbered_directories_are_steps(tmp_path):
    for name in ("12", "x3", ".saving-7-1", "best", "²"):
        (tmp_path / name).mkdir()
    (tmp_path / "44").write_text("a file")
    assert list_steps(tmp_path) == [12]


def test_a_checkpoint_is_hashed_once_when_saved_and_once_when_read(tmp_path, monkeypatch):
    hashed = []
    real = checkpoint_files.sha256_of_file
    monkeypatch.setattr(checkpoint_files, "sha256_of_file", lambda path: (hashed.append(path.name), real(path))[1])
    write_checkpoint(tmp_path, 5, files())
    assert sorted(hashed) == sorted(CONTENTS)
    found = newest_valid(tmp_path)
    assert verify(found) is found
    assert sorted(hashed) == sorted([*CONTENTS, *CONTENTS])


# Interruption


class Failure(OSError):
    pass


def failing(function, at: int):
    calls = iter(range(10**6))

    def call(*args, **kwargs):
        if next(calls) == at:
            raise Failure(28, "No space left on device")
        return function(*args, **kwargs)

    return call


@pytest.mark.parametrize("replaces", [False, True], ids=["new_step", "same_step"])
@pytest.mark.parametrize("owner,name", [(os, "fsync"), (Path, "rename"), (Path, "write_text"), (Path, "mkdir")])
def test_an_error_at_any_call_leaves_the_old_or_the_new_checkpoint_whole(
    tmp_path, monkeypatch, refusals, owner, name, replaces
):
    new = {**CONTENTS, "vocab.txt": b"new\n"}
    failures = 0
    for at in range(20):
        parent = tmp_path / str(at)
        write_checkpoint(parent, 4, files())
        step = 4 if replaces else 5
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, failing(getattr(owner, name), at))
            try:
                write_checkpoint(parent, step, files(new))
            except Failure:
                failures += 1
            else:
                assert contents_of(parent / str(step)) == new
                break
        remove_temporaries(parent)
        newest = newest_valid(parent)
        assert newest is not None and contents_of(newest.directory) in (CONTENTS, new) and not refusals(), at
        assert {path.name for path in parent.iterdir()} <= {"4", "5"}, at
        write_checkpoint(parent, step, files(new))  # and the next save works
        assert contents_of(parent / str(step)) == new
    assert failures > 0


@pytest.mark.parametrize("owner,name", [(os, "fsync"), (Path, "rename"), (Path, "write_text"), (Path, "mkdir")])
def test_an_error_while_it_is_amended_leaves_a_checkpoint_as_it_was_or_amended(tmp_path, monkeypatch, owner, name):
    amended = {**CONTENTS, "vocab.txt": b"new\n"}
    failures = 0
    for at in range(20):
        parent = tmp_path / str(at)
        write_checkpoint(parent, 4, files())
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, failing(getattr(owner, name), at))
            try:
                amend_checkpoint(parent, 4, {"vocab.txt": "new\n"})
            except Failure:
                failures += 1
            else:
                assert contents_of(parent / "4") == amended
                break
        remove_temporaries(parent)
        newest = newest_valid(parent)
        assert newest is not None and contents_of(newest.directory) in (CONTENTS, amended), at
    assert failures > 0


KILLED_WRITER = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from bert.checkpoints import directories as checkpoint_files
parent, step, boundary = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
seen = 0
def hook(frame, event, argument):
    # Every call and return of a system call that writing makes is a boundary.
    global seen
    if event in ("c_call", "c_return") and getattr(argument, "__name__", "") in NAMES:
        if seen == boundary:
            os.kill(os.getpid(), signal.SIGKILL)
        seen += 1
NAMES = {"open", "fsync", "rename", "mkdir", "rmdir", "unlink", "write", "close", "scandir"}
def write(directory):
    for name in ("a.bin", "b.bin"):
        (directory / name).write_bytes(b"new" * 1000)
with checkpoint_files.run_lock(parent):
    sys.setprofile(hook)
    checkpoint_files.write_checkpoint(parent, step, write)
    checkpoint_files.prune(parent, 1)
    sys.setprofile(None)
print("boundaries", seen)
"""


def run_writer(parent: Path, step: int, boundary: int) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", KILLED_WRITER, str(REPOSITORY), str(parent), str(step), str(boundary)],
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.thorough
@pytest.mark.parametrize("step", [4, 5], ids=["same_step", "new_step"])
def test_kill_9_at_every_boundary_leaves_a_whole_checkpoint_and_the_next_run_continues(tmp_path, refusals, step):
    """Saving and pruning to one checkpoint: at no boundary are there fewer than one."""
    old, new = {"a.bin": b"old", "b.bin": b"old"}, {"a.bin": b"new" * 1000, "b.bin": b"new" * 1000}
    whole = tmp_path / "whole"
    write_checkpoint(whole, 4, files(old))
    finished = run_writer(whole, step, 10**6)
    assert finished.returncode == 0, finished.stderr
    boundaries = int(finished.stdout.split()[1])
    assert boundaries > 30
    for boundary in range(boundaries):
        parent = tmp_path / str(boundary)
        write_checkpoint(parent, 4, files(old))
        killed = run_writer(parent, step, boundary)
        assert killed.returncode == -signal.SIGKILL
        with run_lock(parent):  # the kernel released the lock; what was set aside comes back
            newest = newest_valid(parent)
            assert newest is not None and not refusals(), boundary
            assert contents_of(newest.directory) in (old, new), boundary
            write_checkpoint(parent, step, files(new))
            prune(parent, 1)
            assert contents_of(newest_valid(parent).directory) == new
            assert {path.name for path in parent.iterdir()} == {str(step), ".lock"}


def test_leftovers_of_a_killed_process_of_the_same_number_do_not_stop_the_next(tmp_path):
    """In a container every run is process 1 or so."""
    leftover = tmp_path / f".saving-5-{os.getpid()}"
    leftover.mkdir()
    (leftover / "half.bin").write_bytes(b"half")
    assert contents_of(write_checkpoint(tmp_path, 5, files())) == CONTENTS
    assert [path.name for path in tmp_path.iterdir()] == ["5"]


def test_a_writer_that_raises_leaves_nothing(tmp_path):
    def write(directory: Path) -> None:
        (directory / "a").write_text("a")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(tmp_path, 5, write)
    assert not list(tmp_path.iterdir())


# Pruning and space


def test_pruning_keeps_the_newest_whoever_wrote_them(tmp_path):
    for step in (3, 20, 100, 9):
        write_checkpoint(tmp_path, step, files())
    prune(tmp_path, 3)
    assert list_steps(tmp_path) == [9, 20, 100]
    prune(tmp_path, 3)
    assert list_steps(tmp_path) == [9, 20, 100]
    prune(tmp_path, 1)
    assert list_steps(tmp_path) == [100]


def test_pruning_that_fails_half_way_leaves_no_half_step(tmp_path, monkeypatch):
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step, files())
    monkeypatch.setattr(checkpoint_files.shutil, "rmtree", lambda *args, **kwargs: None)
    prune(tmp_path, 1)
    assert list_steps(tmp_path) == [3]
    monkeypatch.undo()
    remove_temporaries(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["3"]


def small_disk(monkeypatch, parent: Path, capacity: int) -> None:
    """The folder is a disk of `capacity` bytes."""

    def usage(_):
        used = sum(path.stat().st_size for path in parent.rglob("*") if path.is_file())
        return SimpleNamespace(free=max(0, capacity - used))

    monkeypatch.setattr(checkpoint_files.shutil, "disk_usage", usage)


@pytest.fixture
def four_steps(tmp_path):
    """Checkpoints 1 to 4 of more than 1,000 bytes, 2 the best, and one set aside."""
    for step in (1, 2, 3, 4, 9):
        write_checkpoint(tmp_path, step, files())
    checkpoint_files.set_aside_newer(tmp_path, 8)
    checkpoint_files.write_best(tmp_path, 2, {})
    return tmp_path


def test_surplus_checkpoints_are_pruned_before_a_save_only_where_the_disk_is_full(four_steps, monkeypatch):
    size = sum(path.stat().st_size for path in four_steps.rglob("*") if path.is_file())
    small_disk(monkeypatch, four_steps, size + 1000)
    make_room(four_steps, 1000, 1)
    assert list_steps(four_steps) == [1, 2, 3, 4], "there is room"
    make_room(four_steps, 1001, 1)
    assert list_steps(four_steps) == [2, 3, 4], "the oldest, no more than needed"


def test_the_newest_valid_and_the_best_are_never_pruned_for_room(four_steps, monkeypatch):
    small_disk(monkeypatch, four_steps, 0)
    make_room(four_steps, 10**9, 4)
    assert list_steps(four_steps) == [2, 3, 4], "of four that may be kept the new one replaces one"
    assert not list(four_steps.glob("*.set-aside-*")), "what was set aside goes next"
    make_room(four_steps, 10**9, 1)
    assert list_steps(four_steps) == [2, 4]
    (four_steps / "4" / MANIFEST).unlink()
    write_checkpoint(four_steps, 3, files())
    make_room(four_steps, 10**9, 1)
    assert list_steps(four_steps) == [2, 3], "the newest is damaged"
    for step in (2, 3):
        (four_steps / str(step) / MANIFEST).unlink()
    make_room(four_steps, 10**9, 1)
    assert list_steps(four_steps) == [2, 3], "none is valid: nothing is deleted"


def test_a_save_that_cannot_fit_is_refused_before_it_starts(tmp_path):
    require_space(tmp_path, 1)
    with pytest.raises(CheckpointError, match="the checkpoint needs 1000000000000 MB; free some space, lower --keep"):
        require_space(tmp_path, 10**18)


# Lock

HOLDER = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from bert.checkpoints.directories import run_lock
with run_lock(Path(sys.argv[2])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_run_is_refused_and_a_killed_one_leaves_no_lock(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(REPOSITORY), str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointError, match=rf"in use by another run \(process {holder.pid} on .*output-dir"):
            with run_lock(tmp_path):
                pass
    finally:
        holder.kill()
        holder.wait()
    with run_lock(tmp_path):
        assert str(os.getpid()) in (tmp_path / ".lock").read_text()


def test_a_file_system_without_locks_is_used_with_a_warning(tmp_path, monkeypatch, caplog):
    def no_locks(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))  # Lustre mounted without `flock`

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with run_lock(tmp_path):
        assert (tmp_path / ".lock").is_file()
    assert f"{tmp_path}: its file system has no locks" in caplog.text
    with exclusive(tmp_path / "model"), only_writer(tmp_path):
        assert (tmp_path / "model").is_file()


def test_the_lock_is_free_after_the_run(tmp_path):
    for _ in range(2):
        with run_lock(tmp_path / "new" / "folder"):
            pass


def test_a_manifest_is_plain_json_with_size_and_sha256(tmp_path):
    import hashlib

    manifest = json.loads((write_checkpoint(tmp_path, 5, files()) / MANIFEST).read_text())
    for name, content in CONTENTS.items():
        assert manifest["files"][name] == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

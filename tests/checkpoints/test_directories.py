"""A checkpoint directory is whole or absent, whatever happens while it is written; damage is never read as data.

BERT_FULL_FAULTS=1 tries 1,000 truncations and 2,000 bit flips instead of 50 and 200.
"""

import errno
import fcntl
import hashlib
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints.chosen_weights import weights_folder
from bert.checkpoints.directories import (
    BEST,
    MANIFEST,
    CheckpointError,
    amend_checkpoint,
    final_step,
    list_steps,
    make_room,
    name_step,
    named_step,
    newest_valid,
    prune,
    remove_temporaries,
    require_space,
    run_lock,
    verify,
    write_checkpoint,
)
from bert.files import only_writer, waiting_lock
from tests.faults.boundaries import count_boundaries, kill_at
from tests.support.full_counts import IS_FULL, times
from tests.support.waiting import wait_until

CONTENTS = {
    "bert.safetensors": bytes(range(256)) * 4,
    "bert_optimizer.safetensors": bytes(range(256)) * 8,
    "bert_progress.json": b'{"step": 5}',
    "vocab.txt": b"[PAD]\n",
}
NEW = {**CONTENTS, "vocab.txt": b"new\n"}


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


@pytest.fixture
def newest(tmp_path) -> Path:
    """The folder of step 5; step 4 is beside it."""
    write_checkpoint(tmp_path, 4, files())
    return write_checkpoint(tmp_path, 5, files())


def test_what_is_written_verifies_and_leaves_nothing_else(tmp_path, refusals):
    directory = write_checkpoint(tmp_path, 5, files())
    assert directory == tmp_path / "5"
    assert (directory / MANIFEST).read_text() == json.dumps(verify(directory).manifest, indent=1), "for people too"
    assert verify(directory).manifest == {
        "format_version": 1,
        "step": 5,
        "files": {
            name: {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in CONTENTS.items()
        },
    }
    assert contents_of(directory) == CONTENTS
    assert [path.name for path in tmp_path.iterdir()] == ["5"]
    assert newest_valid(tmp_path).directory == directory and not refusals()


# Damage


def assert_falls_back(newest: Path, name: str, refusals) -> None:
    """Check that the damaged checkpoint is refused, in words that name the file, and the one before it is taken."""
    with pytest.raises(CheckpointError) as error:
        verify(newest)
    before = len(refusals())
    assert newest_valid(newest.parent).directory == newest.parent / "4"
    assert name in str(error.value) and [name in line for line in refusals()[before:]] == [True]


def test_truncation_is_refused_and_the_file_named(newest, refusals):
    generator, trials = random.Random(4), times(50, 1000)
    for number in range(trials):
        path = newest / sorted([*CONTENTS, MANIFEST])[number % (len(CONTENTS) + 1)]
        whole = path.read_bytes()
        path.write_bytes(whole[: generator.choice([0, len(whole) - 1, generator.randrange(len(whole))])])
        assert_falls_back(newest, path.name, refusals)
        path.write_bytes(whole)


def test_no_flipped_bit_is_read_as_data(newest):
    """Flip single bits at random places of all files, the manifest included: no change goes unnoticed."""
    accepted, generator = verify(newest), random.Random(7)
    harmless, trials = 0, times(200, 2000)
    for _ in range(trials):
        path = newest / generator.choice([*CONTENTS, MANIFEST])
        whole = path.read_bytes()
        place, bit = generator.randrange(len(whole)), generator.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
        try:
            flipped = verify(newest)
        except CheckpointError as error:
            assert str(newest) in str(error)
        else:
            # Only a manifest that still says the same of every file may pass: its step, or white space.
            assert path.name == MANIFEST and flipped.manifest["files"] == accepted.manifest["files"]
            harmless += 1
        path.write_bytes(whole)
    assert harmless < trials / 10


def edited(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        manifest = json.loads((folder / MANIFEST).read_text())
        change(manifest)
        (folder / MANIFEST).write_text(json.dumps(manifest))

    return damage


def as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


FOREIGN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no parameters": (lambda d: (d / "bert.safetensors").unlink(), "lacks bert.safetensors"),
    "no optimizer state": (lambda d: (d / "bert_optimizer.safetensors").unlink(), "lacks bert_optimizer.safetensors"),
    "no progress": (lambda d: (d / "bert_progress.json").unlink(), "lacks bert_progress.json"),
    "no vocabulary": (lambda d: (d / "vocab.txt").unlink(), "lacks vocab.txt"),
    "no manifest": (lambda d: (d / MANIFEST).unlink(), "has no manifest.json"),
    "a file too many": (lambda d: (d / "notes").write_text("mine"), "has notes, which its manifest.json does not list"),
    "an editor's backup": (lambda d: shutil.copy(d / "vocab.txt", d / "vocab.txt~"), "vocab.txt~"),
    "a folder too many": (lambda d: (d / "sub").mkdir(), "has sub"),
    "an empty directory": (lambda d: [path.unlink() for path in d.iterdir()], "is not a complete checkpoint"),
    "a file that is a folder": (lambda d: as_folder(d / "vocab.txt"), "vocab.txt is not a file"),
    "a manifest that is a folder": (lambda d: as_folder(d / MANIFEST), MANIFEST),
    "a manifest that is a list": (lambda d: (d / MANIFEST).write_text("[]"), "is not a manifest"),
    "a later format": (edited(lambda m: m.update(format_version=2)), "format_version 2, this program reads"),
    "a format that is no number": (edited(lambda m: m.update(format_version="1")), "format_version 1"),
    "a manifest without files": (edited(lambda m: m.pop("files")), "is not a manifest"),
    "files that are a list": (edited(lambda m: m.update(files=[])), "is not a manifest"),
    "a file that is a number": (edited(lambda m: m["files"].update({"vocab.txt": 3})), "does not list bytes"),
    "files without a checksum": (edited(lambda m: m["files"]["vocab.txt"].pop("sha256")), "does not list bytes"),
    "a checksum of another file": (
        edited(lambda m: m["files"]["vocab.txt"].update(sha256=m["files"]["bert.safetensors"]["sha256"])),
        "vocab.txt does not have the sha256",
    ),
    "a manifest of bytes": (lambda d: (d / MANIFEST).write_bytes(b"\xff\xfe\x00"), "is not a manifest"),
    "files exchanged": (
        lambda d: shutil.copy(d / "bert.safetensors", d / "bert_optimizer.safetensors"),
        "bert_optimizer.safetensors has 1024 bytes",
    ),
    "a link to nothing": (
        lambda d: ((d / "vocab.txt").unlink(), (d / "vocab.txt").symlink_to("gone")),
        "vocab.txt is not a file",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_missing_added_and_foreign_files_are_refused_with_the_reason(newest, refusals, name):
    damage, message = FOREIGN[name]
    leftover = newest.parent / ".saving-6-1"  # of a killed save, which no run may take for a checkpoint
    leftover.mkdir()
    damage(newest)
    assert_falls_back(newest, message, refusals)
    with run_lock(newest.parent):  # the next run clears up
        assert not leftover.exists()
        write_checkpoint(newest.parent, 5, files())
    assert contents_of(newest_valid(newest.parent).directory) == CONTENTS


def test_all_missing_files_and_all_further_ones_are_named_in_order(newest):
    for name in CONTENTS:
        (newest / name).unlink()
    with pytest.raises(CheckpointError, match=f"5 lacks {', '.join(sorted(CONTENTS))}, which its manifest.json lists"):
        verify(newest)
    further = [f"file{number}" for number in range(6)]
    for name, content in [*CONTENTS.items(), *((name, b"") for name in further)]:
        (newest / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"5 has {', '.join(further)}, which its manifest.json does not list"):
        verify(newest)


def test_a_card_may_be_there_be_edited_or_be_missing(newest):
    """People edit the card by hand, so the manifest does not cover it."""
    for contents in ({**CONTENTS, "README.md": b"card"}, CONTENTS):
        directory = write_checkpoint(newest.parent, 6, files(contents))
        (directory / "README.md").write_text("by Anna")
        verify(directory)
        (directory / "README.md").unlink()
        verify(directory)


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


def test_a_disk_that_cannot_read_the_newest_falls_back_to_the_one_before(newest, refusals, monkeypatch):
    """EIO is the error of a failing disk, not of a damaged file."""
    real = checkpoint_files.sha256_of_file

    def unreadable(path):
        if path.parent == newest:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return real(path)

    monkeypatch.setattr(checkpoint_files, "sha256_of_file", unreadable)
    assert newest_valid(newest.parent).directory == newest.parent / "4"
    (line,) = refusals()
    assert line.startswith("checkpoint refused, trying an older one: [Errno 5] Input/output error")


def test_the_newest_valid_checkpoint_up_to_a_step(tmp_path, refusals):
    for step in (2, 4, 6):
        write_checkpoint(tmp_path, step, files())
    assert [newest_valid(tmp_path, up_to=step).directory.name for step in (2, 3, 4, 9)] == ["2", "2", "4", "6"]
    assert newest_valid(tmp_path, up_to=1) is None and not refusals()


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


ACTIONS: dict[str, tuple[int, Callable[[Path], object]]] = {  # step after it, action beside step 4
    "new step": (5, lambda parent: write_checkpoint(parent, 5, files(NEW))),
    "same step": (4, lambda parent: write_checkpoint(parent, 4, files(NEW))),
    "amended": (4, lambda parent: amend_checkpoint(parent, 4, {"vocab.txt": "new\n"})),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("owner,name", [(os, "fsync"), (Path, "rename"), (Path, "write_text"), (Path, "mkdir")])
def test_an_error_at_any_call_leaves_the_old_or_the_new_checkpoint_whole(
    tmp_path, monkeypatch, refusals, owner, name, action
):
    step, act = ACTIONS[action]
    failures = 0
    for at in range(20):
        parent = tmp_path / str(at)
        write_checkpoint(parent, 4, files())
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, failing(getattr(owner, name), at))
            try:
                act(parent)
            except Failure:
                failures += 1
            else:
                assert contents_of(parent / str(step)) == NEW
                break
        remove_temporaries(parent)
        newest = newest_valid(parent)
        assert newest is not None and contents_of(newest.directory) in (CONTENTS, NEW) and not refusals(), at
        assert {path.name for path in parent.iterdir()} <= {"4", "5"}, at
        act(parent)  # and the next save works
        assert contents_of(parent / str(step)) == NEW
    assert failures > 0


@pytest.mark.long
@pytest.mark.parametrize("step", [4, 5], ids=["same_step", "new_step"])
def test_kill_9_at_every_boundary_leaves_a_whole_checkpoint_and_the_next_run_continues(tmp_path, refusals, step):
    """The boundaries are calls and returns of system calls in a save that prunes to one checkpoint: a third, or all."""

    def save_and_prune(parent: Path) -> None:
        with run_lock(parent):
            write_checkpoint(parent, step, files(NEW))
            prune(parent, 1)

    write_checkpoint(tmp_path / "whole", 4, files())
    boundaries = count_boundaries(lambda: save_and_prune(tmp_path / "whole"))
    assert boundaries > 30
    tried = range(boundaries) if IS_FULL else range(step % 3, boundaries, 3)
    for boundary in tried:
        parent = tmp_path / str(boundary)
        write_checkpoint(parent, 4, files())
        kill_at(boundary, lambda parent=parent: save_and_prune(parent))
        with run_lock(parent):  # the kernel released the lock; what was set aside comes back
            newest = newest_valid(parent)
            assert newest is not None and not refusals(), boundary
            assert contents_of(newest.directory) in (CONTENTS, NEW), boundary
        save_and_prune(parent)
        assert contents_of(newest_valid(parent).directory) == NEW
        assert {path.name for path in parent.iterdir()} == {str(step), ".lock"}


def test_leftovers_of_a_killed_process_of_the_same_number_do_not_stop_the_next(tmp_path):
    """Every run in a container may have the process number 1."""
    leftover = tmp_path / f".saving-5-{os.getpid()}"
    leftover.mkdir()
    (leftover / "half.bin").write_bytes(b"half")
    assert contents_of(write_checkpoint(tmp_path, 5, files())) == CONTENTS
    assert [path.name for path in tmp_path.iterdir()] == ["5"]


# Which weights


def test_weights_of_phase_2_are_preferred_to_those_of_phase_1(tmp_path):
    for step in ("bert/phase1/9", "bert/phase2/3", "bert/phase2/4"):
        write_checkpoint((tmp_path / step).parent, int(Path(step).name), files())
    found = {
        folder: weights_folder(tmp_path / folder).relative_to(tmp_path)
        for folder in (".", "bert", "bert/phase1", "bert/phase1/9", "bert/phase2")
    }
    assert {folder: str(path) for folder, path in found.items()} == {
        ".": "bert/phase2/4",
        "bert": "bert/phase2/4",
        "bert/phase1": "bert/phase1/9",
        "bert/phase1/9": "bert/phase1/9",
        "bert/phase2": "bert/phase2/4",
    }
    name_step(tmp_path / "bert/phase2", BEST, 3)
    assert weights_folder(tmp_path).name == "4", "the last, unless the best is the result"
    name_step(tmp_path / "bert/phase2", BEST, 3, {"is_final": True})
    assert weights_folder(tmp_path).name == "3"
    write_checkpoint(tmp_path / "other/phase1", 5, files())
    with pytest.raises(CheckpointError, match=r"holds checkpoints of several runs \(.*bert/phase2, .*other/phase1\)"):
        weights_folder(tmp_path)


def test_a_folder_without_steps_is_itself_that_of_weights(tmp_path):
    assert weights_folder(tmp_path / "nowhere") == tmp_path / "nowhere"
    write_checkpoint(tmp_path / "exported", 5, files())
    (tmp_path / "exported" / "5").rename(tmp_path / "exported" / "model")
    assert weights_folder(tmp_path / "exported") == tmp_path / "exported"


def test_the_named_step_is_one_that_is_there(tmp_path):
    assert named_step(tmp_path, BEST) is None and final_step(tmp_path) is None
    write_checkpoint(tmp_path, 4, files())
    write_checkpoint(tmp_path, 6, files())
    name_step(tmp_path, BEST, 5, {"is_final": True})
    assert not (tmp_path / BEST).exists(), "it is not there"
    name_step(tmp_path, BEST, 4, {"eval_loss": 2.5, "is_final": True})
    assert (tmp_path / BEST).read_text() == '{\n "step": 4,\n "eval_loss": 2.5,\n "is_final": true\n}\n'
    assert named_step(tmp_path, BEST) == 4 == final_step(tmp_path)
    assert checkpoint_files.named_steps(tmp_path) == {4, None}, "none is the stable one"
    shutil.rmtree(tmp_path / "4")
    assert named_step(tmp_path, BEST) is None and final_step(tmp_path) == 6
    (tmp_path / BEST).write_text('{"step": "6", "is_final": true}')
    assert named_step(tmp_path, BEST) is None and final_step(tmp_path) == 6


def test_steps_are_folders_with_the_name_of_a_number(tmp_path):
    for name in ("10", "9", "phase1", ".saving-11-3", "12.set-aside-1", "-4"):
        (tmp_path / name).mkdir()
    (tmp_path / "8").touch()
    assert list_steps(tmp_path) == [9, 10] and list_steps(tmp_path / "nowhere") == []


# Pruning and space


def test_pruning_keeps_the_newest_the_best_the_stable_and_as_many_of_those_set_aside(tmp_path):
    for step in range(1, 9):
        write_checkpoint(tmp_path, step, files())
    name_step(tmp_path, BEST, 2)
    name_step(tmp_path, checkpoint_files.STABLE, 4)
    moved = []
    for step in (8, 7, 6):  # the later it is set aside, the newer it is, whatever its step
        moved += checkpoint_files.set_aside_newer(tmp_path, step - 1)
        wait_until(lambda last=moved[-1]: time.time_ns() > last.stat().st_ctime_ns + 10**7)
    assert [path.name for path in moved] == ["8.set-aside-1", "7.set-aside-1", "6.set-aside-1"]
    prune(tmp_path, 2)
    assert list_steps(tmp_path) == [2, 4, 5]
    assert {path.name for path in tmp_path.glob("*.set-aside-*")} == {"7.set-aside-1", "6.set-aside-1"}
    prune(tmp_path, 5)
    assert list_steps(tmp_path) == [2, 4, 5], "fewer than may be kept"


def test_what_is_set_aside_gets_a_name_of_its_own(tmp_path):
    for _ in range(2):
        for step in (3, 4, 5):
            write_checkpoint(tmp_path, step, files())
        checkpoint_files.set_aside_newer(tmp_path, 3)
    names = ["3", "4.set-aside-1", "4.set-aside-2", "5.set-aside-1", "5.set-aside-2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_pruning_that_fails_half_way_leaves_no_half_step(tmp_path, monkeypatch):
    for step in (1, 2, 3):
        write_checkpoint(tmp_path, step, files())
    monkeypatch.setattr(checkpoint_files.shutil, "rmtree", lambda *args, **kwargs: None)
    prune(tmp_path, 1)
    assert list_steps(tmp_path) == [3]
    monkeypatch.undo()
    (tmp_path / ".best.json.host.1.tmp").touch()  # of an atomic write that was killed
    remove_temporaries(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["3"]


def small_disk(monkeypatch, parent: Path, capacity: int) -> None:
    """Stand in for a disk of `capacity` bytes at the folder."""

    def usage(_):
        used = sum(path.stat().st_size for path in parent.rglob("*") if path.is_file())
        return SimpleNamespace(free=max(0, capacity - used))

    monkeypatch.setattr(checkpoint_files.shutil, "disk_usage", usage)


@pytest.fixture
def four_steps(tmp_path):
    """Write checkpoints 1 to 4 of more than 1,000 bytes, 2 the best, and one that is set aside."""
    for step in (1, 2, 3, 4, 9):
        write_checkpoint(tmp_path, step, files())
    checkpoint_files.set_aside_newer(tmp_path, 8)
    checkpoint_files.name_step(tmp_path, checkpoint_files.BEST, 2)
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


def test_a_save_that_cannot_fit_is_refused_before_it_starts(tmp_path, monkeypatch):
    free = shutil.disk_usage(tmp_path)._replace(free=2000)
    monkeypatch.setattr(checkpoint_files.shutil, "disk_usage", lambda _: free)
    require_space(tmp_path, 2000)
    with pytest.raises(CheckpointError, match="has 0.0 MB free and the checkpoint needs 0.0 MB"):
        require_space(tmp_path, 2001)
    with pytest.raises(CheckpointError, match="the checkpoint needs 1000000000000.0 MB; free some space, lower --keep"):
        require_space(tmp_path, 10**18)


# Lock


def test_a_file_system_without_locks_is_used_with_a_warning(tmp_path, monkeypatch, caplog):
    def no_locks(*_):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))  # Lustre mounted without `flock`

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with run_lock(tmp_path):
        assert (tmp_path / ".lock").is_file()
    assert f"{tmp_path}: its file system has no locks" in caplog.text
    with waiting_lock(tmp_path / "model", "process"), only_writer(tmp_path):
        assert (tmp_path / "model").is_file()


def test_a_second_run_is_refused_and_told_of_the_first_alone(tmp_path):
    (tmp_path / ".lock").write_text("process 123456789123456789 on a host with a long name")  # of a run that ended
    with run_lock(tmp_path):
        holder = f"process {os.getpid()} on {os.uname().nodename}"
        assert (tmp_path / ".lock").read_text() == holder
        with pytest.raises(CheckpointError) as error, run_lock(tmp_path):
            pass
        assert f"{tmp_path} is in use by another run ({holder}); wait for it, stop it, or" in str(error.value)
    with run_lock(tmp_path / "a" / "b"):
        assert (tmp_path / "a/b/.lock").read_text() == holder

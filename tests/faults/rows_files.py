"""Rows about checkpoint directories: damage, foreign files, crashes while pruning."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints.directories import MANIFEST, CheckpointError, newest_valid, verify
from tests.faults.harness import Row, Trials
from tests.support.messages import messages

FILES = {
    "bert.safetensors": os.urandom(4096),
    "bert_optimizer.safetensors": os.urandom(8192),
    "bert_progress.json": b'{"step": 5}',
    "vocab.txt": b"[PAD]\n[UNK]\n",
}


def save(parent: Path, step: int, files: dict[str, bytes] = FILES) -> Path:
    return checkpoint_files.write_checkpoint(
        parent, step, lambda folder: [(folder / name).write_bytes(data) for name, data in files.items()] and None
    )


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name != MANIFEST}


def two_checkpoints(trials: Trials) -> tuple[Path, Path]:
    """(parent, newest): step 4, which stays whole, and step 5."""
    parent = trials.folder / "run"
    save(parent, 4)
    return parent, save(parent, 5)


def must_fall_back(parent: Path, damaged: Path, name: str) -> None:
    """The damaged checkpoint is refused, in words that name the file, and the one before it is taken."""
    try:
        verify(damaged)
    except CheckpointError as error:
        assert name in str(error), error
    else:
        raise AssertionError("the damage was accepted")
    with messages() as said:
        assert newest_valid(parent).directory == parent / "4"
    assert len(said) == 1 and name in said[0], said


def truncations(trials: Trials) -> None:
    parent, newest = two_checkpoints(trials)
    for number in range(trials.count):
        name = sorted([*FILES, MANIFEST])[number % (len(FILES) + 1)]
        whole = (newest / name).read_bytes()
        keep = trials.random.choice([0, len(whole) - 1, trials.random.randrange(len(whole))])
        (newest / name).write_bytes(whole[:keep])
        with trials.trial(f"{name} cut to {keep} bytes"):
            must_fall_back(parent, newest, name)
        (newest / name).write_bytes(whole)


def bit_flips(trials: Trials) -> None:
    parent, newest = two_checkpoints(trials)
    accepted, harmless = verify(newest), 0
    for _ in range(trials.count):
        path = newest / trials.random.choice([*FILES, MANIFEST])
        whole = path.read_bytes()
        place, bit = trials.random.randrange(len(whole)), trials.random.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
        with trials.trial(f"{path.name} byte {place} bit {bit}"):
            with messages() as said:
                found = newest_valid(parent).directory
            if found == newest:  # accepted: only where nothing that is read has changed
                assert path.name == MANIFEST and verify(newest).manifest["files"] == accepted.manifest["files"], (
                    "silent"
                )
                harmless += 1
            else:
                assert found == parent / "4" and str(newest) in said[0]
        path.write_bytes(whole)
    trials.note(f"{harmless} were in white space or the step of the manifest and changed nothing that is read")


def _edit_manifest(change: Callable[[dict], object]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        manifest = json.loads((folder / MANIFEST).read_text())
        change(manifest)
        (folder / MANIFEST).write_text(json.dumps(manifest))

    return damage


def _as_folder(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).mkdir()


FOREIGN: list[tuple[str, Callable[[Path], object], str]] = [
    ("no parameters", lambda d: (d / "bert.safetensors").unlink(), "bert.safetensors"),
    ("no optimizer state", lambda d: (d / "bert_optimizer.safetensors").unlink(), "bert_optimizer.safetensors"),
    ("no progress", lambda d: (d / "bert_progress.json").unlink(), "bert_progress.json"),
    ("no vocabulary", lambda d: (d / "vocab.txt").unlink(), "vocab.txt"),
    ("no manifest", lambda d: (d / MANIFEST).unlink(), MANIFEST),
    ("a file too many", lambda d: (d / "notes.txt").write_text("mine"), "notes.txt"),
    ("an editor's backup", lambda d: shutil.copy(d / "vocab.txt", d / "vocab.txt~"), "vocab.txt~"),
    ("a folder too many", lambda d: (d / "sub").mkdir(), "sub"),
    ("an empty directory", lambda d: [path.unlink() for path in d.iterdir()], MANIFEST),
    ("a file that is a folder", lambda d: _as_folder(d, "vocab.txt"), "vocab.txt"),
    ("a manifest that is a folder", lambda d: _as_folder(d, MANIFEST), MANIFEST),
    ("a later format", _edit_manifest(lambda m: m.update(format_version=2)), "format_version 2"),
    ("a format that is no number", _edit_manifest(lambda m: m.update(format_version="1")), "format_version 1"),
    ("a manifest without files", _edit_manifest(lambda m: m.pop("files")), MANIFEST),
    ("files that are a list", _edit_manifest(lambda m: m.update(files=[])), MANIFEST),
    ("files without a checksum", _edit_manifest(lambda m: m["files"]["vocab.txt"].pop("sha256")), MANIFEST),
    (
        "a checksum of another file",
        _edit_manifest(lambda m: m["files"]["vocab.txt"].update(sha256=m["files"]["bert.safetensors"]["sha256"])),
        "vocab.txt",
    ),
    ("a manifest of bytes", lambda d: (d / MANIFEST).write_bytes(b"\xff\xfe\x00"), MANIFEST),
    (
        "files exchanged",
        lambda d: shutil.copy(d / "bert.safetensors", d / "bert_optimizer.safetensors"),
        "bert_optimizer.safetensors",
    ),
    ("a link to nothing", lambda d: ((d / "vocab.txt").unlink(), (d / "vocab.txt").symlink_to("gone")), "vocab.txt"),
]


def foreign_files(trials: Trials) -> None:
    for number, (name, damage, named) in enumerate(trials.cases(FOREIGN)):
        trials_folder = trials.folder / str(number)
        parent = trials_folder / "run"
        save(parent, 4)
        damaged = save(parent, 5)
        # Leftovers of a killed save, which no run may take for a checkpoint.
        (parent / ".saving-6-1").mkdir()
        (parent / ".saving-6-1" / "half").write_text("half")
        damage(damaged)
        with trials.trial(name):
            must_fall_back(parent, damaged, named)
            with checkpoint_files.run_lock(parent):  # the next run clears up
                assert not (parent / ".saving-6-1").exists()
                save(parent, 5)
            assert contents(newest_valid(parent).directory) == FILES


def crashes_while_pruning(trials: Trials) -> None:
    """SIGKILL at system calls of save + prune to one checkpoint, each in a forked process."""
    from tests.faults.boundaries import count_boundaries, kill_at

    def save_and_prune(parent: Path) -> None:
        save(parent, 5)
        verify(parent / "5")
        checkpoint_files.prune(parent, 1)

    counted = trials.folder / "counted"
    save(counted, 4)
    boundaries = count_boundaries(lambda: save_and_prune(counted))
    trials.note(f"{boundaries} boundaries in a save with its pruning")
    chosen = [boundaries - 1 - number % boundaries for number in range(trials.count)]  # from the pruning backwards
    for number, boundary in enumerate(chosen):
        parent = trials.folder / str(number)
        save(parent, 4)
        kill_at(boundary, lambda parent=parent: save_and_prune(parent))
        with trials.trial(f"killed at boundary {boundary}"):
            with checkpoint_files.run_lock(parent):
                newest = newest_valid(parent)
                assert newest is not None, "no valid checkpoint is left"
                assert contents(newest.directory) == FILES
                save(parent, 6)
                checkpoint_files.prune(parent, 1)
            assert {path.name for path in parent.iterdir()} == {"6", ".lock"}
        shutil.rmtree(parent)


ROWS = [
    Row(
        4,
        "truncated checkpoint files",
        "refused, the file named, the one before is taken",
        truncations,
        50,
        1000,
        ("checkpoints are not verified",),
    ),
    Row(
        5, "bit flips in a checkpoint", "none is read as data", bit_flips, 200, 2000, ("checkpoints are not verified",)
    ),
    Row(
        6,
        "missing, added and foreign files, later formats, leftovers",
        "clear error, and the one before is taken",
        foreign_files,
        20,
        20,
        ("checkpoints are not verified",),
    ),
    Row(
        10,
        "kill -9 while pruning to one checkpoint",
        "one is valid, always",
        crashes_while_pruning,
        30,
        120,
        ("pruning takes all",),
    ),
]

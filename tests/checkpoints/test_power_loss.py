"""Simulated power losses after each disk operation of a save, by replaying the recorded operations.

The disk of the replay keeps as little as a file system may: content only of files that were flushed, and names of a
folder only up to its last flush: of the later changes the first ones, or all but one and what depends on it.
tests/faults replays whole runs.
"""

import errno
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bert import files as atomic_files
from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints.directories import amend_checkpoint, name_step, named_step, newest_valid, prune, write_checkpoint

OLD = {"bert.safetensors": b"old weights", "bert_progress.json": b"old"}
NEW = {"bert.safetensors": b"new weights", "bert_progress.json": b"new"}
Operation = tuple[str, Path, Path | None, dict[Path, bytes]]


def writer(contents: dict[str, bytes]):
    def write(directory: Path) -> None:
        for name, content in contents.items():
            (directory / name).write_bytes(content)

    return write


def tree(root: Path) -> dict[Path, bytes]:
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


class Recorder:
    """Records the disk operations of the code under test: flushes of a file or folder, renames, removals, in order."""

    def __init__(self, root: Path, monkeypatch, has_links: bool = True) -> None:
        self.root, self.operations = root, list[Operation]()
        fsync, link = os.fsync, os.link

        def flush(descriptor):
            self.add("flush", os.readlink(f"/proc/self/fd/{descriptor}"))
            fsync(descriptor)

        def linked(old, new):
            if not has_links:
                raise PermissionError(errno.EPERM, "Operation not permitted")
            link(old, new)
            self.add("link", old, new)

        monkeypatch.setattr(os, "fsync", flush)
        monkeypatch.setattr(os, "link", linked)
        monkeypatch.setattr(os, "replace", self.renaming(os.replace))
        monkeypatch.setattr(Path, "rename", self.renaming(Path.rename))
        monkeypatch.setattr(shutil, "rmtree", self.removing(shutil.rmtree))

    def add(self, kind: str, path, second=None) -> None:
        found = Path(path).relative_to(self.root)
        self.operations.append(
            (kind, found, None if second is None else Path(second).relative_to(self.root), tree(self.root))
        )

    def renaming(self, function):
        def rename(old, new):
            result = function(old, new)
            self.add("rename", old, new)
            return result

        return rename

    def removing(self, function):
        def remove(path, **options):
            function(path, **options)
            self.add("remove", path)

        return remove


class Disk:
    """Holds the content that surely is on the disk, and the changes of names that may or may not be there."""

    def __init__(self, before: dict[Path, bytes]) -> None:
        self.content, self.pending = dict(before), list[Operation]()

    def apply(self, operation: Operation) -> None:
        kind, path, second, after = operation
        if kind != "flush":
            self.pending.append(operation)
        elif path in after:  # a file: its content, by whatever name it has later
            self.content[path] = after[path]
        else:
            settled = [change for change in self.pending if path in (change[1].parent, (change[2] or change[1]).parent)]
            for change in settled:
                self.content = renamed(self.content, change)
                self.pending.remove(change)

    def states(self) -> Iterator[dict[Path, bytes]]:
        """Return the possible states: with the first of the pending changes, or without one and those that follow
        it."""
        pending = self.pending
        for lost in range(len(pending) + 1):
            yield applied(self.content, pending[:lost])
            names, kept = set[Path](), list[Operation]()
            for number, change in enumerate(pending):
                if number == lost or names & names_of(change):
                    names |= names_of(change)
                else:
                    kept.append(change)
            yield applied(self.content, kept)


def names_of(change: Operation) -> set[Path]:
    return {path for path in change[1:3] if path is not None}


def applied(content: dict[Path, bytes], changes: list[Operation]) -> dict[Path, bytes]:
    for change in changes:
        content = renamed(content, change)
    return content


def renamed(content: dict[Path, bytes], change: Operation) -> dict[Path, bytes]:
    """Return the files after a rename, a link or a removal; content that was never flushed is empty."""
    kind, path, second, after = change
    inside = {name for name in content if name == path or path in name.parents}
    if kind == "remove":
        return {name: data for name, data in content.items() if name not in inside}
    moved = {second / name.relative_to(path): content[name] for name in inside}
    for name in after:  # of the renamed folder or file, without a flush
        if name == second or second in name.parents:
            moved.setdefault(name, b"")
    kept = content if kind == "link" else {name: data for name, data in content.items() if name not in inside}
    return {**kept, **moved}


def save(parent: Path) -> None:
    """Save as a run does: write the checkpoint, name the best, prune to one."""
    write_checkpoint(parent, 7, writer(NEW))
    name_step(parent, checkpoint_files.BEST, 7)
    prune(parent, 1)


ACTIONS = {
    "next": save,
    "again": lambda parent: write_checkpoint(parent, 5, writer(NEW)),
    "amended": lambda parent: amend_checkpoint(parent, 5, {"bert_progress.json": "new"}),
    "amended without links": lambda parent: amend_checkpoint(parent, 5, {"bert_progress.json": "new"}),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_power_lost_after_any_operation_leaves_a_whole_checkpoint(tmp_path, monkeypatch, action):
    live = tmp_path / "live"
    for step in (4, 5):
        write_checkpoint(live, step, writer(OLD))
    name_step(live, checkpoint_files.BEST, 5)
    disk = Disk(tree(live))
    with monkeypatch.context() as patch:
        recorder = Recorder(live, patch, has_links=action != "amended without links")
        ACTIONS[action](live)
    numbers, contents, reports = itertools.count(), set(), list[str]()
    for operation in recorder.operations:
        disk.apply(operation)
        for state in disk.states():
            parent = tmp_path / str(next(numbers))
            for name, data in state.items():
                (parent / name).parent.mkdir(parents=True, exist_ok=True)
                (parent / name).write_bytes(data)
            checkpoint_files.remove_temporaries(parent)
            found = newest_valid(parent, report=reports.append)
            assert found is not None and not reports, (operation[:3], reports)
            content = {name: (found.directory / name).read_bytes() for name in OLD}
            assert content in (OLD, NEW, {**OLD, "bert_progress.json": b"new"})
            assert named_step(parent, checkpoint_files.BEST) in (5, 7) or (parent / "7").is_dir()
            contents.add(tuple(content.values()))
    assert len(contents) == 2, "the old one at first, the new one at the end"


def test_the_order_of_a_save(tmp_path, monkeypatch):
    """Every file, the manifest and their folder are flushed, then the rename and its folder; removals come last."""
    write_checkpoint(tmp_path, 5, writer(OLD))
    recorder = Recorder(tmp_path, monkeypatch)
    save(tmp_path)
    pid, host = os.getpid(), os.uname().nodename
    temporary, doomed = f".saving-7-{pid}", f".saving-pruned-5-{pid}"
    best = f".best.json.{host}.{pid}.tmp"
    found = [(kind, str(path), str(second or "")) for kind, path, second, _ in recorder.operations]
    assert found == [
        ("flush", f"{temporary}/bert.safetensors", ""),
        ("flush", f"{temporary}/bert_progress.json", ""),
        ("flush", f"{temporary}/manifest.json", ""),
        ("flush", temporary, ""),
        ("rename", temporary, "7"),
        ("flush", ".", ""),
        ("flush", best, ""),
        ("rename", best, "best.json"),
        ("rename", "5", doomed),
        ("remove", doomed, ""),
    ]
    assert atomic_files.read_json(tmp_path / "best.json") == {"step": 7}

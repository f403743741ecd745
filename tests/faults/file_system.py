"""A preloaded library (file_system.c) by which a process's file operations fail or are recorded.

`states` replays a record: what the disk can hold after the power was lost at any moment.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple


@lru_cache(maxsize=1)
def library() -> Path | None:
    """Return the compiled library; None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source = Path(__file__).with_suffix(".c")
    target = Path(tempfile.gettempdir()) / f"bert-file-system-{os.getuid()}-{source.stat().st_mtime_ns}.so"
    if not target.exists():
        made = target.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", made, source, "-ldl", "-lpthread"], check=True)
        made.replace(target)
    return target


class Change(NamedTuple):
    op: str
    path: Path  # relative to the recorded folder
    second: Path
    offset: int
    data: bytes


def changes(trace: Path, root: Path) -> list[Change]:
    content, place, found = trace.read_bytes(), 0, []
    while place < len(content):
        end = content.index(b"\n", place)
        op, path, second, offset, length = content[place:end].decode().split("\t")
        data = content[end + 1 : end + 1 + int(length)]
        place = end + 1 + int(length)
        second_path = Path(second).relative_to(root) if second else Path()
        found.append(Change(op, Path(path).relative_to(root), second_path, int(offset), data))
    return found


class Disk:
    """Holds files by name, each with the bytes that were written and the bytes that are surely on the disk."""

    def __init__(self, before: Path) -> None:
        self.folders = {path.relative_to(before) for path in before.rglob("*") if path.is_dir()} | {Path()}
        files = [path for path in before.rglob("*") if path.is_file()]
        self.files: dict[Path, list[bytes]] = {path.relative_to(before): [path.read_bytes()] * 2 for path in files}

    def apply(self, change: Change) -> None:
        op, path, second, offset, data = change
        if op == "mkdir":
            self.folders.add(path)
        elif op == "remove":
            self.folders.discard(path)
            self.files.pop(path, None)
        elif op == "link":
            self.files[second] = self.files[path]
        elif op == "rename":
            for names in (self.files, self.folders):
                for name in [name for name in names if name == path or path in name.parents]:
                    new = second / name.relative_to(path)
                    if isinstance(names, dict):
                        names[new] = names.pop(name)
                    else:
                        names.remove(name)
                        names.add(new)
        elif path not in self.folders:
            file = self.files.setdefault(path, [b"", b""])
            if op == "fsync":
                file[1] = file[0]
            elif op in ("truncate", "cut"):
                file[0] = file[0][:offset].ljust(offset, b"\0")
            elif op == "write":
                file[0] = file[0][:offset].ljust(offset, b"\0") + data + file[0][offset + len(data) :]

    def write(self, folder: Path, only_synced: bool) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        for path in sorted(self.folders):
            (folder / path).mkdir(parents=True, exist_ok=True)
        for path, contents in self.files.items():
            (folder / path).write_bytes(contents[only_synced])


def states(before: Path, trace: Path, root: Path, folder: Path) -> Iterator[str]:
    """Make in `folder`, one after the other, the files that each change can leave: all bytes, or only flushed ones."""
    disk = Disk(before)
    for number, change in enumerate(changes(trace, root)):
        disk.apply(change)
        for only_synced in (False, True):
            disk.write(folder, only_synced)
            lost = ", what was not flushed is lost" if only_synced else ""
            yield f"change {number} ({change.op} {change.path}){lost}"

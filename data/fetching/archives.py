"""Safe extraction of untrusted zip archives: no path outside the folder, limited size, all files or none."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from bert.files import sync

_CHUNK_BYTES = 1 << 20
_METADATA = ("__MACOSX", ".DS_Store")


def extract_zip(archive: Path, folder: Path, *, max_bytes: int = 4 << 30, max_files: int = 10_000) -> list[Path]:
    """Extract an archive into `folder`, which appears when it is complete; returns its files, sorted.

    Raises:
        ValueError: the file is not a zip file, damaged or encrypted; it holds a path outside the folder, a link or a
            device, two entries of one name, or more than max_bytes or max_files; the folder exists.
    """
    if folder.exists():
        raise ValueError(f"{folder}: exists; an archive is unpacked into a new folder: remove it first")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        with zipfile.ZipFile(archive) as content:
            entries = _checked(content.infolist(), archive, max_bytes, max_files)
            for name, entry in entries.items():
                _write(content, entry, temporary / name, archive)
        os.chmod(temporary, 0o755)  # mkdtemp's folders are private to the user
        os.rename(temporary, folder)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, zipfile.LargeZipFile, zlib.error) as error:
        raise ValueError(
            f"{archive}: is not a complete, plain zip file ({error}); remove it and download it again"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _checked(
    entries: list[zipfile.ZipInfo], archive: Path, max_bytes: int, max_files: int
) -> dict[str, zipfile.ZipInfo]:
    """The entries by their path below the folder; all are checked before any is written."""
    files: dict[str, zipfile.ZipInfo] = {}
    seen: set[str] = set()
    total = 0
    for entry in entries:
        if entry.is_dir() or any(part in _METADATA for part in entry.filename.split("/")):
            continue
        name = _safe_name(entry, archive)
        if name.lower() in seen:
            raise ValueError(
                f"{archive}: holds {entry.filename!r} twice; such an archive means different things to "
                "different programs: do not use it"
            )
        seen.add(name.lower())
        files[name] = entry
        total += entry.file_size
    if total > max_bytes or len(files) > max_files:
        raise ValueError(
            f"{archive}: would unpack to {total} bytes in {len(files)} files; at most {max_bytes} bytes "
            f"in {max_files} files are expected: it is not the archive that was asked for"
        )
    return files


def _safe_name(entry: zipfile.ZipInfo, archive: Path) -> str:
    """The entry's path; ValueError if it is absolute, has "..", or is not a plain file."""
    name = entry.filename
    path = PurePosixPath(name)
    mode = entry.external_attr >> 16
    if mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise ValueError(f"{archive}: {name!r} is a link or a device; only plain files are unpacked: do not use it")
    if (
        path.is_absolute()
        or ".." in path.parts
        or "\\" in name
        or ":" in name
        or not path.parts
        or any(ord(character) < 32 for character in name)
    ):
        raise ValueError(
            f"{archive}: {name!r} leads out of the folder or is not a valid file name; do not use this archive"
        )
    return str(path)


def _write(content: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, archive: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    written = 0
    with content.open(entry) as source, open(path, "xb") as file:
        while data := source.read(_CHUNK_BYTES):
            written += len(data)
            if written > entry.file_size:  # zipfile stops there too; a bomb must not depend on that
                raise ValueError(
                    f"{archive}: {entry.filename!r} holds more than the {entry.file_size} bytes that it "
                    "announces; do not use this archive"
                )
            file.write(data)
    sync(path)
    if written != entry.file_size:
        raise ValueError(
            f"{archive}: {entry.filename!r} ends after {written} of {entry.file_size} bytes; remove it "
            "and download it again"
        )

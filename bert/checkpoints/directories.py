"""Checkpoint directories on disk: written atomically, verified when read, pruned to the newest and the best.

    STEP/
        <prefix>.safetensors             parameters by structured name
        <prefix>_optimizer.safetensors   "<parameter>/<accumulator>"
        <prefix>_trained_head.safetensors    the head before it was calibrated, in the last checkpoint of a classifier
        <prefix>_progress.json           step, counters, loss scale, position in the data, settings
        bert_config.json, vocab.txt      what is needed to use the weights elsewhere
        manifest.json                    format version, size and sha256 of every file above

Writing: temporary directory -> files -> fsync -> manifest -> fsync -> rename -> fsync of the parent -> prune.
Every file is hashed once when it is saved and once when it is read.
"""

import itertools
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bert.files import lock, read_json, sha256_of_file, sync, write_atomically

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
CARD_FILE = "README.md"  # may be there, and be edited by hand
BEST = "best.json"  # beside the steps: which of them has the best evaluation
STABLE = "stable.json"  # ... and which is the last before the decay of a stable learning rate
OPTIMIZER, TRAINED_HEAD = "_optimizer.safetensors", "_trained_head.safetensors"
TRAINING_ONLY = (OPTIMIZER, TRAINED_HEAD)  # ends of the names of files that a resumed training reads, nothing else
_TEMPORARY_PREFIX = ".saving-"
_REPLACED_PREFIX = ".saving-replaced-"  # the step follows
_LOCK = ".lock"


class CheckpointError(ValueError):
    """A checkpoint is missing, damaged or does not fit; the text names the file, the rule and the remedy."""


@dataclass(frozen=True)
class VerifiedCheckpoint:
    """A checkpoint directory whose files matched its manifest, so that readers need not hash them again.

    Only `verify` creates one.
    """

    directory: Path
    manifest: dict[str, Any]

    def __str__(self) -> str:
        return str(self.directory)


def step_directory(parent: Path, step: int) -> Path:
    return parent / str(step)


def list_steps(parent: Path) -> list[int]:
    """Steps with a directory under `parent`, ascending; temporary and foreign names are not steps."""
    if not parent.is_dir():
        return []
    return sorted(int(entry.name) for entry in parent.iterdir() if entry.name.isdecimal() and entry.is_dir())


def write_checkpoint(
    parent: Path, step: int, write_files: Callable[[Path], None], unchanged: Mapping[str, dict] | None = None
) -> Path:
    """Create the checkpoint `parent`/`step` atomically; `write_files(directory)` writes its files.

    After a crash at any point the directory of that step is complete or absent. An existing directory of the same step
    is renamed only once its successor is complete; if a crash follows, `remove_temporaries` renames it back.
    Call it only while holding the run's lock. `unchanged` is as of `write_manifest`.
    """
    parent.mkdir(parents=True, exist_ok=True)
    remove_temporaries(parent)
    temporary = parent / f"{_TEMPORARY_PREFIX}{step}-{os.getpid()}"
    final = step_directory(parent, step)
    try:
        temporary.mkdir()
        write_files(temporary)
        write_manifest(temporary, step, unchanged)
        if final.exists():
            final.rename(parent / f"{_REPLACED_PREFIX}{step}")
        temporary.rename(final)
        sync(parent)
    except BaseException:
        with suppress(OSError):  # the error that stopped the save is the one to report
            remove_temporaries(parent)
        raise
    remove_temporaries(parent)
    return final


def amend_checkpoint(parent: Path, step: int, contents: Mapping[str, str | bytes | None]) -> Path:
    """Replace files of a checkpoint atomically; its other files are linked, not copied.

    Args:
        contents: name -> content; None: the file is removed.
    """
    before = step_directory(parent, step)
    unchanged = {name: entry for name, entry in _read_manifest(before)["files"].items() if name not in contents}

    def write_files(directory: Path) -> None:
        for name in unchanged:
            try:
                os.link(before / name, directory / name)
            except OSError:  # a file system without hard links
                shutil.copyfile(before / name, directory / name)
                sync(directory / name)
        for name, content in contents.items():
            if content is not None:
                (directory / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return write_checkpoint(parent, step, write_files, unchanged)


def write_manifest(directory: Path, step: int, unchanged: Mapping[str, dict] | None = None) -> None:
    """Flush every file of a directory to the disk, then write the manifest with their sizes and hashes.

    Each file is read back after the flush and then hashed: a file that cannot be written or read fails the save before
    any older checkpoint is deleted. Verifying the saved directory would only read the same cached pages again.
    `unchanged` are entries of files that are on the disk already, and are not hashed again.
    """
    files = dict(unchanged or {})
    for path in sorted(directory.iterdir()):
        if path.name not in files:
            sync(path)
            files[path.name] = {"bytes": path.stat().st_size, "sha256": sha256_of_file(path)}
    content = {"format_version": FORMAT_VERSION, "step": step, "files": dict(sorted(files.items()))}
    (directory / MANIFEST).write_text(json.dumps(content, indent=1))
    sync(directory / MANIFEST)
    sync(directory)


def remove_temporaries(parent: Path) -> None:
    """Undo interrupted saves: delete partial files and restore renamed ones. The caller must hold the run's lock."""
    for path in parent.glob(f"{_REPLACED_PREFIX}*"):
        final = step_directory(parent, int(path.name.removeprefix(_REPLACED_PREFIX)))
        if not final.exists():
            path.rename(final)
    for path in parent.glob(f"{_TEMPORARY_PREFIX}*"):
        shutil.rmtree(path, ignore_errors=True)
    for path in parent.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def prune(parent: Path, keep: int) -> None:
    """Delete all steps but the newest `keep`, the best and the stable one, and all but `keep` steps set aside."""
    for path in _surplus(parent, keep, keep, named_steps(parent)):
        _delete(path)


def _surplus(parent: Path, keep: int, keep_aside: int, protected: set[int | None]) -> list[Path]:
    """The folders to delete: steps except the newest `keep` and `kept`, then older folders that were set aside."""
    steps = list_steps(parent)
    aside = sorted(parent.glob("*.set-aside-*"), key=lambda path: path.stat().st_ctime)  # renaming sets st_ctime
    older = [step_directory(parent, step) for step in steps[: max(0, len(steps) - keep)] if step not in protected]
    return older + aside[: max(0, len(aside) - keep_aside)]


def make_room(parent: Path, num_bytes: int, keep: int) -> None:
    """If the disk has no room for a save, delete now what `prune` would delete afterwards, and steps set aside.

    The best checkpoint, the stable and the newest valid one are kept, so a save that fails all the same loses nothing.
    """
    if shutil.disk_usage(parent).free >= num_bytes:
        return
    newest = newest_valid(parent)
    protected: set[int | None] = {*list_steps(parent), None}
    if newest:
        protected = {*named_steps(parent), int(newest.directory.name)}
    for path in _surplus(parent, keep - 1, 0, protected):
        if shutil.disk_usage(parent).free < num_bytes:
            _delete(path)
            logger.info(f"the disk is full: {path} was removed before the next checkpoint")


def _delete(path: Path) -> None:
    # Renamed first: a crash during the deletion must not leave a partial directory that looks like a step.
    doomed = path.with_name(f"{_TEMPORARY_PREFIX}pruned-{path.name}-{os.getpid()}")
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def name_step(parent: Path, file: str, step: int, facts: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Name in BEST the step with the best evaluation, or in STABLE the last before the decay, from which a longer run
    continues: its checkpoint is never pruned; nothing if it is not there. The entry `is_final` of BEST's `facts` says
    that these weights are the result of the training."""
    if step_directory(parent, step).is_dir():
        write_atomically(parent / file, (json.dumps({"step": step, **facts}, indent=1) + "\n").encode())


def named_step(parent: Path, file: str) -> int | None:
    """The step that BEST or STABLE names; None if it names none, or its checkpoint is gone."""
    step = read_json(parent / file).get("step")
    return step if isinstance(step, int) and step_directory(parent, step).is_dir() else None


def named_steps(parent: Path) -> set[int | None]:
    return {named_step(parent, file) for file in (BEST, STABLE)}


def final_step(parent: Path) -> int | None:
    """The step whose weights are the result of a run: the newest, or the best if best.json says so."""
    best = named_step(parent, BEST) if read_json(parent / BEST).get("is_final") else None
    return max(list_steps(parent), default=None) if best is None else best


def set_aside_newer(parent: Path, step: int) -> list[Path]:
    """Rename steps above `step` to `STEP.set-aside-N`, so that a run that was rolled back does not resume from them."""
    moved = []
    for newer in [other for other in list_steps(parent) if other > step]:
        asides = (parent / f"{newer}.set-aside-{number}" for number in itertools.count(1))
        aside = next(path for path in asides if not path.exists())
        moved.append(step_directory(parent, newer).rename(aside))
    return moved


def verify(checkpoint: Path | VerifiedCheckpoint) -> VerifiedCheckpoint:
    """Check every file of a checkpoint against its manifest, unless `verify` has already done so.

    Raises:
        CheckpointError: no manifest, another format version, or files missing, added, truncated or changed.
    """
    if isinstance(checkpoint, VerifiedCheckpoint):
        return checkpoint
    directory = checkpoint
    manifest = _read_manifest(directory)
    expected = {name: entry for name, entry in manifest["files"].items() if name != CARD_FILE}
    present = {path.name for path in directory.iterdir()} - {MANIFEST, CARD_FILE}
    if missing := sorted(set(expected) - present):
        raise CheckpointError(f"{directory} lacks {', '.join(missing)}, which its {MANIFEST} lists; use another step")
    if extra := sorted(present - set(expected)):
        raise CheckpointError(
            f"{directory} has {', '.join(extra)}, which its {MANIFEST} does not list; remove "
            "the file, or use another step"
        )
    for name, entry in expected.items():
        path, problem = directory / name, None
        if not path.is_file():
            problem = "is not a file that can be read"
        elif (size := path.stat().st_size) != entry["bytes"]:
            problem = f"has {size} bytes, its {MANIFEST} says {entry['bytes']}: truncated or overwritten"
        elif sha256_of_file(path) != entry["sha256"]:
            problem = f"does not have the sha256 its {MANIFEST} says: the file was changed or damaged"
        if problem:
            raise CheckpointError(f"{path} {problem}; use another step")
    return VerifiedCheckpoint(directory, manifest)


def newest_valid(
    parent: Path, up_to: int | None = None, report: Callable[[str], object] = logger.warning
) -> VerifiedCheckpoint | None:
    """The newest valid checkpoint of a run (up to a step), or None; logs why newer ones are not valid."""
    for step in reversed(list_steps(parent)):
        if up_to is not None and step > up_to:
            continue
        try:
            return verify(step_directory(parent, step))
        except (CheckpointError, OSError) as error:
            report(f"checkpoint refused, trying an older one: {error}")
    return None


def require_space(parent: Path, num_bytes: int) -> None:
    """Refuse a save that cannot fit on the disk, before anything is written."""
    free = shutil.disk_usage(parent).free
    if free < num_bytes:
        raise CheckpointError(
            f"{parent} has {free / 1e6:.1f} MB free and the checkpoint needs {num_bytes / 1e6:.1f} MB; free some "
            "space, lower --keep-checkpoints, or use another --output-dir"
        )


@contextmanager
def run_lock(parent: Path) -> Iterator[None]:
    """Hold the directory for one run; the kernel releases the lock when the process ends, however it ends."""
    parent.mkdir(parents=True, exist_ok=True)
    with open(parent / _LOCK, "a+") as file:
        try:
            if not lock(file):
                logger.warning(f"{parent}: its file system has no locks, so a second run on it would not be noticed")
        except BlockingIOError:
            file.seek(0)
            raise CheckpointError(
                f"{parent} is in use by another run ({file.read().strip() or 'unknown process'}); wait for it, stop "
                "it, or give this run another --output-dir"
            ) from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {os.uname().nodename}")
        file.flush()
        remove_temporaries(parent)
        yield


def _read_manifest(directory: Path) -> dict:
    path = directory / MANIFEST
    if not path.is_file():
        raise CheckpointError(f"{directory} is not a complete checkpoint: it has no {MANIFEST}")
    try:
        manifest = json.loads(path.read_bytes())
        version, entries = manifest["format_version"], manifest["files"].values()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path} is not a manifest ({error}): damaged; use another step") from None
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"{path} has format_version {version}, this program reads {FORMAT_VERSION}; use the "
            "version of the program that wrote it"
        )
    if not all(isinstance(entry, dict) and {"bytes", "sha256"} <= set(entry) for entry in entries):
        raise CheckpointError(f"{path} does not list bytes and sha256 of every file: damaged; use another step")
    return manifest

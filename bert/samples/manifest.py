"""The record that lies beside shards: what is in them, from what and how they were made, and their checksums."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Dict, Optional, Union

MANIFEST_NAME = "manifest.json"
NUM_SAMPLES_NAME = ".num_samples.json"
MANIFEST_FORMAT = "bert-on-paddle shards"
MANIFEST_VERSION = 1


@dataclass(frozen=True)
class ShardRecord:
    """One shard file: number of samples, size in bytes, sha256 of the file, and its bin (None without bins)."""

    num_samples: int
    num_bytes: int
    sha256: str
    bin_id: Optional[int] = None


@dataclass(frozen=True)
class Manifest:
    """Contents of manifest.json.

    Attributes:
        shards: file name -> record.
        vocabulary_sha256: of the vocabulary the token ids refer to, None if it is not known.
        settings: the settings that shaped the samples.
        counts: what was read, made and dropped, and why.
    """

    shards: Dict[str, ShardRecord]
    vocabulary_sha256: str | None
    settings: Dict[str, Any] = field(default_factory=dict)
    counts: Dict[str, Any] = field(default_factory=dict)


@contextmanager
def atomic_path(path: Union[str, Path]) -> Iterator[Path]:
    """A temporary path beside `path`; what is written there gets the name `path` when the block ends without error."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        if temporary.exists():
            temporary.unlink()


def write_atomically(path: Union[str, Path], data: Union[bytes, memoryview]) -> None:
    """Write a file whole or not at all: a temporary file beside it, flushed to the disk, then renamed."""
    with atomic_path(path) as temporary:
        with open(temporary, "wb") as file:
            file.write(data)


def sha256_of(data: Union[bytes, memoryview]) -> str:
    """Hexadecimal sha256 of bytes."""
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Union[str, Path]) -> str:
    """Hexadecimal sha256 of a file of any size."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(directory: Union[str, Path], manifest: Manifest) -> None:
    """Write manifest.json and LDDL's .num_samples.json; the manifest last, so that it vouches for all the rest."""
    counts = {name: record.num_samples for name, record in sorted(manifest.shards.items())}
    write_atomically(Path(directory) / NUM_SAMPLES_NAME, json.dumps(counts).encode())
    content = {"format": MANIFEST_FORMAT, "version": MANIFEST_VERSION, **asdict(manifest)}
    write_atomically(Path(directory) / MANIFEST_NAME, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())


def read_manifest(directory: Union[str, Path]) -> Optional[Manifest]:
    """The manifest of a directory, None if it has none; ValueError if it is damaged or of another format."""
    path = Path(directory) / MANIFEST_NAME
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_bytes())
        if (content["format"], content["version"]) != (MANIFEST_FORMAT, MANIFEST_VERSION):
            raise ValueError(f"format {content['format']!r} version {content['version']}")
        shards = {name: ShardRecord(**record) for name, record in content["shards"].items()}
        return Manifest(shards, content["vocabulary_sha256"], content["settings"], content["counts"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: not a manifest of this program ({error}); it must be {MANIFEST_FORMAT!r} version "
                         f"{MANIFEST_VERSION}: make the shards again, or remove the file if they are not ours") \
            from error

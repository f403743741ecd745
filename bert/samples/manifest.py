"""The manifest of shards: counts, checksums, source and settings."""

import json
import re
import sys
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bert.files import json_of, write_atomically

MANIFEST_NAME = "manifest.json"
NUM_SAMPLES_NAME = ".num_samples.json"
CHECKSUMS_NAME = "checksums.xxh128"
UNFINISHED_NAME = ".unfinished"  # a run's state in its output folder until everything is written
MANIFEST_FORMAT = "bert-on-paddle shards"
MANIFEST_VERSION = 2


@dataclass(frozen=True)
class ShardRecord:
    """Record of one shard file: number of samples, size in bytes, checksum, and bin (None without bins)."""

    num_samples: int
    num_bytes: int
    xxh128: str
    bin_id: int | None = None


@dataclass(frozen=True)
class Manifest:
    """Content of manifest.json."""

    shards: dict[str, ShardRecord]  # file name -> record
    vocabulary_sha256: str | None  # checksum of the vocabulary; None if unknown
    settings: dict[str, Any] = field(default_factory=dict)  # settings that shaped the samples
    counts: dict[str, Any] = field(default_factory=dict)  # texts and samples that were read, made and dropped, and why


def shard_totals(shards: dict[str, ShardRecord]) -> dict[str, Any]:
    """Totals for a manifest's counts: {"samples per bin": {bin or "None": samples}, "shard bytes": bytes}."""
    per_bin: dict[str, int] = {}
    for record in shards.values():
        per_bin[str(record.bin_id)] = per_bin.get(str(record.bin_id), 0) + record.num_samples
    return {"samples per bin": per_bin, "shard bytes": sum(record.num_bytes for record in shards.values())}


def write_manifest(directory: str | Path, manifest: Manifest) -> None:
    """Write LDDL's .num_samples.json, then manifest.json, which marks the shards as complete."""
    counts = {name: record.num_samples for name, record in sorted(manifest.shards.items())}
    write_atomically(Path(directory) / NUM_SAMPLES_NAME, json.dumps(counts).encode())
    content = {"format": MANIFEST_FORMAT, "version": MANIFEST_VERSION, **asdict(manifest)}
    write_atomically(Path(directory) / MANIFEST_NAME, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())


class FirstReadings:
    """Checksums of shards without a manifest, as they were first read; `xxhsum -c` reads the file.

    Several processes append to it. Where nothing can be written, this process alone knows what it has read.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / CHECKSUMS_NAME
        text = self._path.read_text(encoding="utf-8", errors="replace") if self._path.is_file() else ""
        self._checksums = {name: digest for digest, name in re.findall(r"^([0-9a-f]{32})  (.+)$", text, re.MULTILINE)}

    def of(self, name: str) -> str | None:
        return self._checksums.get(name)

    def add(self, name: str, checksum: str) -> None:
        if name in self._checksums:
            return
        self._checksums[name] = checksum
        with suppress(OSError):
            is_new = not self._path.exists()
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(f"{checksum}  {name}\n")
            if is_new:
                print(f"no manifest: checksums are kept in {self._path}, and checked from now on", file=sys.stderr)


def is_unfinished(directory: Path) -> bool:
    """Whether a folder's shards are still being made, or their making was interrupted."""
    return (directory / UNFINISHED_NAME).exists() and not (directory / MANIFEST_NAME).exists()


def read_manifest(directory: str | Path) -> Manifest | None:
    """Read the manifest of a folder, None without one; ValueError if it is damaged or has another format."""
    path = Path(directory) / MANIFEST_NAME
    if not path.exists():
        return None
    try:
        content = json_of(path.read_bytes())
        if content["format"] != MANIFEST_FORMAT:
            raise ValueError(f"format {content['format']!r}")
        version = int(content["version"])
        if version == MANIFEST_VERSION:
            shards = {name: ShardRecord(**record) for name, record in content["shards"].items()}
            return Manifest(shards, content["vocabulary_sha256"], content["settings"], content["counts"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: not a manifest of this program ({error}); it must be {MANIFEST_FORMAT!r} version "
            f"{MANIFEST_VERSION}: make the shards again, or remove the file if they are not ours"
        ) from error
    raise ValueError(
        f"{path}: version {version}, made by another version of this program, which reads version {MANIFEST_VERSION}: "
        "read the shards with that one, or make them again in another folder; or move the file elsewhere and use them "
        "as they are, without a check of their bytes or vocabulary"
    )

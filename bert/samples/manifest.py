"""The manifest beside shards: their counts, checksums, source and settings."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bert.files import write_atomically

MANIFEST_NAME = "manifest.json"
NUM_SAMPLES_NAME = ".num_samples.json"
UNFINISHED_NAME = ".unfinished"  # a run's state in its output folder until everything is written
MANIFEST_FORMAT = "bert-on-paddle shards"
MANIFEST_VERSION = 2


@dataclass(frozen=True)
class ShardRecord:
    """One shard file: number of samples, size in bytes, XXH128 of the file as hexadecimal digits (what `xxhsum -H128`
    prints), and its bin (None without bins)."""

    num_samples: int
    num_bytes: int
    xxh128: str
    bin_id: int | None = None


@dataclass(frozen=True)
class Manifest:
    """Contents of manifest.json.

    Attributes:
        shards: file name -> record.
        vocabulary_sha256: of the vocabulary the token ids refer to, None if it is not known.
        settings: the settings that shaped the samples.
        counts: what was read, made and dropped, and why.
    """

    shards: dict[str, ShardRecord]
    vocabulary_sha256: str | None
    settings: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)


def shard_totals(shards: dict[str, ShardRecord]) -> dict[str, Any]:
    """{"samples per bin": {bin or "None": samples}, "shard bytes": of all files}, as in a manifest's counts."""
    per_bin: dict[str, int] = {}
    for record in shards.values():
        per_bin[str(record.bin_id)] = per_bin.get(str(record.bin_id), 0) + record.num_samples
    return {"samples per bin": per_bin, "shard bytes": sum(record.num_bytes for record in shards.values())}


def write_manifest(directory: str | Path, manifest: Manifest) -> None:
    """Write LDDL's .num_samples.json, then manifest.json, whose presence means that everything else was written."""
    counts = {name: record.num_samples for name, record in sorted(manifest.shards.items())}
    write_atomically(Path(directory) / NUM_SAMPLES_NAME, json.dumps(counts).encode())
    content = {"format": MANIFEST_FORMAT, "version": MANIFEST_VERSION, **asdict(manifest)}
    write_atomically(Path(directory) / MANIFEST_NAME, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())


def is_unfinished(directory: Path) -> bool:
    """Whether a directory's shards are still being made, or the run that made them was stopped."""
    return (directory / UNFINISHED_NAME).exists() and not (directory / MANIFEST_NAME).exists()


def read_manifest(directory: str | Path) -> Manifest | None:
    """The manifest of a directory, None if it has none; ValueError if it is damaged or of another format."""
    path = Path(directory) / MANIFEST_NAME
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_bytes())
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
    if version > MANIFEST_VERSION:
        raise ValueError(
            f"{path}: version {version}, made by a newer version of this program, which reads version "
            f"{MANIFEST_VERSION}: read the shards with the newer one"
        )
    raise ValueError(
        f"{path}: version {version}, made by an older version of this program, which checks shards by "
        f"sha256 and not by XXH128 as version {MANIFEST_VERSION} does: make the shards again in another "
        "folder; or compare their sha256 with this file's (sha256sum), then move it elsewhere and use the "
        "shards as they are, without a check of their bytes or vocabulary"
    )

"""Lists the shards of a directory by their names and records, and checks that the set is complete."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from bert.files import checksum_of
from bert.samples.manifest import MANIFEST_NAME, NUM_SAMPLES_NAME, Manifest, is_unfinished

_SHARD_NAME = re.compile(r"(?:part\.|shard-)(?P<number>\d+)\.(?P<kind>parquet|arrow)(?:_(?P<bin>\d+))?")
_OTHER_NAMES = {"hdf5": re.compile(r"[^.].*\.(?:hdf5|h5)"), "tfrecord": re.compile(r"[^.].*\.tfrecord.*")}
_TAIL_BYTES = 4096


@dataclass(frozen=True)
class Shard:
    """One shard file as its footer describes it; number is the N of its name, else its rank among files of its kind."""

    path: Path
    kind: str
    number: int
    bin_id: int | None
    num_samples: int = 0
    max_num_tokens: int = 0
    masked: bool = False
    has_words: bool = False

    @property
    def name(self) -> str:
        return self.path.name


def list_shards(directory: Path) -> list[Shard]:
    """The shards of a directory by their names alone, in order of bin and number; FileNotFoundError without any."""
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory}: no such directory; give the directory that holds the shards")
    if is_unfinished(directory):
        raise ValueError(
            f"{directory}: some of its shards are missing: a run is writing them, or was stopped; wait for "
            "it, or start its command again, which resumes it"
        )
    paths = sorted(directory.iterdir())
    names = [(path, match) for path in paths if (match := _SHARD_NAME.fullmatch(path.name))]
    shards = [
        Shard(path, name["kind"], int(name["number"]), int(name["bin"]) if name["bin"] else None)
        for path, name in names
    ]
    for kind, pattern in _OTHER_NAMES.items():
        others = [path for path in paths if pattern.fullmatch(path.name)]
        shards += [Shard(path, kind, rank, None) for rank, path in enumerate(others)]
    if not shards:
        raise FileNotFoundError(
            f"{directory}: no shards (part.N.parquet, shard-N.parquet, shard-N.arrow, each with _B "
            "for bins, *.hdf5 or *.tfrecord*); make them with data.preprocess_bert_pretrain"
        )
    return sorted(shards, key=lambda shard: (-1 if shard.bin_id is None else shard.bin_id, shard.number, shard.name))


def recorded_counts(directory: Path, manifest: Manifest | None) -> dict[str, dict[str, int]]:
    """Numbers of samples in the records beside the shards: name of the record -> file name -> number."""
    records = {}
    if manifest:
        records[MANIFEST_NAME] = {name: record.num_samples for name, record in manifest.shards.items()}
    path = directory / NUM_SAMPLES_NAME
    if path.exists():
        try:
            records[NUM_SAMPLES_NAME] = {str(name): int(count) for name, count in json.loads(path.read_bytes()).items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"{path}: not a JSON object of file name and count ({error}); remove it") from error
    return records


def check_names(directory: Path, shards: list[Shard], recorded: dict[str, dict[str, int]]) -> None:
    """ValueError if a shard is missing or unknown, by the records or, without any, by the numbers in the names."""
    present = {shard.name for shard in shards}
    for source, names in recorded.items():
        missing, extra = sorted(set(names) - present), sorted(present - set(names))
        if missing:
            raise ValueError(
                f"{directory}: {len(missing)} of the {len(names)} shards in {source} are missing, the "
                f"first being {missing[0]}; restore them or make the shards again"
            )
        if extra:
            raise ValueError(
                f"{directory}: {len(extra)} shards are not in {source}, the first being {extra[0]}; a "
                "directory holds the shards of one run: remove what does not belong"
            )
    styles = {shard.name[:5]: shard.name for shard in shards if shard.kind != "hdf5"}
    if len(styles) > 1:
        raise ValueError(
            f"{directory}: holds {styles['part.']} and {styles['shard']}, parts of a run beside balanced "
            "shards, which are the same samples; a directory holds one of the two, or each sample would "
            "count twice: move the part.* or the shard-* files elsewhere"
        )
    numbers = sorted({shard.number for shard in shards})
    if not recorded and numbers != list(range(len(numbers))):
        gap = next(index for index, number in enumerate(numbers) if index != number)
        raise ValueError(
            f"{directory}: shard number {gap} is missing (found {len(numbers)}, the last {numbers[-1]}); "
            "numbers run from 0 without gaps: restore it or make the shards again"
        )


def check_agreement(directory: Path, shards: tuple[Shard, ...]) -> None:
    """ValueError unless all shards have one format, all or none are masked, and all or none have a bin."""
    first = shards[0]
    for shard in shards[1:]:
        for fact, value, other in (
            ("file format", first.kind, shard.kind),
            ("static masks", first.masked, shard.masked),
            ("words of a segmenter", first.has_words, shard.has_words),
            ("bins", first.bin_id is not None, shard.bin_id is not None),
        ):
            if value != other:
                raise ValueError(
                    f"{directory}: {first.name} and {shard.name} differ in {fact} ({value}, {other})"
                    "; a directory holds the shards of one run: separate them"
                )
    if not any(shard.num_samples for shard in shards):
        raise ValueError(
            f"{directory}: its {len(shards)} shards hold no sample; make them from a corpus that is not empty"
        )


def check_duplicates(shards: tuple[Shard, ...]) -> None:
    """ValueError if two shards have the same bytes. Files of equal size and footer are compared in full."""
    seen: dict[tuple[int, bytes], Shard] = {}
    for shard in shards:
        if shard.num_samples == 0:
            continue
        size = shard.path.stat().st_size
        with open(shard.path, "rb") as file:
            file.seek(max(0, size - _TAIL_BYTES))
            tail = hashlib.sha256(file.read()).digest()
        other = seen.setdefault((size, tail), shard)
        if other is not shard and checksum_of(other.path.read_bytes()) == checksum_of(shard.path.read_bytes()):
            raise ValueError(
                f"{shard.path}: the same bytes as {other.name}; every sample would count twice: remove "
                f"one and what lists it ({MANIFEST_NAME}, {NUM_SAMPLES_NAME}), number the rest without "
                "gaps and run data.balance_shards on them"
            )

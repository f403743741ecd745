"""A folder of shards: listed by file names, checked before training starts, and read one shard at a time.

Reads LDDL's parquet files (balanced or not, with or without bins), our own Arrow files, and the HDF5 and TFRecord
files of NVIDIA's PyTorch and TensorFlow trainers.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa

from bert.files import checksum_of, json_of
from bert.samples.formats import arrow, parquet
from bert.samples.manifest import (
    CHECKSUMS_NAME,
    MANIFEST_NAME,
    NUM_SAMPLES_NAME,
    FirstReadings,
    Manifest,
    is_unfinished,
    read_manifest,
)
from bert.samples.mixture import read_mixture
from bert.samples.sample_table import SampleTable
from bert.tokenization.token_strings import TokenStrings
from bert.tokenization.vocabulary import Vocabulary

_SHARD_NAME = re.compile(r"(?:part\.|shard-)(?P<number>\d+)\.(?P<kind>parquet|arrow)(?:_(?P<bin>\d+))?")
_OTHER_NAMES = {"hdf5": re.compile(r"[^.].*\.(?:hdf5|h5)"), "tfrecord": re.compile(r"[^.].*\.tfrecord.*")}
_TAIL_BYTES = 4096
_DAMAGE = (OSError, pa.ArrowException, ValueError, KeyError, AttributeError, RuntimeError, TypeError, MemoryError)


def _format(kind: str) -> ModuleType:
    """The module of a shard format. Modules of older formats are imported only when needed."""
    if kind == "hdf5":
        from bert.samples.formats import hdf5

        return hdf5
    if kind == "tfrecord":
        from bert.samples.formats import tfrecord

        return tfrecord
    return {"parquet": parquet, "arrow": arrow}[kind]


@dataclass(frozen=True)
class Shard:
    """One shard file, described by its footer; `number` is the N of its name, otherwise its rank among its kind."""

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
    """The shards of a folder by their names, in order of bin and number; FileNotFoundError without any."""
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
        matching = [path for path in paths if pattern.fullmatch(path.name)]
        shards += [Shard(path, kind, rank, None) for rank, path in enumerate(matching)]
    if not shards:
        raise FileNotFoundError(
            f"{directory}: no shards (part.N.parquet, shard-N.parquet, shard-N.arrow, each with _B "
            "for bins, *.hdf5 or *.tfrecord*); make them with data.preprocess_bert_pretrain"
        )
    return sorted(shards, key=lambda shard: (-1 if shard.bin_id is None else shard.bin_id, shard.number, shard.name))


def recorded_counts(directory: Path, manifest: Manifest | None) -> dict[str, dict[str, int]]:
    """Numbers of samples in the records of a folder: name of the record -> file name -> number."""
    records = {}
    if manifest:
        records[MANIFEST_NAME] = {name: record.num_samples for name, record in manifest.shards.items()}
    path = directory / NUM_SAMPLES_NAME
    if path.exists():
        try:
            records[NUM_SAMPLES_NAME] = {str(name): int(count) for name, count in json_of(path.read_bytes()).items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise ValueError(f"{path}: not a JSON object of file name and count ({error}); remove it") from error
    return records


def check_names(directory: Path, shards: list[Shard], recorded: dict[str, dict[str, int]]) -> None:
    """Raise ValueError if a shard is missing or unknown, judged by the records, or by the numbers in file names."""
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
    styles = {shard.name[:5]: shard.name for shard in shards if shard.kind in ("parquet", "arrow")}
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
    """Raise ValueError unless shards agree: one format, all or none masked, all or none with a bin."""
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
    """Raise ValueError if two shards have equal bytes. Files of equal size and footer are compared."""
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


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Context manager: errors of damaged bytes become a ValueError that names the file."""
    try:
        yield
    except _DAMAGE as error:
        raise ValueError(f"{path}: {error}") from error


def described(shard: Shard) -> Shard:
    """The shard with the facts in its file; ValueError names a shard that cannot be read."""
    with naming(shard.path):
        return replace(shard, **vars(_format(shard.kind).describe(shard.path)))


class ShardDirectory:
    """The shards of a folder, in order of bin and number; FileNotFoundError if there is none.

    Args:
        directory: holds part.N.parquet[_B], shard-N.parquet[_B], shard-N.arrow[_B], *.hdf5 or *.tfrecord* files.
        vocabulary: the vocabulary they were made with.
    """

    def __init__(self, directory: str | Path, vocabulary: Vocabulary, max_seq_length: int) -> None:
        self.directory = Path(directory)
        self.vocabulary = vocabulary
        self.max_seq_length = max_seq_length
        self._strings = TokenStrings(vocabulary)
        self.manifest: Manifest | None = read_manifest(self.directory)
        self._first_readings = FirstReadings(self.directory)
        shards = list_shards(self.directory)
        recorded = recorded_counts(self.directory, self.manifest)
        check_names(self.directory, shards, recorded)
        self._check_vocabulary()
        self.shards: tuple[Shard, ...] = tuple(self._describe(shard) for shard in shards)
        self._check_counts(recorded)
        check_agreement(self.directory, self.shards)
        check_duplicates(self.shards)

    @property
    def masked(self) -> bool:
        return self.shards[0].masked

    @property
    def made_with(self) -> dict[str, Any]:
        """Settings of the samples in the manifest; empty without one."""
        return self.manifest.settings if self.manifest else {}

    def load(self, index: int) -> SampleTable:
        """Read and decode a shard. ValueError if its bytes differ from the manifest or cannot be decoded."""
        shard = self.shards[index]
        with naming(shard.path):
            data = shard.path.read_bytes()
            checksum = checksum_of(data)
            if self.manifest:
                self._check_bytes(checksum, self.manifest.shards[shard.name].xxh128, MANIFEST_NAME)
            elif before := self._first_readings.of(shard.name):
                self._check_bytes(checksum, before, CHECKSUMS_NAME)
            table = _format(shard.kind).read(data, self._strings)
            if len(table) != shard.num_samples:
                raise ValueError(
                    f"holds {len(table)} samples, {shard.num_samples} when it was opened; shards must not change while "
                    "they are in use"
                )
            self._check_length(int(table.lengths().max(initial=0)))
        if not self.manifest:
            self._first_readings.add(shard.name, checksum)
        return table

    def verify(self) -> None:
        """Read and decode every shard; ValueError names the first damaged one."""
        for index in range(len(self.shards)):
            self.load(index)

    @staticmethod
    def _check_bytes(checksum: str, recorded: str, source: str) -> None:
        if checksum != recorded:
            raise ValueError(
                f"its XXH128 is {checksum[:12]}..., {source} says {recorded[:12]}...; the file has changed since: copy "
                f"it again or make it again, and remove {source} if all shards are new"
            )

    def _check_vocabulary(self) -> None:
        if self.manifest and self.manifest.vocabulary_sha256 not in (None, self.vocabulary.sha256):
            raise ValueError(
                f"{self.directory}: made with a vocabulary of sha256 "
                f"{self.manifest.vocabulary_sha256[:12]}..., but {self.vocabulary.source} has "
                f"{self.vocabulary.sha256[:12]}...; train with the vocabulary the shards were made with"
            )

    def _check_counts(self, recorded: dict[str, dict[str, int]]) -> None:
        for source, counts in recorded.items():
            for shard in self.shards:
                if counts[shard.name] != shard.num_samples:
                    raise ValueError(
                        f"{shard.path}: holds {shard.num_samples} samples, {source} says "
                        f"{counts[shard.name]}; the record is stale or the shard was replaced: make the "
                        "shards again or run data.balance_shards on them"
                    )

    def _check_length(self, longest: int) -> None:
        if longest > self.max_seq_length:
            raise ValueError(
                f"has a sample of {longest} tokens, max_seq_length is {self.max_seq_length}; no sample may be longer: "
                f"set max_seq_length to at least {longest}, or make shards with --max-seq-length "
                f"{self.max_seq_length}"
            )

    def _describe(self, shard: Shard) -> Shard:
        with naming(shard.path):
            size = shard.path.stat().st_size
            if size == 0:
                raise ValueError("0 bytes; a shard is never empty: restore it or make the shards again")
            if self.manifest and size != (recorded := self.manifest.shards[shard.name].num_bytes):
                raise ValueError(
                    f"{size} bytes, the manifest says {recorded}; it is truncated or was replaced: copy it again or "
                    "make it again"
                )
        description = described(shard)
        with naming(shard.path):
            self._check_length(description.max_num_tokens)
        return description


def check_masks(directory: Path, masking: str) -> None:
    """Refuse static masking if the first shard has no masks.

    A folder without shards is not refused, nor one with a damaged shard, which its reader names.

    Args:
        masking: static | dynamic.
    """
    if masking != "static" or not directory.is_dir() or is_unfinished(directory):
        return
    part = directory / next(iter(read_mixture(directory) or {".": 1}))
    try:
        is_masked = described(list_shards(part)[0]).masked
    except (FileNotFoundError, ValueError):
        return
    if not is_masked:
        raise ValueError(no_masks(part))


def no_masks(directory: Path) -> str:
    """The error if static masking finds shards without masks."""
    return (
        f"{directory}: masking=static needs shards with masks, and these have none; pass --masking dynamic, or make "
        "the shards with --masking static"
    )


def count_samples(directory: str | Path) -> int:
    """Number of samples in a pass over a folder, from its records or the shards' footers.

    FileNotFoundError: there is no directory, no shard in it, or they are still being made.
    """
    directory = Path(directory)
    if (mix := read_mixture(directory)) is not None:
        return sum(mix.values())
    if is_unfinished(directory):
        raise FileNotFoundError(f"{directory}: its shards are still being made")
    shards = list_shards(directory)
    for counts in recorded_counts(directory, read_manifest(directory)).values():
        return sum(counts.values())
    return sum(described(shard).num_samples for shard in shards)

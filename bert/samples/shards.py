"""A directory of shards, checked before anything is trained on it, and read one shard at a time.

Reads LDDL's parquet files (balanced or not, with or without bins), our own Arrow files and older HDF5 files.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Dict, List, Optional, Tuple, Union

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bert.arrays.arrow import numpy_array
from bert.files import checksum_of
from bert.samples.formats import TokenStrings, arrow_to_table, check_parquet_schema, check_values, parquet_to_table
from bert.samples.hdf5_shards import describe_hdf5, hdf5_to_table
from bert.samples.manifest import MANIFEST_NAME, NUM_SAMPLES_NAME, Manifest, is_unfinished, read_manifest
from bert.samples.table import SampleTable
from bert.tokenization.vocabulary import Vocabulary

_SHARD_NAME = re.compile(r"(?:part\.|shard-)(?P<number>\d+)\.(?P<kind>parquet|arrow)(?:_(?P<bin>\d+))?")
_HDF5_NAME = re.compile(r".*\.(?:hdf5|h5)")
_TAIL_BYTES = 4096
# What the libraries raise at damaged bytes; KeyError and RuntimeError are h5py's.
_DAMAGE = (OSError, pa.ArrowException, ValueError, KeyError, AttributeError, RuntimeError)


@dataclass(frozen=True)
class Shard:
    """One shard file as its footer describes it; number is the N of its name (its rank among HDF5 files)."""

    path: Path
    kind: str
    number: int
    bin_id: Optional[int]
    num_samples: int = 0
    max_num_tokens: int = 0
    masked: bool = False

    @property
    def name(self) -> str:
        return self.path.name


class ShardDirectory:
    """The shards of a directory, in order of bin and number.

    Args:
        directory: holds part.N.parquet[_B], shard-N.parquet[_B], shard-N.arrow[_B] or *.hdf5 files.
        vocabulary: the vocabulary they were made with.
        max_seq_length: no sample may be longer.
    Raises:
        FileNotFoundError: no such directory, or no shard in it.
        ValueError: a shard is missing, duplicated, empty, unreadable, of a wrong schema or too long, or the counts of
            .num_samples.json or manifest.json are not those of the files.
    """

    def __init__(self, directory: Union[str, Path], vocabulary: Vocabulary, max_seq_length: int) -> None:
        self.directory = Path(directory)
        self.vocabulary = vocabulary
        self.max_seq_length = max_seq_length
        self._strings = TokenStrings(vocabulary)
        self.manifest: Optional[Manifest] = read_manifest(self.directory)
        shards = list_shards(self.directory)
        self._recorded = recorded_counts(self.directory, self.manifest)
        check_names(self.directory, shards, self._recorded)
        self._check_vocabulary()
        self.shards: Tuple[Shard, ...] = tuple(self._describe(shard) for shard in shards)
        self._check_counts()
        check_agreement(self.directory, self.shards)
        check_duplicates(self.shards)

    @property
    def masked(self) -> bool:
        """True if the samples carry static masks."""
        return self.shards[0].masked

    def load(self, index: int) -> SampleTable:
        """Read and decode one shard; ValueError if its bytes are not those of the manifest or cannot be decoded."""
        shard = self.shards[index]
        record = self.manifest.shards[shard.name] if self.manifest else None
        try:
            if shard.kind == "hdf5":
                if record:
                    self._check_bytes(shard, shard.path.read_bytes(), record.xxh128)
                table = hdf5_to_table(shard.path, self.vocabulary)
            else:
                data = pa.py_buffer(shard.path.read_bytes())
                if record:
                    self._check_bytes(shard, data, record.xxh128)
                table = parquet_to_table(data, self._strings) if shard.kind == "parquet" else arrow_to_table(data)
                if shard.kind == "arrow":
                    check_values(table, self.vocabulary)
        except _DAMAGE as error:
            raise ValueError(f"{shard.path}: {error}") from error
        if len(table) != shard.num_samples:
            raise ValueError(
                f"{shard.path}: holds {len(table)} samples, {shard.num_samples} when it was opened; "
                "shards must not change while they are in use"
            )
        longest = int(table.lengths().max()) if len(table) else 0
        if longest > self.max_seq_length:
            raise ValueError(_too_long(shard.path, longest, self.max_seq_length))
        return table

    def lengths(self, index: int) -> np.ndarray:
        """int64 [num_samples]: tokens of each sample of a shard, read without the samples where the format allows."""
        shard = self.shards[index]
        if shard.kind != "parquet":
            return self.load(index).lengths()
        try:
            with pq.ParquetFile(shard.path, page_checksum_verification=True) as file:
                return _num_tokens(file).astype(np.int64)
        except (OSError, pa.ArrowException, ValueError) as error:
            raise ValueError(f"{shard.path}: {error}") from error

    def verify(self) -> None:
        """Read and decode every shard; ValueError names the first that is damaged."""
        for index in range(len(self.shards)):
            self.load(index)

    @staticmethod
    def _check_bytes(shard: Shard, data: Union[bytes, pa.Buffer], checksum: str) -> None:
        found = checksum_of(data)
        if found != checksum:
            raise ValueError(
                f"its XXH128 is {found[:12]}..., the manifest says {checksum[:12]}...; the file has "
                "changed since it was made: copy it again or make it again"
            )

    def _check_vocabulary(self) -> None:
        if self.manifest and self.manifest.vocabulary_sha256 not in (None, self.vocabulary.sha256):
            raise ValueError(
                f"{self.directory}: made with a vocabulary of sha256 "
                f"{self.manifest.vocabulary_sha256[:12]}..., but {self.vocabulary.source} has "
                f"{self.vocabulary.sha256[:12]}...; train with the vocabulary the shards were made with"
            )

    def _check_counts(self) -> None:
        for source, names in self._recorded.items():
            for shard in self.shards:
                if names[shard.name] != shard.num_samples:
                    raise ValueError(
                        f"{shard.path}: holds {shard.num_samples} samples, {source} says "
                        f"{names[shard.name]}; the record is stale or the shard was replaced: make the "
                        "shards again or run data.balance_shards on them"
                    )

    def _describe(self, shard: Shard) -> Shard:
        size = shard.path.stat().st_size
        if size == 0:
            raise ValueError(f"{shard.path}: 0 bytes; a shard is never empty: restore it or make the shards again")
        if self.manifest and size != self.manifest.shards[shard.name].num_bytes:
            raise ValueError(
                f"{shard.path}: {size} bytes, the manifest says "
                f"{self.manifest.shards[shard.name].num_bytes}; it is truncated or was replaced: copy it "
                "again or make it again"
            )
        reader = {"parquet": _describe_parquet, "arrow": _describe_arrow, "hdf5": _describe_hdf5}[shard.kind]
        try:
            described = reader(shard)
        except _DAMAGE as error:
            raise ValueError(f"{shard.path}: {error}") from error
        if described.max_num_tokens > self.max_seq_length:
            raise ValueError(_too_long(shard.path, described.max_num_tokens, self.max_seq_length))
        return described


def _too_long(path: Path, longest: int, max_seq_length: int) -> str:
    return (
        f"{path}: has a sample of {longest} tokens, max_seq_length is {max_seq_length}; no sample may be longer: "
        f"set max_seq_length to at least {longest}, or make shards with --target-seq-length {max_seq_length}"
    )


def list_shards(directory: Path) -> List[Shard]:
    """The shards of a directory by their names alone, in order of bin and number.

    Raises:
        FileNotFoundError: no such directory, or no shard in it.
        ValueError: they are still being made.
    """
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory}: no such directory; give the directory that holds the shards")
    if is_unfinished(directory):
        raise ValueError(
            f"{directory}: its shards are not all there: a run is making them, or was stopped; wait for "
            "it, or start the command that makes them again, which goes on"
        )
    shards = []
    for path in sorted(directory.iterdir()):
        match = _SHARD_NAME.fullmatch(path.name)
        if match:
            bin_id = match.group("bin")
            shards.append(
                Shard(path, match.group("kind"), int(match.group("number")), None if bin_id is None else int(bin_id))
            )
        elif _HDF5_NAME.fullmatch(path.name) and not path.name.startswith("."):
            rank = sum(shard.kind == "hdf5" for shard in shards)
            shards.append(Shard(path, "hdf5", rank, None))
    if not shards:
        raise FileNotFoundError(
            f"{directory}: no shards (part.N.parquet, shard-N.parquet, shard-N.arrow, each with _B "
            "for bins, or *.hdf5); make them with data.preprocess_bert_pretrain"
        )
    return sorted(shards, key=lambda shard: (-1 if shard.bin_id is None else shard.bin_id, shard.number, shard.name))


def recorded_counts(directory: Path, manifest: Optional[Manifest]) -> Dict[str, Dict[str, int]]:
    """What the records beside the shards say: name of the record -> file name -> number of samples."""
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


def check_names(directory: Path, shards: List[Shard], recorded: Dict[str, Dict[str, int]]) -> None:
    """ValueError if a shard is missing or one too many: by the records or, without any, by the numbers of the names."""
    found = {shard.name for shard in shards}
    for source, names in recorded.items():
        missing, extra = sorted(set(names) - found), sorted(found - set(names))
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


def _describe_parquet(shard: Shard) -> Shard:
    with pq.ParquetFile(shard.path, page_checksum_verification=True) as file:
        masked = check_parquet_schema(file.schema_arrow)
        metadata = file.metadata
        # Not by the footer's statistics: nothing vouches for them, and damaged ones end the process, not the reading.
        lengths = _num_tokens(file)
        longest = lengths.max() if len(lengths) else 0
        return replace(shard, num_samples=metadata.num_rows, max_num_tokens=int(longest), masked=masked)


def _num_tokens(file: pq.ParquetFile) -> np.ndarray:
    return numpy_array(file.read(["num_tokens"], use_threads=False).column(0).combine_chunks(), "num_tokens")


def _describe_arrow(shard: Shard) -> Shard:
    with pa.memory_map(str(shard.path)) as source:
        table = arrow_to_table(source.read_buffer())
        longest = int(table.lengths().max()) if len(table) else 0
        return replace(shard, num_samples=len(table), max_num_tokens=longest, masked=table.masks is not None)


def _describe_hdf5(shard: Shard) -> Shard:
    return replace(shard, num_samples=describe_hdf5(shard.path), masked=True)


def check_agreement(directory: Path, shards: Tuple[Shard, ...]) -> None:
    """One kind of file, all masked or none, all with a bin or none."""
    first = shards[0]
    for shard in shards[1:]:
        for what, of_first, of_other in (
            ("file format", first.kind, shard.kind),
            ("static masks", first.masked, shard.masked),
            ("bins", first.bin_id is not None, shard.bin_id is not None),
        ):
            if of_first != of_other:
                raise ValueError(
                    f"{directory}: {first.name} and {shard.name} differ in {what} ({of_first}, {of_other})"
                    "; a directory holds the shards of one run: separate them"
                )
    if not any(shard.num_samples for shard in shards):
        raise ValueError(
            f"{directory}: its {len(shards)} shards hold no sample; make them from a corpus that is not empty"
        )


def check_duplicates(shards: Tuple[Shard, ...]) -> None:
    """The same file under two names. Files of one size whose ends (Parquet's footer) agree are compared whole."""
    seen: Dict[Tuple[int, bytes], Shard] = {}
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

"""A directory of shards: checked before training starts, and read one shard at a time.

Reads LDDL's parquet files (balanced or not, with or without bins), our own Arrow files and older HDF5 files.
"""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from bert.files import checksum_of
from bert.samples.formats import arrow, hdf5, parquet
from bert.samples.listing import Shard, check_agreement, check_duplicates, check_names, list_shards, recorded_counts
from bert.samples.manifest import Manifest, is_unfinished, read_manifest
from bert.samples.sample_table import SampleTable
from bert.tokenization.token_strings import TokenStrings
from bert.tokenization.vocabulary import Vocabulary

_FORMATS = {"parquet": parquet, "arrow": arrow, "hdf5": hdf5}
# The libraries' errors for damaged bytes; KeyError and RuntimeError come from h5py.
_DAMAGE = (OSError, pa.ArrowException, ValueError, KeyError, AttributeError, RuntimeError)


class ShardDirectory:
    """The shards of a directory, in order of bin and number.

    Args:
        directory: holds part.N.parquet[_B], shard-N.parquet[_B], shard-N.arrow[_B] or *.hdf5 files.
        vocabulary: the vocabulary they were made with.
    Raises:
        FileNotFoundError: no such directory, or no shard in it.
    """

    def __init__(self, directory: str | Path, vocabulary: Vocabulary, max_seq_length: int) -> None:
        self.directory = Path(directory)
        self.vocabulary = vocabulary
        self.max_seq_length = max_seq_length
        self._strings = TokenStrings(vocabulary)
        self.manifest: Manifest | None = read_manifest(self.directory)
        shards = list_shards(self.directory)
        self._recorded = recorded_counts(self.directory, self.manifest)
        check_names(self.directory, shards, self._recorded)
        self._check_vocabulary()
        self.shards: tuple[Shard, ...] = tuple(self._describe(shard) for shard in shards)
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
            data = shard.path.read_bytes()
            if record:
                self._check_bytes(shard, data, record.xxh128)
            table = _FORMATS[shard.kind].read(data, self._strings)
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

    def verify(self) -> None:
        """Read and decode every shard; ValueError names the first that is damaged."""
        for index in range(len(self.shards)):
            self.load(index)

    @staticmethod
    def _check_bytes(shard: Shard, data: bytes, checksum: str) -> None:
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
        try:
            described = replace(shard, **vars(_FORMATS[shard.kind].describe(shard.path)))
        except _DAMAGE as error:
            raise ValueError(f"{shard.path}: {error}") from error
        if described.max_num_tokens > self.max_seq_length:
            raise ValueError(_too_long(shard.path, described.max_num_tokens, self.max_seq_length))
        return described


def count_samples(directory: str | Path) -> int:
    """Samples of all shards of a directory, by the records beside them or else by the shards' footers.

    Raises:
        FileNotFoundError: no such directory, no shard in it, or they are still being made.
    """
    directory = Path(directory)
    if is_unfinished(directory):
        raise FileNotFoundError(f"{directory}: its shards are still being made")
    shards = list_shards(directory)
    for recorded in recorded_counts(directory, read_manifest(directory)).values():
        return sum(recorded.values())
    try:
        return sum(_FORMATS[shard.kind].describe(shard.path).num_samples for shard in shards)
    except _DAMAGE as error:
        raise ValueError(f"{directory}: a shard cannot be read ({error}); make the shards again") from error


def _too_long(path: Path, longest: int, max_seq_length: int) -> str:
    return (
        f"{path}: has a sample of {longest} tokens, max_seq_length is {max_seq_length}; no sample may be longer: "
        f"set max_seq_length to at least {longest}, or make shards with --target-seq-length {max_seq_length}"
    )

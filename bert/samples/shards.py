"""A directory of shards: checked before training starts, and read one shard at a time.

Reads LDDL's parquet files (balanced or not, with or without bins), our own Arrow files, and the HDF5 and TFRecord
files of NVIDIA's PyTorch and TensorFlow trainers.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from bert.files import checksum_of
from bert.samples.formats import arrow, hdf5, parquet, tfrecord
from bert.samples.listing import Shard, check_agreement, check_duplicates, check_names, list_shards, recorded_counts
from bert.samples.manifest import Manifest, is_unfinished, read_manifest
from bert.samples.sample_table import SampleTable
from bert.tokenization.token_strings import TokenStrings
from bert.tokenization.vocabulary import Vocabulary

_FORMATS = {"parquet": parquet, "arrow": arrow, "hdf5": hdf5, "tfrecord": tfrecord}


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Make errors of damaged bytes a ValueError that names the file; KeyError and RuntimeError come from h5py."""
    try:
        yield
    except (OSError, pa.ArrowException, ValueError, KeyError, AttributeError, RuntimeError) as error:
        raise ValueError(f"{path}: {error}") from error


class ShardDirectory:
    """The shards of a directory, in order of bin and number; FileNotFoundError if there is none.

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
        """True if the samples carry static masks."""
        return self.shards[0].masked

    def load(self, index: int) -> SampleTable:
        """Read and decode one shard; ValueError if its bytes are not those of the manifest or cannot be decoded."""
        shard = self.shards[index]
        with _naming(shard.path):
            data = shard.path.read_bytes()
            if self.manifest:
                self._check_bytes(data, self.manifest.shards[shard.name].xxh128)
            table = _FORMATS[shard.kind].read(data, self._strings)
            if len(table) != shard.num_samples:
                raise ValueError(
                    f"holds {len(table)} samples, {shard.num_samples} when it was opened; shards must not change while "
                    "they are in use"
                )
            self._check_length(int(table.lengths().max(initial=0)))
        return table

    def verify(self) -> None:
        """Read and decode every shard; ValueError names the first that is damaged."""
        for index in range(len(self.shards)):
            self.load(index)

    @staticmethod
    def _check_bytes(data: bytes, recorded: str) -> None:
        checksum = checksum_of(data)
        if checksum != recorded:
            raise ValueError(
                f"its XXH128 is {checksum[:12]}..., the manifest says {recorded[:12]}...; the file has "
                "changed since it was made: copy it again or make it again"
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
                f"set max_seq_length to at least {longest}, or make shards with --target-seq-length "
                f"{self.max_seq_length}"
            )

    def _describe(self, shard: Shard) -> Shard:
        with _naming(shard.path):
            size = shard.path.stat().st_size
            if size == 0:
                raise ValueError("0 bytes; a shard is never empty: restore it or make the shards again")
            if self.manifest and size != (recorded := self.manifest.shards[shard.name].num_bytes):
                raise ValueError(
                    f"{size} bytes, the manifest says {recorded}; it is truncated or was replaced: copy it again or "
                    "make it again"
                )
            described = replace(shard, **vars(_FORMATS[shard.kind].describe(shard.path)))
            self._check_length(described.max_num_tokens)
        return described


def count_samples(directory: str | Path) -> int:
    """Samples of all shards of a directory, by the records beside them or else by the shards' footers.

    FileNotFoundError: there is no directory, no shard in it, or they are still being made.
    """
    directory = Path(directory)
    if is_unfinished(directory):
        raise FileNotFoundError(f"{directory}: its shards are still being made")
    shards = list_shards(directory)
    for counts in recorded_counts(directory, read_manifest(directory)).values():
        return sum(counts.values())
    num_samples = 0
    for shard in shards:
        with _naming(shard.path):
            num_samples += _FORMATS[shard.kind].describe(shard.path).num_samples
    return num_samples

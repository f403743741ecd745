"""Small texts, vocabularies and shards for the tests of the data path."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from bert.arrays.ragged import offsets_of
from bert.files import checksum_of
from bert.samples.formats.arrow import arrow_columns
from bert.samples.formats.parquet import parquet_columns
from bert.samples.formats.shard_writer import ShardWriter
from bert.samples.manifest import Manifest, ShardRecord, write_manifest
from bert.samples.sample_table import SampleTable, Slices, StaticMasks, join_pairs
from bert.tokenization.token_strings import TokenStrings
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
WORDS = tuple(
    "the river runs to sea over stones and under bridges old boats wait un fish water ##ing ##ed ##der".split()
)


def vocabulary() -> Vocabulary:
    """Return 106 tokens: special and [unused], single characters with and without ##, punctuation, some words."""
    characters = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
    return Vocabulary((*SPECIAL_TOKENS, "[unused0]", "[unused1]", *characters, *".,!?'()-", *WORDS))


def write_vocabulary(path: Path) -> Path:
    path.write_text("".join(token + "\n" for token in vocabulary().tokens))
    return path


def random_table(
    num_samples: int,
    seed: int = 0,
    masked: bool = False,
    longest: int = 30,
    shortest: int = 5,
    *,
    words: Vocabulary | None = None,
    num_masked: int = 2,
    least_first: int = 1,
) -> SampleTable:
    """Return samples of random tokens, neither special nor [unused]; no two are equal (the first tokens count).

    Args:
        words: instead of those of this module.
        least_first: tokens of the first text, whose first `num_masked` ones are masked, at least.
    """
    low = len(SPECIAL_TOKENS) if words else vocabulary().id_of("a")
    words = words or vocabulary()
    rng = np.random.default_rng(seed)
    lengths = rng.integers(shortest, longest + 1, num_samples)
    first = least_first + rng.integers(0, lengths - 3 - least_first)
    second = lengths - 3 - first
    ids, offsets = join_pairs(
        Slices.of_rows(rng.integers(low, len(words), first.sum()).astype(np.uint16), first),
        Slices.of_rows(rng.integers(low, len(words), second.sum()).astype(np.uint16), second),
        words.id_of("[CLS]"),
        words.id_of("[SEP]"),
    )
    masks = None
    if masked:
        counts = np.minimum(num_masked, first)
        mask_offsets = offsets_of(counts)
        positions = 1 + np.arange(mask_offsets[-1]) - np.repeat(mask_offsets[:-1], counts)
        flat = np.repeat(offsets[:-1], counts) + positions
        masks = StaticMasks(mask_offsets, positions.astype(np.uint16), ids[flat])
        ids = ids.copy()
        ids[flat] = words.id_of("[MASK]")
    return SampleTable(ids, offsets, (first + 2).astype(np.int32), rng.random(num_samples) < 0.5, masks)


def shard_bytes(columns: pa.Table, kind: str, bin_id: int | None = None) -> pa.Buffer:
    """Return the bytes of a shard with these columns."""
    sink = pa.BufferOutputStream()
    with ShardWriter(sink, kind, bin_id, "snappy", 256 << 20) as writer:
        writer.write(columns)
    return sink.getvalue()


def table_to_parquet(table: SampleTable, strings: TokenStrings, bin_id: int | None = None) -> pa.Buffer:
    """Return the bytes of a shard in LDDL's schema."""
    return shard_bytes(parquet_columns(table, strings), "parquet", bin_id)


def table_to_arrow(table: SampleTable) -> pa.Buffer:
    """Return the bytes of a shard in our own schema."""
    return shard_bytes(arrow_columns(table), "arrow")


def write_shards(
    folder: Path,
    tables: list[SampleTable],
    bins: list[int] | None = None,
    *,
    manifest: bool = True,
    kind: str = "parquet",
    words: Vocabulary | None = None,
) -> Path:
    """Write shard-N.parquet[_B] for the given tables, with a manifest unless told otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    strings = TokenStrings(vocabulary())
    records: dict[str, ShardRecord] = {}
    numbers: dict[int, int] = {}
    for index, table in enumerate(tables):
        bin_id = bins[index] if bins else None
        number = numbers.get(bin_id or 0, 0)
        numbers[bin_id or 0] = number + 1
        name = f"shard-{number}.{kind}" + ("" if bin_id is None else f"_{bin_id}")
        data = table_to_parquet(table, strings, bin_id) if kind == "parquet" else table_to_arrow(table)
        (folder / name).write_bytes(data)
        records[name] = ShardRecord(len(table), data.size, checksum_of(data), bin_id)
    if manifest:
        write_manifest(folder, Manifest(records, (words or vocabulary()).sha256))
    return folder


def write_source(folder: Path, num_documents: int = 40, seed: int = 0, num_files: int = 2) -> Path:
    """Write documents of 1 to 12 sentences of known words in LDDL's layout; return the corpus folder."""
    rng = np.random.default_rng(seed)
    words = [word for word in WORDS if "##" not in word]
    target = folder / "source" / "en"
    target.mkdir(parents=True)
    lines: list[list[str]] = [[] for _ in range(num_files)]
    for number in range(num_documents):
        sentences = [
            " ".join(rng.choice(words, rng.integers(3, 15))).capitalize() + f" {number} {place}."
            for place in range(rng.integers(1, 13))
        ]
        lines[number * num_files // num_documents].append(f"doc-{number} " + " ".join(sentences))
    for number, content in enumerate(lines):
        (target / f"{number}.txt").write_text("\n".join(content) + "\n")
    return folder

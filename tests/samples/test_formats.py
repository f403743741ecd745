"""Shards of each format: written and read back, read by other readers, and other writers' files."""

import struct
from dataclasses import replace

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from bert.samples.formats import arrow, hdf5, parquet, tfrecord
from bert.samples.formats.shard_writer import ShardWriter
from bert.samples.sample_table import SampleTable, Slices, concatenate, join_pairs
from bert.tokenization.token_strings import TokenStrings
from tests.support.corpora import random_table, vocabulary

WORDS = vocabulary()
STRINGS = TokenStrings(WORDS)
FORMATS = {"parquet": parquet, "arrow": arrow}


def singles(count: int) -> SampleTable:
    """Return samples of one text each."""
    texts, nothing = np.full(count, 4), np.zeros(count, np.int64)
    ids = np.arange(20, 20 + 4 * count, dtype=np.uint16)
    rows = Slices.of_rows(ids, texts), Slices.of_rows(ids[:0], nothing)
    joined, offsets = join_pairs(*rows, WORDS.id_of("[CLS]"), WORDS.id_of("[SEP]"), single=True)
    return SampleTable(joined, offsets, np.full(count, 6, np.int32), np.zeros(count, bool))


def with_words(table: SampleTable) -> SampleTable:
    continues = np.random.default_rng(0).random(len(table.token_ids)) < 0.4
    continues[table.offsets[:-1]] = False  # [CLS]
    return replace(table, continues=continues)


TABLES = {
    "pairs": random_table(13, 1),
    "masks": random_table(13, 1, masked=True),
    "words": with_words(random_table(13, 1)),
    "masks and words": with_words(random_table(13, 1, masked=True)),
    "single sequences": singles(5),
}


def same(one: SampleTable, other: SampleTable) -> bool:
    columns = [
        [*list(vars(table).values())[:4], table.continues, *(vars(table.masks).values() if table.masks else ())]
        for table in (one, other)
    ]
    return len(columns[0]) == len(columns[1]) and all(map(np.array_equal, *columns))


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_parts_that_are_written_are_read_as_one_table(tmp_path, kind, name, limit):
    table, path, module = TABLES[name], tmp_path / "shard", FORMATS[kind]
    halves = [table.take(np.arange(start, stop)) for start, stop in ((0, 3), (3, len(table)))]
    with ShardWriter(path, kind, 7, "zstd", limit) as writer:
        for half in halves:
            writer.write(parquet.parquet_columns(half, STRINGS) if kind == "parquet" else arrow.arrow_columns(half))
    assert same(module.read(path.read_bytes(), STRINGS), concatenate(halves))
    found = module.describe(path)
    facts = found.num_samples, found.max_num_tokens, found.masked, found.has_words
    assert facts == (len(table), table.lengths().max(), "masks" in name, "words" in name)
    if kind == "parquet":
        file = pq.ParquetFile(path)
        assert file.num_row_groups == (2 if limit == 0 else 1)
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"
        assert set(file.read(["bin_id"]).column(0).to_pylist()) == {7}


def test_parquet_rows_are_the_texts_of_their_tokens(tmp_path):
    table, path = TABLES["masks"], tmp_path / "shard"
    with ShardWriter(path, "parquet", None, "none", 1 << 20) as writer:
        writer.write(parquet.parquet_columns(table, STRINGS))
    for row, found in enumerate(pq.read_table(path).to_pylist()):
        tokens = [WORDS.tokens[index] for index in table.token_ids[slice(*table.offsets[row : row + 2])]]
        first = int(table.first_lengths[row])
        assert (found["A"].split(), found["B"].split()) == (tokens[1 : first - 1], tokens[first:-1])
        assert (found["num_tokens"], found["is_random_next"]) == (len(tokens), table.is_random_next[row])
        masks = slice(*table.masks.offsets[row : row + 2])
        assert found["masked_lm_labels"].split() == [WORDS.tokens[label] for label in table.masks.labels[masks]]
        header, data = found["masked_lm_positions"][:128], found["masked_lm_positions"][128:]
        assert header.startswith(b"\x93NUMPY\x01\x00") and b"'<u2'" in header
        assert np.frombuffer(data, "<u2").tolist() == table.masks.positions[masks].tolist()


def padded(table: SampleTable, width: int, predictions: int) -> dict[str, list[list[int]]]:
    """Return the matrices of NVIDIA's shards, row by row."""
    matrices: dict[str, list[list[int]]] = {name: [] for name in hdf5.DATASETS}
    for row in range(len(table)):
        ids = table.token_ids[slice(*table.offsets[row : row + 2])].tolist()
        own, first = slice(*table.masks.offsets[row : row + 2]), int(table.first_lengths[row])
        places, labels = table.masks.positions[own].tolist(), table.masks.labels[own].tolist()
        values = {
            "input_ids": (ids, width),
            "input_mask": ([1] * len(ids), width),
            "segment_ids": ([0] * first + [1] * (len(ids) - first), width),
            "masked_lm_positions": (places, predictions),
            "masked_lm_ids": (labels, predictions),
            "next_sentence_labels": ([int(table.is_random_next[row])], 1),
        }
        for name, (numbers, size) in values.items():
            matrices[name].append(numbers + [0] * (size - len(numbers)))
    return matrices


def test_hdf5_shards_have_nvidias_padded_matrices(tmp_path):
    table, path = TABLES["masks"], tmp_path / "a.hdf5"
    hdf5.write(path, table, 32, 4)
    expected = padded(table, 32, 4)
    with h5py.File(path) as file:
        found = {name: file[name][:].reshape(len(table), -1).tolist() for name in file}
    assert found == expected
    assert same(hdf5.read(path.read_bytes(), STRINGS), table)
    assert (hdf5.describe(path).num_samples, hdf5.describe(path).masked) == (13, True)


def test_what_hdf5_shards_cannot_hold_is_refused(tmp_path):
    with pytest.raises(ValueError, match="max_predictions_per_seq=1 must be at least 2, the masks of a sample"):
        hdf5.write(tmp_path / "a.hdf5", TABLES["masks"], 32, 1)
    alone = replace(singles(3), masks=random_table(3, 1, masked=True, longest=6, shortest=6).masks)
    with pytest.raises(ValueError, match="HDF5 shards hold pairs of sentences, not single sequences"):
        hdf5.write(tmp_path / "a.hdf5", alone, 32, 4)


# ---- TFRecord, written byte by byte ----


def varint(number: int) -> bytes:
    low, high = number & 127, number >> 7
    return bytes([low | 128]) + varint(high) if high else bytes([low])


def message(number: int, content: bytes) -> bytes:
    """Return a field of a protocol buffer that holds bytes or another message."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def example(features: dict[str, list[int]]) -> bytes:
    """Return a tf.train.Example: features { feature { key, value { int64_list { packed values } } } }."""
    entries = b""
    for name, values in features.items():
        numbers = message(1, b"".join(map(varint, values)))
        entries += message(1, message(1, name.encode()) + message(2, message(3, numbers)))
    return message(1, entries)


def masked_crc(data: bytes) -> int:
    """Compute CRC-32C bit by bit, rotated and shifted as TensorFlow does."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32


def records(table: SampleTable) -> list[bytes]:
    matrices = padded(table, 32, 4)
    found = []
    for row in range(len(table)):
        data = example({name: values[row] for name, values in matrices.items()})
        header = struct.pack("<Q", len(data))
        found.append(header + struct.pack("<I", masked_crc(header)) + data + struct.pack("<I", masked_crc(data)))
    return found


def test_tfrecord_shards_are_read(tmp_path):
    table, path = TABLES["masks"], tmp_path / "a.tfrecord"
    parts = records(table)
    path.write_bytes(b"".join(parts))
    assert same(tfrecord.read(path.read_bytes(), STRINGS), table)
    assert (tfrecord.describe(path).num_samples, tfrecord.describe(path).masked) == (13, True)
    for place, text in (
        (3, "record 1: the checksum of its length"),
        (40, "record 1: its checksum is wrong"),
        (-1, "record 1: its ch"),
    ):
        broken = bytearray(parts[1])
        broken[place] ^= 1
        with pytest.raises(ValueError, match=text):
            tfrecord.read(parts[0] + bytes(broken), STRINGS)
    path.write_bytes(b"".join(parts)[:-1])
    with pytest.raises(ValueError, match="record 12: the file ends inside of it"):
        tfrecord.describe(path)
    with pytest.raises(ValueError, match="is compressed with gzip"):
        tfrecord.read(b"\x1f\x8b" + bytes(20), STRINGS)

"""Shards of NVIDIA's PyTorch (HDF5) and TensorFlow (TFRecord) trainers are converted to ours, and ours to HDF5."""

from dataclasses import replace

import h5py
import numpy as np
import pytest
from crc32c import crc32c

from bert.samples.dataset import PretrainingDataset
from bert.samples.manifest import read_manifest, write_manifest
from bert.samples.sample_table import concatenate
from bert.samples.shards import ShardDirectory
from data import import_shards
from tests.samples.test_loader import loader_settings
from tests.samples.test_shards import WORDS, same, write_hdf5
from tests.support.corpora import random_table, write_shards

TABLES = [random_table(13, 1, masked=True), random_table(7, 2, masked=True)]


def varint(value):
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def field(number, content):
    """Return a length-delimited field of a protocol buffer, written from its specification."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def masked_crc(data):
    checksum = crc32c(data)
    return ((((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def framed(record):
    length = len(record).to_bytes(8, "little")
    return length + masked_crc(length) + record + masked_crc(record)


def write_tfrecord(path, hdf5_path):
    """Write the rows of an HDF5 shard as tf.train.Example records, as create_pretraining_data.py does."""
    with h5py.File(hdf5_path, "r") as file:
        columns = {name: values[:].reshape(len(values), -1) for name, values in file.items()}
    content = b""
    for row in range(len(columns["input_ids"])):
        features = b"".join(
            field(
                1, field(1, name.encode()) + field(2, field(3, field(1, b"".join(map(varint, values[row].tolist())))))
            )
            for name, values in columns.items()
        )
        weights = (columns["masked_lm_positions"][row] > 0).astype("<f4").tobytes()
        features += field(1, field(1, b"masked_lm_weights") + field(2, field(2, field(1, weights))))
        content += framed(field(1, features))
    path.write_bytes(content)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    for number, table in enumerate(TABLES):
        write_hdf5(tmp_path / f"in/train_{number}.hdf5", table)
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in WORDS.tokens))
    return tmp_path


def run(folder, *words, indir="in"):
    start = ["--indir", str(folder / indir), "--outdir", str(folder / "out"), "--vocab-file", str(folder / "vocab.txt")]
    import_shards.main([*start, *words])
    return ShardDirectory(folder / "out", WORDS, 32)


def loaded(directory):
    return concatenate([directory.load(index) for index in range(len(directory.shards))])


@pytest.mark.parametrize("kind", ["hdf5", "tfrecord"])
@pytest.mark.parametrize("output_format", ["parquet", "arrow"])
def test_samples_stay_the_same_in_shards_of_equal_size_with_a_manifest(folder, kind, output_format):
    if kind == "tfrecord":
        for path in sorted((folder / "in").iterdir()):
            write_tfrecord(folder / f"in/tf_examples.tfrecord{path.stem[-1]}", path)
            path.unlink()
    shards = run(folder, "--num-shards", "4", "--output-format", output_format)
    assert [shard.num_samples for shard in shards.shards] == [5] * 4 and shards.shards[0].kind == output_format
    assert same(loaded(shards), concatenate(TABLES))
    assert read_manifest(folder / "out").counts["samples"] == 20


def test_how_the_samples_were_made_is_kept(folder):
    """Otherwise documents in one sequence would read each other, and static masks of 30% would be refused."""
    manifest = read_manifest(write_shards(folder / "ours", TABLES))
    made_with = {"objective": "mlm", "separate_documents": True, "masked_lm_ratio": 0.3}
    write_manifest(folder / "ours", replace(manifest, settings={**made_with, "num_shards": 2, "compression": "lz4"}))
    run(folder, "--output-format", "arrow", indir="ours")
    settings = loader_settings(masking="static", masked_lm_ratio=0.3, max_predictions_per_seq=9)
    data = PretrainingDataset(folder / "out", WORDS, settings, seed=1, next_sentence=False)
    assert data.has_separate_documents and data.describe()["objective"] == "mlm"
    expected = {**made_with, "output_format": "arrow", "imported_from": str(folder / "ours")}
    assert read_manifest(folder / "out").settings == expected


def test_our_shards_become_hdf5_by_the_rules_of_nvidias_loader(folder):
    write_shards(folder / "ours", TABLES)
    shards = run(
        folder, "--output-format", "hdf5", "--max-seq-length", "32", "--max-predictions-per-seq", "6", indir="ours"
    )
    assert same(loaded(shards), concatenate(TABLES))
    with h5py.File(folder / "out/shard-0.hdf5") as file:
        rows = {name: np.asarray(file[name][:], np.int64) for name in file}
    for index in range(10):  # labels as its pretraining_dataset makes them: -1, and ids up to the first position 0
        positions, labels = rows["masked_lm_positions"][index], np.full(32, -1)
        end = np.flatnonzero(positions == 0)[0] if (positions == 0).any() else len(positions)
        labels[positions[:end]] = rows["masked_lm_ids"][index][:end]
        low, high = TABLES[0].masks.offsets[index : index + 2]
        assert labels[TABLES[0].masks.positions[low:high]].tolist() == TABLES[0].masks.labels[low:high].tolist()
        assert (labels >= 0).sum() == high - low and rows["input_mask"][index].sum() == TABLES[0].lengths()[index]


def test_training_reads_tfrecords_as_they_are(folder):
    write_tfrecord(folder / "in/a.tfrecord", folder / "in/train_0.hdf5")
    for path in (folder / "in").glob("*.hdf5"):
        path.unlink()
    assert same(loaded(ShardDirectory(folder / "in", WORDS, 32)), TABLES[0])


@pytest.mark.parametrize(
    ("damage", "rule"),
    [
        (lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], "record 0: its checksum is wrong"),
        (lambda data: bytes([data[0] ^ 1]) + data[1:], "record 0: the checksum of its length is wrong"),
        (lambda data: data[:-3], "record 12: the file ends inside of it"),
        (lambda data: b"\x1f\x8b" + data, "is compressed with gzip"),
        (lambda data: framed(b"no message"), "record 0: not a tf.train.Example"),
    ],
    ids=["a bit of a record", "a bit of a length", "cut off", "gzip", "another message"],
)
def test_damaged_tfrecords_are_refused(folder, damage, rule):
    (folder / "records").mkdir()
    path = folder / "records/a.tfrecord"
    write_tfrecord(path, folder / "in/train_0.hdf5")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=rule):
        ShardDirectory(folder / "records", WORDS, 32).verify()


def test_two_kinds_of_names_of_records_are_no_missing_number(folder):
    (folder / "records").mkdir()
    for number, name in enumerate(("books_0", "wiki_0")):
        write_tfrecord(folder / f"records/{name}.tfrecord", folder / f"in/train_{number}.hdf5")
    assert same(loaded(ShardDirectory(folder / "records", WORDS, 32)), concatenate(TABLES))


def test_a_small_hdf5_file_that_asks_for_all_of_the_memory_is_refused(folder):
    with h5py.File(folder / "in/train_0.hdf5", "a") as file:
        for name in list(file):
            width = file[name].shape[1:]
            kind = file[name].dtype
            del file[name]
            file.create_dataset(name, shape=(1 << 33, *width), dtype=kind, chunks=(1024, *width))
    with pytest.raises(ValueError, match="would take .* bytes and stores far fewer"):
        ShardDirectory(folder / "in", WORDS, 32)

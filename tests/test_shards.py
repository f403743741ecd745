import io
import itertools
import json

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert.samples.manifest import MANIFEST_NAME, NUM_SAMPLES_NAME
from bert.samples.shard_formats import TokenStrings, table_to_parquet
from bert.samples.shards import ShardDirectory
from bert.samples.table import SampleTable
from tests.corpora import random_table, vocabulary, write_shards

WORDS = vocabulary()
STRINGS = TokenStrings(WORDS)


def arrays_of(table: SampleTable) -> list[np.ndarray]:
    return [*list(vars(table).values())[:4], *(vars(table.masks).values() if table.masks else ())]


def same(one: SampleTable, other: SampleTable) -> bool:
    return all(itertools.starmap(np.array_equal, zip(arrays_of(one), arrays_of(other), strict=True)))


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
@pytest.mark.parametrize("masked", [False, True])
def test_what_is_written_is_read(tmp_path, kind, masked):
    tables = [random_table(13, 1, masked), random_table(7, 2, masked)]
    shards = ShardDirectory(write_shards(tmp_path, tables, kind=kind), WORDS, 30)
    assert [shard.num_samples for shard in shards.shards] == [13, 7]
    assert shards.masked is masked
    assert all(same(shards.load(index), table) for index, table in enumerate(tables))


def test_parquet_is_lddls_schema(tmp_path):
    table = random_table(13, 1, masked=True)
    path = tmp_path / "part.0.parquet_3"
    path.write_bytes(table_to_parquet(table, STRINGS, bin_id=3))
    file = pq.ParquetFile(path)
    assert file.schema_arrow == pa.schema([
        ("A", pa.string()), ("B", pa.string()), ("is_random_next", pa.bool_()), ("num_tokens", pa.uint16()),
        ("masked_lm_positions", pa.binary()), ("masked_lm_labels", pa.string()), ("bin_id", pa.int64())])
    assert file.num_row_groups == 1
    for index, row in enumerate(file.read(use_threads=False).to_pylist()):
        tokens = ["[CLS]", *row["A"].split(" "), "[SEP]", *row["B"].split(" "), "[SEP]"]
        assert len(tokens) == row["num_tokens"]
        low, high = table.offsets[index:index + 2]
        assert [WORDS.id_of(token) for token in tokens] == table.token_ids[low:high].tolist()
        positions = np.load(io.BytesIO(row["masked_lm_positions"]), allow_pickle=False)
        low, high = table.masks.offsets[index:index + 2]
        assert positions.dtype == np.uint16 and positions.tolist() == table.masks.positions[low:high].tolist()
        assert [WORDS.id_of(label) for label in row["masked_lm_labels"].split(" ")] == table.masks.labels[
            low:high].tolist()
        assert row["bin_id"] == 3


def foreign_shard(rows: list[dict], **schema) -> bytes:
    """A shard as another program would write it: its own page sizes, np.save per row."""
    fields = {"A": pa.string(), "B": pa.string(), "is_random_next": pa.bool_(), "num_tokens": pa.uint16(), **schema}
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields.items())), stream)
    return stream.getvalue()


def np_save(values, dtype=np.uint16) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array(values, dtype))
    return stream.getvalue()


def test_shards_of_lddl_are_read(tmp_path):
    rows = [{"A": "the [MASK]", "B": "runs", "is_random_next": True, "num_tokens": 6,
             "masked_lm_positions": np_save([2]), "masked_lm_labels": "river"},
            {"A": "[MASK]", "B": "fish ##ing [MASK]", "is_random_next": False, "num_tokens": 7,
             "masked_lm_positions": np_save([1, 5]), "masked_lm_labels": "old sea"}]
    (tmp_path / "part.0.parquet").write_bytes(
        foreign_shard(rows, masked_lm_positions=pa.binary(), masked_lm_labels=pa.string()))
    table = ShardDirectory(tmp_path, WORDS, 128).load(0)
    assert [WORDS.tokens[index] for index in table.token_ids] == (
        "[CLS] the [MASK] [SEP] runs [SEP] [CLS] [MASK] [SEP] fish ##ing [MASK] [SEP]".split())
    assert table.first_lengths.tolist() == [4, 3]
    assert table.is_random_next.tolist() == [True, False]
    assert (table.masks.offsets.tolist(), table.masks.positions.tolist()) == ([0, 1, 3], [2, 1, 5])
    assert [WORDS.tokens[index] for index in table.masks.labels] == ["river", "old", "sea"]


def write_hdf5(path, table: SampleTable, width: int = 32, predictions: int = 4) -> None:
    size = len(table)
    arrays = {name: np.zeros((size, width), np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    arrays |= {name: np.zeros((size, predictions), np.int32) for name in ("masked_lm_positions", "masked_lm_ids")}
    for row in range(size):
        low, high = table.offsets[row:row + 2]
        arrays["input_ids"][row, :high - low] = table.token_ids[low:high]
        arrays["input_mask"][row, :high - low] = 1
        arrays["segment_ids"][row, table.first_lengths[row]:high - low] = 1
        low, high = table.masks.offsets[row:row + 2]
        arrays["masked_lm_positions"][row, :high - low] = table.masks.positions[low:high]
        arrays["masked_lm_ids"][row, :high - low] = table.masks.labels[low:high]
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file.create_dataset(name, data=values, compression="gzip")
        file.create_dataset("next_sentence_labels", data=table.is_random_next.astype(np.int8))


def test_hdf5_shards_are_read(tmp_path):
    table = random_table(13, 1, masked=True)
    write_hdf5(tmp_path / "train_0.hdf5", table)
    shards = ShardDirectory(tmp_path, WORDS, 32)
    assert same(shards.load(0), table)
    with h5py.File(tmp_path / "train_0.hdf5", "a") as file:
        del file["segment_ids"]
    with pytest.raises(ValueError, match="segment_ids"):
        shards.load(0)


def five_shards(folder, manifest=True):
    return write_shards(folder, [random_table(11, seed) for seed in range(5)], manifest=manifest)


@pytest.mark.parametrize("record", ["manifest", "counts only", "nothing"])
def test_a_missing_shard_is_found(tmp_path, record):
    five_shards(tmp_path)
    (tmp_path / "shard-2.parquet").unlink()
    for name in {"manifest": [], "counts only": [MANIFEST_NAME], "nothing": [MANIFEST_NAME, NUM_SAMPLES_NAME]}[record]:
        (tmp_path / name).unlink()
    with pytest.raises(ValueError, match=r"shard-2\.parquet|number 2 is missing"):
        ShardDirectory(tmp_path, WORDS, 30)


@pytest.mark.parametrize("manifest", [True, False])
def test_a_shard_under_two_names_is_found(tmp_path, manifest):
    five_shards(tmp_path, manifest)
    (tmp_path / "shard-5.parquet").write_bytes((tmp_path / "shard-1.parquet").read_bytes())
    with pytest.raises(ValueError, match=r"shard-5\.parquet"):
        ShardDirectory(tmp_path, WORDS, 30)


def test_stale_counts_are_found(tmp_path):
    five_shards(tmp_path, manifest=False)
    counts = {f"shard-{number}.parquet": 11 for number in range(5)}
    (tmp_path / NUM_SAMPLES_NAME).write_text(json.dumps(counts))
    ShardDirectory(tmp_path, WORDS, 30)
    (tmp_path / NUM_SAMPLES_NAME).write_text(json.dumps({**counts, "shard-3.parquet": 6}))
    with pytest.raises(ValueError, match=r"holds 11 samples, \.num_samples\.json says 6"):
        ShardDirectory(tmp_path, WORDS, 30)
    (tmp_path / NUM_SAMPLES_NAME).write_text("[")
    with pytest.raises(ValueError, match="not a JSON object"):
        ShardDirectory(tmp_path, WORDS, 30)


@pytest.mark.parametrize("keep", [0, 3, 400])
@pytest.mark.parametrize("manifest", [True, False])
def test_an_empty_or_truncated_shard_is_found(tmp_path, keep, manifest):
    five_shards(tmp_path, manifest)
    path = tmp_path / "shard-4.parquet"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ValueError, match=r"shard-4\.parquet"):
        ShardDirectory(tmp_path, WORDS, 30)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_every_flipped_bit_is_found(tmp_path, kind):
    write_shards(tmp_path, [random_table(7)], kind=kind)
    path = tmp_path / f"shard-0.{kind}"
    good = path.read_bytes()
    rng = np.random.default_rng(3)
    for place in rng.integers(0, len(good), 60).tolist():
        bad = bytearray(good)
        bad[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=f"shard-0.{kind}"):
            ShardDirectory(tmp_path, WORDS, 30).verify()


def test_page_checksums_find_flipped_bits_in_our_shards_without_a_manifest(tmp_path):
    write_shards(tmp_path, [random_table(400)], manifest=False)
    path = tmp_path / "shard-0.parquet"
    good = path.read_bytes()
    metadata = pq.ParquetFile(path).metadata.row_group(0).column(0)
    for place in range(metadata.data_page_offset + 60, metadata.data_page_offset + metadata.total_compressed_size, 97):
        bad = bytearray(good)
        bad[place] ^= 4
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"shard-0\.parquet"):
            ShardDirectory(tmp_path, WORDS, 30).load(0)


BAD_SHARDS = {
    "no column 'B'": pa.table({"A": ["sea"]}),
    "column 'num_tokens' is int64": pa.table({"A": ["sea"], "B": ["sea"], "is_random_next": [True], "num_tokens": [5]}),
    "must be their sum \\+ 3": [{"A": "the sea", "B": "runs", "is_random_next": True, "num_tokens": 5}],
    "token 'mountain' is not in": [{"A": "the mountain", "B": "runs", "is_random_next": True, "num_tokens": 6}],
    "holds 1 nulls": [{"A": None, "B": "runs", "is_random_next": True, "num_tokens": 4}],
    "1 masked_lm_positions but 2 masked_lm_labels": np_save([1]),
    "masked position 5 is not inside its 5 tokens": np_save([1, 5]),
    "masked position 0 is not inside": np_save([0, 1]),
    "not the bytes of np.save": b"gibberish, not an array",
}


@pytest.mark.parametrize("rule", BAD_SHARDS)
def test_a_shard_that_breaks_a_rule_is_refused(tmp_path, rule):
    content, path = BAD_SHARDS[rule], tmp_path / "part.0.parquet"
    if isinstance(content, pa.Table):
        pq.write_table(content, path)
    elif isinstance(content, list):
        path.write_bytes(foreign_shard(content))
    else:
        row = {"A": "sea", "B": "runs", "is_random_next": True, "num_tokens": 5, "masked_lm_positions": content,
               "masked_lm_labels": "old boats"}
        path.write_bytes(foreign_shard([row], masked_lm_positions=pa.binary(), masked_lm_labels=pa.string()))
    with pytest.raises(ValueError, match=rule) as error:
        ShardDirectory(tmp_path, WORDS, 30).verify()
    assert "part.0.parquet" in str(error.value)


def test_samples_longer_than_the_model_are_refused_before_training(tmp_path):
    for kind in ("parquet", "arrow"):
        write_shards(tmp_path / kind, [random_table(50, longest=30)], kind=kind)
        with pytest.raises(ValueError, match="max_seq_length is 16"):
            ShardDirectory(tmp_path / kind, WORDS, 16)
    (tmp_path / "hdf5").mkdir()
    write_hdf5(tmp_path / "hdf5" / "a.hdf5", random_table(50, masked=True))
    with pytest.raises(ValueError, match="max_seq_length is 16"):
        ShardDirectory(tmp_path / "hdf5", WORDS, 16).load(0)


def test_shards_of_two_runs_do_not_mix(tmp_path):
    write_shards(tmp_path / "masks", [random_table(5, 1), random_table(5, 2, masked=True)])
    with pytest.raises(ValueError, match="differ in static masks"):
        ShardDirectory(tmp_path / "masks", WORDS, 30)
    write_shards(tmp_path / "bins", [random_table(5, 1)], bins=[0], manifest=False)
    write_shards(tmp_path / "bins", [random_table(5, 2)], manifest=False)
    with pytest.raises(ValueError, match="differ in bins"):
        ShardDirectory(tmp_path / "bins", WORDS, 30)


def test_shards_are_tied_to_their_vocabulary(tmp_path):
    write_shards(tmp_path, [random_table(5)])
    other = type(WORDS)((*WORDS.tokens, "mountain"), "other.txt")
    with pytest.raises(ValueError, match=r"other\.txt has"):
        ShardDirectory(tmp_path, other, 30)


def test_a_directory_without_shards_names_the_remedy(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such directory"):
        ShardDirectory(tmp_path / "absent", WORDS, 30)
    with pytest.raises(FileNotFoundError, match="preprocess_bert_pretrain"):
        ShardDirectory(tmp_path, WORDS, 30)
    write_shards(tmp_path, [random_table(5).rows(0, 0)])
    with pytest.raises(ValueError, match="hold no sample"):
        ShardDirectory(tmp_path, WORDS, 30)

import io
import itertools
import json
from dataclasses import replace

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bert.samples.formats.arrow import arrow_columns
from bert.samples.manifest import (
    CHECKSUMS_NAME,
    MANIFEST_NAME,
    NUM_SAMPLES_NAME,
    UNFINISHED_NAME,
    Manifest,
    ShardRecord,
    is_unfinished,
    read_manifest,
    shard_totals,
    write_manifest,
)
from bert.samples.mixture import write_mixture
from bert.samples.sample_table import SampleTable
from bert.samples.shards import ShardDirectory, count_samples, list_shards
from data.preprocessing.balancing import balance
from tests.support.corpora import random_table, shard_bytes, vocabulary, write_shards

WORDS = vocabulary()


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


def foreign_shard(rows: list[dict], **schema) -> bytes:
    """Write a shard as another program would: its own page sizes, np.save per row."""
    fields = {"A": pa.string(), "B": pa.string(), "is_random_next": pa.bool_(), "num_tokens": pa.uint16(), **schema}
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, pa.schema(fields.items())), stream)
    return stream.getvalue()


MASKS = {"masked_lm_positions": pa.binary(), "masked_lm_labels": pa.string()}


def np_save(values, dtype=np.uint16) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array(values, dtype))
    return stream.getvalue()


def write_hdf5(path, table: SampleTable, width: int = 32, predictions: int = 4) -> None:
    size = len(table)
    arrays = {name: np.zeros((size, width), np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    arrays |= {name: np.zeros((size, predictions), np.int32) for name in ("masked_lm_positions", "masked_lm_ids")}
    for row in range(size):
        low, high = table.offsets[row : row + 2]
        arrays["input_ids"][row, : high - low] = table.token_ids[low:high]
        arrays["input_mask"][row, : high - low] = 1
        arrays["segment_ids"][row, table.first_lengths[row] : high - low] = 1
        low, high = table.masks.offsets[row : row + 2]
        arrays["masked_lm_positions"][row, : high - low] = table.masks.positions[low:high]
        arrays["masked_lm_ids"][row, : high - low] = table.masks.labels[low:high]
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
    with pytest.raises(ValueError, match=f"{CHECKSUMS_NAME} says .* and remove {CHECKSUMS_NAME} if"):
        shards.load(0)
    (tmp_path / CHECKSUMS_NAME).unlink()
    with pytest.raises(ValueError, match="segment_ids"):
        ShardDirectory(tmp_path, WORDS, 32)


def changed(place, value):
    def change(array):
        array[place] = value
        return array

    return change


@pytest.mark.parametrize(
    ("name", "change", "rule"),
    [
        ("masked_lm_ids", lambda array: array[:, :3], r"masked_lm_ids has the shape \(13, 3\), .* \(13, 4\)"),
        ("input_ids", lambda array: array[:12], r"input_mask has the shape \(13, 32\), input_ids \(12, 32\)"),
        ("input_ids", lambda array: array.astype(np.float32), "input_ids are of type float32, they must be integers"),
        ("input_ids", lambda array: array[0, 0], r"input_ids has the shape \(\)"),
        ("input_ids", changed((5, 2), 106), "input_ids reach from 2 to 106, vocabulary has 106 tokens"),
        ("masked_lm_ids", changed((5, 0), 106), "masked_lm_labels reach from .* to 106"),
        ("masked_lm_positions", changed((4, 0), -3), "sample 4: masked position -3 is not inside its"),
        ("masked_lm_positions", changed((4, 3), 1), "sample 4: masked_lm_positions is 0 at place 2; after a 0"),
        ("input_mask", changed((7, 0), 0), "sample 7: input_mask is 0 at place 0; it must be ones, then zeros"),
        ("input_mask", changed((7, 1), 2), "sample 7: input_mask is 2 at place 1"),
        ("segment_ids", lambda array: 1 - array, "sample 0: segment_ids is 1 at place 0; they must be 0 for"),
        ("segment_ids", changed(8, 0), "sample 8: the number of tokens with segment_ids 0 is .* must follow with 1"),
        ("segment_ids", changed(8, 2), "sample 8: segment_ids is 2 at place 0"),
        ("next_sentence_labels", changed(3, 2), r"sample 3: next_sentence_labels is 2; it must be 0 or 1"),
        (
            "next_sentence_labels",
            lambda array: array[:, None].repeat(2, 1),
            "next_sentence_labels has the shape .13, 2",
        ),
    ],
)
def test_rows_of_hdf5_shards_are_checked(tmp_path, name, change, rule):
    table = random_table(13, 1, masked=True)
    write_hdf5(tmp_path / "a.hdf5", table)
    with h5py.File(tmp_path / "a.hdf5", "a") as file:
        values = file[name][:]
        del file[name]
        file.create_dataset(name, data=change(values))
    with pytest.raises(ValueError, match=rule) as error:
        ShardDirectory(tmp_path, WORDS, 32).verify()
    assert str(error.value).startswith(f"{tmp_path / 'a.hdf5'}: ") and str(error.value).endswith("make it again")


def five_shards(folder, manifest=True):
    return write_shards(folder, [random_table(11, seed) for seed in range(5)], manifest=manifest)


def test_a_damaged_record_of_counts_is_named(tmp_path):
    five_shards(tmp_path, manifest=False)
    (tmp_path / NUM_SAMPLES_NAME).write_text("[")
    with pytest.raises(ValueError, match="not a JSON object"):
        ShardDirectory(tmp_path, WORDS, 30)


BAD_SHARDS = {
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
    if isinstance(content, list):
        path.write_bytes(foreign_shard(content))
    else:
        row = {"A": "sea", "B": "runs", "is_random_next": True, "num_tokens": 5, "masked_lm_labels": "old boats"}
        path.write_bytes(foreign_shard([row | {"masked_lm_positions": content}], **MASKS))
    with pytest.raises(ValueError, match=rule) as error:
        ShardDirectory(tmp_path, WORDS, 30).verify()
    assert "part.0.parquet" in str(error.value)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ("input_ids", pa.large_list(pa.float32())),
        ("input_ids", pa.large_list(pa.bool_())),
        ("first_length", pa.float32()),
        ("is_random_next", pa.uint8()),
        ("first_length", None),
    ],
)
def test_arrow_shards_of_other_types_are_refused(tmp_path, column, kind):
    write_shards(tmp_path, [random_table(9)], kind="arrow", manifest=False)
    path = tmp_path / "shard-0.arrow"
    table = pa.ipc.open_file(path).read_all()
    if kind is None:
        table = table.drop_columns([column])
    else:
        place = table.column_names.index(column)
        table = table.set_column(place, column, table.column(place).cast(kind))
    with pa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(ValueError, match=rf"shard-0\.arrow: column '{column}' is"):
        ShardDirectory(tmp_path, WORDS, 30).verify()


def put(array, place, value):
    array[place] = value


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda table: put(table.token_ids, 2, 106), "input_ids reach from 2 to 106, vocabulary has 106 tokens"),
        (lambda table: put(table.token_ids, 2, -5), "input_ids reach from -5 to 105, vocabulary has 106 tokens"),
        (lambda table: put(table.masks.labels, 0, 999), "masked_lm_labels reach from .* to 999, .* the vocabulary the"),
        (lambda table: put(table.masks.positions, 0, 200), "sample 0: masked position 200 is not inside its .* again"),
        (lambda table: put(table.token_ids, table.offsets[4], 9), "sample 4: its .* are not .CLS. A .SEP. and B .SEP."),
        (lambda table: put(table.token_ids, table.offsets[4] - 1, 9), "sample 3: its .* are not .CLS. A .SEP. and B"),
        (lambda table: put(table.first_lengths, 6, 1), "sample 6: its .* first_length=1 are not"),
        (lambda table: put(table.first_lengths, 6, 500), "sample 6: its .* first_length=500 are not"),
        (lambda table: put(table.offsets, 3, table.offsets[4] + 1), "shard-0.arrow"),
        (lambda table: put(table.masks.offsets, 2, table.masks.offsets[1]), "sample 1: 0 masked_lm_positions but 2"),
    ],
)
def test_an_arrow_shard_without_a_manifest_is_checked(tmp_path, change, rule):
    table = random_table(13, 1, masked=True)
    masks = replace(table.masks, labels=table.masks.labels.astype(np.int32))
    table = replace(table, token_ids=table.token_ids.astype(np.int32), masks=masks)
    label_offsets = masks.offsets.copy()
    change(table)
    columns = arrow_columns(table)
    labels = arrow_columns(replace(table, masks=replace(table.masks, offsets=label_offsets)))["masked_lm_labels"]
    columns = columns.set_column(columns.column_names.index("masked_lm_labels"), "masked_lm_labels", labels)
    (tmp_path / "shard-0.arrow").write_bytes(shard_bytes(columns, "arrow"))
    with pytest.raises(ValueError, match=rule) as error:
        ShardDirectory(tmp_path, WORDS, 600).verify()
    assert "shard-0.arrow" in str(error.value)


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
    write_shards(tmp_path, [random_table(5).take(np.zeros(0, np.int64))])
    with pytest.raises(ValueError, match="hold no sample"):
        ShardDirectory(tmp_path, WORDS, 30)


def parts_of(folder, numbers, bins=None):
    """Write part.N.parquet[_B] of 11 samples each, without any record, as LDDL does."""
    write_shards(folder / "made", [random_table(11, seed) for seed in range(len(numbers))], bins, manifest=False)
    for path, number in zip(sorted((folder / "made").iterdir()), numbers, strict=True):
        path.rename(folder / f"part.{number}.parquet{path.name.partition('.parquet')[2]}")
    (folder / "made").rmdir()
    return folder


def doubled(folder):
    parts_of(folder, [0, 1, 2])
    (folder / "part.3.parquet").write_bytes((folder / "part.1.parquet").read_bytes())


def listed_but_gone(folder):
    parts_of(folder, [0, 1, 2])
    counts = {f"part.{number}.parquet": 11 for number in range(4)}
    (folder / NUM_SAMPLES_NAME).write_text(json.dumps(counts))


@pytest.mark.parametrize(
    ("make", "rule"),
    [
        (lambda folder: parts_of(folder, [0, 2, 3, 4]), "shard number 1 is missing .*restore it"),
        (
            lambda folder: (parts_of(folder, [0, 1]), five_shards(folder, manifest=False)),
            r"holds part\.1\.parquet and shard-4\.parquet, .* each sample would count twice: move",
        ),
        (doubled, r"part\.3\.parquet: the same bytes as part\.1\.parquet"),
        (listed_but_gone, r"1 of the 4 shards in \.num_samples\.json are missing, the first being part\.3\.parquet"),
    ],
    ids=["gap", "parts beside shards", "doubled", "listed but gone"],
)
def test_the_balancer_refuses_what_the_loader_refuses(tmp_path, make, rule):
    make(tmp_path)
    with pytest.raises(ValueError, match=rule):
        ShardDirectory(tmp_path, WORDS, 30)
    with pytest.raises(ValueError, match=rule):
        balance(tmp_path, tmp_path / "out", 2)
    assert not (tmp_path / "out").exists()


def test_the_balancers_manifest_tells_of_its_output(tmp_path):
    source = five_shards(tmp_path / "in")
    given = read_manifest(source)
    write_manifest(
        source,
        Manifest(
            given.shards,
            given.vocabulary_sha256,
            {"compression": "snappy", "seed": 7},
            {"shard bytes": 1, "documents read": 99},
        ),
    )
    for compression in ("none", "zstd"):
        made = balance(source, tmp_path / compression, 2, compression)
        sizes = [path.stat().st_size for path in (tmp_path / compression).glob("*.parquet")]
        assert made.counts == {
            "documents read": 99,
            "samples": 55,
            "samples per bin": {"None": 55},
            "shard bytes": sum(sizes),
        }
        assert made.settings == {"compression": compression, "num_shards": 2, "output_format": "parquet", "seed": 7}
        assert read_manifest(tmp_path / compression) == made


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_columns_that_polars_or_pandas_stored_in_other_types_are_cast(tmp_path, kind):
    table = random_table(9, masked=True)
    path = write_shards(tmp_path, [table], kind=kind, manifest=False) / f"shard-0.{kind}"
    stored = pq.read_table(path) if kind == "parquet" else pa.ipc.open_file(path).read_all()
    other = {
        pa.string(): pa.dictionary(pa.int32(), pa.large_string()),
        pa.uint16(): pa.int64(),
        pa.binary(): pa.large_binary(),
        pa.large_list(pa.uint16()): pa.list_(pa.int64()),
    }
    stored = stored.cast(pa.schema([(field.name, other.get(field.type, field.type)) for field in stored.schema]))
    if kind == "parquet":
        pq.write_table(stored, path)
    else:
        with pa.ipc.new_file(path, stored.schema) as writer:
            writer.write_table(stored)
    assert same(ShardDirectory(tmp_path, WORDS, 30).load(0), table)


def test_shards_are_in_order_of_bin_and_number(tmp_path):
    """The order is numeric: shard-10 follows shard-9."""
    names = ["shard-10.parquet_0", "shard-2.parquet_0", "shard-0.parquet_1", "shard-0.parquet_0", "shard-9.parquet_10"]
    for name in (*names, ".shard-3.parquet_0", "shard-x.parquet", "notes.txt", "shard-1.parquet_0.tmp"):
        (tmp_path / name).touch()
    found = [(shard.name, shard.number, shard.bin_id) for shard in list_shards(tmp_path)]
    assert found == [
        ("shard-0.parquet_0", 0, 0),
        ("shard-2.parquet_0", 2, 0),
        ("shard-10.parquet_0", 10, 0),
        ("shard-0.parquet_1", 0, 1),
        ("shard-9.parquet_10", 9, 10),
    ]
    (tmp_path / "other").mkdir()
    for name in ("b.hdf5", "a.h5", ".c.hdf5", "d.tfrecord-00"):
        (tmp_path / "other" / name).touch()
    found = [(shard.name, shard.kind, shard.number) for shard in list_shards(tmp_path / "other")]
    assert found == [("a.h5", "hdf5", 0), ("d.tfrecord-00", "tfrecord", 0), ("b.hdf5", "hdf5", 1)]


def test_samples_are_counted_by_the_mixture_the_records_or_the_files(tmp_path):
    five_shards(tmp_path, manifest=False)
    assert count_samples(tmp_path) == 55
    (tmp_path / NUM_SAMPLES_NAME).write_text(json.dumps({"shard-0.parquet": 40, "shard-1.parquet": 2}))
    assert count_samples(tmp_path) == 42, "by the record, without opening a file"
    five_shards(tmp_path / "manifest")
    (tmp_path / "manifest" / NUM_SAMPLES_NAME).write_text(json.dumps({"shard-0.parquet": 40}))
    assert count_samples(tmp_path / "manifest") == 55, "the manifest before the other record"
    write_mixture(tmp_path, {".": 9, "replay": 3})
    assert count_samples(tmp_path) == 12
    (tmp_path / "new" / UNFINISHED_NAME).mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="its shards are still being made"):
        count_samples(tmp_path / "new")
    with pytest.raises(ValueError, match="some of its shards are missing: a run is writing them, or was stopped"):
        list_shards(tmp_path / "new")


def test_a_manifest_tells_sizes_bins_and_whether_its_shards_are_finished(tmp_path):
    records = {"a": ShardRecord(3, 100, "00", 0), "b": ShardRecord(4, 20, "01", 1), "c": ShardRecord(5, 7, "02", 1)}
    assert shard_totals(records) == {"samples per bin": {"0": 3, "1": 9}, "shard bytes": 127}
    (tmp_path / UNFINISHED_NAME).mkdir()
    assert is_unfinished(tmp_path) and read_manifest(tmp_path) is None
    manifest = Manifest(records, "sha", {"seed": 7}, {"samples": 12})
    write_manifest(tmp_path, manifest)
    assert not is_unfinished(tmp_path) and read_manifest(tmp_path) == manifest
    assert json.loads((tmp_path / NUM_SAMPLES_NAME).read_text()) == {"a": 3, "b": 4, "c": 5}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"version": 1}, "version 1, made by another version of this program, which reads version 2"),
        ({"format": "other"}, "not a manifest of this program .format 'other'.; it must be"),
        ({"shards": {"a": {}}}, "not a manifest of this program"),
    ],
)
def test_a_manifest_of_another_program_or_version_is_refused(tmp_path, change, text):
    write_manifest(tmp_path, Manifest({}, None))
    path = tmp_path / MANIFEST_NAME
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=text):
        read_manifest(tmp_path)


def test_shards_that_differ_from_their_record_are_refused(tmp_path):
    path = five_shards(tmp_path) / "shard-2.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:100] + bytes([content[100] ^ 1]) + content[101:])
    with pytest.raises(
        ValueError, match="shard-2.parquet: its XXH128 is .*, manifest.json says .*; the file has changed"
    ):
        ShardDirectory(tmp_path, WORDS, 30).load(2)
    path.write_bytes(content + b"x")
    with pytest.raises(
        ValueError, match=rf"shard-2.parquet: {len(content) + 1} bytes, the manifest says {len(content)}"
    ):
        ShardDirectory(tmp_path, WORDS, 30)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="shard-2.parquet: 0 bytes; a shard is never empty"):
        ShardDirectory(tmp_path, WORDS, 30)
    path.write_bytes(content)
    (tmp_path / NUM_SAMPLES_NAME).write_text(
        json.dumps({f"shard-{number}.parquet": 11 + (number == 3) for number in range(5)})
    )
    with pytest.raises(ValueError, match=r"shard-3.parquet: holds 11 samples, \.num_samples.json says 12; the record"):
        ShardDirectory(tmp_path, WORDS, 30)
    path.rename(tmp_path / "shard-7.parquet")
    with pytest.raises(
        ValueError, match="1 of the 5 shards in manifest.json are missing, the first being shard-2.parquet"
    ):
        ShardDirectory(tmp_path, WORDS, 30)


def test_a_sample_may_be_as_long_as_the_model_allows(tmp_path):
    write_shards(tmp_path, [random_table(9, longest=16, shortest=16)])
    assert ShardDirectory(tmp_path, WORDS, 16).load(0).lengths().max() == 16
    with pytest.raises(ValueError, match="has a sample of 16 tokens, max_seq_length is 15"):
        ShardDirectory(tmp_path, WORDS, 15)

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from bert.config.batch_settings import BatchSchedule
from bert.randomness import stream_key
from bert.samples.dataset import PretrainingDataset
from bert.samples.global_batches import deal
from bert.samples.loader import PretrainingLoader, evaluation_batches, evaluation_unigram_entropy
from bert.samples.manifest import read_manifest, write_manifest
from bert.samples.mixture import MIXTURE_NAME, write_mixture
from bert.samples.order import SampleOrder
from bert.samples.sample_table import concatenate
from bert.samples.settings import LoaderSettings
from tests.support.corpora import random_table, vocabulary, write_shards
from tests.support.waiting import wait_until

WORDS = vocabulary()
COUNTS, BINS = [23, 17, 31, 19, 29], [0, 0, 1, 1, 2]


def loader_settings(**changes) -> LoaderSettings:
    return LoaderSettings(
        **{"max_seq_length": 30, "max_predictions_per_seq": 4, "masking": "dynamic", "num_workers": 1, **changes}
    )


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Write directories of the same samples: plain, in bins by length, and with static masks."""
    root = tmp_path_factory.mktemp("shards")
    tables = [random_table(count, seed) for seed, count in enumerate(COUNTS)]
    write_shards(root / "plain", tables)
    binned = [
        random_table(count, seed, longest=10 * bin_id + 10, shortest=10 * bin_id + 5)
        for seed, (count, bin_id) in enumerate(zip(COUNTS, BINS, strict=True))
    ]
    write_shards(root / "binned", binned, bins=BINS)
    write_shards(root / "static", [random_table(count, seed, masked=True) for seed, count in enumerate(COUNTS)])
    return root


def ids_of(order: SampleOrder, index: int, size: int) -> np.ndarray:
    """Return the samples of a global batch."""
    ids = np.full(size, -1)
    for window, places, rows, _ in order.parts(index):
        ids[places] = order.sample_ids(window, rows)
    return ids


def dataset(folder, seed=42, shuffle_window_samples=1 << 18, **changes) -> PretrainingDataset:
    settings = loader_settings(**changes)
    return PretrainingDataset(folder, WORDS, settings, seed=seed, shuffle_window_samples=shuffle_window_samples)


def take(loader, count, start=0):
    """Return the feeds of `count` global batches: [[feed of micro-batch 0, ...], ...]."""
    batches = loader.batches(start)
    result = [[batch.feed for batch in whole.micro_batches] for whole in itertools.islice(batches, count)]
    batches.close()
    return result


def equal(one, other) -> bool:
    return len(one) == len(other) and all(
        len(a) == len(b)
        and all(x.keys() == y.keys() and all(np.array_equal(x[k], y[k]) for k in x) for x, y in zip(a, b, strict=True))
        for a, b in zip(one, other, strict=True)
    )


def rows_of(feed) -> list[tuple]:
    """Return each sequence without padding and masks, so that samples can be told apart."""
    ids = feed["input_ids"].copy()
    real = feed["masked_lm_weights"] > 0
    ids.reshape(-1)[feed["masked_lm_positions"][real]] = feed["masked_lm_labels"][real]
    return [tuple(row[mask == 1]) for row, mask in zip(ids, feed["attention_mask"], strict=True)]


@pytest.mark.parametrize("folder", ["plain", "binned"])
@pytest.mark.parametrize("window", [1, 40, 1 << 18])
def test_an_epoch_holds_every_sample_once_but_for_less_than_a_batch(folders, folder, window):
    data = dataset(folders / folder, shuffle_window_samples=window)
    loader = PretrainingLoader(data, global_batch_size=12, micro_batch_size=4)
    assert loader.batches_per_epoch == 119 // 12
    left_out = []
    for epoch in range(3):
        ids = np.concatenate([loader.sample_ids(index) for index in range(9 * epoch, 9 * epoch + 9)])
        assert len(np.unique(ids)) == 108 and ids.min() >= 0 and ids.max() < 119
        left_out.append(frozenset(range(119)) - set(ids.tolist()))
    assert len(set(left_out)) == 3  # others each epoch


@pytest.mark.parametrize("folder", ["plain", "binned"])
@pytest.mark.parametrize("window", [30, 1 << 18])
def test_batches_of_like_length_need_less_padding_and_hold_the_same_samples(folders, folder, window):
    padded = {}
    for grouped in (False, True):
        data = dataset(
            folders / folder, shuffle_window_samples=window, group_by_length=grouped, sequence_length_multiple=1
        )
        loader = PretrainingLoader(data, global_batch_size=6, micro_batch_size=6)
        for epoch in range(2):
            ids = np.concatenate([loader.sample_ids(index) for index in range(19 * epoch, 19 * epoch + 19)])
            assert len(np.unique(ids)) == 114
        again = PretrainingLoader(data, global_batch_size=6, micro_batch_size=6)
        assert all(np.array_equal(loader.sample_ids(index), again.sample_ids(index)) for index in (37, 20, 3))
        padded[grouped] = sum(feed["input_ids"].size for batch in take(loader, 19) for feed in batch)
    assert padded[True] < padded[False]


@pytest.mark.parametrize("batch", [64, 1000])
@pytest.mark.parametrize("window", [5_000, 1 << 18])
def test_a_global_batch_has_the_lengths_of_the_epoch(batch, window):
    """A chi-square test over all global batches shows bins as by a random permutation, neither apart nor in step."""
    counts, bins = [1000, 1000, 3000, 3000, 2000, 2000, 500, 7500], [0, 0, 1, 1, 2, 2, 3, 3]
    order = SampleOrder(counts, bins, batch, 7, window)
    shares = np.bincount(bins, counts) / sum(counts)
    bin_of = np.repeat(bins, counts)
    drawn = np.array(
        [np.bincount(bin_of[ids_of(order, index, batch)], minlength=4) for index in range(2 * 20_000 // batch)]
    )
    statistics = ((drawn - batch * shares) ** 2 / (batch * shares)).sum(axis=1)
    statistics *= (20_000 - 1) / (20_000 - batch)  # drawn without replacement
    degrees = 3 * len(statistics)
    assert abs(statistics.sum() - degrees) < 4 * np.sqrt(2 * degrees)
    places = [np.flatnonzero(bin_of[ids_of(order, index, batch)] == 1).mean() for index in range(10)]
    assert abs(np.mean(places) / batch - 0.5) < 0.1  # the bins are mixed inside a batch, too


@pytest.mark.parametrize("folder", ["plain", "binned", "static"])
def test_order_and_masks_do_not_depend_on_world_size_or_threads(folders, folder):
    masking = "static" if folder == "static" else "dynamic"
    alone = PretrainingLoader(
        dataset(folders / folder, masking=masking, num_workers=0), global_batch_size=16, micro_batch_size=2
    )
    batches = take(alone, 9)
    expected = [[row for feed in batch for row in rows_of(feed)] for batch in batches]
    masks_alone = [sum(len(feed["masked_lm_weights"].nonzero()[0]) for feed in batch) for batch in batches]
    for world_size, micro, workers in ((1, 16, 1), (2, 4, 0), (4, 2, 1), (4, 4, 3), (8, 2, 0)):
        per_rank = []
        for rank in range(world_size):
            data = dataset(folders / folder, masking=masking, num_workers=workers)
            loader = PretrainingLoader(
                data, global_batch_size=16, micro_batch_size=micro, rank=rank, world_size=world_size
            )
            assert np.array_equal(loader.sample_ids(4), alone.sample_ids(4))
            per_rank.append(take(loader, 9))
        for index, rows in enumerate(expected):
            found = [row for feeds in per_rank for feed in feeds[index] for row in rows_of(feed)]
            assert sorted(found) == sorted(rows)
            masks = [len(feed["masked_lm_weights"].nonzero()[0]) for feeds in per_rank for feed in feeds[index]]
            assert sum(masks) == masks_alone[index]


@pytest.mark.parametrize("workers", [0, 3])
@pytest.mark.parametrize("folder", ["plain", "binned"])
def test_seeking_equals_continuing(folders, folder, workers):
    data = dataset(folders / folder, num_workers=workers, shuffle_window_samples=50)
    loader = PretrainingLoader(data, global_batch_size=12, micro_batch_size=4)
    through = take(loader, 25)
    for start in (1, 8, 9, 17):
        fresh = PretrainingLoader(data, global_batch_size=12, micro_batch_size=4)
        assert equal(take(fresh, 25 - start, start), through[start:])


def test_epochs_differ_in_order_and_in_masks_and_seeds_differ(folders):
    loader = PretrainingLoader(dataset(folders / "plain"), global_batch_size=12, micro_batch_size=12)
    assert not np.array_equal(loader.sample_ids(0), loader.sample_ids(9))
    everything = {}
    for batch in itertools.chain(*take(loader, 18)):
        for row, ids in zip(rows_of(batch), batch["input_ids"], strict=True):
            everything.setdefault(row, set()).add(tuple(ids[: len(row)]))
    assert sum(len(shown) > 1 for shown in everything.values()) > 60
    other = PretrainingLoader(dataset(folders / "plain", seed=43), global_batch_size=12, micro_batch_size=12)
    assert not np.array_equal(loader.sample_ids(0), other.sample_ids(0))


@pytest.mark.parametrize(("masking", "whole_word"), [("static", False), ("dynamic", False), ("dynamic", True)])
def test_normaliser_makes_the_mean_of_the_global_batch(folders, masking, whole_word):
    data = dataset(folders / "static", masking=masking, whole_word_masking=whole_word)
    counts, normalizers = [], []
    for rank in range(2):
        loader = PretrainingLoader(data, global_batch_size=24, micro_batch_size=4, rank=rank, world_size=2)
        for feed in take(loader, 1, start=2)[0]:
            counts.append(feed["masked_lm_weights"].sum())
            normalizers.append(feed["masked_lm_normalizer"])
    assert len(counts) == 6 and len(set(counts)) > 1
    assert np.concatenate(normalizers) == pytest.approx(np.full(6, sum(counts) / 6))
    assert all(value.dtype == np.float32 and value.shape == (1,) for value in normalizers)


def test_feed_has_the_promised_shapes_types_and_contents(folders):
    data = dataset(folders / "plain")
    loader = PretrainingLoader(data, global_batch_size=13, micro_batch_size=13)
    batches = loader.batches()
    whole = next(batches)
    batch = next(whole.micro_batches)
    feed, (b, s) = batch.feed, batch.feed["input_ids"].shape
    assert (whole.index, whole.epoch, b, batch.num_sequences, batch.num_padded_tokens) == (0, 0, 13, 13, 13 * s)
    assert s % 8 == 0 or s == 30
    assert batch.num_tokens == feed["attention_mask"].sum() == (feed["input_ids"] != 0).sum()
    size = len(feed["masked_lm_positions"])
    assert size % 8 == 0 and size - batch.num_masked < 8
    assert feed["masked_lm_weights"].tolist() == [1.0] * batch.num_masked + [0.0] * (size - batch.num_masked)
    assert not feed["masked_lm_positions"][batch.num_masked :].any()
    integers = ("input_ids", "token_type_ids", "attention_mask", "masked_lm_positions", "masked_lm_labels")
    types = dict.fromkeys((*integers, "next_sentence_labels"), np.int64)
    types |= dict.fromkeys(("masked_lm_weights", "masked_lm_normalizer"), np.float32)
    assert {name: value.dtype for name, value in feed.items()} == types
    tables = [data.load_shard(index) for index in range(5)]
    lengths = np.concatenate([table.lengths() for table in tables])
    ids = loader.sample_ids(0)
    ids = ids[deal(lengths[ids], 1, 1)]
    for place, (sample, row) in enumerate(zip(ids, rows_of(feed), strict=True)):
        shard = int(np.searchsorted(np.cumsum(COUNTS), sample, side="right"))
        table, local = tables[shard], int(sample) - sum(COUNTS[:shard])
        assert row == tuple(table.token_ids[table.offsets[local] : table.offsets[local + 1]])
        types = feed["token_type_ids"][place, : len(row)]
        assert types.tolist() == [0] * table.first_lengths[local] + [1] * (len(row) - table.first_lengths[local])
        assert feed["next_sentence_labels"][place] == table.is_random_next[local]


def test_static_masks_are_those_of_the_shards_up_to_the_limit(folders):
    data = dataset(folders / "static", masking="static", max_predictions_per_seq=1)
    loader = PretrainingLoader(data, global_batch_size=12, micro_batch_size=12)
    feed = take(loader, 1)[0][0]
    s = feed["input_ids"].shape[1]
    assert (feed["masked_lm_positions"][:12] - np.arange(12) * s).tolist() == [1] * 12
    assert (feed["input_ids"][:, 1] == WORDS.id_of("[MASK]")).all()


def test_dynamic_masks_of_masked_shards_start_from_the_original_text(folders):
    plain, masked = dataset(folders / "plain"), dataset(folders / "static")
    loaders = [PretrainingLoader(data, global_batch_size=12, micro_batch_size=12) for data in (plain, masked)]
    assert WORDS.id_of("[MASK]") not in np.concatenate(
        [row for batch in take(loaders[1], 3) for row in rows_of(batch[0])]
    )


def test_static_masks_must_be_there(folders):
    with pytest.raises(ValueError, match="needs shards with masks"):
        dataset(folders / "plain", masking="static")


def test_a_share_that_is_not_that_of_the_static_masks_is_refused(folders, tmp_path):
    changes = {"masking": "static", "masked_lm_ratio": 0.3, "max_predictions_per_seq": 9}
    with pytest.raises(ValueError, match="masked_lm_ratio=0.3 must be 0.15, the share of the static masks in .*; drop"):
        dataset(folders / "static", **changes)
    write_shards(tmp_path, [random_table(23, 0, masked=True)])
    manifest = read_manifest(tmp_path)
    write_manifest(tmp_path, replace(manifest, settings={"masked_lm_ratio": 0.3}))
    for share in (0.15, 0.3):  # the first is the default, of a run without the flag
        assert dataset(tmp_path, **{**changes, "masked_lm_ratio": share}).num_samples == 23
    with pytest.raises(ValueError, match="masked_lm_ratio=0.2 must be 0.3"):
        dataset(tmp_path, **{**changes, "masked_lm_ratio": 0.2})


def test_micro_batches_that_are_left_are_skipped(folders):
    loader = PretrainingLoader(dataset(folders / "plain"), global_batch_size=12, micro_batch_size=4)
    expected = take(loader, 3)
    batches = loader.batches()
    next(next(batches).micro_batches)
    assert equal([[batch.feed for batch in next(batches).micro_batches]], expected[1:2])
    batches.close()


def test_micro_batches_of_a_closed_iterator_are_refused(folders):
    whole = next(PretrainingLoader(dataset(folders / "plain"), global_batch_size=12, micro_batch_size=4).batches())
    with pytest.raises(RuntimeError, match="closed"):
        next(whole.micro_batches)


@pytest.mark.parametrize(("world_size", "max_samples"), [(1, None), (3, None), (2, 50)])
def test_evaluation_covers_every_sample_once_the_same_each_time(folders, world_size, max_samples):
    sizes = {"micro_batch_size": 8, "world_size": world_size, "max_samples": max_samples}
    batches = [
        [
            batch.feed
            for rank in range(world_size)
            for batch in evaluation_batches(dataset(folders / "binned"), rank=rank, **sizes)
        ]
        for _ in range(2)
    ]
    assert equal(batches[:1], batches[1:])
    rows = [row for feed in batches[0] for row in rows_of(feed)]
    assert len(rows) == (max_samples or 119)
    assert len(set(rows)) > 0.9 * len(rows)
    for feed in batches[0]:
        assert feed["masked_lm_normalizer"][0] == feed["masked_lm_weights"].sum()


def test_fingerprint_follows_the_content_and_nothing_else(folders, tmp_path):
    base = dataset(folders / "plain").fingerprint
    assert dataset(folders / "plain", num_workers=3).fingerprint == base
    others = [
        dataset(folders / "plain", seed=1),
        dataset(folders / "plain", max_predictions_per_seq=3),
        dataset(folders / "static"),
        dataset(folders / "binned"),
        dataset(write_shards(tmp_path, [random_table(count, 9 + seed) for seed, count in enumerate(COUNTS)])),
    ]
    assert len({base, *(data.fingerprint for data in others)}) == 6


@pytest.mark.parametrize("changes", [{"masking": "none"}, {"num_workers": -1}, {"sequence_length_multiple": 0}])
def test_impossible_settings_are_refused(changes):
    with pytest.raises(ValueError, match=next(iter(changes))):
        loader_settings(**changes)


def test_a_batch_that_grows_takes_the_next_samples_of_the_same_order(folders):
    """Updates have 4, 4, 8, 8 and then 12 sequences; the loss is divided by the predictions of each update."""
    data, schedule = dataset(folders / "plain"), BatchSchedule(12, 4, 2)
    units = PretrainingLoader(data, global_batch_size=4, micro_batch_size=4)
    grown = PretrainingLoader(data, global_batch_size=12, micro_batch_size=2, rank=1, world_size=2, schedule=schedule)
    assert grown.batches_per_epoch == units.batches_per_epoch == 29
    first, batches = 0, grown.batches()
    for index, size in enumerate([4, 4, 8, 8, *[12] * 9]):
        expected = np.concatenate([units.sample_ids(first // 4 + place) for place in range(size // 4)])
        assert grown.sample_ids(index).tolist() == expected.tolist()
        update = next(batches)
        assert (update.index, update.num_micro_steps) == (index, size // 4)
        assert update.epoch == grown.epoch(index) == first // 4 // 29
        own = list(update.micro_batches)
        assert [batch.num_sequences for batch in own] == [2] * (size // 4)
        masks = int(data.collation.masking.num_predictions(lengths_of(data)[expected]).sum())
        assert {float(batch.feed["masked_lm_normalizer"][0]) for batch in own} == {np.float32(masks / (size // 4 * 2))}
        first += size
    batches.close()
    assert data.epochs(4, schedule) == 24 / 119


def test_shards_of_another_kind_than_the_settings_need_are_refused(folders, tmp_path):
    for folder, changes in (("pairs", {}), ("singles", {"objective": "mlm"})):
        write_shards(tmp_path / folder, [random_table(9, 1)])
        write_manifest(tmp_path / folder, replace(read_manifest(tmp_path / folder), settings=changes))
    settings = loader_settings()
    assert PretrainingDataset(tmp_path / "pairs", WORDS, settings, seed=1).describe()["objective"] == "mlm_nsp"
    with pytest.raises(ValueError, match="objective mlm, of single sequences, but objective=mlm_nsp needs sentence"):
        PretrainingDataset(tmp_path / "singles", WORDS, settings, seed=1)
    alone = PretrainingDataset(tmp_path / "singles", WORDS, settings, seed=1, next_sentence=False)
    assert (
        alone.describe()["objective"] == "mlm"
        and "next_sentence_labels"
        not in take(PretrainingLoader(alone, global_batch_size=3, micro_batch_size=3), 1)[0][0]
    )


def test_a_dataset_describes_itself(folders):
    data = dataset(folders / "binned")
    assert data.describe() == {
        "directory": str(folders / "binned"),
        "num_shards": 5,
        "num_samples": 119,
        "bins": [0, 1, 2],
        "format": "parquet",
        "static_masks": False,
        "objective": "mlm_nsp",
        "masking": "dynamic",
        "fingerprint": data.fingerprint,
    }
    assert len(data.fingerprint) == 64 and dataset(folders / "static").describe()["static_masks"]


def lengths_of(data: PretrainingDataset) -> np.ndarray:
    return np.concatenate([data.load_shard(index).lengths() for index in range(len(data.shard_counts))])


def rows_by_id(data: PretrainingDataset) -> list[tuple]:
    """Return the tokens of each sample."""
    tables = [data.load_shard(index) for index in range(len(data.shard_counts))]
    return [
        tuple(table.token_ids[table.offsets[row] : table.offsets[row + 1]].tolist())
        for table in tables
        for row in range(len(table))
    ]


@pytest.mark.parametrize(("world_size", "micro_batch"), [(1, 4), (2, 2), (3, 2)])
def test_a_rank_gets_its_share_of_each_micro_step(folders, world_size, micro_batch):
    data = dataset(folders / "plain")
    everything, lengths = rows_by_id(data), lengths_of(data)
    for rank in range(world_size):
        loader = PretrainingLoader(
            data, global_batch_size=12, micro_batch_size=micro_batch, rank=rank, world_size=world_size
        )
        for index, feeds in enumerate(take(loader, 3)):
            ids = loader.sample_ids(index)
            ids = ids[deal(lengths[ids], len(feeds), world_size)]
            assert len(feeds) == 12 // micro_batch // world_size
            for step, feed in enumerate(feeds):
                own = ids[(step * world_size + rank) * micro_batch :][:micro_batch]
                assert rows_of(feed) == [everything[sample] for sample in own]


def test_batches_of_like_length_are_neighbours_in_the_lengths_of_32_batches_in_random_order(folders):
    data = dataset(folders / "plain", group_by_length=True)
    plain = PretrainingLoader(dataset(folders / "plain"), global_batch_size=3, micro_batch_size=3)
    loader, lengths = PretrainingLoader(data, global_batch_size=3, micro_batch_size=3), lengths_of(data)
    assert loader.batches_per_epoch == 39
    orders = []
    for epoch, first, number in ((0, 0, 32), (0, 32, 7), (1, 0, 32)):
        batches = [loader.sample_ids(39 * epoch + first + place) for place in range(number)]
        ungrouped = [plain.sample_ids(39 * epoch + first + place) for place in range(number)]
        assert sorted(np.concatenate(batches)) == sorted(np.concatenate(ungrouped)), "of the same 32 batches"
        by_length = sorted(batches, key=lambda ids: (lengths[ids].min(), lengths[ids].max()))
        assert all(lengths[a].max() <= lengths[b].min() for a, b in itertools.pairwise(by_length))
        orders.append([lengths[ids].min() for ids in batches])
        assert orders[-1] != sorted(orders[-1]) and orders[-1] != sorted(orders[-1], reverse=True)
    assert np.argsort(orders[0]).tolist() != np.argsort(orders[2]).tolist()


@pytest.mark.parametrize("workers", [0, 2])
def test_the_next_window_is_read_while_one_is_used_if_there_are_threads(folders, workers):
    data, reads = dataset(folders / "plain", shuffle_window_samples=20, num_workers=workers), []
    load = data.load_shard
    data.load_shard = lambda shard: reads.append(shard) or load(shard)
    loader = PretrainingLoader(data, global_batch_size=2, micro_batch_size=2)
    loader.sample_ids(0)
    wait_until(lambda: len(reads) >= 1 + (workers > 0), 20)
    assert len(reads) == 1 + (workers > 0), "every window is one shard here"
    for index in range(loader.batches_per_epoch - 1):
        loader.sample_ids(index)
    assert sorted(reads) == [0, 1, 2, 3, 4], "each is read once in an epoch"


def test_no_more_windows_are_kept_than_two_of_each_bin_and_two(folders):
    data, reads = dataset(folders / "plain", shuffle_window_samples=20, num_workers=0), []
    load = data.load_shard
    data.load_shard = lambda shard: reads.append(shard) or load(shard)
    loader = PretrainingLoader(data, global_batch_size=2, micro_batch_size=2)
    for index in range(loader.batches_per_epoch):
        loader.sample_ids(index)
    loader.sample_ids(0)
    assert len(reads) == 6 and reads[5] == reads[0], "the first of five shards is read again"
    loader.sample_ids(loader.batches_per_epoch - 1)
    assert len(reads) == 6, "the last one is still there"


@pytest.mark.parametrize(("world_size", "max_samples"), [(1, None), (2, 50), (3, 7)])
def test_evaluation_takes_samples_spread_evenly_in_turn_by_rank(folders, world_size, max_samples):
    data = dataset(folders / "plain")
    everything, count = rows_by_id(data), max_samples or 119
    ids = [place * 119 // count for place in range(count)]
    for rank in range(world_size):
        batches = evaluation_batches(
            data, micro_batch_size=8, rank=rank, world_size=world_size, max_samples=max_samples
        )
        found = [rows_of(batch.feed) for batch in batches]
        starts = range(8 * rank, count, 8 * world_size)
        assert found == [[everything[sample] for sample in ids[start : start + 8]] for start in starts]


def test_masks_of_an_evaluation_are_no_trainings_masks_and_the_same_for_any_size_of_batch(folders):
    data = dataset(folders / "plain")

    def masks(batches):
        """Return the masked positions by sample."""
        found = {}
        for batch in batches:
            width = batch.feed["input_ids"].shape[1]
            places = batch.feed["masked_lm_positions"][: batch.num_masked]
            for number, row in enumerate(rows_of(batch.feed)):
                found[row] = tuple(places[places // width == number] % width)
        return found

    alone, other = (masks(evaluation_batches(data, micro_batch_size=size)) for size in (1, 50))
    assert alone == other and len(alone) > 100
    loader = PretrainingLoader(data, global_batch_size=119, micro_batch_size=119)
    batches = loader.batches()
    trained = masks(next(batches).micro_batches)
    batches.close()
    assert sum(trained[row] != alone[row] for row in alone) > 60


def test_the_entropy_of_an_evaluation_is_that_of_its_labels(folders):
    data = dataset(folders / "plain")
    labels = [
        label
        for batch in evaluation_batches(data, micro_batch_size=7, max_samples=40)
        for label in batch.feed["masked_lm_labels"][: batch.num_masked].tolist()
    ]
    shares = [labels.count(label) / len(labels) for label in {*labels}]
    expected = -sum(share * math.log(share) for share in shares)
    assert evaluation_unigram_entropy(data, 40) == pytest.approx(expected)


# ---- mixed folders ----


@pytest.fixture
def mixed(tmp_path):
    """Write 60 samples in bins, 25 in `b` and 40 in `c`."""
    write_shards(tmp_path, [random_table(30, 1, longest=12), random_table(30, 2, shortest=13)], bins=[0, 1])
    for name, count in (("b", 25), ("c", 40)):
        (tmp_path / name).mkdir()
        write_shards(tmp_path / name, [random_table(count, count)])
    return tmp_path


def ids_of_updates(loader, first, last):
    return np.concatenate([loader.sample_ids(index) for index in range(first, last)])


def test_a_pass_takes_of_each_folder_what_the_mixture_says(mixed):
    """A pass reads a small folder again, with other masks; it continues in a large folder in the next pass."""
    write_mixture(mixed, {".": 20, "b": 100})
    data = dataset(mixed)
    loader = PretrainingLoader(data, global_batch_size=12, micro_batch_size=12)
    assert loader.batches_per_epoch == 10 and data.epochs(15, BatchSchedule(12)) == 1.5
    ids = ids_of_updates(loader, 0, 30)
    of_first, of_b = ids[ids < 60], ids[ids >= 60]
    assert sorted(of_first) == list(range(60)) and len(of_b) == 300
    counts = np.bincount(of_b - 60)
    assert counts.tolist() == 25 * [12]
    for batch in ids.reshape(-1, 12):
        assert 0 <= (batch < 60).sum() <= 7, "mixed in every update"
    again = PretrainingLoader(dataset(mixed), global_batch_size=12, micro_batch_size=4, world_size=1)
    assert all(np.array_equal(again.sample_ids(index), loader.sample_ids(index)) for index in (29, 3, 11))
    masks: dict[tuple, set] = {}
    for (feed,) in take(loader, 10):  # of one epoch
        width = feed["input_ids"].shape[1]
        places = feed["masked_lm_positions"][feed["masked_lm_weights"] > 0]
        for number, row in enumerate(rows_of(feed)):
            masks.setdefault(row, set()).add(tuple(places[places // width == number] % width))
    assert sum(len(found) > 1 for found in masks.values()) >= 20


def test_masks_are_those_of_the_sample_its_reading_and_the_epoch(mixed):
    """If an epoch has a sample several times, the number of the reading goes on counting over all folders' samples."""
    write_mixture(mixed, {".": 20, "b": 100})
    data = dataset(mixed)
    loader = PretrainingLoader(data, global_batch_size=12, micro_batch_size=12)
    table, lengths = concatenate([data.load_shard(index) for index in range(len(data.shard_counts))]), lengths_of(data)
    order, readings = data.order(12), set()
    for index, (feed,) in enumerate(take(loader, 22)):
        samples = [
            (place, sample, number)
            for window, places, rows, number in order.parts(index)
            for place, sample in zip(places.tolist(), order.sample_ids(window, rows).tolist(), strict=True)
        ]
        samples = [(sample, number) for _, sample, number in sorted(samples)]
        own = np.array([sample for sample, _ in samples])
        dealt = deal(lengths[own], 1, 1)
        ids = np.array([sample + number * 85 for sample, number in samples])[dealt]
        key = stream_key(42, "dynamic masks", index // 10)
        expected = data.collation.collate(table, own[dealt], key, ids).feed
        assert all(np.array_equal(feed[name], expected[name]) for name in expected)
        readings |= {number for _, number in samples}
    assert len(readings) > 8


@pytest.mark.parametrize("mixes", ["", "[]}", '[{"samples": {".": -1}}]}', "[{}, {}]}"])
def test_a_damaged_mixture_is_refused(mixed, mixes):
    (mixed / MIXTURE_NAME).write_text(f'{{"mixes": {mixes}')
    with pytest.raises(ValueError, match=r"mixture.json: not a description of mixed shards"):
        dataset(mixed)


def test_folders_that_do_not_fit_are_refused(mixed):
    (mixed / "static").mkdir()
    write_shards(mixed / "static", [random_table(9, 1, masked=True)])
    write_mixture(mixed, {"static": 9, ".": 60})
    with pytest.raises(ValueError, match="differ in static masks .*; mix shards that were made with the same settings"):
        dataset(mixed)

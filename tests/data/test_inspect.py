import numpy as np
import pytest

from bert.exit_codes import BAD_INPUT
from bert.samples.shards import ShardDirectory
from data import inspect
from data.preprocessing.statistics import statistics_of
from tests.support.commands import refused
from tests.support.corpora import random_table, vocabulary, write_shards, write_vocabulary

WORDS = vocabulary()


def run(capsys, folder, vocab, *flags) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        inspect.main([str(folder), "--vocab-file", str(vocab), *flags])
    return ended.value.code, capsys.readouterr().out


@pytest.fixture
def vocab(tmp_path):
    return write_vocabulary(tmp_path / "vocab.txt")


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_figures_are_those_of_the_samples(tmp_path, vocab, capsys, kind):
    tables = [random_table(300, seed, masked=True, longest=21) for seed in range(2)]
    folder = write_shards(tmp_path / "shards", tables, kind=kind)
    statistics = statistics_of(ShardDirectory(folder, WORDS, 30))
    lengths = np.concatenate([table.lengths() for table in tables])
    assert sorted(statistics.lengths.elements()) == sorted(lengths.tolist())
    assert statistics.tokens.sum() == statistics.num_tokens() == lengths.sum()
    assert statistics.tokens[WORDS.id_of("[MASK]")] == 0 and statistics.counts["duplicates"] == 0
    assert statistics.counts["masks"] == sum(len(table.masks.labels) for table in tables)
    code, out = run(capsys, folder, vocab, "--png", str(tmp_path / "lengths.png"))
    assert (code, "no problem found" in out) == (0, True) and "600 samples" in out and "|" in out
    assert (tmp_path / "lengths.png").read_bytes()[:4] == b"\x89PNG"


def test_a_sample_shows_its_masks():
    table = random_table(3, 1, masked=True)
    text = inspect.sample_text(table, 0, WORDS)
    assert text.count("[MASK|") == len(table.masks.labels[: table.masks.offsets[1]]) and text.count("[SEP]") == 2


def test_problems_are_named(tmp_path, vocab, capsys):
    table = random_table(200, 1)
    table.is_random_next[:] = True
    folder = write_shards(tmp_path / "shards", [table, random_table(150, 2), table.take(np.arange(50))], manifest=False)
    code, out = run(capsys, folder, vocab)
    assert code == BAD_INPUT
    for rule in ("of the pairs have a random next", "occur more than once", "differ by 1 at most"):
        assert rule in out


def test_overlapping_bins_are_named(tmp_path, vocab, capsys):
    folder = write_shards(tmp_path / "shards", [random_table(90, seed) for seed in range(3)], bins=[0, 1, 1])
    code, out = run(capsys, folder, vocab)
    assert code == BAD_INPUT and "bins must not overlap" in out and "number of files" in out


def test_a_damaged_shard_is_a_problem_and_the_rest_is_read(tmp_path, vocab, capsys):
    folder = write_shards(tmp_path / "shards", [random_table(90, seed) for seed in range(3)])
    data = bytearray((folder / "shard-1.parquet").read_bytes())
    data[len(data) // 3] ^= 16
    (folder / "shard-1.parquet").write_bytes(data)
    code, out = run(capsys, folder, vocab)
    assert code == BAD_INPUT and "cannot be read" in out and "180 samples" in out


def test_a_folder_without_shards_is_an_error(tmp_path, vocab):
    with refused("no shards"):
        inspect.main([str(tmp_path), "--vocab-file", str(vocab)])

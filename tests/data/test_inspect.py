import errno
import random
from unittest import mock

import numpy as np
import pytest

from bert.exit_codes import BAD_INPUT
from bert.samples.shards import ShardDirectory
from bert.tokenization.vocabulary_files import read_vocabulary
from data import inspect, preprocess_bert_pretrain, train_vocabulary
from data.preprocessing.statistics import statistics_of
from data.text import vocabulary_training
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


@pytest.mark.parametrize("ours", [True, False])
def test_shards_of_others_may_have_more_random_pairs(tmp_path, ours):
    """NVIDIA's shards do; our shards, which have a manifest, are made half and half."""
    table = random_table(1000, 1, longest=60)
    table.is_random_next[:] = np.arange(1000) % 5 < 3
    folder = write_shards(tmp_path / "shards", [table], manifest=ours)
    problems = statistics_of(ShardDirectory(folder, WORDS, 60)).problems
    assert any("60.0% of the pairs" in problem for problem in problems) == ours


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


@pytest.fixture
def corpus(tmp_path):
    """Return tmp_path with source/en/0.txt."""
    rng = random.Random(1)
    words = ["".join(rng.choices("abcdef", k=rng.randint(2, 7))) for _ in range(200)]
    lines = [f"id-{number} {' '.join(rng.choices(words, k=9)).capitalize()}. The end came." for number in range(100)]
    (tmp_path / "source/en").mkdir(parents=True)
    (tmp_path / "source/en/0.txt").write_text("\n".join(lines))
    return tmp_path


def train(corpus, size: int, *arguments: str) -> bytes:
    command = ["--input", str(corpus / "source"), "--vocab-size", str(size), "--output", str(corpus / "vocab.txt")]
    train_vocabulary.main([*command, *arguments])
    return (corpus / "vocab.txt").read_bytes()


def test_a_vocabulary_that_shards_depend_on_is_not_replaced(corpus, capsys):
    first = train(corpus, 100)
    command = ["--text", str(corpus / "source"), "--vocab-file", str(corpus / "vocab.txt"), "--local-n-workers", "1"]
    preprocess_bert_pretrain.main([*command, "--sink", str(corpus / "phase1/train")])
    for size in (90, 120):  # the first is refused before the training
        with refused(
            "vocab.txt: exists and holds another vocabulary of 100 tokens, and the shards in .*phase1/train were made "
            r"with it; name another --output, or replace it: --overwrite \(these shards will be refused then\)"
        ):
            train(corpus, size)
    assert (corpus / "vocab.txt").read_bytes() == first
    capsys.readouterr()
    assert train(corpus, 100) == first
    assert "100 tokens in" in (printed := capsys.readouterr().out) and ", as they were" in printed
    assert len(train(corpus, 120, "--overwrite").splitlines()) == 120


def test_another_file_is_not_replaced(corpus):
    (corpus / "vocab.txt").write_text("My thesis.\n")
    with refused(r"vocab.txt: exists and is no vocabulary .*: --overwrite"):
        train(corpus, 100)
    assert (corpus / "vocab.txt").read_text() == "My thesis.\n"
    train(corpus, 100, "--overwrite")
    assert len(read_vocabulary(corpus / "vocab.txt")) == 100


def test_an_output_that_cannot_be_written_is_refused_before_the_training(corpus, monkeypatch):
    monkeypatch.setattr(train_vocabulary, "learn_vocabulary", mock.Mock(side_effect=AssertionError))
    forbidden = mock.Mock(side_effect=PermissionError(errno.EACCES, "Permission denied"))
    monkeypatch.setattr("bert.files.tempfile.TemporaryFile", forbidden)
    with refused("Permission denied; change the permissions"):
        train(corpus, 100)


def ideographs(folder, number: int) -> list[str]:
    """Write a source folder with Zipf's law over this many ideographs; return its documents."""
    rng = random.Random(3)
    characters = [chr(0x4E00 + place) for place in range(number)]
    weights = [1 / (place + 10) for place in range(number)]
    texts = ["".join(rng.choices(characters, weights, k=2000)) for _ in range(60)]
    (folder / "source/zh").mkdir(parents=True)
    (folder / "source/zh/0.txt").write_text("".join(f"{name} {text}\n" for name, text in enumerate(texts)))
    return texts


@pytest.mark.parametrize(("size", "unknown"), [(21_128, 0.0011), (2048, 0.2)])
def test_thousands_of_characters_get_into_a_vocabulary_with_room(tmp_path, capsys, size, unknown):
    texts = ideographs(tmp_path, 4000)
    train(tmp_path, size)
    known = set(read_vocabulary(tmp_path / "vocab.txt").tokens)
    share = sum(character not in known for text in texts for character in text) / sum(map(len, texts))
    assert 0 < share < unknown and len(known) <= size
    assert f"rare characters, {share:.2%} of the text, are [UNK] in this vocabulary" in capsys.readouterr().err


def test_rare_characters_do_not_crowd_out_words(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(vocabulary_training, "_LEAST_ALPHABET", 100)
    rng = random.Random(4)
    words = " ".join("".join(rng.choices("abcdef", k=5)) for _ in range(30_000))
    rare = " ".join(chr(0x4E00 + place) for place in range(200))
    (tmp_path / "source/en").mkdir(parents=True)
    (tmp_path / "source/en/0.txt").write_text(f"a {words}\nb {rare}\n")
    train(tmp_path, 400)
    tokens = read_vocabulary(tmp_path / "vocab.txt").tokens
    assert sum(len(token) == 1 for token in tokens) == 100
    assert "106 rare characters, 0.07% of the text" in capsys.readouterr().err

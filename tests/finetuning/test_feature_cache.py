"""Features are built once, read back whole, and never read when anything they follow from has changed."""

import json
import multiprocessing
import os
import types

import numpy as np
import pytest

from bert.finetuning.feature_cache import FeatureCache
from bert.tokenization.vocabulary import SPECIAL_TOKENS, Vocabulary
from tests.support.messages import messages

VOCABULARY = Vocabulary((*SPECIAL_TOKENS, "one", "two"))
ARRAYS = {
    "input_ids": np.arange(7, dtype=np.uint16),
    "offsets": np.array([0, 3, 7]),
    "empty": np.zeros((0, 2), "f4"),
    "flags": np.array([True, False]),
}
NOTES = {"truncated": 3, "where": "file:1"}


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("a\tb\n")
    return path


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "builder.py"
    path.write_text("x = 1\n")
    module = types.ModuleType("builder")
    module.__file__ = str(path)
    return module


class Counter:
    """A builder that counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        return dict(ARRAYS), dict(NOTES)


def make_key(cache, source, code, *, name="set-train", vocabulary=VOCABULARY, **settings):
    return cache.key(
        name, files=[source], vocabulary=vocabulary, settings={"max_seq_length": 8, **settings}, code=[code]
    )


def assert_as_built(found):
    arrays, notes = found
    assert notes == NOTES and arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


@pytest.fixture
def lines():
    with messages() as lines:
        yield lines


def entry(cache, key):
    return cache.directory / key.file_name()


def test_the_second_run_reads_what_the_first_built(tmp_path, source, code, lines):
    build = Counter()
    cache = FeatureCache(tmp_path / "new" / "cache")
    key = make_key(cache, source, code)
    assert_as_built(cache.get_or_build(key, build))
    assert_as_built(FeatureCache(cache.directory).get_or_build(key, build))
    assert build.calls == 1
    assert lines == [f"features from {entry(cache, key)}"]
    visible = [path.name for path in cache.directory.iterdir() if not path.name.startswith(".")]
    assert visible == [key.file_name()]


def test_the_key_follows_everything_the_features_follow_from(tmp_path, source, code):
    cache = FeatureCache(tmp_path)
    keys = [
        make_key(cache, source, code),
        make_key(cache, source, code, max_seq_length=9),
        make_key(cache, source, code, lowercase=True),
        make_key(cache, source, code, vocabulary=Vocabulary((*SPECIAL_TOKENS, "two", "one"))),
    ]
    assert make_key(cache, source, code) == keys[0]
    source.write_text("a\tc\n")
    keys.append(make_key(cache, source, code))
    (tmp_path / "builder.py").write_text("x = 2\n")
    keys.append(make_key(cache, source, code))
    assert len({key.sha256 for key in keys}) == len(keys)


def test_a_copy_of_the_file_elsewhere_has_the_same_key(tmp_path, source, code):
    cache = FeatureCache(tmp_path)
    copy = tmp_path / "copy.tsv"
    copy.write_bytes(source.read_bytes())
    assert make_key(cache, copy, code) == make_key(cache, source, code)


def test_without_a_folder_nothing_is_kept(source, code):
    build, cache = Counter(), FeatureCache(None)
    for _ in range(2):
        assert_as_built(cache.get_or_build(make_key(cache, source, code), build))
    assert build.calls == 2


def test_no_damage_to_an_entry_is_read_as_features(tmp_path, source, code, lines):
    build = Counter()
    cache = FeatureCache(tmp_path / "cache")
    key = make_key(cache, source, code)
    cache.get_or_build(key, build)
    whole = entry(cache, key).read_bytes()
    rng = np.random.RandomState(0)
    for trial in range(200):
        damaged = bytearray(whole)
        if trial % 4 == 0:
            damaged = damaged[: rng.randint(len(whole))]
        else:
            damaged[rng.randint(len(whole))] ^= 1 << rng.randint(8)
        entry(cache, key).write_bytes(bytes(damaged))
        lines.clear()
        before = build.calls
        assert_as_built(cache.get_or_build(key, build))
        if build.calls == before:  # a space of the header's padding, say: what was read is right
            continue
        assert "damaged" in lines[0] and str(entry(cache, key)) in lines[0]
        calls = build.calls
        cache.get_or_build(key, build)
        assert build.calls == calls, "the damaged entry was not replaced"


def test_an_entry_renamed_to_another_key_is_refused(tmp_path, source, code, lines):
    cache = FeatureCache(tmp_path / "cache")
    key, other = make_key(cache, source, code), make_key(cache, source, code, max_seq_length=9)
    cache.get_or_build(key, Counter())
    os.rename(entry(cache, key), entry(cache, other))
    build = Counter()
    cache.get_or_build(other, build)
    assert build.calls == 1 and "damaged" in lines[0]


def test_a_folder_that_cannot_be_made_costs_no_run(tmp_path, source, code, lines):
    (tmp_path / "file").write_text("")
    cache = FeatureCache(tmp_path / "file" / "cache")
    assert_as_built(cache.get_or_build(make_key(cache, source, code), Counter()))
    assert "not kept" in lines[0] and "--cache-dir" in lines[0]


def test_a_builder_that_fails_leaves_nothing(tmp_path, source, code):
    cache = FeatureCache(tmp_path / "cache")
    key = make_key(cache, source, code)

    def fail():
        raise ValueError("train.tsv:3: no label")

    with pytest.raises(ValueError, match="train.tsv:3"):
        cache.get_or_build(key, fail)
    assert not entry(cache, key).exists()
    assert_as_built(cache.get_or_build(key, Counter()))


def test_a_name_cannot_leave_the_folder(tmp_path, source, code):
    with pytest.raises(ValueError, match="'../x'"):
        make_key(FeatureCache(tmp_path), source, code, name="../x")


def _ask(directory, key, log):
    def build():
        with open(log, "a") as file:
            file.write(json.dumps(os.getpid()) + "\n")
        return dict(ARRAYS), dict(NOTES)

    assert_as_built(FeatureCache(directory).get_or_build(key, build))


def test_ranks_that_ask_together_build_once(tmp_path, source, code):
    key = make_key(FeatureCache(tmp_path), source, code)
    context = multiprocessing.get_context("fork")
    ranks = [context.Process(target=_ask, args=(tmp_path / "cache", key, tmp_path / "log")) for _ in range(4)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(60)
    assert [rank.exitcode for rank in ranks] == [0] * 4
    assert len((tmp_path / "log").read_text().splitlines()) == 1

"""`--data-loader lddl`: the batches of LDDL's Paddle loader, in its order, and from any update on.

The library is the real one where it is installed (`bash scripts/setup.sh lddl`), and one that repeats what the real one
gave (tests.interop.record) everywhere.
"""

import importlib.metadata
import importlib.util
import itertools
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from bert.config.training_settings import derive
from bert.pretraining.task import Pretraining
from bert.runtime.distributed import Group
from bert.runtime.paddle_api import paddle
from tests.interop.test_lddl import GOLDEN, WORDS, make_shards
from tests.support import tiny
from tests.support.corpora import write_source, write_vocabulary

ONE_RANK = Group(0, 1, "cpu")
MICRO_STEPS, BATCH = 3, 8  # an update ends neither with a batch nor with an epoch of LDDL's


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("lddl")
    write_vocabulary(root / "vocab.txt")
    return make_shards(write_source(root), root / "bins", "bins")


@pytest.fixture(scope="module")
def recorded() -> list[list[dict[str, np.ndarray]]]:
    """Return the batches of two epochs, as the real library gave them."""
    epochs: list[dict[str, dict[str, np.ndarray]]] = [{}, {}]
    with np.load(GOLDEN / "lddl_batches.npz") as arrays:
        for key, array in arrays.items():
            epoch, number, name = key.split("/")
            epochs[int(epoch)].setdefault(number, {})[name] = array.astype("int64")
    return [list(batches.values()) for batches in epochs]


class Recorded:
    """Stands in for a loader; it gives the recorded epoch at which it is opened."""

    def __init__(self, batches: list[dict[str, np.ndarray]]) -> None:
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self):
        assert paddle.in_dynamic_mode(), "LDDL computes in dygraph"
        return ({name: paddle.to_tensor(array) for name, array in batch.items()} for batch in self._batches)


@pytest.fixture(params=["recorded", "real"])
def library(request, recorded, shards, monkeypatch):
    """Provide lddl.paddle, recorded or real; return the epochs that the recorded one was asked for, in order."""
    opened: list[int] = []
    if request.param == "real":
        if importlib.util.find_spec("lddl") is None:
            pytest.skip("lddl is not installed beside our packages")
        return opened

    def get_bert_pretrain_data_loader(path, *, vocab_file, base_seed, start_epoch, data_loader_kwargs, **rest):
        assert (path, vocab_file) == (str(shards), str(shards.parent / "vocab.txt"))
        assert data_loader_kwargs == {"batch_size": BATCH, "num_workers": 0, "use_shared_memory": False}
        assert base_seed == 42 and rest["sequence_length_alignment"] == 8 and rest["ignore_index"] == -1
        data_loader_kwargs["collate_fn"] = None  # as the real one does, for a second loader to read
        opened.append(start_epoch)
        return Recorded(recorded[start_epoch])

    parts = ("lddl.paddle.datasets", "lddl.paddle.dataloader", "lddl.random", "lddl.types")
    for name in ("lddl", "lddl.paddle", *parts, "transformers"):
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__dict__.update(File=object, ParquetDataset=type("ParquetDataset", (), {}))
        module.__dict__["get_bert_pretrain_data_loader"] = get_bert_pretrain_data_loader
        monkeypatch.setitem(sys.modules, name, module)
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.1.0" if name == "lddl" else version(name))
    return opened


def settings(shards: Path, **changes):
    model = tiny.MODEL.model_copy(update={"vocab_size": len(WORDS.tokens), "max_position_embeddings": 64})
    config = tiny.pretraining_config(shards.parent, model=model)
    values = dict(input_dir=shards, vocab_file=shards.parent / "vocab.txt", max_seq_length=64, data_loader="lddl")
    values |= dict(batch_size=BATCH, gradient_merge_steps=MICRO_STEPS, seed=42)
    return derive(config, **{**values, **changes})


def feeds(task: Pretraining, step: int, updates: int):
    """Return (epoch, feed) of each micro-batch of some updates."""
    batches = task.batches(step)
    return [
        (batch.epoch, micro_batch.feed)
        for batch in itertools.islice(batches, updates)
        for micro_batch in batch.micro_batches
    ]


def test_an_update_has_the_next_batches_of_the_library(library, recorded, shards):
    wanted = [(epoch, batch) for epoch, batches in enumerate(recorded) for batch in batches]
    updates = len(wanted) // MICRO_STEPS
    found = feeds(Pretraining(settings(shards), ONE_RANK), 0, updates)
    assert len(found) == updates * MICRO_STEPS and len({array["input_ids"].shape for _, array in found}) > 1
    for number, ((epoch, feed), (_, batch)) in enumerate(zip(found, wanted, strict=False)):
        assert epoch == wanted[number // MICRO_STEPS * MICRO_STEPS][0]
        labels = np.full(batch["input_ids"].size, -1)
        count = int(feed["masked_lm_weights"].sum())
        labels[feed["masked_lm_positions"][:count]] = feed["masked_lm_labels"][:count]
        np.testing.assert_array_equal(labels.reshape(batch["input_ids"].shape), batch["masked_lm_labels"])
        np.testing.assert_array_equal(feed["attention_mask"], batch["attention_mask"][:, 0, 0])
        np.testing.assert_array_equal(feed["next_sentence_labels"], batch["next_sentence_labels"][:, 0])
        for name in ("input_ids", "token_type_ids"):
            np.testing.assert_array_equal(feed[name], batch[name])
        assert feed["masked_lm_normalizer"] == count, "the mean of means, as in NVIDIA's trainers"


@pytest.mark.parametrize("step", [1, 9])
def test_a_resumed_run_reads_the_batches_that_would_have_followed(library, recorded, shards, step):
    updates = sum(map(len, recorded)) // MICRO_STEPS
    task = Pretraining(settings(shards), ONE_RANK)
    straight, resumed = feeds(task, 0, updates)[step * MICRO_STEPS :], feeds(task, step, updates - step)
    assert len(straight) == len(resumed) > 0
    for (epoch, ours), (wanted_epoch, wanted) in zip(resumed, straight, strict=True):
        assert epoch == wanted_epoch
        for name, array in wanted.items():
            np.testing.assert_array_equal(ours[name], array, err_msg=name)
    if step == 9 and library:
        assert len(recorded[0]) < step * MICRO_STEPS and library[-1] == 1, "the epoch before is not read again"


def test_the_batches_do_not_depend_on_which_thread_is_faster(monkeypatch, shards):
    """LDDL keeps the state of `random` in the module, and draws in several threads."""
    if importlib.util.find_spec("lddl") is None:
        pytest.skip("lddl is not installed beside our packages")
    task = Pretraining(settings(shards), ONE_RANK)
    plain = feeds(task, 0, 4)
    lddl_random = importlib.import_module("lddl.random")
    swap = lddl_random._swap_rng_state

    def slow_swap(state):
        old = swap(state)
        time.sleep(0.001)  # another thread draws now
        return old

    monkeypatch.setattr(lddl_random, "_swap_rng_state", slow_swap)
    for (_, ours), (_, wanted) in zip(feeds(task, 0, 4), plain, strict=True):
        for name, array in wanted.items():
            np.testing.assert_array_equal(ours[name], array, err_msg=name)


def test_another_loader_or_other_ranks_are_other_data(library, shards):
    """A checkpoint is not resumed if the batches would differ."""
    fingerprints = {
        Pretraining(settings(shards, **changes), group).fingerprint
        for changes, group in [
            ({}, ONE_RANK),
            ({"data_loader": "own"}, ONE_RANK),
            ({"batch_size": BATCH // 2, "gradient_merge_steps": 2 * MICRO_STEPS, "data_loader": "own"}, ONE_RANK),
            ({}, Group(0, 2, "cpu")),
        ]
    }
    assert len(fingerprints) == 3


def test_shards_that_it_cannot_divide_are_refused(library, shards, tmp_path):
    with pytest.raises(ValueError, match="bin 0 has 4 shards .* LDDL cannot divide among 3 ranks; balance them"):
        Pretraining(settings(shards), Group(0, 3, "cpu"))
    (tmp_path / "vocab.txt").write_bytes((shards.parent / "vocab.txt").read_bytes())
    make_shards(shards.parent, tmp_path / "arrow", "bins", "--output-format arrow")
    with pytest.raises(ValueError, match="data_loader=lddl reads parquet, not arrow; drop --data-loader lddl"):
        Pretraining(settings(tmp_path / "arrow"), ONE_RANK)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"masking": "dynamic"}, "masking=dynamic is not for data_loader=lddl, .* pass --masking static"),
        ({"group_by_length": True}, "group_by_length=true has no effect with data_loader=lddl"),
    ],
)
def test_settings_that_it_does_not_have_are_refused(shards, changes, rule):
    with pytest.raises((ValidationError, ValueError), match=rule):
        settings(shards, **changes)


def test_without_the_library_the_run_says_how_to_install_it(shards, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="needs NVIDIA's library; .*setup.sh lddl, or drop --data-loader lddl"):
        settings(shards).check_files()

"""Batches of NVIDIA's LDDL (`--data-loader lddl`), from lddl.paddle.get_bert_pretrain_data_loader in its order.

LDDL 0.1.0 expects a Paddle of before 2.5 and the launcher's variables. It computes in dygraph, in this process and its
main thread, as its worker processes give another order; a run of ours is a static program, so the mode is changed for
each batch. Its count of samples over the ranks needs GPUs and a ring of its own: the shards' own counts take its place.
"""

import hashlib
import importlib
import importlib.metadata
import itertools
import logging
import os
import random
import sys
import threading
import types
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bert.pretraining.config import PretrainingConfig
from bert.runtime.distributed import Group
from bert.runtime.paddle_api import paddle
from bert.samples.collation import MicroBatch, padded_predictions
from bert.samples.dataset import PretrainingDataset
from bert.samples.global_batches import GlobalBatch
from bert.samples.packing import Packing

logger = logging.getLogger(__name__)
NOT_PREDICTED = -1  # in its labels


class RandomOfEachThread(threading.local):
    """Replaces the module `random` in LDDL, with a separate state in each thread.

    LDDL sets the state of `random`, draws, and puts the old state back. It does so in the main thread and in a thread
    of Paddle's loader for each bin, so one state for all threads lets the batches depend on which thread is faster.
    """

    def __init__(self) -> None:
        self._random = random.Random()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._random, name)


class LddlLoader:
    """Global batches of one rank, made of LDDL's batches in their order; each is a micro-batch.

    The loss of an update is the mean of the means of its micro-batches, as in NVIDIA's trainers: the number of
    predictions of the other ranks is not known before they are read.
    """

    def __init__(self, config: PretrainingConfig, dataset: PretrainingDataset, group: Group) -> None:
        self._next_sentence = dataset.collation.next_sentence
        self._micro_steps = config.batch.gradient_accumulation_steps(group.world_size)
        _check_shards(dataset, group.world_size)
        library = _load({shard.name: shard.num_samples for shard in dataset.directory.shards})
        reading = {"batch_size": config.batch.batch_size, "num_workers": 0, "use_shared_memory": False}
        # A dictionary for each call: LDDL writes its collate function into it, so with another loader's it would
        # collate twice, and the thread of Paddle's loader that fails at it leaves the run waiting.
        self._open = lambda start_epoch: library.get_bert_pretrain_data_loader(
            str(dataset.directory.directory),
            vocab_file=str(config.data.vocab_file),
            log_level=logging.ERROR,
            base_seed=config.run.seed,
            sequence_length_alignment=config.data.sequence_length_multiple,
            ignore_index=NOT_PREDICTED,
            start_epoch=start_epoch,
            data_loader_kwargs=dict(reading),
        )
        with _dygraph():
            self._per_epoch = len(self._open(0))
        if not self._per_epoch:
            raise ValueError(
                f"{dataset.directory.directory}: LDDL makes no batch of batch_size={config.batch.batch_size} of these "
                "shards; give them more samples, lower --batch-size, or drop --data-loader lddl"
            )
        facts = (importlib.metadata.version("lddl"), group.world_size, config.batch.batch_size, dataset.fingerprint)
        self.fingerprint = hashlib.sha256(f"lddl {facts}".encode()).hexdigest()  # what its order depends on

    def batches(self, step: int, packing: Packing | None = None) -> Generator[GlobalBatch, None, None]:
        """Global batches step, step + 1, ... without end."""
        epoch, past = divmod(step * self._micro_steps, self._per_epoch)
        if past:
            logger.info(f"LDDL starts at the beginning of its epoch {epoch}: reading past {past:,} of its batches")
        stream = itertools.islice(self._stream(epoch), past, None)
        for index in itertools.count(step):
            update = list(itertools.islice(stream, self._micro_steps))
            micro_batches = (self._micro_batch(batch).packed(packing) for _, batch in update)
            yield GlobalBatch(index, update[0][0], micro_batches)

    def _stream(self, epoch: int) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """Yield (epoch, batch) from an epoch on, without end."""
        for number in itertools.count(epoch):
            with _dygraph():
                batches = iter(self._open(number))
            while True:
                with _dygraph():
                    batch = next(batches, None)
                    if batch is None:
                        break
                    arrays = {name: tensor.numpy() for name, tensor in batch.items()}
                yield number, arrays

    def _micro_batch(self, batch: dict[str, np.ndarray]) -> MicroBatch:
        """LDDL's arrays [b, s], mask [b, 1, 1, s] and labels [b, 1] in the program's layout."""
        ids, attention, labels = batch["input_ids"], batch["attention_mask"][:, 0, 0], batch["masked_lm_labels"]
        positions = np.flatnonzero(labels != NOT_PREDICTED)
        feed = {
            "input_ids": ids,
            "token_type_ids": batch["token_type_ids"],
            "attention_mask": attention,
            **padded_predictions(positions, labels.reshape(-1)[positions]),
            "masked_lm_normalizer": np.array([max(1, len(positions))], np.float32),
        }
        if self._next_sentence:
            feed["next_sentence_labels"] = batch["next_sentence_labels"][:, 0]
        return MicroBatch(feed, len(ids), int(attention.sum()), ids.size, len(positions))


def _dygraph() -> Any:
    return paddle.base.dygraph.guard(paddle.CPUPlace())


def _check_shards(dataset: PretrainingDataset, world_size: int) -> None:
    """Check what LDDL only asserts: parquet, equally many files for each rank, counts that differ by at most 1."""
    folder, remedy = dataset.directory.directory, "balance them with `python -m data.balance_shards`, or use our loader"
    if len(dataset.parts) > 1:
        raise ValueError(f"{folder}: data_loader=lddl reads one folder, not a mixture; drop --data-loader lddl")
    if (kind := dataset.directory.shards[0].kind) != "parquet":
        raise ValueError(f"{folder}: data_loader=lddl reads parquet, not {kind}; drop --data-loader lddl")
    if dataset.has_separate_documents:
        raise ValueError(f"{folder}: data_loader=lddl keeps no documents apart; drop --data-loader lddl")
    for number in dataset.bins:
        counts = dataset.shard_counts[np.array(dataset.shard_bins) == number]
        where = f"{folder}: bin {number} has {len(counts)} shards of {counts.min():,} to {counts.max():,} samples"
        if len(counts) % world_size:
            raise ValueError(f"{where}, which LDDL cannot divide among {world_size} ranks; {remedy}")
        if counts.max() - counts.min() > 1:
            raise ValueError(f"{where}, which LDDL wants to differ by at most 1; {remedy}")


def _load(num_samples: dict[str, int]) -> types.ModuleType:
    """Import lddl.paddle, replace what this environment lacks, and read the number of samples of each file."""
    if "paddle.fluid" not in sys.modules and not hasattr(paddle, "fluid"):
        framework = types.ModuleType("paddle.fluid.framework")
        framework._non_static_mode = paddle.in_dynamic_mode  # type: ignore[attr-defined]
        sys.modules |= {"paddle.fluid": types.ModuleType("paddle.fluid"), "paddle.fluid.framework": framework}
    for name in ("PADDLE_TRAINER_ENDPOINTS", "PADDLE_CURRENT_ENDPOINT"):
        os.environ.setdefault(name, "127.0.0.1:6170")  # of one rank without a launcher; nothing connects to it
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that it finds no PyTorch
    library = importlib.import_module("lddl.paddle")
    of_each_thread = RandomOfEachThread()
    for name in ("lddl.random", "lddl.paddle.datasets", "lddl.paddle.dataloader"):
        importlib.import_module(name).random = of_each_thread  # type: ignore[attr-defined]
    file = importlib.import_module("lddl.types").File
    dataset = importlib.import_module("lddl.paddle.datasets").ParquetDataset
    dataset._get_files = lambda _, paths: [file(path, num_samples[Path(path).name]) for path in paths]
    return library

"""The protections that the fault matrix relies on, and what disables each of them.

`PROTECTIONS` maps the name of a disabled protection to a function that returns its replacements. The functions import
late, so that a process without Paddle disables a protection without loading Paddle. `test_fault_rows.py` calls all.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any

from tests.faults.sabotage import Replacement


def does_nothing(*args: Any, **kwargs: Any) -> None:
    return None


# ---- checkpoints -----------------------------------------------------------------------------------------------------


def accept_checkpoints() -> list[Replacement]:
    from bert.checkpoints import directories as files

    def verify(checkpoint):
        known = isinstance(checkpoint, files.VerifiedCheckpoint)
        return checkpoint if known else files.VerifiedCheckpoint(checkpoint, {"format_version": 1, "files": {}})

    return [Replacement(files, files.verify, verify)]


def write_in_place() -> list[Replacement]:
    from bert.checkpoints import directories as files

    def write_checkpoint(parent, step, write_files, unchanged=None):
        final = files.step_directory(parent, step)
        final.mkdir(parents=True, exist_ok=True)
        write_files(final)
        (final / files.MANIFEST).write_text('{"format_version": 1, "files": {}}')
        return final

    def amend_checkpoint(parent, step, texts):
        for name, text in texts.items():
            (files.step_directory(parent, step) / name).write_text(text)
        return files.step_directory(parent, step)

    return [
        Replacement(files, files.write_checkpoint, write_checkpoint),
        Replacement(files, files.amend_checkpoint, amend_checkpoint),
        *accept_checkpoints(),
    ]


def ignore_disk_errors() -> list[Replacement]:
    from bert.checkpoints import directories as files

    real = files.write_checkpoint

    def write_checkpoint(parent, step, write_files, unchanged=None):
        with contextlib.suppress(OSError):
            return real(parent, step, write_files, unchanged)
        return parent

    return [
        Replacement(files, real, write_checkpoint),
        Replacement(files, files.require_space, does_nothing),
        Replacement(files, files.make_room, does_nothing),
        *accept_checkpoints(),
    ]


def no_lock() -> list[Replacement]:
    from bert.checkpoints import directories as files

    @contextlib.contextmanager
    def run_lock(parent):
        parent.mkdir(parents=True, exist_ok=True)
        yield

    return [Replacement(files, files.run_lock, run_lock)]


def prune_everything() -> list[Replacement]:
    from bert.checkpoints import directories as files

    def prune(parent, keep):
        import shutil

        for step in files.list_steps(parent):
            shutil.rmtree(files.step_directory(parent, step))

    return [Replacement(files, files.prune, prune)]


def newest_by_clock() -> list[Replacement]:
    from bert.checkpoints import directories as files

    def newest_valid(parent, *args):
        steps = [files.step_directory(parent, step) for step in files.list_steps(parent)]
        newest = max(steps, key=lambda path: path.stat().st_mtime, default=None)
        return newest and files.VerifiedCheckpoint(newest, {"format_version": 1, "files": {}})

    return [Replacement(files, files.newest_valid, newest_valid)]


def overlook_differences() -> list[Replacement]:
    from bert.checkpoints import state

    return [
        Replacement(state, state.differences, lambda *args: []),
        Replacement(state, state.check_continues, does_nothing),
    ]


def zero_moments() -> list[Replacement]:
    from bert.checkpoints import state

    real = state.restore

    def restore(scope, place, variables, parameters, optimizer, progress):
        real(scope, place, variables, parameters, {key: value * 0 for key, value in optimizer.items()}, progress)

    return [Replacement(state, real, restore)]


# ---- training --------------------------------------------------------------------------------------------------------


def ignore_signals() -> list[Replacement]:
    from bert.training.interruption import StopRequest

    return [Replacement(StopRequest, StopRequest.install, lambda self: self)]


def no_watchdog() -> list[Replacement]:
    from bert.training.interruption import Watchdog

    return [Replacement(Watchdog, Watchdog.__enter__, lambda self: self)]


def no_overflow_guard() -> list[Replacement]:
    """`paddle.isfinite` answers yes where the update asks about the norm of its gradients."""
    import program
    from bert.runtime.paddle_api import paddle
    from tests.support import tiny

    real = paddle.isfinite

    def isfinite(tensor):
        return real(paddle.zeros_like(tensor) if tensor.name.startswith("sqrt") else tensor)

    # Without the cache of the tests, so that programs are built without the guard.
    return [Replacement(paddle, real, isfinite), Replacement(tiny, tiny.build, program.build_training_program)]


def overlook_spikes() -> list[Replacement]:
    from bert.training.guards import SpikeGuard

    return [Replacement(SpikeGuard, SpikeGuard.detect, does_nothing)]


def constant_checksums() -> list[Replacement]:
    from types import SimpleNamespace

    from bert.training import health_checks

    return [Replacement(health_checks, health_checks.zlib, SimpleNamespace(crc32=lambda data: 7))]


def failing_log_sinks() -> list[Replacement]:
    from bert.reporting.logs import Sink

    return [Replacement(Sink, Sink.__call__, lambda self, action: action())]


# ---- batches ---------------------------------------------------------------------------------------------------------


def start_from_the_first_batch() -> list[Replacement]:
    from bert.samples.global_batches import GlobalBatchLoader

    real = GlobalBatchLoader.batches
    return [Replacement(GlobalBatchLoader, real, lambda self, start=0: real(self, 0))]


def drop_errors_of_workers() -> list[Replacement]:
    from bert.samples import global_batches

    real = global_batches.prefetched

    def prefetched(function, tasks, num_workers):
        def or_nothing(task):
            with contextlib.suppress(OSError):
                return function(task)

        return (result for result in real(or_nothing, tasks, num_workers) if result is not None)

    return [Replacement(global_batches, real, prefetched)]


def read_one_share() -> list[Replacement]:
    """All ranks read the share of the first one: samples of an update are read twice, others never."""
    from bert.samples.global_batches import GlobalBatchLoader

    def own_samples(self, micro_step):
        start = micro_step * self._world_size * self._micro_batch_size
        return slice(start, start + self._micro_batch_size)

    return [Replacement(GlobalBatchLoader, GlobalBatchLoader._own_samples, own_samples)]


# ---- data and settings -----------------------------------------------------------------------------------------------


def accept_shards() -> list[Replacement]:
    from bert.samples.shards import ShardDirectory

    return [Replacement(ShardDirectory, ShardDirectory._check_bytes, does_nothing)]


def accept_folders_of_shards() -> list[Replacement]:
    from bert.samples import shards

    return [
        Replacement(shards, shards.check_names, does_nothing),
        Replacement(shards.ShardDirectory, shards.ShardDirectory._check_counts, does_nothing),
    ]


def choose_by_process() -> list[Replacement]:
    from bert import randomness

    real = randomness.stream_key
    return [Replacement(randomness, real, lambda *words: real(*words, os.getpid()))]


def assume_utf8() -> list[Replacement]:
    from data.text import encodings

    def detect(open_chunks, language="en"):
        return encodings.Encoding("utf-8", 0, "assumed")

    return [Replacement(encodings, encodings.detect, detect)]


def accept_vocabularies() -> list[Replacement]:
    from bert.tokenization import vocabulary

    return [Replacement(vocabulary, vocabulary._check_token, does_nothing)]


def accept_squad_files() -> list[Replacement]:
    from bert.finetuning.squad import examples

    return [Replacement(examples, examples._check_question, does_nothing)]


def accept_glue_files() -> list[Replacement]:
    from bert.finetuning.glue.reading import LabelRule

    return [Replacement(LabelRule, LabelRule.problem, lambda self, label: "")]


def accept_downloads() -> list[Replacement]:
    from data.fetching import transfer

    return [Replacement(transfer, transfer._verified_by, lambda remote, path, target: "published checksum")]


def accept_batch_sizes() -> list[Replacement]:
    from bert.config.training_settings import BatchSettings

    real = BatchSettings.gradient_accumulation_steps
    return [Replacement(BatchSettings, real, lambda self, world_size: 1)]


# ---- conversion ------------------------------------------------------------------------------------------------------


def unpickle() -> list[Replacement]:
    import pickle

    from bert.conversion import pickles

    return [Replacement(pickles, pickles.read_pickle, lambda source, file, *_: pickle.load(file))]


def describe_wrongly() -> list[Replacement]:
    from bert.conversion.converting import Model

    real = Model.description
    return [Replacement(Model, real, lambda self, *arguments: {**real(self, *arguments), "hidden_act": "relu"})]


PROTECTIONS: dict[str, Callable[[], list[Replacement]]] = {
    "position in the data is not restored": start_from_the_first_batch,
    "written in place, read unverified": write_in_place,
    "signals are not handled": ignore_signals,
    "checkpoints are not verified": accept_checkpoints,
    "errors of the disk are ignored": ignore_disk_errors,
    "no lock": no_lock,
    "pruning takes all": prune_everything,
    "the newest by the clock": newest_by_clock,
    "no watchdog": no_watchdog,
    "errors of workers are dropped": drop_errors_of_workers,
    "no guard against overflows": no_overflow_guard,
    "spikes are not seen": overlook_spikes,
    "checksums are constant": constant_checksums,
    "differences are overlooked": overlook_differences,
    "optimizer state is not restored": zero_moments,
    "shards are not checked": accept_shards,
    "folders of shards are not checked": accept_folders_of_shards,
    "choices of preprocessing depend on the process": choose_by_process,
    "text is taken as it comes": assume_utf8,
    "vocabularies are not checked": accept_vocabularies,
    "SQuAD files are not checked": accept_squad_files,
    "GLUE files are not checked": accept_glue_files,
    "downloads are not verified": accept_downloads,
    "settings are not checked": accept_batch_sizes,
    "pickles are loaded": unpickle,
    "exports are described wrongly": describe_wrongly,
    "log sinks raise": failing_log_sinks,
    "ranks have shares of their own": read_one_share,
}

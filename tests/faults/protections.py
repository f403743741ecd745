"""The protections that the fault matrix relies on, and what disables each of them.

`PROTECTIONS`: protection -> {"module:attribute" -> a function of the real attribute that returns its replacement}. The
names are looked up when a protection is disabled, so that a process without Paddle does not load Paddle.
`test_fault_rows.py` looks up all.
"""

import contextlib
import fcntl
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

Break = Callable[[Any], Any]


def returns(value: Any = None) -> Break:
    """A function that ignores its arguments."""
    return lambda real: lambda *arguments, **named: value


def accept_checkpoint(real):
    from bert.checkpoints.directories import VerifiedCheckpoint

    def verify(checkpoint):
        known = isinstance(checkpoint, VerifiedCheckpoint)
        return checkpoint if known else VerifiedCheckpoint(checkpoint, {"format_version": 1, "files": {}})

    return verify


def write_in_place(real):
    from bert.checkpoints import directories as files

    def write_checkpoint(parent, step, write_files, unchanged=None):
        final = files.step_directory(parent, step)
        final.mkdir(parents=True, exist_ok=True)
        write_files(final)
        (final / files.MANIFEST).write_text('{"format_version": 1, "files": {}}')
        return final

    return write_checkpoint


def amend_in_place(real):
    def amend_checkpoint(parent: Path, step: int, texts: dict[str, str]):
        for name, text in texts.items():
            (parent / str(step) / name).write_text(text)
        return parent / str(step)

    return amend_checkpoint


def ignore_disk_errors(real):
    def write_checkpoint(parent, step, write_files, unchanged=None):
        with contextlib.suppress(OSError):
            return real(parent, step, write_files, unchanged)
        return parent

    return write_checkpoint


def no_lock(real):
    @contextlib.contextmanager
    def run_lock(parent):
        parent.mkdir(parents=True, exist_ok=True)
        yield

    return run_lock


def prune_everything(real):
    from bert.checkpoints import directories as files

    def prune(parent, keep):
        for step in files.list_steps(parent):
            shutil.rmtree(files.step_directory(parent, step))

    return prune


def newest_by_clock(real):
    from bert.checkpoints import directories as files

    def newest_valid(parent, *args):
        steps = [files.step_directory(parent, step) for step in files.list_steps(parent)]
        newest = max(steps, key=lambda path: path.stat().st_mtime, default=None)
        return newest and files.VerifiedCheckpoint(newest, {"format_version": 1, "files": {}})

    return newest_valid


def zero_moments(real):
    def restore(scope, place, variables, parameters, optimizer, progress):
        real(scope, place, variables, parameters, {key: value * 0 for key, value in optimizer.items()}, progress)

    return restore


def finite_norms(real):
    """`paddle.isfinite` answers yes where the update asks about the norm of its gradients."""
    from bert.runtime.paddle_api import paddle

    return lambda tensor: real(paddle.zeros_like(tensor) if tensor.name.startswith("sqrt") else tensor)


def built_anew(real):
    """Without the cache of the tests, so that programs are built without the guard."""
    import program

    return program.build_training_program


def drop_errors_of_workers(real):
    def prefetched(function, tasks, num_workers):
        def or_nothing(task):
            with contextlib.suppress(OSError):
                return function(task)

        return (result for result in real(or_nothing, tasks, num_workers) if result is not None)

    return prefetched


def read_one_share(real):
    """All ranks read the share of the first one: samples of an update are read twice, others never."""

    def own_samples(self, micro_step):
        start = micro_step * self._world_size * self._micro_batch_size
        return slice(start, start + self._micro_batch_size)

    return own_samples


def keep_what_follows(real):
    """Partial predictions keep what was written after their last saved state."""

    def saved_sizes(self):
        sizes = real(self)
        return sizes and [path.stat().st_size for path in self.partials]

    return saved_sizes


def hoard(real):
    """Each update leaves 20 kB and a descriptor."""
    kept: list[Any] = []

    def advance(self, *arguments):
        kept.append((bytearray(20_000), os.open(os.devnull, os.O_RDONLY) if len(kept) < 500 else None))
        real(self, *arguments)

    return advance


def assume_utf8(real):
    from data.text.encodings import Encoding

    return lambda open_chunks, language="en": Encoding("utf-8", 0, "assumed")


FILES = "bert.checkpoints.directories"
UNVERIFIED: dict[str, Break] = {f"{FILES}:verify": accept_checkpoint}
PROTECTIONS: dict[str, dict[str, Break]] = {
    "position in the data is not restored": {
        "bert.samples.global_batches:GlobalBatchLoader.batches": lambda real: (
            lambda self, start=0, *more: real(self, 0, *more)
        )
    },
    "written in place, read unverified": {
        f"{FILES}:write_checkpoint": write_in_place,
        f"{FILES}:amend_checkpoint": amend_in_place,
        **UNVERIFIED,
    },
    "signals are not handled": {"bert.training.interruption:StopRequest.install": lambda real: lambda self: self},
    "checkpoints are not verified": UNVERIFIED,
    "errors of the disk are ignored": {
        f"{FILES}:write_checkpoint": ignore_disk_errors,
        f"{FILES}:require_space": returns(),
        f"{FILES}:make_room": returns(),
        **UNVERIFIED,
    },
    "no lock": {f"{FILES}:run_lock": no_lock},
    "pruning takes all": {f"{FILES}:prune": prune_everything},
    "the newest by the clock": {f"{FILES}:newest_valid": newest_by_clock},
    "no watchdog": {"bert.training.interruption:Watchdog.__enter__": lambda real: lambda self: self},
    "errors of workers are dropped": {"bert.samples.global_batches:prefetched": drop_errors_of_workers},
    "no guard against overflows": {
        "bert.runtime.paddle_api:paddle.isfinite": finite_norms,
        "tests.support.tiny:build": built_anew,
    },
    "spikes are not seen": {"bert.training.loss_guards:SpikeGuard.detect": returns()},
    "checksums are constant": {"bert.training.device_guards:zlib": lambda real: SimpleNamespace(crc32=lambda data: 7)},
    "differences are overlooked": {
        "bert.checkpoints.state:differences": returns([]),
        "bert.checkpoints.state:check_continues": returns(),
    },
    "optimizer state is not restored": {"bert.checkpoints.state:restore": zero_moments},
    "shards are not checked": {"bert.samples.shards:ShardDirectory._check_bytes": returns()},
    "folders of shards are not checked": {
        "bert.samples.shards:check_names": returns(),
        "bert.samples.shards:ShardDirectory._check_counts": returns(),
    },
    "choices of preprocessing depend on the process": {
        "bert.randomness:stream_key": lambda real: lambda *words: real(*words, os.getpid())
    },
    "text is taken as it comes": {"data.text.encodings:detect": assume_utf8},
    "vocabularies are not checked": {"bert.tokenization.vocabulary:_check_token": returns()},
    "SQuAD files are not checked": {"bert.finetuning.squad.examples:_check_question": returns()},
    "GLUE files are not checked": {"bert.finetuning.glue.task_table:GlueTask.problem": returns("")},
    "downloads are not verified": {"data.fetching.transfer:_verified_by": returns("published checksum")},
    "settings are not checked": {"bert.config.training_settings:BatchSettings.gradient_accumulation_steps": returns(1)},
    "pickles are loaded": {
        "bert.conversion.pickles:read_pickle": lambda real: lambda source, file, *_: pickle.load(file)
    },
    "exports are described wrongly": {
        "bert.conversion.converting:Model.description": lambda real: (
            lambda self, *arguments: {**real(self, *arguments), "hidden_act": "relu"}
        )
    },
    "processes outlive their parents": {"bert.parent_death:_PRCTL": returns()},
    "files may ask for anything": {
        "bert.config.setting_sources:_check_yaml": returns(),
        "bert.samples.formats.hdf5:_too_large": returns(False),
        "bert.tokenization.vocabulary:_bytes_of": lambda real: lambda path: Path(path).read_bytes(),
    },
    "log sinks raise": {"bert.reporting.logs:Sink.__call__": lambda real: lambda self, action: action()},
    "a file system without locks is an error": {
        "bert.files:lock": lambda real: lambda file, *_: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    },
    "logs keep what they have written": {"bert.reporting.logs:Log.advance": hoard},
    "vocabularies of shards are not compared": {"bert.samples.shards:ShardDirectory._check_vocabulary": returns()},
    "nothing is flushed": {"bert.files:sync": returns()},
    "partial predictions are continued at their end": {
        "bert.finetuning.prediction_stream:ResumableFiles._saved_sizes": keep_what_follows
    },
    "ranks have shares of their own": {"bert.samples.global_batches:GlobalBatchLoader._own_samples": read_one_share},
}

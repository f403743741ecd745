"""Ways to take a protection away, to show that the row which relies on it then loses.

`BROKEN` maps a name to replacements, each `module:attribute` and what makes the broken one of the real one. They apply
in this process, in the forked trainings and in the pytest processes of a row (through BERT_BROKEN); nowhere else.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator
from typing import Any

VARIABLE = "BERT_BROKEN"
Replacement = tuple[str, Callable[[Any], Any]]


def _write_in_place(_: Any) -> Any:
    def write_checkpoint(parent, step, write_files):
        from bert.checkpoints import files as checkpoint_files

        final = checkpoint_files.step_directory(parent, step)
        final.mkdir(parents=True, exist_ok=True)
        write_files(final)
        (final / checkpoint_files.MANIFEST).write_text('{"format_version": 1, "files": {}}')
        return final

    return write_checkpoint


def _accept(real: Any) -> Any:
    """verify without looking."""
    return lambda directory: {"format_version": 1, "files": {}}


def _unlocked(_: Any) -> Any:
    @contextlib.contextmanager
    def run_lock(parent):
        parent.mkdir(parents=True, exist_ok=True)
        yield

    return run_lock


def _silent_errors(real: Any) -> Any:
    def write_checkpoint(parent, step, write_files):
        with contextlib.suppress(OSError):
            return real(parent, step, write_files)
        return parent

    return write_checkpoint


def _newest_by_clock(_: Any) -> Any:
    def newest_valid(parent, report):
        from bert.checkpoints import files as checkpoint_files

        steps = [checkpoint_files.step_directory(parent, step) for step in checkpoint_files.list_steps(parent)]
        return max(steps, key=lambda path: path.stat().st_mtime, default=None)

    return newest_valid


def _prune_one_too_many(real: Any) -> Any:
    def prune(parent, keep):
        import shutil

        from bert.checkpoints import files as checkpoint_files

        for step in checkpoint_files.list_steps(parent):
            shutil.rmtree(checkpoint_files.step_directory(parent, step))

    return prune


def _from_the_beginning(real: Any) -> Any:
    return lambda self, start=0: real(self, 0)


def _contiguous_shares(real: Any) -> Any:
    """Ranks take what lies together instead of what is theirs: the order depends on the number of ranks."""

    def micro_batch(self, index, micro_step):
        self._rank, rank = self._world_size - 1 - self._rank, self._rank
        try:
            return real(self, index, micro_step)
        finally:
            self._rank = rank

    return micro_batch


def _nothing(real: Any) -> Any:
    return lambda *args, **kwargs: None


def _dropping(real: Any) -> Any:
    def prefetched(function, tasks, num_workers):
        def or_nothing(task):
            with contextlib.suppress(OSError):
                return function(task)

        return (result for result in real(or_nothing, tasks, num_workers) if result is not None)

    return prefetched


def _everything_is_finite(real: Any) -> Any:
    """Of `paddle.isfinite`, where the update asks about the norm of its gradients."""
    from bert.runtime.paddle_api import paddle

    return lambda tensor: real(paddle.zeros_like(tensor) if tensor.name.startswith("sqrt") else tensor)


def _unbuilt(real: Any) -> Any:
    """The tests' cache of programs, so that what is built now is built without the protection."""
    import program

    return lambda *args, **kwargs: program.build_training_program(*args, **kwargs)


class _ConstantChecksum:
    @staticmethod
    def crc32(data: bytes) -> int:
        return 7


def _bare(real: Any) -> Any:
    return lambda self, action: action()


def _zero_moments(real: Any) -> Any:
    def restore(scope, place, variables, parameters, optimizer, progress):
        real(scope, place, variables, parameters, {key: value * 0 for key, value in optimizer.items()}, progress)

    return restore


def _by_process(real: Any) -> Any:
    return lambda *words: real(*words, os.getpid())


def _unpickled(_: Any) -> Any:
    import pickle

    return lambda self, file: pickle.loads(bytes(file))


def _always_utf8(_: Any) -> Any:
    def detect(open_chunks, language="en"):
        from data.text.encodings import Encoding

        return Encoding("utf-8", 0, "assumed")

    return detect


def _vouch_for_all(_: Any) -> Any:
    """Of `data.fetching.download._verified`."""

    def verified(remote, path, target):
        from data.fetching.download import Fetched

        return Fetched(path, "0" * 64, "nothing yet")

    return verified


def _no_differences(_: Any) -> Any:
    return lambda *args, **kwargs: []


def _itself(real: Any) -> Any:
    """For `StopRequest.install`: no handler is installed."""
    return lambda self: self


_FOR_GOOD = contextlib.ExitStack()  # never closed
FILES = "bert.checkpoints.files:"
BROKEN: dict[str, list[Replacement]] = {
    "position in the data is not restored": [
        ("bert.samples.global_batches:GlobalBatchLoader.batches", _from_the_beginning)
    ],
    "written in place, read unverified": [(FILES + "write_checkpoint", _write_in_place), (FILES + "verify", _accept)],
    "signals are not handled": [("bert.training.interruption:StopRequest.install", _itself)],
    "checkpoints are not verified": [(FILES + "verify", _accept)],
    "errors of the disk are ignored": [
        (FILES + "write_checkpoint", _silent_errors),
        (FILES + "verify", _accept),
        (FILES + "require_space", _nothing),
    ],
    "no lock": [(FILES + "run_lock", _unlocked)],
    "pruning takes all": [(FILES + "prune", _prune_one_too_many)],
    "the newest by the clock": [(FILES + "newest_valid", _newest_by_clock)],
    "no watchdog": [("bert.training.watchdog:Watchdog.__enter__", _itself)],
    "errors of workers are dropped": [("bert.samples.global_batches:prefetched", _dropping)],
    "no guard against overflows": [
        ("bert.model.optimization:paddle.isfinite", _everything_is_finite),
        ("tiny:build", _unbuilt),
    ],
    "spikes are not seen": [("bert.training.loss_spikes:SpikeGuard.observe", _nothing)],
    "checksums are constant": [("bert.training.divergence:zlib", lambda real: _ConstantChecksum)],
    "differences are overlooked": [
        ("bert.checkpoints.state:differences", _no_differences),
        ("bert.checkpoints.state:check_continues", _nothing),
    ],
    "optimizer state is not restored": [("bert.checkpoints.state:restore", _zero_moments)],
    "shards are not checked": [("bert.samples.shards:ShardDirectory._check_bytes", _nothing)],
    "folders of shards are not checked": [
        ("bert.samples.shards:check_names", _nothing),
        ("bert.samples.shards:ShardDirectory._check_counts", _nothing),
    ],
    "choices of preprocessing depend on the process": [("bert.randomness:stream_key", _by_process)],
    "text is taken as it comes": [("data.text.encodings:detect", _always_utf8)],
    "vocabularies are not checked": [("bert.tokenization.vocabulary:_check_token", _nothing)],
    "SQuAD files are not checked": [
        ("bert.finetuning.squad.examples:_Reader._refuse_unanswered", _nothing),
        ("bert.finetuning.squad.examples:_not_text", _nothing),
    ],
    "GLUE files are not checked": [
        ("bert.finetuning.glue.reading:LabelRule.problem", lambda real: lambda self, label: "")
    ],
    "downloads are not verified": [("data.fetching.download:_verified", _vouch_for_all)],
    "settings are not checked": [
        ("bert.config.base:BatchSettings.gradient_accumulation_steps", lambda real: lambda self, world_size: 1)
    ],
    "pickles are loaded": [("bert.conversion.pickle_machine:PickleMachine.load", _unpickled)],
    "exports are described wrongly": [
        ("bert.conversion.writing:describe", lambda real: lambda *arguments: {**real(*arguments), "hidden_act": "relu"})
    ],
    "log sinks raise": [("bert.reporting.logs:Sink.__call__", _bare)],
    "ranks share by place": [("bert.samples.loader:PretrainingLoader.micro_batch", _contiguous_shares)],
}


@contextlib.contextmanager
def applied(name: str | None) -> Iterator[None]:
    """With the protection `name` taken away, here and in processes started meanwhile."""
    if name is None:
        yield
        return
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = name
    with contextlib.ExitStack() as stack:
        for target, make in BROKEN[name]:
            stack.enter_context(_replaced(target, make))
        try:
            yield
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before


def apply_for_good(name: str) -> None:
    """In a process that was made for it."""
    if name:
        for target, make in BROKEN[name]:
            _FOR_GOOD.enter_context(_replaced(target, make))


@contextlib.contextmanager
def _replaced(target: str, make: Callable[[Any], Any]) -> Iterator[None]:
    module, _, path = target.partition(":")
    owner: Any = importlib.import_module(module)
    *parts, last = path.split(".")
    for part in parts:
        owner = getattr(owner, part)
    real = owner.__dict__[last] if isinstance(owner, type) else getattr(owner, last)
    setattr(owner, last, make(real))
    try:
        yield
    finally:
        setattr(owner, last, real)


def pytest_configure(config) -> None:
    """As a plugin (`-p tests.faults.sabotage`): the whole pytest run is without the protection."""
    apply_for_good(os.environ.get(VARIABLE, ""))

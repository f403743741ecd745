"""Rows about file systems that fail in the way of networks, and hosts that lose their power."""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from bert import REPOSITORY
from bert.checkpoints.directories import best_step, newest_valid, run_lock, weights_folder, write_best, write_checkpoint
from bert.files import checksum_of_file
from bert.finetuning.prediction_stream import ResumableFiles
from bert.samples.manifest import read_manifest
from bert.samples.shards import ShardDirectory
from tests.faults import file_system
from tests.faults.harness import Row, Trials
from tests.faults.rows_runs import finish_and_compare, tensors
from tests.faults.trainings import checkpoints, digest, reference
from tests.support.corpora import random_table, vocabulary, write_shards

# Call of the output's file system, its error, whether the run goes on as if nothing had been.
DISK_FAULTS = (
    ("fsync", errno.EIO, False),
    ("write", errno.EINTR, True),
    ("open", errno.ESTALE, False),
    ("flock", errno.ENOLCK, True),
    ("write", errno.EDQUOT, False),
    ("rename", errno.ESTALE, False),
    ("fsync", errno.EINTR, True),
    ("write", errno.ENOSPC, False),
    ("open", errno.EINTR, True),
    ("mkdir", errno.EDQUOT, False),
    ("fsync", errno.ESTALE, False),
    ("rename", errno.EIO, False),
    ("rename slowly", 0, True),
)


def file_systems_of_networks(trials: Trials) -> None:
    """One call fails, at any place of a training; slow renames are watched by a reader."""
    if file_system.library() is None:
        return trials.cannot_run("a C compiler")
    server, data, whole = reference()
    ended = 0
    for number, output in trials.folders():
        call, error, goes_on = DISK_FAULTS[number % len(DISK_FAULTS)]
        at = -1 if call == "flock" else trials.random.randrange(40)
        settings = {"SHIM_ROOT": str(output), "SHIM_FAULT": f"{call} {at} {error}"}
        if not error:
            settings = {"SHIM_ROOT": str(output), "SHIM_RENAME_MS": "20"}
        with trials.trial(f"{call} {at}: {errno.errorcode.get(error)}"), watched(output):
            training = server.run(data.argv(output), output, file_system=settings)
            assert training.code in ((0,) if goes_on else (0, 2, 74)), f"{training.code}: {training.said()[-500:]}"
            assert "Traceback" not in training.said(), training.said()[-800:]
            if training.code == 0:
                is_same = tensors(output) == tensors(whole.output)  # all that a run whose log was switched off has
                assert is_same if "is switched off" in training.said() else digest(data, output) == whole.digest
            else:
                ended += 1
                assert "error: " in training.said() and os.strerror(error) in training.said(), training.said()[-500:]
                finish_and_compare(server, data, output, whole.digest)
    trials.note(f"{ended} runs ended with an error, and were continued")


class watched:
    """A reader that looks for the newest weights all the time; what it meets is raised at the end."""

    def __init__(self, output: Path) -> None:
        self._output, self._over, self._problem = output, threading.Event(), ""
        self._thread = threading.Thread(target=self._look)

    def _look(self) -> None:
        seen = 0
        while not self._over.wait(0.005) and not self._problem:
            steps = [int(path.name) for path in checkpoints(self._output).glob("[0-9]*")]
            try:
                weights_folder(self._output)
            except (OSError, ValueError) as error:
                self._problem = f"a reader met {error!r}"
            if steps and max(steps) < seen:
                self._problem = f"a reader saw step {max(steps)} after {seen}"
            seen = max([seen, *steps])

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: type | None, *_: object) -> None:
        self._over.set()
        self._thread.join()
        assert kind is not None or not self._problem, self._problem


# ---- power loss -----------------------------------------------------------------------------------------------------

OLD, NEW = {"weights": b"old" * 50, "state.json": b"{}"}, {"weights": b"new" * 70, "state.json": b"{ }"}


def save(folder: Path, step: int, contents: dict[str, bytes]) -> None:
    def write_files(directory: Path) -> None:
        for name, content in contents.items():
            (directory / name).write_bytes(content)

    write_checkpoint(folder, step, write_files)
    write_best(folder, step, {"loss": step})


def write_a_checkpoint(folder: Path) -> None:
    from bert.checkpoints.directories import amend_checkpoint, prune

    with run_lock(folder):
        save(folder, 5, NEW)
        prune(folder, 1)
        amend_checkpoint(folder, 5, {"state.json": "{ }"})


def check_checkpoint(folder: Path) -> None:
    refused: list[str] = []
    with run_lock(folder):
        newest = newest_valid(folder, report=refused.append)
        assert newest is not None and not refused, refused
        contents = {path.name: path.read_bytes() for path in newest.directory.iterdir() if path.name != "manifest.json"}
        assert contents in (OLD, NEW) and best_step(folder) in (4, 5)


WINDOWS = [b"first\n", b"second\n", b"third\n"]


def write_a_stream(folder: Path) -> None:
    with ResumableFiles([folder / "out"], "key", "--output") as output:
        for done in range((output.state or {"done": 0})["done"], len(WINDOWS)):
            output.files[0].write(WINDOWS[done])
            output._saved_at = -1e9  # each state is saved
            output.save({"done": done + 1})


def check_stream(folder: Path) -> None:
    write_a_stream(folder)
    assert (folder / "out").read_bytes() == b"".join(WINDOWS)


def write_logs(folder: Path) -> None:
    from bert.reporting.logs import Log

    log = Log(folder, total_steps=3)
    for step in range(1, 4):
        log.train(step, 0, {"loss": 1.0 / step}, 1.0)
    log.summary({"steps": 3})
    log.close()


def check_logs(folder: Path) -> None:
    rows = (folder / "metrics.jsonl").read_text().split("\n")[:-1] if (folder / "metrics.jsonl").exists() else []
    assert [json.loads(row)["step"] for row in rows] == [*range(1, len(rows) + 1)]
    assert json.loads((folder / "summary.json").read_text())["steps"] in (0, 3)


def write_balanced(folder: Path) -> None:
    from data.balance_shards import main

    main(["--indir", str(folder.parent / "source"), "--outdir", str(folder / "shards"), "--num-shards", "2"])


def check_balanced(folder: Path) -> None:
    """What can be opened is whole."""
    try:
        ShardDirectory(folder / "shards", vocabulary(), 32)
    except (ValueError, OSError):
        return
    manifest = read_manifest(folder / "shards")
    assert manifest is not None and sum(record.num_samples for record in manifest.shards.values()) == 60
    for name, record in manifest.shards.items():
        assert checksum_of_file(folder / "shards" / name) == record.xxh128, name


def prepare_balanced(folder: Path) -> None:
    write_shards(folder.parent / "source", [random_table(20, seed) for seed in range(3)])


def prepare_checkpoint(folder: Path) -> None:
    save(folder, 4, OLD)


def prepare_logs(folder: Path) -> None:
    (folder / "summary.json").write_text('{"steps": 0}')


Act = Callable[[Path], None]
WRITERS: dict[str, tuple[Act, Act, Act]] = {
    "checkpoint": (prepare_checkpoint, write_a_checkpoint, check_checkpoint),
    "stream of predictions": (lambda folder: None, write_a_stream, check_stream),
    "logs": (prepare_logs, write_logs, check_logs),
    "balanced shards": (prepare_balanced, write_balanced, check_balanced),
}


def power_losses(trials: Trials) -> None:
    """What was written is replayed up to each change, with and without what was not flushed, and read again."""
    library = file_system.library()
    if library is None:
        return trials.cannot_run("a C compiler")
    for name, (prepare, write, check) in WRITERS.items():
        folder = trials.folder / name
        before, work, trace = folder / "before", folder / "work", folder / "trace"
        before.mkdir(parents=True)
        prepare(before)
        shutil.copytree(before, work)
        variables = {"LD_PRELOAD": str(library), "SHIM_ROOT": str(work), "SHIM_TRACE": str(trace)}
        words = [sys.executable, "-m", "tests.faults.rows_disks", write.__name__, str(work)]
        subprocess.run(words, cwd=REPOSITORY, env={**os.environ, **variables}, check=True, capture_output=True)
        assert trace.exists(), f"{name} wrote nothing"
        check(work)
        for state in file_system.states(before, trace, work, folder / "after"):
            with trials.trial(f"{name}, {state}"):
                check(folder / "after")


ROWS = [
    Row(
        34,
        "a call of the output's file system fails once: EIO, EINTR, ESTALE, quota; no locks, slow renames",
        "goes on, or ends in one sentence and continues exactly",
        file_systems_of_networks,
        (13, 130),
        ("a file system without locks is an error",),
    ),
    Row(
        35,
        "power lost after any change of a file, with and without what was not flushed",
        "the old or the new checkpoint, prediction, log or shards",
        power_losses,
        (100, 100),
        ("nothing is flushed",),
    ),
]

if __name__ == "__main__":
    from tests.faults import sabotage

    sabotage.disable_for_good(os.environ.get(sabotage.VARIABLE, ""))
    globals()[sys.argv[1]](Path(sys.argv[2]))

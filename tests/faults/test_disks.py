"""Failing network file systems, and hosts that lose power: rows 34 and 35 of the fault matrix (tests/README.md)."""

import errno
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.checkpoints.chosen_weights import weights_folder
from bert.checkpoints.directories import BEST, name_step, named_step, newest_valid, run_lock, write_checkpoint
from bert.files import checksum_of_file
from bert.finetuning.prediction_files import PredictionFiles, line_ends
from bert.samples.manifest import read_manifest
from bert.samples.shards import ShardDirectory
from tests.faults import file_system
from tests.faults.trainings import checkpoints, digest, tensors
from tests.support.corpora import random_table, vocabulary, write_shards
from tests.support.full_counts import times

# Call of the output's file system, its error, whether the run continues as if nothing had been: each call and each
# error once. The gate has a full disk.
DISK_FAULTS = [
    ("write", errno.ENOSPC, False),
    *(
        pytest.param(*fault, marks=pytest.mark.nightly)
        for fault in (
            ("fsync", errno.EIO, False),
            ("write", errno.EINTR, True),
            ("open", errno.ESTALE, False),
            ("flock", errno.ENOLCK, True),
            ("mkdir", errno.EDQUOT, False),
            ("rename", errno.EIO, False),
            ("rename slowly", 0, True),
        )
    ),
]


@pytest.fixture(autouse=True)
def compiler():
    if file_system.library() is None:
        pytest.skip("needs a C compiler")


@pytest.mark.long
@pytest.mark.parametrize(("call", "error", "continues"), DISK_FAULTS)
def test_one_call_that_fails_ends_the_run_in_a_sentence_or_changes_nothing(reference, tmp_path, call, error, continues):
    """Row 34: the call may be anywhere in a training; a reader watches slow renames."""
    chance = random.Random(f"{call} {error}")
    for number in range(times(1, 10)):
        output, at = tmp_path / str(number), -1 if call == "flock" else chance.randrange(40)
        settings = {"SHIM_ROOT": str(output), "SHIM_FAULT": f"{call} {at} {error}"}
        if not error:
            settings = {"SHIM_ROOT": str(output), "SHIM_RENAME_MS": "20"}
        with watched(output):
            training = reference.run(output, file_system=settings)
        said = " ".join(training.said().split())
        assert training.code in ((0,) if continues else (0, 2, 74)), f"call {at}: {training.code}: {said[-500:]}"
        assert "Traceback" not in said, said[-800:]
        if training.code:
            assert "error: " in said and os.strerror(error) in said, said[-500:]
            reference.continue_and_compare(output)
        elif "is switched off" in said:  # lines of its log are lost
            assert tensors(output) == tensors(reference.output)
        else:
            assert digest(reference.data, output) == reference.digest


class watched:
    """Run a reader that looks for the newest weights all the time; its error is raised at the end."""

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
    name_step(folder, BEST, step, {"loss": step})


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
        assert contents in (OLD, NEW) and named_step(folder, BEST) in (4, 5)


WINDOWS = [b"first\n", b"second\n", b"third\n"]


def write_a_stream(folder: Path) -> None:
    output = PredictionFiles({folder / "out": line_ends}, {"a": "command"}, flag="--output", unit="lines", log=print)
    with output as files:
        for done in range(files.rows, len(WINDOWS)):
            files.append([WINDOWS[done]], done)


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
    """Check that every file that can be opened is whole."""
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


@pytest.mark.long
@pytest.mark.parametrize("name", WRITERS)
def test_power_lost_after_any_change_leaves_the_old_or_the_new(tmp_path, name):
    """Row 35: each change is replayed, with and without unflushed bytes, and then read."""
    prepare, write, check = WRITERS[name]
    before, work, trace = tmp_path / "before", tmp_path / "work", tmp_path / "trace"
    before.mkdir()
    prepare(before)
    shutil.copytree(before, work)
    variables = {"LD_PRELOAD": str(file_system.library()), "SHIM_ROOT": str(work), "SHIM_TRACE": str(trace)}
    words = [sys.executable, "-m", "tests.faults.test_disks", write.__name__, str(work)]
    subprocess.run(words, cwd=REPOSITORY, env={**os.environ, **variables}, check=True, capture_output=True)
    assert trace.exists(), f"{name} wrote nothing"
    check(work)
    for state in file_system.states(before, trace, work, tmp_path / "after"):
        try:
            check(tmp_path / "after")
        except Exception as error:
            raise AssertionError(f"{state}: {error}") from error


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))

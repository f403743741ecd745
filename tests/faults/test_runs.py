"""Whole trainings under faults: killed, stopped, started twice, hanging, clock jumps, changed files, failing disks.

Each test is a row of the fault matrix (tests/README.md): after the fault the same command ends in the bytes of the
uninterrupted run. BERT_FULL_FAULTS=1 injects each fault as often as the matrix promises.
"""

import json
import math
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from bert.training.interruption import STOP_FILE
from tests.faults.trainings import (
    SAVE_EVERY,
    STEPS,
    Data,
    Reference,
    checkpoints,
    digest,
    must_end,
    newest_step,
    tensors,
)
from tests.support.full_counts import times

pytestmark = pytest.mark.long
NIGHTLY = pytest.mark.nightly  # a fault of another kind than the gate has: a kill in a save, SIGTERM, a full disk
FAULTS_OF_A_DISK = ("full, unforeseen", "EIO", "read-only")


@NIGHTLY
def test_a_run_killed_again_and_again_at_random_times_ends_in_the_same_bytes(reference, tmp_path):
    """Row 1: chains of up to four kill -9 and restarts."""
    kills, wanted, chance = 0, times(4, 200), random.Random(1001)
    while kills < wanted:
        output, reached, in_chain = tmp_path / f"after{kills}", 0, min(4, wanted - kills)
        for _ in range(in_chain):
            training = reference.start(output)
            if training.wait(chance.uniform(0.15, 0.9) * reference.seconds) is not None:
                must_end(training)  # it was faster: a chain that ended by itself
                break
            training.kill()
            kills += 1
            at_least, reached = reached, newest_step(output)
            assert reached >= at_least, f"step {at_least} was saved, {reached} is left"
        reference.continue_and_compare(output)
        shutil.rmtree(output)


def test_kill_9_at_system_calls_of_a_save_leaves_the_old_or_the_new_checkpoint(reference, tmp_path):
    """Row 2: a full run kills at every system call of a save that prunes, then at random calls of all saves."""
    chance, one_save = random.Random(1002), reference.one_save()
    count, chosen = times(4, 318), list(range(4 * one_save, 5 * one_save))[: times(0, one_save)]
    chosen += [chance.randrange(reference.boundaries - 1) for _ in range(count - len(chosen))]
    for boundary in chosen:
        output = tmp_path / f"boundary{boundary}"
        training = reference.run(output, signals_at={boundary: [signal.SIGKILL]})
        assert training.code == -signal.SIGKILL, f"not killed: {training.code} {training.said()[-500:]}"
        done = boundary // one_save * SAVE_EVERY
        assert newest_step(output) >= done - SAVE_EVERY, f"{newest_step(output)} is left of {done}"
        reference.continue_and_compare(output)
        shutil.rmtree(output)


def test_signals_in_the_middle_of_a_save_lose_nothing(reference, tmp_path):
    """Row 3: after two or three of SIGTERM, SIGINT and SIGUSR1 the save ends whole, and the run with exit code 75."""
    chance, one_save = random.Random(1003), reference.one_save()
    for number in range(times(4, 50)):
        output, first = tmp_path / str(number), chance.randrange(reference.boundaries - 2 * one_save)
        places = {first, first + chance.randint(1, 30), first + chance.randint(1, one_save)}
        kinds = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
        sent = {place: [chance.choice(kinds)] for place in sorted(places)}
        must_end(reference.run(output, signals_at=sent), 75)
        saving = (first // one_save + 1) * SAVE_EVERY
        assert newest_step(output) >= saving, f"{sent}: step {saving} was being saved, {newest_step(output)} is left"
        reference.continue_and_compare(output)
        shutil.rmtree(output)


@NIGHTLY
def test_a_stop_file_saves_and_the_same_command_continues(reference, tmp_path):
    """`touch OUTPUT_DIR/STOP` stops a real run; a STOP file that was there before the start does not."""
    output = tmp_path / "run"
    output.mkdir()
    (output / STOP_FILE).touch()
    training = reference.start(output, stall=[9, "a while"])
    while "step 9/" not in training.said():
        assert training.wait(0.05) is None, training.said()
    (output / STOP_FILE).touch()
    assert training.wait(60) == 75, training.said()
    said = " ".join(training.said().split())
    assert "STOP was left from an earlier run; removed" in said and f"stopped by {output / STOP_FILE}" in said
    assert not (output / STOP_FILE).exists() and newest_step(output) >= 10
    reference.continue_and_compare(output)


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a tmpfs of this size; needs root."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(path: Path, leave: int) -> None:
    """Fill the disk, except for this many bytes."""
    free = shutil.disk_usage(path.parent).free
    with open(path, "wb") as file:
        file.write(b"\0" * max(free - leave, 0))


@pytest.mark.parametrize("fault", ["full", *(pytest.param(name, marks=NIGHTLY) for name in FAULTS_OF_A_DISK)])
def test_a_disk_that_fails_in_a_save_keeps_the_last_good_checkpoint(reference, tmp_path, fault):
    """Row 7: the disk fails in the middle of a run."""
    try:
        with small_disk(tmp_path / "probe", 65536):
            pass
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs permission to mount a tmpfs")
    chance = random.Random(fault)
    needed = sum(path.stat().st_size for path in (checkpoints(reference.output) / str(STEPS)).iterdir())
    for number in range(times(1, 13)):
        with small_disk(tmp_path / f"disk{number}", 8 * needed + 4_000_000) as disk:
            output = disk / "run"
            must_end(reference.run(output, "--steps-this-run", "6"))
            options: dict = {"console": str(tmp_path / f"console{number}")}
            if fault == "read-only":
                subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            elif fault == "EIO":
                options["fsync_fails_at"] = chance.randrange(4)
            else:  # room for a part of the next checkpoint
                fill(disk / "filler", int(needed * chance.uniform(0, 0.95)))
                options["no_space_check"] = fault == "full, unforeseen"
            keep = ("--keep-checkpoints", "9") if fault == "full" else ()  # or surplus ones would make room
            training = reference.run(output, *keep, **options)
            assert training.code not in (0, None, 75), f"exit code {training.code}: {training.said()[-300:]}"
            assert newest_step(output) == 6, "the last good checkpoint was not kept"
            if fault == "read-only":
                subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            (disk / "filler").unlink(missing_ok=True)
            reference.continue_and_compare(output)


@NIGHTLY
def test_a_second_run_in_one_folder_is_refused_until_the_first_was_killed(reference, tmp_path):
    """Row 8 of the fault matrix in tests/README.md."""
    chance = random.Random(1008)
    for number in range(times(1, 20)):
        output = tmp_path / str(number)
        first = reference.start(output, stall=[chance.randint(0, 8), "python"])
        deadline = time.monotonic() + 60
        while "step" not in first.said() and not (output / "bert-test/phase1/.lock").exists():
            assert first.wait(0.05) is None and time.monotonic() < deadline, first.said()[-500:]
        second = reference.start(output, console=str(tmp_path / f"second{number}"))
        assert second.wait(60) == 2, f"exit code {second.code}: {second.said()[-500:]}"
        assert "is in use by another run (process" in second.said()
        first.kill()
        reference.continue_and_compare(output)


@NIGHTLY
@pytest.mark.parametrize("how", ["python", "foreign"])
def test_an_update_that_hangs_ends_the_process_with_its_stacks(reference, tmp_path, how):
    """Row 18: the update hangs in Python or outside of it."""
    chance = random.Random(how)
    for number in range(times(1, 5)):
        output, step, begin = tmp_path / str(number), chance.randrange(STEPS), time.monotonic()
        training = reference.start(output, "--watchdog-seconds", "3", stall=[step, how])
        assert training.wait(40) == 70, f"step {step}: exit code {training.code}"
        assert time.monotonic() - begin < 35
        stacks = (output / "phase1" / "stacks" / "rank0.txt").read_text()
        assert "nothing moved for" in stacks and "in update" in stacks, stacks[-500:]
        assert newest_step(output) >= step // SAVE_EVERY * SAVE_EVERY - SAVE_EVERY
        reference.continue_and_compare(output)


@NIGHTLY
def test_clocks_that_jump_spoil_no_rate_and_the_newest_checkpoint_is_that_of_the_highest_step(reference, tmp_path):
    """Row 19: every look at the clock gives another day."""
    for number in range(times(1, 6)):
        output = tmp_path / str(number)
        must_end(reference.run(output, "--steps-this-run", "13", clock=number))
        steps = sorted(int(path.name) for path in checkpoints(output).iterdir() if path.name.isdecimal())
        for age, step in enumerate(steps):  # the highest step is the oldest
            os.utime(checkpoints(output) / str(step), (1e9 - age * 1e6,) * 2)
        must_end(reference.run(output, clock=number + 1000))
        shown = " ".join((output / "console.txt").read_text().split())
        assert f"continuing {checkpoints(output) / '13'} at step 13" in shown
        for row in [json.loads(row) for row in (output / "phase1/metrics.jsonl").read_text().splitlines()]:
            for name in ("seqs_per_sec", "tokens_per_sec", "step_cost", "mfu"):
                assert name not in row or (math.isfinite(row[name]) and row[name] > 0), (name, row)
        assert digest(reference.data, output) == reference.digest


@NIGHTLY
def test_logs_that_cannot_be_written_do_not_stop_a_run(reference, tmp_path):
    """Row 30: log files are full, VisualDL is missing, nobody reads the console: one by one and together."""
    kinds = ("log files are full", "VisualDL is broken", "the pipe breaks")
    for chosen in (*((kind,) for kind in kinds[: times(0, 3)]), kinds):
        output, options = tmp_path / str(len(list(tmp_path.iterdir()))), {}
        argv = reference.data.argv(output)
        if "log files are full" in chosen:
            (output / "phase1").mkdir(parents=True)
            for name in ("log.jsonl", "metrics.jsonl", ".progress.json.new"):
                (output / "phase1" / name).symlink_to("/dev/full")
            (output / "report.json").symlink_to("/dev/full")
        if "VisualDL is broken" in chosen:
            argv, options = [word for word in argv if word != "--no-visualdl"], {"visualdl_raises": True}
        if "the pipe breaks" in chosen:
            options["closed_pipe"] = True
        training = must_end(reference.server.run(argv, output, **options))
        assert tensors(output) == tensors(reference.output)
        assert "warning:" in training.said(), f"nobody was told: {chosen}"


@pytest.fixture
def copied(reference, tmp_path) -> Reference:
    """Copy the files of the reference that a test may change."""
    shutil.copytree(reference.data.folder / "shards", tmp_path / "shards")
    shutil.copy(reference.data.folder / "vocab.txt", tmp_path)
    return replace(reference, data=Data(tmp_path))


@NIGHTLY
@pytest.mark.parametrize("what", ["vocabulary", "config.yaml"])
def test_a_file_that_changes_before_a_restart_is_named_or_changes_nothing(copied, tmp_path, what):
    """Row 39: a file changes between a stop and a restart."""
    output, vocabulary = tmp_path / "run", tmp_path / "vocab.txt"
    must_end(copied.run(output, "--steps-this-run", "9"))
    content = vocabulary.read_bytes()
    tokens = content.decode().splitlines()
    tokens[-1], tokens[-2] = tokens[-2], tokens[-1]
    changed = vocabulary if what == "vocabulary" else output / "phase1/config.yaml"
    changed.write_text("\n".join(tokens) + "\n")
    training = copied.run(output)
    refused = training.code == 2 and "vocab" in training.said()
    assert refused if what == "vocabulary" else training.code == 0, training.said()[-500:]
    assert "Traceback" not in training.said(), training.said()[-800:]
    vocabulary.write_bytes(content)
    copied.continue_and_compare(output)


@NIGHTLY
@pytest.mark.parametrize("what", ["damaged", "removed"])
def test_a_shard_that_changes_in_an_epoch_is_named_or_changes_nothing(copied, tmp_path, what):
    """Row 39: a shard changes in an epoch."""
    chance = random.Random(what)
    for number in range(times(1, 5)):
        output, shard = tmp_path / f"run{number}", chance.choice(sorted(tmp_path.glob("shards/shard-*")))
        training = copied.start(output, stall=[chance.randrange(2, 12), "a while"])
        while "step 2/" not in training.said():
            assert training.wait(0.05) is None, training.said()[-500:]
        content = shard.read_bytes()
        damaged = bytearray(content)
        damaged[len(damaged) // 2] ^= 1
        shard.unlink() if what == "removed" else shard.write_bytes(damaged)
        code = training.wait(120)
        assert code == 0 or (code == 2 and shard.name in training.said()), training.said()[-500:]
        assert "Traceback" not in training.said(), training.said()[-800:]
        shard.write_bytes(content)
        copied.continue_and_compare(output)

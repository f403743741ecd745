"""Rows about whole trainings: killed, told to stop, without a disk, started twice, with a clock that jumps."""

import json
import math
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.harness import Row, Trials
from tests.faults.trainings import SAVE_EVERY, STEPS, Data, checkpoints, digest, must_end, newest_step, reference


def finish_and_compare(server, data, output: Path, expected: str) -> None:
    """The same command again, undisturbed: it continues and ends in the bytes of the uninterrupted run."""
    must_end(server.run(data.argv(output), output))
    assert newest_step(output) == STEPS
    assert digest(data, output) == expected, "the resumed run is not the uninterrupted one"


def killed_at_random(trials: Trials) -> None:
    """Chains of kill -9 and restart, up to four kills in a chain, each chain ending in the bytes of the whole run."""
    server, data, whole = reference()
    kills = chain = 0
    while kills < trials.count:
        chain, mine = chain + 1, 0
        output, reached = trials.folder / f"chain{chain}", 0
        wanted = min(4, trials.count - kills)
        while mine < wanted:
            training = server.start(data.argv(output), output)
            if training.wait(trials.random.uniform(0.15, 0.9) * whole.seconds) is not None:
                must_end(training)  # it was faster: a chain that ended by itself
                break
            training.kill()
            mine += 1
            at_least, reached = reached, newest_step(output)
            assert reached >= at_least, f"step {at_least} was saved, {reached} is left"
        if mine:
            kills += mine
            with trials.trial(f"chain {chain} of {mine} kills, the last at step {reached}", weight=mine):
                finish_and_compare(server, data, output, whole.digest)
        shutil.rmtree(output)


def killed_at_boundaries(trials: Trials) -> None:
    """kill -9 at system calls of saves: in a full run at every one of a save, then at random ones of all."""
    server, data, whole = reference()
    one_save = whole.boundaries // (STEPS // SAVE_EVERY)
    middle = 4 * one_save  # of the fifth save, which prunes
    chosen = list(range(middle, middle + one_save)) if trials.full else []
    chosen += [trials.random.randrange(whole.boundaries - 1) for _ in range(trials.count - len(chosen))]
    trials.note(f"{one_save} boundaries in a save")
    for boundary in chosen:
        output = trials.folder / "run"
        training = server.run(data.argv(output), output, signals_at={boundary: [signal.SIGKILL]})
        with trials.trial(f"boundary {boundary}"):
            assert training.code == -signal.SIGKILL, f"not killed: {training.code} {training.said()[-500:]}"
            done = boundary // one_save * SAVE_EVERY
            assert newest_step(output) >= done - SAVE_EVERY, f"{newest_step(output)} is left of {done}"
            finish_and_compare(server, data, output, whole.digest)
        shutil.rmtree(output)


def signals_in_saves(trials: Trials) -> None:
    """Two or three of SIGTERM, SIGINT and SIGUSR1 in the middle of a save: it ends whole, the run with code 75."""
    kinds = [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]
    server, data, whole = reference()
    one_save = whole.boundaries // (STEPS // SAVE_EVERY)
    for _, output in trials.folders():
        first = trials.random.randrange(whole.boundaries - 2 * one_save)
        places = sorted({first, first + trials.random.randint(1, 30), first + trials.random.randint(1, one_save)})
        sent = {place: [trials.random.choice(kinds)] for place in places}
        training = server.run(data.argv(output), output, signals_at=sent)
        with trials.trial(f"signals {sent}"):
            must_end(training, 75)
            saving = (first // one_save + 1) * SAVE_EVERY
            assert newest_step(output) >= saving, f"step {saving} was being saved, {newest_step(output)} is left"
            assert not list(checkpoints(output).glob(".saving-*")), "a temporary directory was left"
            finish_and_compare(server, data, output, whole.digest)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A tmpfs of that size; needs root."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def can_mount(folder: Path) -> bool:
    try:
        with small_disk(folder / "probe", "64k"):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


DISK_FAULTS = ("full, unforeseen", "EIO", "read-only", "full")


def disks_that_fail(trials: Trials) -> None:
    """While a run goes on its disk fills up in the middle of a save, fails, or becomes read-only."""
    if not can_mount(trials.folder):
        return trials.cannot_run("permission to mount a tmpfs")
    server, data, whole = reference()
    needed = sum(path.stat().st_size for path in (checkpoints(whole.output) / str(STEPS)).iterdir())
    for number in range(trials.count):
        kind = DISK_FAULTS[number % len(DISK_FAULTS)]
        folder, size = trials.folder / f"disk{number}", 8 * needed + 4_000_000
        with small_disk(folder, str(size)) as disk, trials.trial(f"{kind} {number}"):
            output = disk / "run"
            must_end(server.run(data.argv(output, "--steps-this-run", "6"), output))
            options: dict = {"console": str(trials.folder / f"console{number}")}
            if kind == "read-only":
                subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
            elif kind == "EIO":
                options["fsync_fails_at"] = trials.random.randrange(4)
            else:  # room for a part of the next checkpoint
                _fill(disk / "filler", int(needed * trials.random.uniform(0, 0.95)))
                options["no_space_check"] = kind == "full, unforeseen"
            keep = ("--keep-checkpoints", "9") if kind == "full" else ()  # or surplus ones would make room
            training = server.run(data.argv(output, *keep), trials.folder, **options)
            assert training.code not in (0, None, 75), f"exit code {training.code}: {training.said()[-300:]}"
            assert newest_step(output) == 6, "the last good checkpoint was not kept"
            if kind == "read-only":
                subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)
            (disk / "filler").unlink(missing_ok=True)
            finish_and_compare(server, data, output, whole.digest)


def _fill(path: Path, leave: int) -> None:
    """Take the disk's room but for so many bytes."""
    free = shutil.disk_usage(path.parent).free
    with open(path, "wb") as file:
        file.write(b"\0" * max(free - leave, 0))


def two_runs(trials: Trials) -> None:
    """A second run is refused while the first one holds the folder, and not after that was killed."""
    server, data, whole = reference()
    for number, output in trials.folders():
        first = server.start(data.argv(output), output, stall=[trials.random.randint(0, 8), "python"])
        deadline = time.monotonic() + 60
        while "step" not in first.said() and not (output / "bert-test/phase1/.lock").exists():
            assert first.wait(0.05) is None and time.monotonic() < deadline, first.said()[-500:]
        second = server.start(data.argv(output), output, console=str(trials.folder / f"second{number}"))
        with trials.trial(number):
            assert second.wait(60) == 2, f"exit code {second.code}: {second.said()[-500:]}"
            assert "is in use by another run (process" in second.said()
        second.kill()
        first.kill()
        with trials.trial(f"{number} after a kill"):
            finish_and_compare(server, data, output, whole.digest)


def stalls(trials: Trials) -> None:
    """An update that hangs, in Python or outside of it: stacks are written, the process leaves, a restart continues."""
    server, data, whole = reference()
    for number, output in trials.folders():
        how, step, begin = ("python", "foreign")[number % 2], trials.random.randrange(STEPS), time.monotonic()
        watched = data.argv(output, "--watchdog-seconds", "3")
        training = server.start(watched, output, stall=[step, how])
        with trials.trial(f"step {step}, {how}"):
            assert training.wait(40) == 70, f"exit code {training.code}"
            assert time.monotonic() - begin < 35
            stacks = (output / "phase1" / "stacks" / "rank0.txt").read_text()
            assert "nothing moved for" in stacks and "in update" in stacks, stacks[-500:]
            assert newest_step(output) >= step // SAVE_EVERY * SAVE_EVERY - SAVE_EVERY
            finish_and_compare(server, data, output, whole.digest)
        training.kill()


def clocks_that_jump(trials: Trials) -> None:
    """Every look at the clock gives another day; the newest checkpoint is that of the highest step, by any clock."""
    server, data, whole = reference()
    for number, output in trials.folders():
        with trials.trial(number):
            must_end(server.run(data.argv(output, "--steps-this-run", "13"), output, clock=number))
            steps = sorted(int(path.name) for path in checkpoints(output).iterdir() if path.name.isdecimal())
            for age, step in enumerate(steps):  # the highest step is the oldest
                os.utime(checkpoints(output) / str(step), (1e9 - age * 1e6,) * 2)
            must_end(server.run(data.argv(output), output, clock=number + 1000))
            assert f"continuing {checkpoints(output) / '13'} at step 13" in (output / "console.txt").read_text()
            rows = [json.loads(row) for row in (output / "phase1/metrics.jsonl").read_text().splitlines()]
            for row in rows:
                for name in ("seqs_per_sec", "tokens_per_sec", "step_cost", "mfu"):
                    assert name not in row or (math.isfinite(row[name]) and row[name] > 0), (name, row)
            assert digest(data, output) == whole.digest


CHANGES = ("config.yaml edited", "vocabulary changed", "shard damaged in an epoch", "shard removed in an epoch")


def files_that_change(trials: Trials) -> None:
    """Files of the user or of the run change before a restart or while it runs: one sentence, or the same end."""
    server, original, whole = reference()
    for number, folder in trials.folders():
        kind = CHANGES[number % len(CHANGES)]
        shutil.copytree(original.folder / "shards", folder / "shards")
        shutil.copy(original.folder / "vocab.txt", folder)
        data, output = Data(folder), folder / "run"
        shard, vocabulary = sorted(folder.glob("shards/shard-*"))[trials.random.randrange(3)], folder / "vocab.txt"
        kept = {path: path.read_bytes() for path in (shard, vocabulary)}
        with trials.trial(f"{kind} {number}"):
            if "epoch" in kind:
                training = server.start(data.argv(output), output, stall=[trials.random.randrange(2, 12), "a while"])
                while "step 2/" not in training.said():
                    assert training.wait(0.05) is None, training.said()[-500:]
                damaged = bytearray(kept[shard])
                damaged[len(damaged) // 2] ^= 1
                shard.unlink() if "removed" in kind else shard.write_bytes(damaged)
                code = training.wait(120)
                assert code == 0 or (code == 2 and shard.name in training.said()), training.said()[-500:]
            else:
                must_end(server.run(data.argv(output, "--steps-this-run", "9"), output))
                tokens = vocabulary.read_text().splitlines()
                tokens[-1], tokens[-2] = tokens[-2], tokens[-1]
                changed = vocabulary if "vocabulary" in kind else output / "phase1/config.yaml"
                changed.write_text("\n".join(tokens) + "\n")
                training = server.run(data.argv(output), output)
                refused = training.code == 2 and "vocab" in training.said()
                assert refused if "vocabulary" in kind else training.code == 0, training.said()[-500:]
            assert "Traceback" not in training.said(), training.said()[-800:]
            for path, content in kept.items():
                path.write_bytes(content)
            finish_and_compare(server, data, output, whole.digest)


def logs_that_fail(trials: Trials) -> None:
    """Full log files, no VisualDL, a console that nobody reads: the run goes on to the same end."""
    server, data, whole = reference()
    for kind in trials.cases(["log files are full", "VisualDL is broken", "the pipe breaks", "all of these"]):
        output, options = trials.folder / kind.replace(" ", "-"), {}
        argv = data.argv(output)
        if kind in ("log files are full", "all of these"):
            (output / "phase1").mkdir(parents=True)
            for name in ("log.jsonl", "metrics.jsonl", ".progress.json.new"):
                (output / "phase1" / name).symlink_to("/dev/full")
            (output / "report.json").symlink_to("/dev/full")
        if kind in ("VisualDL is broken", "all of these"):
            argv, options = [word for word in argv if word != "--no-visualdl"], {"visualdl_raises": True}
        if kind in ("the pipe breaks", "all of these"):
            options["closed_pipe"] = True
        with trials.trial(kind):
            training = must_end(server.run(argv, output, **options))
            assert tensors(output) == tensors(whole.output)
            assert "warning:" in training.said(), "nobody was told"


def tensors(output: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((checkpoints(output) / str(STEPS)).glob("*.safetensors"))]


ROWS = [
    Row(
        39,
        "files that change: config.yaml, the vocabulary before a restart, shards damaged or removed in an epoch",
        "one sentence that names the file, or the same end",
        files_that_change,
        (4, 20),
        ("vocabularies of shards are not compared",),
    ),
    Row(
        1,
        "kill -9 at a random time in training",
        "the same command continues, exactly",
        killed_at_random,
        (4, 200),
        ("position in the data is not restored",),
    ),
    Row(
        2,
        "kill -9 at each boundary of a save",
        "the old or the new checkpoint is valid, exactly continued",
        killed_at_boundaries,
        (4, 318),
        ("written in place, read unverified",),
    ),
    Row(
        3,
        "SIGTERM, SIGINT, SIGUSR1, two or three of them, during a save",
        "saved, exit code 75, nothing lost",
        signals_in_saves,
        (4, 50),
        ("signals are not handled",),
    ),
    Row(
        7,
        "disk full (ENOSPC), failing (EIO) or read-only in a save",
        "last good checkpoint kept, exit code not 0",
        disks_that_fail,
        (4, 52),
        ("errors of the disk are ignored",),
    ),
    Row(
        8,
        "two runs, one output folder",
        "second refused; the lock of a killed run is free",
        two_runs,
        (2, 20),
        ("no lock",),
    ),
    Row(
        18,
        "an update that stalls",
        "stacks dumped, exit code 70 in time, exactly continued",
        stalls,
        (2, 10),
        ("no watchdog",),
    ),
    Row(
        19,
        "clock jumps",
        "no negative rate; the newest is that of the highest step",
        clocks_that_jump,
        (1, 6),
        ("the newest by the clock",),
    ),
    Row(
        30,
        "log disk full, VisualDL broken, stdout pipe broken",
        "training goes on to the same end",
        logs_that_fail,
        (2, 4),
        ("log sinks raise",),
    ),
]

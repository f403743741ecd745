"""kill -9 of any process of a run: no process outlives the one that started it, as /proc counts them.

One kill of each kind; BERT_FULL_FAULTS=1 makes 300 at random times.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bert import REPOSITORY
from tests.faults.trainings import make_data
from tests.support.full_counts import times
from tests.support.waiting import wait_until

ROUNDS = times(1, 50)
OTHERS_THAT_DIE = ("launcher of the ranks", "first rank", "second rank")
MARK = "PADDLE_TREE_OF_A_TEST"  # environment variable that all processes of a tree inherit, also Paddle's launcher
TRAINING = """
import sys
from pathlib import Path
from bert.commands.pretrain import parse_launch_arguments
from bert.launching.start_training import Runner
folder = Path(sys.argv[1])
folder.mkdir(parents=True)
launcher = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--log_dir", str(folder)]
sys.exit(Runner().train([*launcher, *sys.argv[2:]], parse_launch_arguments([]).phases[0], folder, None, {}))
"""
REFUSING = """
import os, sys
sys.path.insert(0, "REPOSITORY")
import run_pretraining
from bert.samples.loader import PretrainingLoader
real = PretrainingLoader.micro_batch
def micro_batch(self, index, step):
    if index == 3 and os.environ["PADDLE_TRAINER_ID"] == "1":
        raise ValueError("shard-7.parquet: sample 5 is damaged; copy it again")
    return real(self, index, step)
PretrainingLoader.micro_batch = micro_batch
sys.exit(run_pretraining.main())
"""
PROBE = """
from types import SimpleNamespace
from bert.commands.pretrain import parse_launch_arguments
from bert.config.run_file import dump_yaml
from bert.own_text.speed import _measure
settings = dump_yaml(parse_launch_arguments([]).phases[0])
_measure({f"model-{number}": settings for number in range(99)}, SimpleNamespace(device="cpu", ranks=2))  # minutes
"""
DATA = """
import time
from data.preprocessing.workers import run_ordered
list(run_ordered(time.sleep, [(600,)] * 4, 2))
"""

CALLER = """
import subprocess, sys, threading, time
from bert import api
called = "import time; from bert.parent_death import end_with_caller; end_with_caller(); time.sleep(600)"
api.sys.executable = sys.argv[1]  # which runs the code that follows the name of the module
thread = threading.Thread(target=api._start_command, args=("serve", [called], {}))
thread.start()
thread.join()
time.sleep(600)
"""


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def living(mark: str) -> dict[int, str]:
    """Map process id to command, for all processes of a tree that have not ended."""
    alive = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdecimal() and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                alive[int(folder.name)] = (folder / "cmdline").read_bytes().decode(errors="replace")
    return alive


@contextlib.contextmanager
def tree(folder: Path, *words: str) -> Iterator[subprocess.Popen]:
    environment = {**os.environ, MARK: str(folder), "PYTHONPATH": os.pathsep.join([*python_path(), str(REPOSITORY)])}
    with open(folder / "output", "wb") as output:
        process = subprocess.Popen([sys.executable, "-c", *words], env=environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        for pid in living(str(folder)):
            os.kill(pid, signal.SIGKILL)
        process.wait()


def python_path() -> list[str]:
    return list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))


def kill_and_count(process: subprocess.Popen, victim: int, folder: Path) -> None:
    os.kill(victim, signal.SIGKILL)
    if victim != process.pid:
        process.wait(90)
    wait_until(lambda: set(living(str(folder))) <= {process.pid}, 30)
    process.wait(10)


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", ["launcher", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in OTHERS_THAT_DIE)]
)
def test_no_rank_outlives_what_started_it(tmp_path, kind):
    data = make_data(tmp_path / "data")
    chance = random.Random(kind)
    for number in range(ROUNDS):
        folder = tmp_path / f"tree{number}"
        folder.mkdir()
        output = folder / "out"
        words = data.argv(output, "--watchdog-seconds", "30", steps=100_000)
        with tree(folder, TRAINING, str(folder / "log"), str(REPOSITORY / "run_pretraining.py"), *words) as process:
            if number % 2 == 0:
                wait_until((output / "phase1/metrics.jsonl").exists, 240)
            else:  # while they start
                wait_until(lambda process=process: [c for p in children(process.pid) for c in children(p)][1:], 120)
                process.poll() is None and wait_until(lambda: chance.random() < 0.02, 60)
            (launcher,) = children(process.pid)
            ranks = children(launcher)
            victims = {"launcher": process.pid, "launcher of the ranks": launcher}
            victim = victims.get(kind) or ranks[kind == "second rank"]
            # For a moment while it is started a process has no environment to be known by.
            wait_until(lambda folder=folder: len(living(str(folder))) >= 4, 30)
            kill_and_count(process, victim, folder)


@pytest.mark.nightly
@pytest.mark.long
def test_no_rank_that_measures_the_speed_outlives_its_launcher(tmp_path):
    chance = random.Random(31)
    for number in range(times(2, 100)):
        folder = tmp_path / f"tree{number}"
        folder.mkdir()
        with tree(folder, PROBE) as process:
            wait_until(
                lambda folder=folder: sum("speed_probe" in line for line in living(str(folder)).values()) == 3, 120
            )
            time.sleep(0.2 if number % 2 == 0 else chance.uniform(0, 8))  # while they import, or measure
            kill_and_count(process, process.pid, folder)


@pytest.mark.long
def test_a_value_error_on_one_rank_ends_all_with_its_text(tmp_path):
    (tmp_path / "refusing.py").write_text(REFUSING.replace("REPOSITORY", str(REPOSITORY)))
    words = make_data(tmp_path / "data").argv(tmp_path / "out", steps=100_000)
    with tree(tmp_path, TRAINING, str(tmp_path / "log"), str(tmp_path / "refusing.py"), *words) as process:
        assert process.wait(240) == 2
        assert not living(str(tmp_path))
    assert "error: shard-7.parquet: sample 5 is damaged; copy it again" in (tmp_path / "output").read_text()


@pytest.mark.parametrize("kind", ["command", "worker"])
def test_no_worker_of_the_data_outlives_its_command(tmp_path, kind):
    for number in range(ROUNDS):
        folder = tmp_path / str(number)
        folder.mkdir()
        with tree(folder, DATA) as process:
            wait_until(lambda process=process: len(children(process.pid)) == 2, 60)
            kill_and_count(process, process.pid if kind == "command" else children(process.pid)[0], folder)


def test_what_a_python_function_started_outlives_its_thread_and_ends_with_its_process(tmp_path):
    (tmp_path / "python").write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} -c "$@"\n')
    (tmp_path / "python").chmod(0o755)
    with tree(tmp_path, CALLER, str(tmp_path / "python")) as process:
        wait_until(lambda: children(process.pid), 60)
        (called,) = children(process.pid)
        wait_until(lambda: "Threads:\t2" in Path(f"/proc/{called}/status").read_text(), 60)
        assert Path(f"/proc/{process.pid}/status").read_text().count("Threads:\t1\n") == 1
        kill_and_count(process, process.pid, tmp_path)

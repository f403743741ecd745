"""Real ranks over Gloo: a run of two ranks resumes with one and four, and gives the same training.

The command is the user's, the global batch is fixed, dropout is off. Takes some minutes: slow.
"""

import contextlib
import json
import os
import random
import signal
from pathlib import Path

import pytest

from bert import REPOSITORY
from tests.faults.trainings import Data, checkpoints, loader, make_data
from tests.support import launching
from tests.support.waiting import wait_until

SCRIPT = REPOSITORY / "run_pretraining.py"

STEPS = 12
NO_DROPOUT = ("--hidden-dropout-prob", "0", "--attention-probs-dropout-prob", "0", "--epsilon", "1e-4")


def launch(data: Data, output: Path, ranks: int, *more: str) -> str:
    """Run `ranks` ranks of the tiny run, with 16 sequences an update among them; return what they printed."""
    words = data.argv(output, *more, *NO_DROPOUT, steps=STEPS)
    for name in ("--gradient-merge-steps", "--batch-size"):
        place = words.index(name)
        del words[place : place + 2]
    words += ["--batch-size", str(min(8, 16 // ranks)), "--global-batch-size", "16"]
    log_dir = output / f"log{ranks}"
    launching.launch(SCRIPT, *words, log_dir=log_dir, nproc=ranks, timeout=600)
    return "".join(path.read_text(errors="replace") for path in sorted(log_dir.glob("workerlog.*")))


def losses(output: Path) -> dict[int, float]:
    rows = [json.loads(line) for line in (output / "phase1/metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Make the uninterrupted run by one rank."""
    folder = tmp_path_factory.mktemp("elastic")
    data = make_data(folder)
    launch(data, folder / "whole", 1)
    return data, losses(folder / "whole")


@pytest.mark.nightly
@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 4])
def test_a_run_of_two_ranks_goes_on_with_one_and_with_four(whole, tmp_path, ranks):
    data, expected = whole
    stop = random.Random(ranks).randrange(3, STEPS - 2)
    launch(data, tmp_path, 2, "--steps-this-run", str(stop))
    assert sorted(losses(tmp_path)) == list(range(1, stop + 1))
    said = launch(data, tmp_path, ranks)
    assert f"at step {stop}" in " ".join(said.split())
    found = losses(tmp_path)
    assert sorted(found) == list(range(1, STEPS + 1))
    for step, loss in expected.items():
        assert found[step] == pytest.approx(loss, abs=1e-5), step
    assert (checkpoints(tmp_path) / str(STEPS)).is_dir()
    for step in range(STEPS):  # and the samples of an update, and their order, are the same whoever reads them
        alone, shared = loader(data.folder), loader(data.folder, ranks, ranks - 1, 0, 16, 4)
        assert alone.sample_ids(step).tobytes() == shared.sample_ids(step).tobytes()


@pytest.mark.nightly
@pytest.mark.long
def test_a_rank_that_stalls_ends_all_with_the_stacks_of_each(tmp_path):
    """Rank 1 is stopped (SIGSTOP) in the middle of a run: rank 0 waits for it, describes itself and leaves."""
    data = make_data(tmp_path / "data")
    output = tmp_path / "out"
    words = [*data.argv(output, "--watchdog-seconds", "5", *NO_DROPOUT, steps=100000), "--log-freq", "1"]
    process = launching.start(SCRIPT, *words, log_dir=output / "log", nproc=2, options=())
    workers: list[int] = []
    try:
        wait_until((output / "phase1/metrics.jsonl").exists, 120)
        workers = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        environments = {pid: Path(f"/proc/{pid}/environ").read_bytes() for pid in workers}
        by_rank = {text.split(b"PADDLE_TRAINER_ID=")[1][:1]: pid for pid, text in environments.items()}
        os.kill(by_rank[b"1"], signal.SIGSTOP)
        stacks = output / "phase1/stacks"
        wait_until(lambda: (stacks / "rank0.txt").exists() and "nothing moved" in (stacks / "rank0.txt").read_text())
        os.kill(by_rank[b"1"], signal.SIGCONT)  # it sees what rank 0 left for it
        wait_until(lambda: "rank 1:" in (stacks / "rank1.txt").read_text())
        assert process.wait(120) != 0
    finally:
        for pid in [*workers, process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    assert "_update" in (stacks / "rank0.txt").read_text()

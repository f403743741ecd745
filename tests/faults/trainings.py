"""Real trainings of a tiny model in processes that can be killed, started by the hundred.

A server process imports Paddle and builds the program once; each training is a fork of it that goes through
`run_pretraining.main` like any other.
"""

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from bert import REPOSITORY
from bert.tokenization.vocabulary_files import read_vocabulary
from tests.faults import file_system
from tests.support.corpora import random_table, write_shards, write_vocabulary

STEPS, SAVE_EVERY, KEEP = 24, 3, 2
MODEL = (
    "--bert-model bert-test --vocab-size 106 --hidden-size 32 --num-hidden-layers 1 --num-attention-heads 4 "
    "--intermediate-size 37 --max-position-embeddings 32"
).split()
SETTINGS = (
    "--max-seq-length 32 --max-predictions-per-seq 4 --batch-size 8 --gradient-merge-steps 2 --amp --scale-loss 1024 "
    f"--loss-scale-growth-interval 7 --learning-rate 1e-2 --log-freq 1 --num-steps-per-checkpoint {SAVE_EVERY} "
    f"--keep-checkpoints {KEEP} --device cpu --no-visualdl --peak-tflops 1 --num-workers 1 "
    "--last-step-of-checkpoint auto"
).split()


@dataclass(frozen=True)
class Data:
    """Names the shards and the vocabulary of the trainings."""

    folder: Path

    def argv(self, output: Path, *more: str, steps: int = STEPS) -> list[str]:
        """Return the command that starts a training or continues it, with dropout, accumulation and loss scaling."""
        files = {
            "--input-dir": self.folder / "shards",
            "--vocab-file": self.folder / "vocab.txt",
            "--output-dir": output,
            "--report-file": output / "report.json",
            "--from-checkpoint": output,
            "--max-steps": steps,
        }
        return ["--phase1", *MODEL, *SETTINGS, *(str(word) for pair in files.items() for word in pair), *more]


def make_data(folder: Path) -> Data:
    """Make three shards of 300 samples in all: the run passes through more than one epoch."""
    folder.mkdir(parents=True, exist_ok=True)
    write_vocabulary(folder / "vocab.txt")
    write_shards(folder / "shards", [random_table(100, seed, masked=True) for seed in range(3)])
    return Data(folder)


def checkpoints(output: Path) -> Path:
    return output / "bert-test" / "phase1"


def newest_step(output: Path) -> int:
    """Return the step of the newest checkpoint that verifies; 0 without any."""
    from bert.checkpoints.directories import newest_valid

    newest = newest_valid(checkpoints(output))
    return int(newest.directory.name) if newest else 0


def digest(data: Data, output: Path) -> str:
    """Return the sha256 of parameters, optimizer state, counters, loss scale, learning rate and the next 20 batches'
    ids.

    Raises:
        AssertionError: there is no checkpoint.
    """
    newest = checkpoints(output) / str(newest_step(output))
    progress = json.loads(next(newest.glob("*_progress.json")).read_text())
    progress.pop("settings")
    progress["carried"].pop("totals")  # how long it took
    rows = whole_rows(output / "phase1" / "metrics.jsonl")
    rates = {row["learning_rate"] for row in rows if row["step"] == progress["step"] and "learning_rate" in row}
    assert len(rates) == 1, f"learning rates of step {progress['step']}: {rates}"
    found = hashlib.sha256(json.dumps([progress, sorted(rates)], sort_keys=True).encode())
    for name in sorted(path.name for path in newest.glob("*.safetensors")):
        found.update((newest / name).read_bytes())
    for step in range(progress["step"], progress["step"] + 20):
        found.update(loader(data.folder).sample_ids(step).tobytes())
    return found.hexdigest()


def tensors(output: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted((checkpoints(output) / str(STEPS)).glob("*.safetensors"))]


def whole_rows(metrics_file: Path) -> list[dict]:
    """Return the whole rows of a log whose disk may have been full; a row that was cut off does not count."""
    rows = []
    for line in metrics_file.read_text().splitlines():
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return rows


@lru_cache(maxsize=4)
def loader(folder: Path, world_size: int = 1, rank: int = 0, workers: int = 0, size: int = 16, part: int = 8) -> Any:
    """Return a loader of `size` samples an update, `part` of them in a micro-batch."""
    from bert.samples.dataset import PretrainingDataset
    from bert.samples.loader import PretrainingLoader
    from bert.samples.settings import LoaderSettings

    settings = LoaderSettings(max_seq_length=32, max_predictions_per_seq=4, num_workers=workers)
    dataset = PretrainingDataset(folder / "shards", read_vocabulary(folder / "vocab.txt"), settings, seed=42)
    sizes = {"global_batch_size": size, "micro_batch_size": part}
    return PretrainingLoader(dataset, **sizes, rank=rank, world_size=world_size)


class Server:
    """Starts trainings; `close` ends it and kills the trainings that are left."""

    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PADDLE_", "FLAGS_"))}
        if (library := file_system.library()) is not None:
            environment["LD_PRELOAD"] = str(library)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.forking"], cwd=REPOSITORY, env=environment, text=True, **pipes
        )
        self.running: set[int] = set()

    def ask(self, **request: Any) -> Any:
        assert self._process.stdin and self._process.stdout
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        assert answer, "the server of trainings has died"
        return json.loads(answer)

    def start(self, argv: Sequence[str], output: Path, **options: Any) -> "Training":
        """`options`: see `forking.train`; the training's output goes to `output`/console.txt (appended)."""
        output.mkdir(parents=True, exist_ok=True)
        options = {"console": str(output / "console.txt"), **options}
        pid = self.ask(do="start", argv=list(argv), options=options)
        self.running.add(pid)
        return Training(self, pid, Path(options["console"]))

    def run(self, argv: Sequence[str], output: Path, *, timeout: float = 120, **options: Any) -> "Training":
        """Run a training to its end; AssertionError if it does not end."""
        training = self.start(argv, output, **options)
        code = training.wait(timeout)
        if code is None:
            training.kill()
            raise AssertionError(f"still running after {timeout} s: {training.said()[-1000:]}")
        return training

    def close(self) -> None:
        for pid in self.running:
            os.kill(pid, signal.SIGKILL)
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


class Training:
    """A training in progress."""

    def __init__(self, server: Server, pid: int, console: Path):
        self.pid, self.code = pid, None  # type: int, int | None
        self._server, self._console = server, console

    def wait(self, timeout: float) -> int | None:
        """Return the exit code, negative for a signal; None if the training still runs after this many seconds."""
        if self.code is None:
            self.code = self._server.ask(do="wait", pid=self.pid, timeout=timeout)
            if self.code is not None:
                self._server.running.discard(self.pid)
        return self.code

    def signal(self, number: int) -> None:
        if self.code is None:
            os.kill(self.pid, number)  # not yet waited for, so the number is still its own

    def kill(self) -> int | None:
        self.signal(signal.SIGKILL)
        return self.wait(60)

    def said(self) -> str:
        return self._console.read_text(errors="replace") if self._console.exists() else ""


def must_end(training: Training, code: int = 0) -> Training:
    assert training.code == code, f"exit code {training.code} instead of {code}: {training.said()[-800:]}"
    return training


@dataclass(frozen=True)
class Reference:
    """Holds the uninterrupted run, with which all others are compared, and the server that starts them."""

    server: Server
    data: Data
    output: Path
    digest: str
    seconds: float
    boundaries: int  # in all its saves

    def one_save(self) -> int:
        """Return the number of boundaries in a save."""
        return self.boundaries // (STEPS // SAVE_EVERY)

    def start(self, output: Path, *more: str, **options: Any) -> Training:
        return self.server.start(self.data.argv(output, *more), output, **options)

    def run(self, output: Path, *more: str, **options: Any) -> Training:
        """Run the command of the uninterrupted run to its end, below another folder."""
        return self.server.run(self.data.argv(output, *more), output, **options)

    def continue_and_compare(self, output: Path) -> None:
        """Run the same command again, undisturbed: it continues and ends in the bytes of the uninterrupted run."""
        must_end(self.run(output))
        assert newest_step(output) == STEPS
        assert digest(self.data, output) == self.digest, "the resumed run is not the uninterrupted one"


@contextmanager
def uninterrupted_run(folder: Path) -> Iterator[Reference]:
    """Start a server that is warm for the command of `Data.argv`, and run the command."""
    data, server = make_data(folder / "data"), Server()
    try:
        whole, counted = folder / "whole", folder / "boundaries"
        server.ask(do="warm", command="run_pretraining", argv=data.argv(folder / "never"))
        begin = time.monotonic()
        must_end(server.run(data.argv(whole), whole, boundaries_file=str(counted)))
        seconds, boundaries = time.monotonic() - begin, json.loads(counted.read_text())["save"]
        yield Reference(server, data, whole, digest(data, whole), seconds, boundaries)
    finally:
        server.close()

"""Runs trainings for the checks, in processes of their own."""

import contextlib
import dataclasses
import io
import json
import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import pytest

from bert.config.run_file import RUN_FLAG, run_file_content
from bert.config.training_settings import derive
from bert.jobs.making import Products
from bert.launching.ranks import Ranks, ranks_command
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.preparation import quickstart_steps
from bert.pretraining.recipes import RECIPES
from tests.gpu.selftest.bench import Bench, tail
from tests.gpu.selftest.machine import Machine

SCRIPT = Path(__file__).with_name("measured_training.py")
NUM_STEPS = 20
HELD_OUT = "eval_masked_lm_loss"
TIMEOUT_SECONDS = 600.0
PLAIN = dict(fuse_linear="off", fuse_dropout_add="off", fuse_attention="off")


@dataclasses.dataclass(frozen=True)
class Training:
    """A finished training in its folder."""

    folder: Path
    log_dir: Path

    @cached_property
    def rows(self) -> list[dict]:
        return [json.loads(line) for line in (self.log_dir / "metrics.jsonl").read_text().splitlines()]

    @cached_property
    def summary(self) -> dict:
        return json.loads((self.log_dir / "summary.json").read_text())

    def of_updates(self, name: str) -> list[float]:
        """Return a metric of each update, in order; after a resumption the later row counts."""
        found = {row["step"]: row[name] for row in self.rows if name in row}
        return [found[step] for step in sorted(found)]

    def held_out(self, step: int) -> float:
        """Return the masked-LM loss in nats."""
        return next(row[HELD_OUT] for row in self.rows if row["step"] == step and HELD_OUT in row)

    def messages(self) -> str:
        """Return what the ranks printed in all legs."""
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("log*/workerlog.0")))

    def peak_bytes(self) -> dict[str, int]:
        """Return the largest peak of the ranks."""
        ranks = [json.loads(path.read_text()) for path in self.folder.glob("peak_memory.*.json")]
        return {kind: max(rank[kind] for rank in ranks) for kind in ranks[0]}


def quickstart(bench: Bench, name: str, **changes) -> PretrainingConfig:
    """Return the first updates of the quickstart, with plain operators."""
    data = bench.folder / "data"
    settings = dict(
        input_dir=data / "phase1/train",
        eval_dir=data / "phase1/held_out",
        vocab_file=data / "vocab.txt",
        output_dir=run_folder(bench, name),
        report_file=run_folder(bench, name) / "report.json",
        max_steps=NUM_STEPS,
        log_freq=1,
        eval_freq=0,
        eval_samples=256,
        num_steps_per_checkpoint=1000,
        device=bench.machine.device,
        visualdl=False,
        peak_tflops=1.0,
        watchdog_seconds=300.0,
    )
    return derive(RECIPES["quickstart_phase1"](), **{**settings, **PLAIN, **changes})


def run_folder(bench: Bench, name: str) -> Path:
    return bench.folder / "runs" / name


def make_data(bench: Bench) -> None:
    """Make the quickstart's text, vocabulary and shards of phase 1; existing files are kept."""

    def run(command: Sequence[str]) -> int:
        bench.run(command, TIMEOUT_SECONDS)
        return 0

    with contextlib.redirect_stdout(io.StringIO()):  # its titles; the screen shows a line for each check
        for step in quickstart_steps(quickstart(bench, "data")):
            assert Products(step.folder).make(step.title, step.command, step.product, run) == 0


def train(
    bench: Bench, name: str, *legs: PretrainingConfig, num_ranks: int = 1, timeout_seconds: float = TIMEOUT_SECONDS
) -> Training:
    """Run the settings one after the other, in processes of their own."""
    folder = run_folder(bench, name)
    shutil.rmtree(folder, ignore_errors=True)
    for number, leg in enumerate(legs):
        log_dir, settings = folder / f"log{number}", folder / f"run{number}.json"
        log_dir.mkdir(parents=True)
        settings.write_bytes(run_file_content(leg))
        launch(bench, [SCRIPT, RUN_FLAG, settings], log_dir, f"training {name}", num_ranks, timeout_seconds)
    return Training(folder, legs[-1].log_dir())


def launch(
    bench: Bench, program: Sequence[str | Path], log_dir: Path, title: str, num_ranks: int, timeout_seconds: float
) -> None:
    """Run a script and its arguments on ranks of this machine; if they fail, print the end of their output."""
    ranks, device = Ranks(num_processes=num_ranks), bench.machine.device
    command = ranks_command(ranks, ranks.devices(device), log_dir, program)
    try:
        bench.run(command, timeout_seconds, **ranks.environment(device))
    except AssertionError as error:
        logs = sorted(log_dir.glob("workerlog.*"))
        said = "\n".join(f"{log.name}:\n{tail(log.read_text(errors='replace'))}" for log in logs)
        print(said)
        errors = [line for line in said.splitlines() if line.startswith("error: ")]
        raise AssertionError(f"{title}: {errors[0] if errors else error}") from None


def needs_two_ranks(machine: Machine) -> None:
    if machine.num_ranks < 2:
        pytest.skip("there is one GPU")

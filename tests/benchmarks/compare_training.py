"""Our training, PaddleNLP's and Hugging Face's on the same CPU, models, batches and optimizer; tables and JSON.

    bash scripts/benchmark_training.sh [--cases bert-mini squad] [--threads 1 2] [--profile]

Pretraining reads real batches with their real padding, from shards of the documentation on this machine. Every
competitor is a process that starts from the same weights. They take turns in short rounds, and the medians of the
rounds are compared, because other work on a machine slows all of them down alike.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from bert import REPOSITORY
from bert.files import write_atomically
from bert.help_parser import HelpParser
from bert.planning.estimates import training_flops_per_sequence
from tests.benchmarks.processes import Competitor, markdown
from tests.benchmarks.training_tasks import (
    CASES,
    MAX_MEGABYTES,
    Case,
    finetuning_batches,
    make_shards,
    pretraining_batches,
    write_task,
)

_LOSSES_AGREE = {"float32": 2e-3, "bfloat16": 1e-2}  # relative; PaddleNLP's LayerNorm has another epsilon


@dataclass(frozen=True)
class Variant:
    name: str
    module: str
    arguments: tuple[str, ...] = ()
    precision: str = "float32"
    needs_torch: bool = False
    finetunes: bool = True


OURS = {
    "float32": Variant("this project", "train_static"),
    "bfloat16": Variant("this project, bfloat16", "train_static", ("--bfloat16",), "bfloat16"),
}
_TORCH = {"module": "train_transformers", "needs_torch": True}
COMPETITORS = (
    OURS["float32"],
    Variant("this project, padded", "train_static", ("--padded",)),
    Variant("PaddleNLP, dygraph", "train_paddlenlp", finetunes=False),
    Variant("transformers on PyTorch", arguments=("--all-positions",), finetunes=False, **_TORCH),
    Variant("transformers, masked positions", **_TORCH),
    Variant("transformers, compiled", arguments=("--compile",), **_TORCH),
    OURS["bfloat16"],
    Variant("transformers, autocast", arguments=("--bfloat16",), precision="bfloat16", **_TORCH),
)
DEFAULT = (0, 4, 6, 7)


class Worker(Competitor):
    """The process of a variant, trained in rounds; see measuring.py."""

    def __init__(self, variant: Variant, python: Path, folder: Path, *more: str) -> None:
        words = (folder, *variant.arguments, *more)
        super().__init__(variant.module, python, words, folder / f"{variant.name}.log")
        self.variant, self.rounds = variant, list[dict[str, float]]()

    def train(self, updates: int) -> None:
        self.rounds.append(self.order(updates=updates))

    def finish(self) -> dict[str, Any]:
        """The figures of the variant: medians of its rounds, for one update."""
        self.end_orders()
        result = self.hello | self.answer()
        names = [name for name in self.rounds[0] if name != "updates"]
        medians = {name: median(each[name] / each["updates"] for each in self.rounds) for name in names}
        return {**medians, **result, "precision": self.variant.precision}


def figures(results: dict[str, dict], flops_per_update: float, wall_time: bool) -> list[dict]:
    """Rows of the table. MFU is against the fastest float32 matrix product that any of the libraries showed."""
    peak = max(result["peak_tflops"] for result in results.values())
    clock = "seconds" if wall_time else "cpu_seconds"
    rows = []
    for name, result in results.items():
        ours = results.get(OURS[result["precision"]].name)
        row = {"name": name, **result, "over_ours": result[clock] / ours[clock] if ours else float("nan")}
        row["tokens_per_second"] = result["tokens"] / result["seconds"]
        row["mfu"] = flops_per_update / result["seconds"] / (peak * 1e12)
        rows.append(row)
    return rows


def flops_of(case: Case, batches: list[dict[str, np.ndarray]]) -> float:
    """Of one update, on average, with the padding of the batches."""
    found = []
    for batch in batches:
        rows, length = batch["input_ids"].shape
        masked = round(float(batch["masked_lm_weights"].sum()) / rows) if "masked_lm_weights" in batch else 0
        found.append(rows * training_flops_per_sequence(case.model, length, masked))
    return float(np.mean(found))


def check_same_model(results: dict[str, dict]) -> None:
    """Raises RuntimeError unless all losses on the first batch agree, before training, and all fell."""
    reference = next(iter(results.values()))["loss_before"]
    for name, result in results.items():
        if abs(result["loss_before"] - reference) > _LOSSES_AGREE[result["precision"]] * reference:
            before = {other: result["loss_before"] for other, result in results.items()}
            raise RuntimeError(f"the competitors do not train the same model: losses before training are {before}")
        if not result["loss_after"] < result["loss_before"]:
            raise RuntimeError(f"{name} does not learn: {result['loss_before']} -> {result['loss_after']}")


def table(rows: list[dict], wall_time: bool) -> str:
    """CPU seconds compare where other work shares the machine; wall time, tokens/s and MFU only where none does."""
    head = ("", f"{'elapsed' if wall_time else 'CPU'} time, of ours", "CPU s an update", "system", "elapsed s")
    head += ("tokens/s", "MFU", "peak memory", "loss before, after")
    lines = [
        (
            row["name"],
            f"{row['over_ours']:.2f}",
            f"{row['cpu_seconds']:.3f}",
            f"{row['system_seconds'] / max(row['cpu_seconds'], 1e-9):.0%}",
            f"{row['seconds']:.3f}",
            f"{row['tokens_per_second']:,.0f}",
            f"{row['mfu']:.0%}",
            f"{row['peak_memory'] / 1e9:.2f} GB",
            f"{row['loss_before']:.4f}, {row['loss_after']:.4f}",
        )
        for row in rows
    ]
    return markdown(head, lines)


def compare(task: Path, variants: list[tuple[Variant, Path]], rounds: int, updates: int) -> dict[str, dict]:
    """The figures of each competitor that runs; one that fails is reported and left out, unless it is ours."""
    with contextlib.ExitStack() as stack:
        workers = []
        for variant, python in variants:
            print(f"starting {variant.name}", file=sys.stderr)
            try:
                workers.append(Worker(variant, python, task))
            except RuntimeError as error:
                if variant in OURS.values():
                    raise
                print(error, file=sys.stderr)
            else:
                stack.callback(workers[-1].kill)
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            for worker in workers:
                worker.train(updates)
        return {worker.variant.name: worker.finish() for worker in workers}


def arguments_of(argv: list[str] | None) -> argparse.Namespace:
    parser = HelpParser(description=__doc__)
    names = [competitor.name for competitor in COMPETITORS]
    parser.add_argument("--cases", nargs="+", choices=CASES, default=[name for name in CASES if name != "bert-tiny"])
    parser.add_argument("--threads", nargs="+", type=int, help="of each competitor; default: 1, all for fine-tuning")
    parser.add_argument("--rounds", type=int, default=3, help="of each competitor; the medians are compared")
    parser.add_argument("--updates", type=int, default=6, help="of a round")
    parser.add_argument("--warmup-steps", type=int, default=2)
    default = [names[place] for place in DEFAULT]
    parser.add_argument("--competitors", nargs="+", choices=names, metavar="NAME", help=f"of {names}", default=default)
    parser.add_argument("--all", action="store_const", dest="competitors", const=names, help="all competitors")
    parser.add_argument("--megabytes", type=int, default=MAX_MEGABYTES, help="of text, at most (default: %(default)s)")
    parser.add_argument("--no-dropout", action="store_true", help="as the quickstart's recipe has it")
    parser.add_argument("--profile", action="store_true", help="the operators of our program instead of a comparison")
    parser.add_argument("--torch-python", type=Path, help="interpreter with torch and transformers; none: leave out")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / ".benchmark/training", help="corpus, shards, tasks")
    parser.add_argument("--output", type=Path, help="JSON file (default: results.json in --folder)")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> None:
    arguments = arguments_of(argv)
    folder, cores = arguments.folder.resolve(), len(os.sched_getaffinity(0))
    if arguments.torch_python is None:
        print("transformers: left out, no --torch-python", file=sys.stderr)
    results = []
    for name in arguments.cases:
        case = CASES[name]
        for threads in arguments.threads or [cores if case.wall_time else 1]:
            results.append(run_case(name, case, threads, folder, arguments))
            settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(arguments).items()}
            content = json.dumps({"settings": settings, "cases": results}, indent=1) + "\n"
            write_atomically(arguments.output or folder / "results.json", content.encode())


def run_case(name: str, case: Case, threads: int, folder: Path, arguments: argparse.Namespace) -> dict:
    """Measure, print the table and return the rows."""
    pretrains, task = case.objective == "pretraining", folder / f"task-{name}"
    made = (
        pretraining_batches(case, make_shards(folder, case.length, megabytes=arguments.megabytes))
        if pretrains
        else finetuning_batches(case)
    )
    settings = {"warmup_steps": arguments.warmup_steps, "threads": threads, "dropout": not arguments.no_dropout}
    batches = write_task(task, case, made, **settings)
    Worker(OURS["float32"], Path(sys.executable), task, "--weights").kill()
    padding = 1 - sum(int(b["attention_mask"].sum()) for b in batches) / sum(b["attention_mask"].size for b in batches)
    print(f"\n{name}, {case.batch_size} x {case.length} tokens, {padding:.0%} padding, AdamW, {threads} threads each\n")
    if arguments.profile:
        words = [sys.executable, "-m", "tests.benchmarks.train_static", str(task), "--profile"]
        subprocess.run(words, cwd=REPOSITORY, check=True)
        return {"case": name, "threads": threads}
    python = {True: arguments.torch_python, False: Path(sys.executable)}
    chosen = [each for each in COMPETITORS if each.name in arguments.competitors and (pretrains or each.finetunes)]
    competitors = [(each, python[each.needs_torch]) for each in chosen if python[each.needs_torch]]
    results = compare(task, competitors, arguments.rounds, arguments.updates)
    rows = figures(results, flops_of(case, batches), case.wall_time)
    print(table(rows, case.wall_time), flush=True)
    check_same_model(results)
    return {"case": name, "threads": threads, "padding": padding, "rows": rows}


if __name__ == "__main__":
    main()

"""Compares versions of Paddle on this CPU: our program, the same weights and batches, in turn.

    python -m tests.benchmarks.paddle_versions 2.6=.venv/bin/python 3.1=.venv-paddle3.1/bin/python [--cases bert-mini]

The first interpreter also makes the corpus, the shards and the initial weights.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from bert import REPOSITORY
from tests.benchmarks.compare_training import OURS, Variant, Worker, check_same_model, compare
from tests.benchmarks.processes import markdown
from tests.benchmarks.training_tasks import CASES, make_shards, pretraining_batches, write_task


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", metavar="VERSION=PYTHON", type=version_and_python)
    parser.add_argument("--cases", nargs="+", default=["bert-mini"], choices=[n for n in CASES if n.startswith("bert")])
    parser.add_argument("--rounds", type=int, default=3, help="of each version; the medians are compared")
    parser.add_argument("--updates", type=int, default=6, help="of a round")
    parser.add_argument("--no-dropout", action="store_true", help="as the quickstart's recipe has it")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / ".benchmark/training", help="corpus, shards, tasks")
    arguments = parser.parse_args(argv)
    for name in arguments.cases:
        case, task = CASES[name], arguments.folder.resolve() / f"versions-{name}"
        batches = pretraining_batches(case, make_shards(arguments.folder.resolve(), case.length))
        write_task(task, case, batches, warmup_steps=2, threads=1, dropout=not arguments.no_dropout)
        Worker(OURS["float32"], arguments.pythons[0][1], task, "--weights").kill()
        competitors = [(Variant(f"Paddle {version}", "train_static"), python) for version, python in arguments.pythons]
        results = compare(task, competitors, arguments.rounds, arguments.updates)
        check_same_model(results)
        print(f"\n{name}, {case.batch_size} x {case.length} tokens, one thread\n")
        rows = []
        for version, found in results.items():
            losses = f"{found['loss_before']:.5f} / {found['loss_after']:.5f}"
            rows.append((version, f"{found['cpu_seconds']:.3f}", losses, f"{found['peak_memory'] / 1e9:.2f} GB"))
        print(markdown(("", "CPU s per update", "loss before / after", "peak memory"), rows), flush=True)


def version_and_python(text: str) -> tuple[str, Path]:
    version, _, python = text.partition("=")
    if not os.access(python, os.X_OK):
        raise argparse.ArgumentTypeError(f"{text} must be VERSION=PYTHON, and {python or 'PYTHON'} an interpreter")
    return version, Path(os.path.abspath(python))


if __name__ == "__main__":
    main()

"""Our training, PaddleNLP's and Hugging Face's on the same CPU, model, batches and optimizer; a table and JSON.

    bash scripts/benchmark_training.sh [--model bert-base-uncased --batch-size 8]

Real batches with their real padding come from shards of the documentation on this machine. Each competitor is a process
of its own that starts from the same weights; that their losses on the first batch agree shows that the models do.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bert import REPOSITORY
from bert.config.architecture import BUILT_IN_MODELS, BertConfig
from bert.files import write_atomically
from bert.planning.estimates import training_flops_per_sequence
from bert.samples.loader import PretrainingDataset, PretrainingLoader
from bert.samples.settings import LoaderSettings
from bert.tokenization.vocabulary import Vocabulary

VOCABULARY_SIZE = 30_000
MAX_MEGABYTES = 8
_LOSSES_AGREE = 2e-3  # PaddleNLP's LayerNorm has another epsilon


@dataclass(frozen=True)
class Competitor:
    name: str
    module: str
    arguments: tuple[str, ...] = ()
    needs_torch: bool = False


OURS = Competitor("this project, static", "train_static")
COMPETITORS = (
    OURS,
    Competitor("PaddleNLP, dygraph", "train_paddlenlp"),
    Competitor("transformers on PyTorch", "train_transformers", ("all-positions",), True),
    Competitor("the same, masked positions only", "train_transformers", ("masked-positions",), True),
)


def make_shards(folder: Path, sequence_length: int) -> Path:
    """Text of this machine -> vocabulary -> shards below `folder`, each made once; returns the shards' folder."""
    corpus, vocabulary, shards = folder / "corpus", folder / "vocab.txt", folder / f"shards-{sequence_length}"
    commands = (
        (
            corpus / "report.json",
            "data.examples.sample_corpus",
            ["--output-dir", corpus, "--max-megabytes", MAX_MEGABYTES],
        ),
        (
            vocabulary,
            "data.train_vocabulary",
            ["--input", corpus / "train/source", "--vocab-size", VOCABULARY_SIZE, "--output", vocabulary],
        ),
        (
            shards / "manifest.json",
            "data.preprocess_bert_pretrain",
            [
                "--text",
                corpus / "train/source",
                "--sink",
                shards,
                "--vocab-file",
                vocabulary,
                "--target-seq-length",
                sequence_length,
                "--num-shards",
                1,
                "--masking",
                "static",
                "--max-predictions-per-seq",
                predictions_of(sequence_length),
            ],
        ),
    )
    for product, module, arguments in commands:
        if not product.exists():
            subprocess.run(
                [sys.executable, "-m", module, *map(str, arguments)],
                cwd=REPOSITORY,
                check=True,
                stdout=subprocess.DEVNULL,
            )
    return shards


def predictions_of(sequence_length: int) -> int:
    return max(1, round(sequence_length * 20 / 128))


def write_task(
    folder: Path,
    shards: Path,
    model: BertConfig,
    *,
    batch_size: int,
    sequence_length: int,
    steps: int,
    warmup_steps: int,
    threads: int,
) -> list[dict[str, np.ndarray]]:
    """The task of measuring.py, without the weights; returns its batches."""
    settings = LoaderSettings(
        max_seq_length=sequence_length, max_predictions_per_seq=predictions_of(sequence_length), num_workers=0
    )
    vocabulary = Vocabulary.from_file(shards.parent / "vocab.txt")
    loader = PretrainingLoader(
        PretrainingDataset(shards, vocabulary, settings, seed=42),
        global_batch_size=batch_size,
        micro_batch_size=batch_size,
    )
    batches = list(_feeds(loader, min(steps + warmup_steps, loader.batches_per_epoch)))
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(
        folder / "batches.npz",
        **{f"{number}/{name}": value for number, batch in enumerate(batches) for name, value in batch.items()},
    )
    task = {
        "model": {**model.model_dump(), "vocab_size": model.padded_vocab_size()},
        "learning_rate": 1e-4,
        "weight_decay": 0.01,
        "epsilon": 1e-6,
        "max_grad_norm": 1.0,
        "warmup_steps": warmup_steps,
        "steps": steps,
        "threads": threads,
    }
    (folder / "task.json").write_text(json.dumps(task, indent=1))
    return batches


def _feeds(loader: PretrainingLoader, count: int) -> Iterator[dict[str, np.ndarray]]:
    batches = loader.batches()
    for _ in range(count):
        (batch,) = next(batches).micro_batches
        yield batch.feed
    batches.close()


def run(competitor: Competitor, python: Path, folder: Path, *more: str) -> dict:
    """The result of one competitor.

    Raises:
        RuntimeError: with the end of what it said, if it failed.
    """
    command = [str(python), "-m", f"tests.benchmarks.{competitor.module}", str(folder), *competitor.arguments, *more]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise RuntimeError(f"{competitor.name} failed with exit code {done.returncode}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def figures(results: dict[str, dict], batches: list[dict[str, np.ndarray]], model: BertConfig) -> list[dict]:
    """Rows of the table. MFU is against the fastest matrix product that any of the libraries showed."""
    peak = max(result["peak_tflops"] for result in results.values())
    flops = np.mean(
        [
            training_flops_per_sequence(
                model,
                batch["input_ids"].shape[1],
                round(float(batch["masked_lm_weights"].sum()) / len(batch["input_ids"])),
            )
            for batch in batches
        ]
    )
    ours = results[OURS.name]["seconds"]
    return [
        {
            "name": name,
            "updates": result["updates"],
            "cpu_seconds": result["cpu_seconds"],
            "seconds": result["seconds"],
            "sequences_per_second": result["sequences"] / result["seconds"],
            "tokens_per_second": result["tokens"] / result["seconds"],
            "padded_tokens_per_second": result["padded_tokens"] / result["seconds"],
            "mfu": float(flops) * result["sequences"] / result["seconds"] / (peak * 1e12),
            "peak_memory": result["peak_memory"],
            "time_over_ours": result["seconds"] / ours,
            "cpu_over_ours": result["cpu_seconds"] / results[OURS.name]["cpu_seconds"],
            "peak_tflops": result["peak_tflops"],
            "loss_before": result["loss_before"],
            "loss_after": result["loss_after"],
        }
        for name, result in results.items()
    ]


def check_same_model(results: dict[str, dict]) -> None:
    """Raises RuntimeError unless all losses on the first batch agree and all fell."""
    before = [result["loss_before"] for result in results.values()]
    if max(before) - min(before) > _LOSSES_AGREE * min(before):
        raise RuntimeError(f"the competitors do not train the same model: losses before training are {before}")
    for name, result in results.items():
        if not result["loss_after"] < result["loss_before"]:
            raise RuntimeError(f"{name} does not learn: {result['loss_before']} -> {result['loss_after']}")


def table(rows: list[dict]) -> str:
    """CPU seconds compare where other work shares the machine; wall time, tokens/s and MFU only where none does."""
    head = (
        "",
        "CPU time, of ours",
        "CPU s an update",
        "wall time, of ours",
        "tokens/s (with padding)",
        "MFU",
        "peak memory",
        "matrix product",
    )
    lines = [head, ("---",) * len(head)]
    for row in rows:
        tokens = f"{row['tokens_per_second']:,.0f} ({row['padded_tokens_per_second']:,.0f})"
        lines.append(
            (
                row["name"],
                f"{row['cpu_over_ours']:.2f}",
                f"{row['cpu_seconds'] / row['updates']:.2f}",
                f"{row['time_over_ours']:.2f}",
                tokens,
                f"{row['mfu']:.0%}",
                f"{row['peak_memory'] / 1e9:.2f} GB",
                f"{row['peak_tflops']:.3f} TFLOP/s",
            )
        )
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model",
        default="bert-mini",
        choices=[m for m in BUILT_IN_MODELS if "uncased" in m or m in ("bert-tiny", "bert-mini", "bert-small")],
    )
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--sequence-length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=30, help="timed updates")
    parser.add_argument("--warmup-steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each competitor")
    parser.add_argument("--no-dropout", action="store_true", help="as the quickstart's recipe has it")
    parser.add_argument("--torch-python", type=Path, help="interpreter with torch and transformers; none: leave out")
    parser.add_argument("--folder", type=Path, default=REPOSITORY / ".benchmark/training", help="corpus, shards, tasks")
    parser.add_argument("--output", type=Path, help="JSON file (default: results.json in --folder)")
    arguments = parser.parse_args(argv)
    model = BUILT_IN_MODELS[arguments.model]
    if arguments.no_dropout:
        model = model.model_copy(update={"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0})
    folder = arguments.folder.resolve()
    shards, task = make_shards(folder, arguments.sequence_length), folder / "task"
    batches = write_task(
        task,
        shards,
        model,
        batch_size=arguments.batch_size,
        steps=arguments.steps,
        sequence_length=arguments.sequence_length,
        warmup_steps=arguments.warmup_steps,
        threads=arguments.threads,
    )
    run(OURS, Path(sys.executable), task, "--weights")
    results = {}
    for competitor in COMPETITORS:
        if competitor.needs_torch and arguments.torch_python is None:
            print(f"{competitor.name}: left out, no --torch-python", file=sys.stderr)
            continue
        print(f"running {competitor.name}", file=sys.stderr)
        python = arguments.torch_python if competitor.needs_torch else Path(sys.executable)
        results[competitor.name] = run(competitor, python, task)
    check_same_model(results)
    rows = figures(results, batches, model)
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(arguments).items()}
    output = arguments.output or folder / "results.json"
    write_atomically(output, (json.dumps({"settings": settings, "rows": rows}, indent=1) + "\n").encode())
    padding = 1 - sum(int(b["attention_mask"].sum()) for b in batches) / sum(b["attention_mask"].size for b in batches)
    print(
        f"{arguments.model}, {arguments.steps} updates of {arguments.batch_size} x {arguments.sequence_length} "
        f"tokens ({padding:.0%} padding), AdamW, float32, {arguments.threads} threads each\n\n{table(rows)}"
    )


if __name__ == "__main__":
    main()

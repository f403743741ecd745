"""Inference on a CPU: ours, transformers on PyTorch and ONNX Runtime on transformers' export; a table and JSON.

    bash scripts/benchmark_inference.sh [--checkpoint MODEL --labelled FILE.tsv]

All competitors have the same weights, a classifier of texts, and the same batches: of one length (64, 128, 384 tokens),
and a real mix: the sentences, pairs, and questions with paragraphs of data/examples, in random order. They run in turn,
some batches at a time, so that other work on the machine slows all of them. CPU seconds are compared; latencies are
wall time. That they compute the same is checked before.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bert import REPOSITORY
from bert.files import write_atomically
from bert.help_parser import HelpParser
from bert.inference.model_folder import open_model
from tests.benchmarks.inference_cases import cases_of, labelled_case, prepare
from tests.benchmarks.measuring import write_batches
from tests.benchmarks.processes import Competitor, markdown

LENGTHS, BATCH_SIZES = (64, 128, 384), (1, 8, 32)
BASE = "transformers on PyTorch"
_ERRORS = {"float32": 1e-4, "bfloat16": 0.05, "INT8": 0.5}  # root mean square of differences over spread of logits


def precision_of(variant: str) -> str:
    return next((name for name in ("bfloat16", "INT8") if variant.endswith(name)), "float32")


def competitor(module: str, python: Path, folder: Path, threads: int) -> Competitor:
    return Competitor(module, python, (folder, threads), folder / f"{module}.log", OMP_NUM_THREADS=str(threads))


def measure(
    workers: list[Competitor], cases: Mapping[str, int], rounds: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """Return a row for each case (name -> number of batches) and variant; in a round each variant runs some batches."""
    for case, num_batches in cases.items():
        print(f"measuring {case}", file=sys.stderr, flush=True)
        times: dict[str, dict[str, list[float]]] = {}
        size = int(case.split(" x ")[0])
        runs = {}
        for worker in workers:
            for variant in worker.hello["variants"]:
                found = worker.order(variant=variant, case=case, first=0, runs=2)  # the first one warms up
                runs[variant] = max(1, min(64, int(seconds / rounds / found["seconds"][-1])))
        every = -(-num_batches // rounds)  # of a mix, all batches once
        for number in range(rounds):
            for worker in workers:
                for variant in worker.hello["variants"]:
                    count = runs[variant] if num_batches == 1 else every
                    found = worker.order(variant=variant, case=case, first=number * count, runs=count)
                    row = times.setdefault(variant, {"seconds": [], "cpu": []})
                    for name, values in row.items():
                        values += found[name]
        for variant, found in times.items():
            yield figures(case, variant, size, found)


def figures(case: str, variant: str, size: int, times: Mapping[str, list[float]]) -> dict[str, Any]:
    """Return figures by NVIDIA's names; CPU seconds of a batch are the median, or the mean where batches differ."""
    milliseconds = np.percentile(times["seconds"], [50, 90, 99]) * 1e3
    cpu = np.mean(times["cpu"]) if "mix" in case else np.median(times["cpu"])
    return {
        "case": case,
        "variant": variant,
        "precision": precision_of(variant),
        "batches": len(times["seconds"]),
        "inference_sequences_per_second": size / float(np.mean(times["seconds"])),
        "sequences_per_cpu_second": size / float(cpu),
        **{f"latency_{name}_ms": float(value) for name, value in zip(("p50", "p90", "p99"), milliseconds, strict=True)},
    }


def check(workers: list[Competitor], folder: Path, case: str, labels: np.ndarray | None) -> dict[str, dict[str, float]]:
    """The differences of logits from PyTorch's over their spread, the same decisions, and the accuracy.

    Raises:
        RuntimeError: a variant computes something else.
    """
    outputs: dict[str, np.ndarray] = {}
    for worker in workers:
        for variant in worker.hello["variants"]:
            file = folder / "outputs.npz"
            worker.order(variant=variant, case=case, save=str(file))
            with np.load(file) as arrays:
                outputs[variant] = np.concatenate([arrays[f"arr_{number}"] for number in range(len(arrays.files))])
    wanted = outputs.get(BASE, next(iter(outputs.values())))
    scores = {}
    for variant, found in outputs.items():
        error = float(np.sqrt(np.square(found - wanted).mean()) / wanted.std())
        same = float((found.argmax(-1) == wanted.argmax(-1)).mean())
        scores[variant] = {"relative_error": error, "same_decision": same}
        if labels is not None:
            scores[variant]["accuracy"] = float((found.argmax(-1) == labels).mean())
        if not error <= _ERRORS[precision_of(variant)]:
            raise RuntimeError(f"{variant} computes something else: its logits differ by {error:.3g} of their spread")
    return scores


def table(rows: list[dict[str, Any]], threads: int, scores: Mapping[str, Mapping[str, float]]) -> str:
    """Format sequences per CPU second by case; in brackets their ratio to transformers on PyTorch in float32."""
    chosen = {(row["variant"], row["case"]): row for row in rows if row["threads"] == threads}
    variants, cases = (list(dict.fromkeys(names)) for names in zip(*chosen, strict=True))
    lines = []
    for variant in variants:
        shown = []
        for case in cases:
            rate, base = chosen[variant, case]["sequences_per_cpu_second"], chosen.get((BASE, case))
            shown.append(f"{rate:,.0f}" + (f" ({rate / base['sequences_per_cpu_second']:.1f})" if base else ""))
        accuracy = scores[variant].get("accuracy")
        lines.append(
            [variant, *shown, f"{scores[variant]['same_decision']:.0%}", "" if accuracy is None else f"{accuracy:.0%}"]
        )
    return markdown(["", *cases, "same decision", "accuracy"], lines)


def latencies(rows: list[dict[str, Any]], threads: int) -> str:
    """Format the wall time of a batch: p50 / p90 / p99 in milliseconds."""
    cells: dict[str, dict[str, str]] = {}
    for row in rows:
        if row["threads"] == threads:
            shown = " / ".join(f"{row[f'latency_{name}_ms']:.0f}" for name in ("p50", "p90", "p99"))
            cells.setdefault(row["variant"], {})[row["case"]] = shown
    return markdown(["ms", *next(iter(cells.values()))], ([name, *values.values()] for name, values in cells.items()))


def behind(rows: list[dict[str, Any]]) -> list[str]:
    """Return the cases in which our best variant is slower than the best competitor of the same precision."""
    best: dict[tuple[Any, ...], list[float]] = {}  # of the competitors, and ours
    for row in rows:
        rates = best.setdefault((row["precision"], row["case"], row["threads"]), [0.0, 0.0])
        is_ours = row["variant"].startswith("ours")
        rates[is_ours] = max(rates[is_ours], row["sequences_per_cpu_second"])
    return [
        f"{precision}, {case}, {threads} threads: {ours:.1f} against {theirs:.1f} sequences per CPU second"
        for (precision, case, threads), (theirs, ours) in best.items()
        if ours < theirs
    ]


def main(argv: list[str] | None = None) -> None:
    parser = HelpParser(description=__doc__)
    add = parser.add_argument
    add("--checkpoint", type=Path, required=True, help="a classifier of texts, of any format that is read")
    add("--labelled", type=Path, help="TSV with the texts of the model's task and a label column, for the accuracy")
    add("--torch-python", type=Path, help="interpreter with torch and transformers; none: leave out")
    add("--batch-sizes", type=int, nargs="+", default=list(BATCH_SIZES))
    add("--lengths", type=int, nargs="*", default=list(LENGTHS))
    add("--threads", type=int, nargs="+", default=[1, 2])
    add("--rounds", type=int, default=5, help="turns of each competitor")
    add("--seconds", type=float, default=4.0, help="of each competitor in a case, about")
    add("--folder", type=Path, default=REPOSITORY / ".benchmark/inference", help="exports, batches")
    add("--output", type=Path, help="JSON file (default: results.json in --folder)")
    arguments = parser.parse_args(argv)
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    calibration = arguments.labelled or REPOSITORY / "data/examples/sentiment/train.tsv"
    prepare(arguments.checkpoint.resolve(), folder, calibration.resolve())
    opened = open_model(folder / "model", device="cpu")
    cases, labels = cases_of(opened, folder, arguments.batch_sizes, arguments.lengths), None
    timed = {case: len(batches) for case, batches in cases.items()}
    if arguments.labelled:
        cases["labelled"], labels = labelled_case(opened, arguments.labelled, folder)
    write_batches(folder / "cases.npz", cases)
    rows: list[dict[str, Any]] = []
    output = arguments.output or folder / "results.json"
    for threads in arguments.threads:
        workers = [competitor("inference_ours", Path(sys.executable), folder, threads)]
        if arguments.torch_python is not None:
            workers.append(competitor("inference_torch", arguments.torch_python, folder, threads))
        scores = check(workers, folder, "labelled" if labels is not None else list(timed)[-1], labels)
        for row in measure(workers, timed, arguments.rounds, arguments.seconds):
            rows.append({**row, "threads": threads, **scores[row["variant"]]})
            write_atomically(output, (json.dumps({"rows": rows}, indent=1) + "\n").encode())
        for worker in workers:
            worker.close()
        print(
            f"\n{threads} threads: sequences per CPU second (times {BASE} in float32)\n\n{table(rows, threads, scores)}"
        )
        print(f"\n{latencies(rows, threads)}", flush=True)
    slower = behind(rows)
    print("\nslower than the best competitor of the same precision:\n  " + ("\n  ".join(slower) or "none"))


if __name__ == "__main__":
    main()

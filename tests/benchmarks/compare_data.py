"""LDDL 0.1.0 and this project side by side: preprocessing, loading and padding, on the same text in one run.

    bash scripts/benchmark_data.sh

CPU seconds are user + system time of a command and all its processes. LDDL's figures are of its preprocessor and, where
it ends, its balancer; ours of one command that does both.
"""

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
import pyarrow.parquet as pq

from bert import REPOSITORY
from bert.files import write_atomically
from bert.help_parser import HelpParser
from bert.samples.manifest import read_manifest
from data.balance_shards import balance
from tests.benchmarks.processes import markdown

_LDDL_COMMANDS = REPOSITORY / "tests" / "interop" / "lddl_commands.py"
_BALANCER_SECONDS = 60
_LOADER_SECONDS = 180
_NUM_SHARDS = 16


@dataclass(frozen=True)
class Recipe:
    """One way to preprocess, in the flags that LDDL and we share."""

    name: str
    flags: tuple[str, ...]


_PHASE_2 = ("--target-seq-length", "512", "--bin-size", "64")
RECIPES = (
    Recipe("phase 1, dynamic, dup 1", ("--duplicate-factor", "1")),
    Recipe("phase 1, static, dup 1", ("--duplicate-factor", "1", "--masking")),
    Recipe("phase 1, static, dup 5", ("--duplicate-factor", "5", "--masking")),
    Recipe("phase 2, bins of 64, static, dup 1", (*_PHASE_2, "--duplicate-factor", "1", "--masking")),
    Recipe("phase 2, bins of 64, static, dup 5", (*_PHASE_2, "--duplicate-factor", "5", "--masking")),
)
_LOADED = ("phase 1, dynamic, dup 1", "phase 1, static, dup 1", "phase 2, bins of 64, static, dup 1")


@dataclass(frozen=True)
class Cost:
    """Of a command and its children."""

    cpu_seconds: float
    wall_seconds: float
    peak_rss_megabytes: float
    return_code: int


def measured(command: list[str], log: Path, timeout: float | None = None, must_succeed: bool = False) -> Cost:
    """Run a command to its end, or kill its process group after `timeout` seconds (return code -9)."""
    with open(log, "wb") as output:
        start = time.monotonic()
        pipes = {"stdout": output, "stderr": subprocess.STDOUT, "start_new_session": True}
        process = subprocess.Popen(command, cwd=REPOSITORY, **pipes)
        peak, code = 0.0, None
        before = os.times()
        while code is None:
            try:
                code = process.wait(0.2)
            except subprocess.TimeoutExpired:
                peak = max(peak, _rss_of_family(process.pid))
                if timeout and time.monotonic() - start > timeout:
                    os.killpg(process.pid, 9)
                    code = process.wait()
        after = os.times()
    if code and must_succeed:
        raise RuntimeError(f"{command[:3]} ended with {code}; see {log}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Cost(cpu, time.monotonic() - start, peak, code)


def _rss_of_family(pid: int) -> float:
    """Megabytes resident in the largest of a process and its descendants."""
    largest = 0
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            largest = max(largest, member.memory_info().rss)
    return largest / 1e6


class Benchmark:
    """Runs both programs below a folder for intermediate results."""

    def __init__(self, folder: Path, lddl_python: str, vocabulary: Path, num_workers: int) -> None:
        self.folder, self.lddl_python, self.vocabulary, self.num_workers = folder, lddl_python, vocabulary, num_workers

    def sink(self, whose: str, recipe: Recipe) -> Path:
        return self.folder / f"{whose} {recipe.name}".replace(",", "").replace(" ", "-")

    def lddl(self, recipe: Recipe, corpus: Path) -> dict:
        """LDDL's preprocessor and balancer; the balanced shards are made by ours where its balancer does not end."""
        parts, shards = self.sink("parts", recipe), self.sink("lddl", recipe)
        for folder in (parts, shards):
            shutil.rmtree(folder, ignore_errors=True)
        command = [
            *shlex.split(
                f"{self.lddl_python} {_LDDL_COMMANDS} preprocess -- --books {corpus / 'source'} --sink {parts} "
                f"--vocab-file {self.vocabulary} --num-blocks {_NUM_SHARDS} --local-n-workers {self.num_workers} "
                "--sample-ratio 1.0"
            ),
            *recipe.flags,
        ]
        cost = measured(command, parts.with_suffix(".log"), must_succeed=True)
        command = shlex.split(
            f"{self.lddl_python} {_LDDL_COMMANDS} balance -- --indir {parts} --outdir {shards} "
            f"--num-shards {_NUM_SHARDS} --keep-orig"
        )
        balancing = measured(command, shards.with_suffix(".log"), _BALANCER_SECONDS)
        ended = balancing.return_code == 0
        if not ended:
            shutil.rmtree(shards, ignore_errors=True)
            shards.with_suffix(".log").unlink()
            balance(parts, shards, _NUM_SHARDS)
        samples, tokens = _count(parts)
        killed = f"killed after {_BALANCER_SECONDS} s, not counted"
        total = cost.cpu_seconds + (balancing.cpu_seconds if ended else 0.0)
        return {
            "samples": samples,
            "tokens": tokens,
            "cpu_seconds": total,
            "wall_seconds": cost.wall_seconds,
            "peak_rss_megabytes": cost.peak_rss_megabytes,
            "balancer": f"{balancing.cpu_seconds:.1f} CPU s" if ended else killed,
        }

    def ours(self, recipe: Recipe, corpus: Path, output_format: str = "parquet") -> dict:
        """Our command, which balances as well."""
        sink = self.sink(f"ours-{output_format}", recipe)
        shutil.rmtree(sink, ignore_errors=True)
        command = [
            *shlex.split(
                f"{sys.executable} -m data.preprocess_bert_pretrain --books {corpus / 'source'} --sink {sink} "
                f"--vocab-file {self.vocabulary} --num-shards {_NUM_SHARDS} --local-n-workers {self.num_workers} "
                f"--output-format {output_format}"
            ),
            *recipe.flags,
        ]
        cost = measured(command, sink.with_suffix(".log"), must_succeed=True)
        manifest = read_manifest(sink)
        assert manifest is not None
        return {
            "samples": manifest.counts["samples"],
            "tokens": manifest.counts["sample tokens"],
            "random_next": manifest.counts["samples with a random next"] / manifest.counts["samples"],
            "input_megabytes": manifest.counts["input bytes"] / 1e6,
            **asdict(cost),
        }

    def load(self, recipe: Recipe, batch_size: int, seconds: float) -> dict[str, dict]:
        """Both loaders over shards of the same recipe; ours over LDDL's schema and our own as well."""
        command = shlex.split(
            f"{self.lddl_python} {_LDDL_COMMANDS} load {self.sink('lddl', recipe)} {self.vocabulary} "
            f"--batch-size {batch_size} --seconds {seconds}"
        )
        results = {"LDDL": _last_json(command)}
        for kind in ("parquet", "arrow"):
            command = self._loader(self.sink(f"ours-{kind}", recipe), seconds / 2)
            masking = "static" if "--masking" in recipe.flags else "dynamic"
            results[f"ours, {kind}"] = _last_json([*command, "--batch-size", str(batch_size), "--masking", masking])
        return results

    def _loader(self, shards: Path, seconds: float) -> list[str]:
        files = [str(shards), str(self.vocabulary)]
        return [sys.executable, "-m", "tests.benchmarks.measure_loader", *files, "--seconds", str(seconds)]

    def warm_up(self, corpus: Path) -> dict:
        """Run our programs on a megabyte, so that their loops are compiled, once on a machine; its cost."""
        small = smaller_corpus(corpus, self.folder / "corpus-1", 1)
        costs = [self.ours(RECIPES[1], small)["cpu_seconds"] for _ in range(2)]
        _last_json(self._loader(self.sink("ours-parquet", RECIPES[1]), 1))
        return {"first_cpu_seconds": costs[0], "second_cpu_seconds": costs[1]}


def _last_json(command: list[str]) -> dict:
    try:
        result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=_LOADER_SECONDS)
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {_LOADER_SECONDS} s"}
    if result.returncode:
        return {"error": (result.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(result.stdout.strip().splitlines()[-1])


def _count(folder: Path) -> tuple[int, int]:
    """Samples and tokens of parquet shards."""
    samples = tokens = 0
    for path in folder.iterdir():
        if ".parquet" in path.name and not path.name.startswith("."):
            column = pq.ParquetFile(path).read(["num_tokens"], use_threads=False).column(0).to_numpy()
            samples, tokens = samples + len(column), tokens + int(column.sum())
    return samples, tokens


def smaller_corpus(corpus: Path, output: Path, megabytes: float) -> Path:
    """The first lines of a corpus, up to so many megabytes."""
    folder = output / "source" / "en"
    folder.mkdir(parents=True, exist_ok=True)
    paths = sorted((corpus / "source" / "en").glob("*.txt"))
    for path in paths:
        room = megabytes * 1e6 / len(paths)
        with open(path, "rb") as source, open(folder / path.name, "wb") as target:
            for line in source:
                target.write(line)
                room -= len(line)
                if room <= 0:
                    break
    return output


def run(benchmark: Benchmark, corpus: Path, sizes: list[float], seconds: float) -> dict:
    """All measurements: {"preprocess": ..., "load": ..., "growth": ...}."""
    main = smaller_corpus(corpus, benchmark.folder / "corpus-64", 64)
    results: dict = {"compilation": benchmark.warm_up(corpus), "preprocess": {}, "load": {}, "growth": {}}
    for recipe in RECIPES:
        lddl, ours = benchmark.lddl(recipe, main), benchmark.ours(recipe, main)
        results["preprocess"][recipe.name] = {"LDDL": lddl, "ours": ours}
        if recipe.name in _LOADED:
            results["preprocess"][recipe.name]["ours, arrow"] = benchmark.ours(recipe, main, "arrow")
            results["load"][recipe.name] = {
                str(batch): benchmark.load(recipe, batch, seconds) for batch in (32, 64, 256)
            }
        print(recipe.name, json.dumps([results[what].get(recipe.name) for what in ("preprocess", "load")]), flush=True)
    for size in sizes:
        part = smaller_corpus(corpus, benchmark.folder / f"corpus-{size:g}", size)
        results["growth"][f"{size:g}"] = benchmark.ours(RECIPES[1], part)
    return results


def main(argv: list[str] | None = None) -> None:
    parser = HelpParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="made by tests.benchmarks.documentation_corpus")
    parser.add_argument("--vocab-file", type=Path, required=True)
    parser.add_argument("--lddl-python", required=True, help="interpreter of LDDL's environment")
    parser.add_argument("--folder", type=Path, required=True, help="for intermediate results")
    parser.add_argument("--output", type=Path, required=True, help="OUTPUT.json and OUTPUT.md are written")
    parser.add_argument("--sizes", type=float, nargs="*", default=[16, 64, 256], help="megabytes, for the growth")
    parser.add_argument("--seconds", type=float, default=20, help="of each measurement of a loader")
    parser.add_argument("--local-n-workers", type=int, default=2)
    arguments = parser.parse_args(argv)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    benchmark = Benchmark(arguments.folder, arguments.lddl_python, arguments.vocab_file, arguments.local_n_workers)
    results = run(benchmark, arguments.corpus, arguments.sizes, arguments.seconds)
    report = arguments.corpus / "report.json"
    results["corpus"] = json.loads(report.read_bytes()) if report.exists() else {}
    table = table_of(results)
    write_atomically(arguments.output.with_suffix(".json"), (json.dumps(results, indent=1) + "\n").encode())
    write_atomically(arguments.output.with_suffix(".md"), table.encode())
    print(table)


def table_of(results: dict) -> str:
    """Preprocessing, loading and growth, each a table, and where the text came from."""
    parts = [
        _preprocessing(results["preprocess"]),
        _loading(results["load"]),
        _growth(results["growth"]),
        _compilation(results.get("compilation")),
        _origin(results.get("corpus", {})),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _preprocessing(recipes: dict) -> str:
    head = ("preprocess and balance, 64 MB", "", "CPU s", "samples", "samples/CPU s", "tokens/CPU s", "peak RSS, MB")
    head += ("times LDDL: samples", "text", "random next")
    rows: list[tuple] = []
    for name, runs in recipes.items():
        base = runs["LDDL"]
        for who, found in runs.items():
            samples, tokens = (found[what] / found["cpu_seconds"] for what in ("samples", "tokens"))
            ratios = (samples / (base["samples"] / base["cpu_seconds"]), base["cpu_seconds"] / found["cpu_seconds"])
            figures = (found["samples"], samples, tokens, found["peak_rss_megabytes"])
            share = f"{found['random_next']:.1%}" if "random_next" in found else ""
            shown = (f"{found['cpu_seconds']:.1f}", *(f"{value:,.0f}" for value in figures))
            rows.append((name, who, *shown, *(f"{ratio:.1f}" for ratio in ratios), share))
        rows.append(("", "LDDL's balancer", base["balancer"], *[""] * 7))
    return markdown(head, rows)


def _loading(recipes: dict) -> str:
    rows: list[tuple] = []
    for name, batches in recipes.items():
        for batch, runs in batches.items():
            base = runs["LDDL"]
            for who, found in runs.items():
                if "error" in found:
                    rows.append((name, batch, who, found["error"][:80], "", "", ""))
                    continue
                rate = found["samples"] / found["cpu_seconds"]
                ratio = "" if "error" in base else f"{rate / (base['samples'] / base['cpu_seconds']):.1f}"
                waited, padding = f"{found['first_batch_seconds']:.2f}", f"{found['padding']:.1%}"
                rows.append((name, batch, who, f"{rate:,.0f}", ratio, waited, padding))
    return markdown(("load", "batch", "", "samples/CPU s", "times LDDL", "first batch, s", "padding"), rows)


def _growth(sizes: dict) -> str:
    rows = [
        (f"{size} MB", f"{run['input_megabytes'] / run['cpu_seconds']:.2f}", f"{run['peak_rss_megabytes']:,.0f}")
        for size, run in sizes.items()
    ]
    return markdown(("phase 1, static, dup 1: growth", "MB/CPU s", "peak RSS, MB"), rows)


def _compilation(cost: dict | None) -> str:
    if not cost:
        return ""
    first, second = cost["first_cpu_seconds"], cost["second_cpu_seconds"]
    return (
        f"One megabyte took {first:.1f} CPU s the first time and {second:.1f} the second: loops new to this machine "
        "are compiled, once. That is not counted above."
    )


def _origin(corpus: dict) -> str:
    if not corpus:
        return ""
    kinds = ", ".join(f"{size / 1e6:.1f} MB of {kind}" for kind, size in corpus["distinct bytes by kind"].items())
    return (
        f"The text: {kinds}, found on the machine; of the largest size {corpus['bytes repeated'] / 1e6:.1f} MB repeat "
        "documents with their paragraphs in another order."
    )


if __name__ == "__main__":
    main()

"""How ranks and threads share a CPU: user and system time and elapsed time of an update of the quickstart's size.

    .venv/bin/python -m tests.benchmarks.ranks_and_threads

The same batch is computed by one rank, by one rank on all cores, by a rank for each core over Gloo, and by as many
processes that exchange nothing: what the last two differ by is Gloo's share.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import bert  # noqa: F401 - before Paddle
from bert import REPOSITORY
from tests.benchmarks.processes import markdown
from tests.support.launching import free_port

SEQUENCES, WARMUP = 64, 5


@dataclass(frozen=True)
class Form:
    """Attributes:
    exchanges: whether the ranks train one model, or each its own.
    """

    ranks: int
    threads: int
    exchanges: bool = True

    def __str__(self) -> str:
        return f"{self.ranks} x {self.threads}" + ("" if self.exchanges else ", no exchange")


def forms(cores: int) -> list[Form]:
    return list(dict.fromkeys([Form(1, 1), Form(1, cores), Form(cores, 1), Form(cores, 1, exchanges=False)]))


def environments(form: Form) -> list[dict[str, str]]:
    """Of each rank, as Paddle's launcher sets them."""
    common = {**os.environ, "OMP_NUM_THREADS": str(form.threads)}
    if not form.exchanges:
        return [common] * form.ranks
    endpoints = [f"127.0.0.1:{free_port()}" for _ in range(form.ranks)]
    common |= {"PADDLE_TRAINERS_NUM": str(form.ranks), "PADDLE_TRAINER_ENDPOINTS": ",".join(endpoints)}
    return [
        {**common, "PADDLE_TRAINER_ID": str(rank), "PADDLE_CURRENT_ENDPOINT": endpoints[rank]}
        for rank in range(form.ranks)
    ]


def measure(form: Form, updates: int) -> dict[str, float]:
    """Of an update, all ranks together: user, system (CPU seconds); of the slowest rank: elapsed."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "tests.benchmarks.ranks_and_threads", "--rank", folder]
        words += ["--updates", str(updates), "--threads", str(form.threads), "--rows", str(SEQUENCES // form.ranks)]
        pipes = {"cwd": REPOSITORY, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        running = [
            subprocess.Popen([*words, "--number", str(number)], env=environment, **pipes)
            for number, environment in enumerate(environments(form))
        ]
        said = [process.communicate()[0] for process in running]
        results = [json.loads(file.read_text()) for file in sorted(Path(folder).glob("rank-*.json"))]
        if len(results) != form.ranks:
            raise RuntimeError(f"{form}: {len(results)} of {form.ranks} ranks finished:\n" + "\n".join(said)[-3000:])
    totals = {name: sum(result[name] for result in results) for name in ("user", "system")}
    return totals | {"elapsed": max(result["elapsed"] for result in results)}


def run_rank(folder: Path, threads: int, rows: int, updates: int, number: int) -> None:
    import numpy as np

    from bert.runtime.distributed import finalize, group_from_environment
    from bert.runtime.paddle_api import set_cpu_threads
    from tests.benchmarks import packed_tokens
    from tests.support import tiny

    group = group_from_environment("cpu")
    tiny.join(group)
    set_cpu_threads(threads)
    rng = np.random.RandomState(number)
    kind, model, _ = packed_tokens.ROWS["quickstart-phase1"]
    lengths = [np.clip(rng.randint(20, 90, rows), 8, 64) for _ in range(8)]
    feeds = [packed_tokens.feed_of(kind, model.vocab_size, each, rng) for each in lengths]
    steps = packed_tokens.updates(kind, model, feeds, True, group)
    for _ in range(WARMUP):
        next(steps)
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(updates):
        next(steps)
    after = resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "user": after.ru_utime - before.ru_utime,
        "system": after.ru_stime - before.ru_stime,
        "elapsed": time.perf_counter() - start,
    }
    result = json.dumps({name: value / updates for name, value in figures.items()})
    (folder / f"rank-{number}.json").write_text(result)
    finalize(group)


def table(found: dict[Form, dict[str, float]]) -> str:
    names = ("user", "system", "elapsed")
    rows = [(form, *(f"{figures[name] * 1e3:.1f}" for name in names)) for form, figures in found.items()]
    return markdown(("ranks x threads", "user, ms an update", "system", "elapsed"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    for name in ("threads", "rows", "number"):
        parser.add_argument(f"--{name}", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        run_rank(options.rank, options.threads, options.rows, options.updates, options.number)
        return
    print(table({form: measure(form, options.updates) for form in forms(len(os.sched_getaffinity(0)))}))


if __name__ == "__main__":
    main()

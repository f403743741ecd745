"""Speed of a kept index: of queries among synthetic passages, and of a server that answers from it and changes it.

Vectors are random, as their values do not change the speed. `index` measures without a model, `server` the whole way of
a request: 32 clients ask, each the next query after its answer.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import requests

from bert.arrays.vectors import unit
from bert.help_parser import HelpParser
from bert.search.index import Change, SearchIndex
from bert.search.manifest import IndexModel
from bert.search.ranks import Query, hits, ranks
from bert.search.segments import Passage
from tests.serving.servers import RunningServer, serving

WORDS, WIDTH, PART, CLIENTS = 200_000, 384, 65_536, 32
FILTERS = {"year": {"from": 2000, "to": 2005}, "lang": "de"}


def texts(number: int, rng: np.random.Generator) -> list[str]:
    """Return texts of 20 to 79 words, whose frequencies follow Zipf's law."""
    frequency = 1 / np.arange(1, WORDS + 1)
    share = np.cumsum(frequency / frequency.sum())
    lengths = rng.integers(20, 80, number)
    drawn = np.minimum(np.searchsorted(share, rng.random(lengths.sum())), WORDS - 1)
    return [" ".join(f"word{word}" for word in part) for part in np.split(drawn, np.cumsum(lengths)[:-1])]


def fill(index: SearchIndex, number: int, rng: np.random.Generator) -> None:
    """Add passages with two columns and random vectors."""
    for first in range(0, number, PART):
        count = min(PART, number - first)
        passages = [
            Passage(f"id{row}", text, 0, "a.csv", row, {"year": 1990 + row % 30, "lang": ("en", "de")[row % 2]})
            for row, text in enumerate(texts(count, rng), start=first)
        ]
        index.apply(Change(passages, rng.standard_normal((count, WIDTH), dtype=np.float32)))
        print(f"{first + count:,} passages", file=sys.stderr, flush=True)


@contextmanager
def measured(what: str, times: int = 1) -> Iterator[None]:
    """Print the seconds, and CPU seconds, of each of some repetitions."""
    start, cpu = time.perf_counter(), time.process_time()
    yield
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(f"{what}: {seconds / times:.3f} s, CPU {cpu / times:.3f} s", flush=True)


def measure_index(folder: Path, number: int) -> None:
    """Measure queries, additions and deletions in one process without a model."""
    rng, model = np.random.default_rng(0), IndexModel("random", "random", 128, WIDTH)
    if not folder.exists():
        fill(SearchIndex.create(folder, model), number, rng)
    with measured("open"):
        index = SearchIndex(folder)
    print(f"{index.snapshot.num_live:,} passages, {len(index.snapshot.segments)} segments, {index.num_bytes():,} bytes")
    queries = [" ".join(f"word{word}" for word in words) for words in rng.integers(1, 20_000, (10, 5))]
    for ranking in ("vectors", "words", "hybrid"):
        for filters in ({}, FILTERS):
            with measured(f"{ranking}{', two filters' if filters else ''}", len(queries)):
                for text in queries:
                    query = Query(text, 10, filters, ranking)
                    vector = unit(rng.standard_normal((1, WIDTH), dtype=np.float32))
                    hits(index.snapshot, text, ranks(index.snapshot, [query], vector, None)[0], "en")
    with measured("an addition"):
        index.apply(Change([Passage("new", "word3 hello")], rng.standard_normal((1, WIDTH), dtype=np.float32)))
    with measured("a deletion"):
        index.apply(Change(ids=["new"]))
    status = Path("/proc/self/status").read_text()
    print(", ".join(line for line in status.splitlines() if line.startswith(("RssAnon", "RssFile"))))


def measure_server(folder: Path, model: str, number: int, seconds: float) -> None:
    """Measure requests to a server with the model, among random vectors."""
    if not folder.exists():
        from bert.indexing.searcher import index_model  # they load Paddle
        from bert.inference.heads import load_model

        index = SearchIndex.create(folder, index_model(load_model(model, device="cpu")))
        fill(index, number, np.random.default_rng(0))
    drawn = random.Random(0)
    with tempfile.TemporaryDirectory() as logs, serving(Path(logs), model, "--index", folder) as server:
        for ranking in ("vectors", "words", "hybrid"):

            def ask(ranking: str = ranking) -> None:
                query = " ".join(f"word{drawn.randrange(1, 20_000)}" for _ in range(5))
                post(server, "/search", query=query, ranking=ranking)

            run(server, f"{ranking}, {CLIENTS} clients", ask, CLIENTS, seconds)
        for size in (1, 64):
            rows = [{"text": text} for text in texts(size, np.random.default_rng(1))]
            run(server, f"additions of {size}", lambda rows=rows: post(server, "/index/add", rows=rows), 1, seconds)


def post(server: RunningServer, path: str, **body: object) -> None:
    requests.post(server.url + path, json=body, timeout=60).raise_for_status()


def run(server: RunningServer, what: str, act: Callable[[], None], clients: int, seconds: float) -> None:
    """Let clients send requests for some seconds; print how many, and the server's CPU time for each."""
    counts, end = [0] * clients, time.perf_counter() + seconds

    def work(client: int) -> None:
        while time.perf_counter() < end:
            act()
            counts[client] += 1

    before, start = cpu_seconds(server), time.perf_counter()
    threads = [threading.Thread(target=work, args=(client,)) for client in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent, cpu = time.perf_counter() - start, cpu_seconds(server) - before
    print(f"{what}: {sum(counts) / spent:.1f} a second, CPU {1000 * cpu / sum(counts):.1f} ms each", flush=True)


def cpu_seconds(server: RunningServer) -> float:
    """Return the CPU seconds of the HTTP process and the model process so far."""
    process = psutil.Process(server.process.pid)
    return sum(sum(each.cpu_times()[:2]) for each in (process, *process.children()))


def main() -> None:
    parser = HelpParser(
        description=__doc__, examples=("index F --passages 1000000", "server F --model M --passages 20000")
    )
    parser.add_argument("part", choices=("index", "server"), help="what is measured")
    parser.add_argument("folder", type=Path, help="folder of the index; it is made if it does not exist")
    parser.add_argument(
        "--passages", type=int, default=1_000_000, help="passages of a new index (default: %(default)s)"
    )
    parser.add_argument("--model", default="", help="model of the server")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each load (default: %(default)s)")
    given: argparse.Namespace = parser.parse_args()
    if given.part == "index":
        measure_index(given.folder, given.passages)
    elif not given.model:
        parser.error("server needs --model")
    else:
        measure_server(given.folder, given.model, given.passages, given.seconds)


if __name__ == "__main__":
    main()

"""Load test of the server on this machine: throughput and latency of 1, 8 and 64 clients, with and without batching.

Each client sends a text, waits for the answer and sends the next one, over one connection. The servers of all modes run
at the same time and are measured in turn, so that a change of the machine's load meets all of them.
"""

import asyncio
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from safetensors.numpy import save_file

from bert.config.architecture import BertConfig
from bert.files import write_atomically
from bert.help_parser import HelpParser
from bert.inference.paddle_program import build_program
from tests.benchmarks.processes import markdown
from tests.serving.servers import RunningServer, serving

MODES: dict[str, tuple[str, ...]] = {
    "one at a time": ("--max-batch-size", "1"),
    "batches": (),
    "batches, waiting 5 ms": ("--max-wait-ms", "5"),
}
SIZES = {  # layers, hidden, heads, inner
    "tiny": (1, 32, 4, 64),
    "mini": (4, 256, 4, 1024),
    "minilm": (6, 384, 12, 1536),
    "base": (12, 768, 12, 3072),
}
_WORDS = 2000


@dataclass
class Cell:
    """A mode with a number of clients."""

    latencies: list[float] = field(default_factory=list)
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    errors: int = 0

    def row(self) -> dict[str, float]:
        millis = np.array(self.latencies) * 1000
        return {
            "requests": len(millis),
            "requests_per_second": len(millis) / self.seconds,
            "p50_ms": float(np.percentile(millis, 50)),
            "p99_ms": float(np.percentile(millis, 99)),
            "cpu_ms_per_request": 1000 * self.cpu_seconds / max(1, len(millis)),
            "errors": self.errors,
        }


def make_model(folder: Path, size: str) -> Path:
    """Write a classifier of two classes with random weights, whose values do not change the speed."""
    layers, hidden, heads, inner = SIZES[size]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{number}" for number in range(_WORDS))]
    config = BertConfig(
        vocab_size=len(tokens),
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
    )
    rng = np.random.default_rng(0)
    parameters = build_program("sequence-classification", config, 2, with_pooler=True).main.all_parameters()
    weights = {parameter.name: rng.normal(0, 0.02, parameter.shape).astype("float32") for parameter in parameters}
    save_file(weights, folder / "bert_paddle.safetensors", metadata={"format": "pd"})
    (folder / "bert_config.json").write_text(config.model_dump_json())
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
    (folder / "labels.json").write_text('["bad", "good"]')
    return folder


def make_texts(count: int, rng: random.Random) -> list[str]:
    """Return texts of 3 to 120 words, half of them below 20: sentences and short paragraphs mixed."""
    lengths = [min(120, max(3, round(rng.lognormvariate(3.0, 0.8)))) for _ in range(count)]
    return [" ".join(f"word{rng.randrange(_WORDS)}" for _ in range(length)) for length in lengths]


def cpu_seconds(server: RunningServer) -> float:
    """Return the CPU seconds of the HTTP process and the model process so far."""
    process = psutil.Process(server.process.pid)
    return sum(sum(each.cpu_times()[:2]) for each in (process, *process.children()))


async def _client(port: int, texts: Sequence[str], end: float, cell: Cell, rng: random.Random) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.perf_counter() < end:
        body = json.dumps({"inputs": [{"text": rng.choice(texts)}]}).encode()
        start = time.perf_counter()
        writer.write(
            b"POST /predict HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert length is not None
        await reader.readexactly(int(length[1]))
        if head.startswith(b"HTTP/1.1 200"):
            cell.latencies.append(time.perf_counter() - start)
        else:
            cell.errors += 1
    writer.close()


def load(server: RunningServer, clients: int, seconds: float, texts: Sequence[str], cell: Cell) -> None:
    """Let `clients` send requests for some seconds, and add the measurements to the cell."""

    async def run() -> None:
        end = time.perf_counter() + seconds
        await asyncio.gather(
            *(_client(server.port, texts, end, cell, random.Random(number)) for number in range(clients))
        )

    start, cpu = time.perf_counter(), cpu_seconds(server)
    asyncio.run(run())
    cell.seconds += time.perf_counter() - start
    cell.cpu_seconds += cpu_seconds(server) - cpu


def measure(
    model: str, modes: Sequence[str], clients: Sequence[int], seconds: float, rounds: int, threads: int
) -> dict:
    """Return a row for each (mode, clients), after a short warm-up of every server."""
    texts = make_texts(500, random.Random(1))
    cells = {(mode, count): Cell() for mode in modes for count in clients}
    servers: dict[str, RunningServer] = {}
    with ExitStack() as stack:
        for mode in modes:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            flags = ("--cpu-threads", threads, *MODES[mode])
            servers[mode] = stack.enter_context(serving(folder, model, *flags))
            load(servers[mode], 4, min(2.0, seconds), texts, Cell())
        for number in range(rounds):
            for count in clients:
                for mode in modes[:: 1 if number % 2 else -1]:
                    load(servers[mode], count, seconds / rounds, texts, cells[mode, count])
    return {key: cell.row() for key, cell in cells.items()}


def table(rows: dict) -> str:
    figures = ("p50_ms", "p99_ms", "cpu_ms_per_request")
    lines = [
        (count, mode, f"{row['requests_per_second']:.0f}", *(f"{row[name]:.1f}" for name in figures))
        for (mode, count), row in sorted(rows.items(), key=lambda item: item[0][1])
    ]
    return markdown(("clients", "mode", "requests/s", "p50 ms", "p99 ms", "CPU ms a request"), lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = HelpParser(prog="scripts/benchmark_serving.sh", description=__doc__)
    add = parser.add_argument
    add("--model", metavar="MODEL", help="a classifier of single texts (default: random weights of --size)")
    add("--size", choices=SIZES, default="minilm", help="of the random model (default: minilm)")
    add("--modes", nargs="+", choices=MODES, default=list(MODES), metavar="MODE", help=f"of: {'; '.join(MODES)}")
    add("--clients", type=int, nargs="+", default=[1, 8, 64], metavar="N", help="default: 1 8 64")
    add("--seconds", type=float, default=20, metavar="S", help="for each row of the table (default: 20)")
    add("--rounds", type=int, default=4, metavar="N", help="in which the modes take turns (default: 4)")
    add("--threads", type=int, default=0, metavar="N", help="of the model process (default: one for each core)")
    add("--output", type=Path, metavar="FILE", help="write the rows as JSON")
    values = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        model = values.model or str(make_model(Path(folder), values.size))
        rows = measure(model, values.modes, values.clients, values.seconds, values.rounds, values.threads)
    print(f"{values.model or values.size}, {os.cpu_count()} cores\n\n{table(rows)}")
    if values.output:
        listed = [{"mode": mode, "clients": count, **row} for (mode, count), row in rows.items()]
        write_atomically(values.output, json.dumps(listed, indent=1).encode() + b"\n")
    return 1 if any(row["errors"] for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

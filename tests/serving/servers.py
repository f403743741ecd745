"""Starts servers for tests: processes of `python -m bert.serving`, with a real or a fake model process."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import requests

from bert import REPOSITORY

_FAKE_SERVER = """
import sys
from bert.serving import __main__, worker
from tests.serving import fake_model
worker.run_child = fake_model.run_child
sys.exit(__main__.main())
"""


class RunningServer:
    """Represents a server that has written its address, and its output."""

    def __init__(self, command: Sequence[str], log: Path, environment: dict[str, str]) -> None:
        self._log, self._batches = log, log.with_name("batches.jsonl")
        environment = {"FAKE_BATCHES": str(self._batches), **environment}
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                command, cwd=REPOSITORY, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment}
            )
        self.url = self.wait_for(r"(http://\S+) loads ")[1]
        self.port = int(self.url.rsplit(":", 1)[1])

    def log(self) -> str:
        return self._log.read_text()

    def wait_for(self, pattern: str, seconds: float = 90) -> re.Match[str]:
        """Wait for a line of its output."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if match := re.search(pattern, self.log()):
                return match
            assert self.process.poll() is None, self.log()
            time.sleep(0.02)
        raise AssertionError(f"{pattern} did not come:\n{self.log()}")

    def get(self, path: str) -> requests.Response:
        return requests.get(self.url + path, timeout=60)

    def post(self, *inputs: Any, path: str = "/predict", **others: Any) -> requests.Response:
        return requests.post(self.url + path, json={"inputs": list(inputs), **others}, timeout=60)

    def metric(self, name: str) -> float:
        """Return the sum of a metric over its labels."""
        lines = [line for line in self.get("/metrics").text.splitlines() if re.match(rf"{name}[ {{]", line)]
        assert lines, name
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def model_pid(self) -> int:
        (child,) = (c for c in psutil.Process(self.process.pid).children() if "spawn_main" in " ".join(c.cmdline()))
        return child.pid

    def batches(self) -> list[tuple[str, int, list[str]]]:
        """Return the batches that the fake model got: kind, rows, last texts."""
        lines = self._batches.read_text().splitlines() if self._batches.exists() else []
        return [tuple(json.loads(line)) for line in lines]

    def memory(self) -> int:
        """Return the resident bytes of the HTTP process."""
        return psutil.Process(self.process.pid).memory_info().rss

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


@contextmanager
def serving(
    folder: Path, model: str | Path, *flags: Any, fake: bool = False, ready: bool = True, **environment: str
) -> Iterator[RunningServer]:
    """Run a server of `model`, or of the fake for the task `model`; end it by force if the test has not stopped it."""
    start = ["-c", _FAKE_SERVER] if fake else ["-m", "bert.serving"]
    words = [sys.executable, *start, str(model), "--port", "0", *map(str, flags)]
    server = RunningServer(words, folder / "server.log", environment)
    try:
        if ready:
            server.wait_for(" is ready: ")
            while server.get("/ready").status_code != 200:
                time.sleep(0.01)
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait()

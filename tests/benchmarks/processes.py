"""Runs the processes of the comparisons, and formats their tables."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bert import REPOSITORY
from bert.launching.processes import start_process


def run(words: Sequence[object], **variables: str) -> None:
    """Run a command in the repository's folder, with further environment variables; its output matters if it fails.

    Raises:
        ValueError: with the end of its output, if it failed.
    """
    command = list(map(str, words))
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = start_process(command, variables, cwd=REPOSITORY, **pipes)
    output, _ = process.communicate()
    if process.returncode:
        raise ValueError(f"{' '.join(command)} ended with exit code {process.returncode}: {output[-3000:]}")


def run_module(name: str, *words: object, **variables: str) -> None:
    """Run `python -m NAME WORDS` as `run` does."""
    run([sys.executable, "-m", name, *words], **variables)


class Competitor:
    """A process of `tests.benchmarks.MODULE` that prints a line of JSON when it is ready, and one for each order."""

    def __init__(self, module: str, python: Path, words: Sequence[object], log: Path, **variables: str) -> None:
        self._name, self._log = module, log
        environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", **variables}
        command = [str(python), "-m", f"tests.benchmarks.{module}", *map(str, words)]
        pipes = {"cwd": REPOSITORY, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        with log.open("w") as errors:
            self._process = subprocess.Popen(command, stderr=errors, env=environment, **pipes)
        self.hello = self.answer()

    def answer(self) -> dict[str, Any]:
        """Return the next line of JSON; other lines are skipped, because libraries print lines of their own.

        Raises:
            RuntimeError: with the end of what it said, if it failed.
        """
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        code, said = self._process.wait(), self._log.read_text()[-3000:]
        raise RuntimeError(f"{self._name} failed with exit code {code}:\n{said}")

    def order(self, **order: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return self.answer()

    def end_orders(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self) -> None:
        self.end_orders()
        self._process.wait()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def markdown(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    first, *others = ("| " + " | ".join(map(str, row)) + " |" for row in [head, *rows])
    return "\n".join([first, "|---" * len(head) + "|", *others])

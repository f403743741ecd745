"""Starts the model process, sends it batches, and starts it again when it dies or hangs."""

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from bert.exit_codes import Failure
from bert.interpreter import repository_environment
from bert.serving.protocol import Description, Outcome
from bert.serving.settings import ModelSettings

logger = logging.getLogger(__name__)
_LONGEST_LINE = 1 << 28  # bytes: results of one input, or the figures
_GRACE_SECONDS = 10.0  # beyond the deadline, for one run of the network; after that the process is taken to hang
_MOST_FAILURES = 5  # starts in a row
_PAUSE_SECONDS = 1.0  # before a second start; doubled each time


class WorkerLost(Exception):
    """The model process ended or hung while it had a batch."""


def model_command(settings: ModelSettings) -> list[str]:
    return [sys.executable, "-m", "bert.serving.model_process", json.dumps(asdict(settings))]


class ModelWorker:
    """The model process. `keep_running` starts it, and again when it ends; `run` sends it one batch at a time.

    Args:
        command: of the process; tests have their own.
        on_start: called with the description each time the model is ready.
    Attributes:
        starts: how many times the model became ready.
    """

    def __init__(self, command: Sequence[str], on_start: Callable[[Description], None]) -> None:
        self._command, self._on_start = list(command), on_start
        self._process: asyncio.subprocess.Process | None = None
        self._ready = asyncio.Event()
        self._is_stopping = False
        self.starts = 0

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    async def keep_running(self) -> None:
        """Start the process and wait for its end, until `stop`.

        Raises:
            ValueError: the model cannot be loaded.
            Failure: it was loaded once, and the process failed several times in a row since.
        """
        failures = 0
        while not self._is_stopping:
            try:
                description = await self._start()
            except WorkerLost as error:
                failures += 1
                if self._is_stopping:
                    return
                if not self.starts or failures == _MOST_FAILURES:
                    raise Failure(f"{error}; its last lines above say why") from None
                await asyncio.sleep(_PAUSE_SECONDS * 2**failures)
                continue
            failures = 0
            self.starts += 1
            self._on_start(description)
            self._ready.set()
            await self._ended()
            if not self._is_stopping:
                logger.error("the model process %s; it is started again", self._how_it_ended())

    async def _start(self) -> Description:
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=repository_environment(),
            start_new_session=True,  # Ctrl-C is for the server, which lets the model finish
            limit=_LONGEST_LINE,
        )
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            await self._process.wait()
            raise WorkerLost(f"the model process {self._how_it_ended()} before the model was ready")
        values = json.loads(line)
        if "error" in values:
            await self._process.wait()
            raise ValueError(values["error"])
        return Description.from_json(values)

    async def _ended(self) -> None:
        assert self._process is not None
        await self._process.wait()
        self._ready.clear()

    def _how_it_ended(self) -> str:
        code = self._process.returncode if self._process else None
        return f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with code {code}"

    async def run(
        self, kind: str, inputs: Sequence[dict[str, Any]], rows: int, deadline: float
    ) -> tuple[dict[str, Any], list[Outcome]]:
        """The figures and the outcomes of a batch.

        Args:
            rows: sequences that the network may run at a time.
            deadline: of the clock time.monotonic().
        Raises:
            WorkerLost: it ended, or did not answer long after the deadline and was ended.
        """
        await self._ready.wait()
        message = {"kind": kind, "deadline": deadline, "rows": rows, "inputs": list(inputs)}
        try:
            async with asyncio.timeout(max(0.0, deadline - time.monotonic()) + _GRACE_SECONDS):
                return await self._exchange(json.dumps(message).encode() + b"\n", len(inputs))
        except TimeoutError:
            logger.error("the model process hangs; it is ended")
            self._kill()
            raise WorkerLost("the model process hung") from None
        except (OSError, EOFError, ValueError) as error:
            self._kill()
            raise WorkerLost(f"the model process ended ({type(error).__name__})") from None

    async def _exchange(self, message: bytes, count: int) -> tuple[dict[str, Any], list[Outcome]]:
        assert self._process is not None and self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(message)
        await self._process.stdin.drain()
        figures = json.loads(await self._process.stdout.readuntil(b"\n"))
        lines = [await self._process.stdout.readuntil(b"\n") for _ in range(count)]
        return figures, [(line[:1], line[1:-1]) for line in lines]

    def _kill(self) -> None:
        self._ready.clear()
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)  # the Process's own kill() may take its exit code

    async def stop(self) -> None:
        """Let the process end, by force if it does not."""
        self._is_stopping = True
        if self._process is None or self._process.returncode is not None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _GRACE_SECONDS)
        except TimeoutError:
            self._kill()
            await self._process.wait()

"""Supervises the model process: starts it, sends it one batch at a time, and restarts it when it dies or hangs.

The processes send each other Python objects through a pipe. First the child sends its `Description`, or the error text
if it cannot start. Then it answers each `Batch` with (`Figures`, outcomes), and None ends it.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any

from bert.exit_codes import Failure
from bert.parent_death import end_with
from bert.serving.messages import Batch, Description, Figures, Outcome
from bert.serving.settings import ServerSettings

logger = logging.getLogger(__name__)
_GRACE_SECONDS = 10.0  # after the deadline, for one run of the network; a process that takes longer hangs
_MOST_FAILURES = 5  # failed starts in a row that end the server
_PAUSE_SECONDS = 1.0  # base of the pause after a failed start; the pause doubles each time


class WorkerLost(Exception):
    """Raised when the model process ended or hung while it had a batch."""


def run_child(connection: Connection, settings: ServerSettings, parent: int) -> None:
    """Entry point of the child process."""
    end_with(parent)
    os.setsid()  # Ctrl-C is for the server, which lets the model finish
    from bert.serving.model_process import main  # loads Paddle, which the server does not need

    main(connection, settings)


class ModelWorker:
    """The model process. `keep_running` restarts it when it ends; `run` sends it one batch at a time.

    Args:
        on_start: function that is called with the description each time the model is ready.
    """

    def __init__(self, settings: ServerSettings, on_start: Callable[[Description], None]) -> None:
        self._settings, self._on_start = settings, on_start
        self._ready = asyncio.Event()
        self._is_stopping = False
        self.starts = 0  # number of times that the model became ready
        self._start_process()

    def _start_process(self) -> None:
        self._connection, child = get_context("spawn").Pipe()
        self.process = get_context("spawn").Process(
            target=run_child, args=(child, self._settings, os.getpid()), daemon=True
        )
        self.process.start()
        child.close()  # so that its end is the end of the pipe

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    async def keep_running(self) -> None:
        """Wait for the model, and restart the process whenever it ends, until `stop`.

        Raises:
            ValueError: the model cannot be loaded.
            Failure: the process ended before the model was ready; after a first success, several times in a row.
        """
        failures = 0
        while True:
            description = None
            with contextlib.suppress(OSError, EOFError):
                description = await asyncio.to_thread(self._connection.recv)
            if isinstance(description, str):
                raise ValueError(description)
            if description is not None:
                failures = 0
                self.starts += 1
                self._on_start(description)
                self._ready.set()
            await asyncio.to_thread(wait, [self.process.sentinel])
            self._ready.clear()
            self.process.join()
            if self._is_stopping:
                return
            code = self.process.exitcode or 0
            end = f"the model process {f'was ended by signal {-code}' if code < 0 else f'ended with code {code}'}"
            if description is not None:
                logger.error("%s; it is started again", end)
            else:
                failures += 1
                if not self.starts or failures == _MOST_FAILURES:
                    raise Failure(f"{end} before the model was ready; its last lines above say why")
                await asyncio.sleep(_PAUSE_SECONDS * 2**failures)
            self._start_process()

    async def run(self, batch: Batch) -> tuple[Figures, list[Outcome]]:
        """Run a batch; returns its figures and outcomes. WorkerLost if the process ends or hangs."""
        await self._ready.wait()
        try:
            async with asyncio.timeout(max(0.0, batch.deadline - time.monotonic()) + _GRACE_SECONDS):
                return await asyncio.to_thread(_exchange, self._connection, batch)
        except TimeoutError:
            logger.error("the model process hangs; it is ended")
            reason = "hung"
        except (OSError, EOFError) as error:
            reason = f"ended ({type(error).__name__})"
        self._ready.clear()
        self.process.kill()
        raise WorkerLost(f"the model process {reason}")

    async def stop(self) -> None:
        """Stop the process; it is killed if it does not end by itself."""
        self._is_stopping = True
        with contextlib.suppress(OSError):
            self._connection.send(None)
        await asyncio.to_thread(wait, [self.process.sentinel], _GRACE_SECONDS)
        self.process.kill()


def _exchange(connection: Connection, batch: Batch) -> Any:
    connection.send(batch)
    return connection.recv()

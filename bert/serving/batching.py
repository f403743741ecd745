"""Dynamic batching: inputs of concurrent requests wait in one queue, and inputs of similar length run together."""

import asyncio
import contextlib
import itertools
import logging
import math
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from bert.serving.messages import ADD, LOST, Batch, Figures, Outcome
from bert.serving.settings import Limits

logger = logging.getLogger(__name__)
_START_TOKENS = 32  # cost of starting a run, in tokens: from 5 (BERT-base) to some hundreds (two small layers)
_SMOOTHING = 0.1


@dataclass(eq=False)
class Item:
    """An input that waits in the queue, with its estimated size."""

    kind: str  # as in `Batch`
    texts: tuple[str, ...]
    options: Any  # top_k, or the options of an input to an index
    deadline: float  # in seconds of time.monotonic()
    tokens: int  # estimated tokens of all its sequences
    length: int  # estimated tokens of its longest sequence
    rows: int = 1  # number of its sequences: windows of a long paragraph, or texts to add to an index
    size: int = 0  # bytes of its texts
    owners: tuple[Hashable, ...] = ()  # (client, request)
    arrived: float = field(default_factory=time.monotonic)
    outcome: "asyncio.Future[Outcome]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class LengthEstimate:
    """Estimates the tokens of a text from its bytes. The ratio is corrected by the counts of the model process.

    Args:
        windows: whether a long last text is read in overlapping windows, as in question answering; otherwise it is cut.
    """

    def __init__(self, max_seq_length: int, windows: bool = False) -> None:
        self.max_seq_length, self._windows, self._bytes_per_token = max_seq_length, windows, 4.0

    def item(self, kind: str, texts: tuple[str, ...], options: Any, deadline: float) -> Item:
        size = sum(len(text.encode()) for text in texts)
        tokens = 2 + len(texts) + math.ceil(size / self._bytes_per_token)
        length, rows = min(tokens, self.max_seq_length), 1
        if self._windows and tokens > self.max_seq_length:
            rows = math.ceil(tokens / (self.max_seq_length / 3))  # a window begins every third of its length
        if kind == ADD:  # each text is a sequence of its own
            longest = 3 + math.ceil(max(len(text.encode()) for text in texts) / self._bytes_per_token)
            length, rows = min(longest, self.max_seq_length), max(len(texts), math.ceil(tokens / self.max_seq_length))
        return Item(kind, texts, options, deadline, rows * length, length, rows, size)

    def learn(self, batch: Sequence[Item], tokens: int) -> None:
        """Correct the ratio of bytes and tokens by the counts of a batch; a batch with cut texts is ignored."""
        words = tokens - sum(1 + len(item.texts) for item in batch)
        if words > 0 and all(item.rows == 1 and item.length < self.max_seq_length for item in batch):
            ratio = sum(item.size for item in batch) / words
            self._bytes_per_token += _SMOOTHING * (min(max(ratio, 0.5), 16.0) - self._bytes_per_token)


def choose(waiting: Sequence[Item], max_size: int, max_tokens: int) -> list[Item]:
    """Choose the inputs of the next batch: the first, and others of its kind and similar length.

    An input joins if the padding that it adds costs less than a run of its own. With padding, a batch has at most
    `max_tokens` tokens, unless it is a single input.
    """
    first = waiting[0]
    batch, rows, longest = [first], first.rows, first.length
    others = [item for item in waiting[1:] if item.kind == first.kind]
    for item in sorted(others, key=lambda item: abs(item.length - first.length)):
        if len(batch) == max_size:
            break
        padded = (rows + item.rows) * max(longest, item.length)
        if padded <= max_tokens and padded - rows * longest <= item.tokens + _START_TOKENS:
            batch.append(item)
            rows, longest = rows + item.rows, max(longest, item.length)
    return batch


class Shares:
    """Decides whose input is next: the client with the fewest tokens so far, and its request with the fewest.

    A new client or request begins with the smallest count of the others, so that it does not go before all of them
    until it has caught up.
    """

    def __init__(self) -> None:
        self._had: dict[Hashable, int] = {}

    def in_turn(self, waiting: Sequence[Item]) -> list[Item]:
        """Move the next input to the front of the waiting inputs; the others keep their order."""
        before, self._had = self._had, {}
        for owners in zip(*(item.owners for item in waiting), strict=True):
            least = min((before[owner] for owner in owners if owner in before), default=0)
            self._had |= {owner: before.get(owner, least) for owner in owners}
        first = min(waiting, key=lambda item: [self._had[owner] for owner in item.owners])
        return [first, *(item for item in waiting if item is not first)]

    def count(self, batch: Sequence[Item]) -> None:
        for item in batch:
            for owner in item.owners:
                self._had[owner] += item.tokens


class Batcher:
    """The queue of inputs, and the loop that runs them in batches.

    Args:
        on_batch: called after each batch with the number of its inputs and its figures.
    """

    def __init__(
        self,
        run: Callable[[Batch], Awaitable[tuple[Figures, list[Outcome]]]],
        limits: Limits,
        estimate: LengthEstimate,
        on_batch: Callable[[int, Figures], None] = lambda num_inputs, figures: None,
    ) -> None:
        self._run, self._limits, self._on_batch, self.estimate = run, limits, on_batch, estimate
        self.waiting: list[Item] = []
        self._arrived, self._shares, self._requests = asyncio.Event(), Shares(), itertools.count()
        self._seconds_per_input = 0.01

    def submit(self, items: Sequence[Item], client: str = "") -> int | None:
        """Put inputs into the queue; returns None, or if it is full, the seconds after which the client may retry."""
        request = next(self._requests)
        for item in items:
            item.owners = (client, request)
        count = len(self.waiting)
        if count + len(items) > self._limits.max_queue:
            return min(60, max(1, math.ceil(count * self._seconds_per_input)))
        self.waiting += items
        self._arrived.set()
        return None

    def withdraw(self, items: Sequence[Item]) -> None:
        """Remove inputs whose client no longer waits from the queue; a running batch is not stopped."""
        for item in items:
            item.outcome.cancel()
        self.waiting = [item for item in self.waiting if not item.outcome.done()]

    async def work(self) -> None:
        while True:
            await self._wait_for_inputs()
            waiting = self._shares.in_turn(self.waiting)
            batch = choose(waiting, self._limits.max_batch_size, self._limits.max_batch_tokens)
            self._shares.count(batch)
            chosen = set(batch)
            self.waiting = [item for item in self.waiting if item not in chosen]
            await self._run_batch(batch)

    async def _wait_for_inputs(self) -> None:
        """Wait for an input, then up to --max-wait-ms for others to run with it."""
        while True:
            left = (
                self.waiting[0].arrived + self._limits.max_wait_ms / 1000 - time.monotonic() if self.waiting else None
            )
            if left is not None and (left <= 0 or len(self.waiting) >= self._limits.max_batch_size):
                return
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._arrived.wait(), left)

    async def _run_batch(self, items: Sequence[Item]) -> None:
        start = time.monotonic()
        rows = max(1, self._limits.max_batch_tokens // max(item.length for item in items))
        batch = Batch(
            items[0].kind, max(item.deadline for item in items), rows, [(item.texts, item.options) for item in items]
        )
        try:
            figures, outcomes = await self._run(batch)
        except Exception as error:  # the loop must live; each request learns of it
            logger.debug("a batch failed: %s", error)
            outcomes = [Outcome(LOST)] * len(items)
        else:
            self.estimate.learn(items, figures.tokens)
            self._on_batch(len(items), figures)
            self._seconds_per_input += _SMOOTHING * ((time.monotonic() - start) / len(items) - self._seconds_per_input)
        for item, outcome in zip(items, outcomes, strict=True):
            if not item.outcome.done():
                item.outcome.set_result(outcome)

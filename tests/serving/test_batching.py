"""The queue: which inputs run together, how long they wait, when they are refused."""

import asyncio
import time

import pytest

from bert.serving.batching import Batcher, Item, LengthEstimate, Shares, choose
from bert.serving.messages import DONE, ENCODE, LOST, PREDICT, Figures, Outcome
from bert.serving.settings import Limits


def item(length: int, kind: str = PREDICT, rows: int = 1, text: str = "a") -> Item:
    return Item(kind, (text,), 5, time.monotonic() + 9, rows * length, length, rows)


def chosen(*items: tuple, size: int = 64, tokens: int = 4096) -> list[tuple[int, str, int]]:
    """(length, kind, rows) of the items that run first; items are arguments of `item`."""

    async def run() -> list[Item]:
        return choose([item(*arguments) for arguments in items], size, tokens)

    return [(each.length, each.kind, each.rows) for each in asyncio.run(run())]


@pytest.mark.parametrize(
    ("lengths", "limits", "expected"),
    [
        ((100, 400, 90, 12, 110, 380), {}, [100, 90, 110]),
        ((400, 100, 90, 12, 380), {}, [400, 380]),
        ((10, 11, 9, 400), {}, [10, 11, 9]),
        ((10, 30, 50, 90), {}, [10, 30]),  # 50 would pad the two others: 150 tokens in place of 60 + 50
        ((20,) * 9, {"size": 4}, [20] * 4),
        ((100,) * 9, {"tokens": 450}, [100] * 4),
        ((99, 100, 100), {"tokens": 299}, [99, 100]),  # padded to 100, a third would make 300
        ((500, 500), {"tokens": 300}, [500]),  # a single one always runs
        ((7, 7, 7), {"size": 1}, [7]),
    ],
)
def test_the_oldest_runs_with_those_nearest_in_length_within_the_limits(lengths, limits, expected):
    assert [length for length, *_ in chosen(*((length,) for length in lengths), **limits)] == expected


def test_vectors_and_predictions_do_not_run_together_and_windows_count():
    first = chosen((50,), (50, ENCODE), (50, PREDICT, 3), (51,), tokens=210)
    assert first == [(50, PREDICT, 1), (50, PREDICT, 3)]  # 4 x 50 of 210


def test_lengths_are_estimated_from_bytes_and_learned():
    async def run():
        estimate, of_windows = LengthEstimate(128), LengthEstimate(128, windows=True)

        def sizes(*texts: str, estimate=estimate):
            found = estimate.item(PREDICT, texts, 5, 0.0)
            return found.tokens, found.length, found.rows, found.size

        assert sizes("x" * 40) == (13, 13, 1, 40)
        assert sizes("x" * 4000) == (128, 128, 1, 4000)
        assert sizes("a question", "x" * 4000, estimate=of_windows) == (24 * 128, 128, 24, 4010)
        batch = [item(13)]
        batch[0].size = 40
        for _ in range(60):
            estimate.learn(batch, 2 + 20)  # two bytes a token
        assert sizes("x" * 40)[0] == pytest.approx(23, abs=1)
        batch[0].length = 128
        estimate.learn(batch, 5000)  # it was cut: nothing to learn
        assert sizes("x" * 40)[0] == pytest.approx(23, abs=1)

    asyncio.run(run())


class Model:
    """Notes its batches; each takes `seconds`."""

    def __init__(self, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.batches: list[list[str]] = []
        self.rows: list[int] = []
        self._seconds, self._error = seconds, error

    async def run(self, batch):
        texts = [given[0] for given, _ in batch.inputs]
        self.batches.append(texts)
        self.rows.append(batch.rows)
        await asyncio.sleep(self._seconds)
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        return Figures(9, 9, 0.0), [Outcome(DONE, text.encode()) for text in texts]


def working(model: Model, test, **limits) -> None:
    """Run `test(batcher)` beside the batcher's loop."""

    async def run() -> None:
        batcher = Batcher(model.run, Limits(**limits), LengthEstimate(128))
        loop = asyncio.create_task(batcher.work())
        try:
            await test(batcher)
        finally:
            loop.cancel()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_each_gets_its_own_outcome_and_what_waits_runs_together():
    model = Model(0.2)

    async def test(batcher):
        first, *others = items = [item(10, text=text) for text in ("first", *"01234")]
        for each in items:
            batcher.submit([each])
            await asyncio.sleep(0.002)  # the first runs
        assert await first.outcome == (DONE, b"first")
        assert [await other.outcome for other in others] == [(DONE, str(n).encode()) for n in range(5)]

    working(model, test, max_batch_tokens=100)
    assert model.batches == [["first"], ["0", "1", "2", "3", "4"]] and model.rows == [10, 10]


def test_clients_and_their_requests_take_turns_by_tokens():
    def of(client: str, request: str, number: int, tokens: int = 100) -> list[Item]:
        items = [item(tokens, text=f"{request} {index}") for index in range(number)]
        for each in items:
            each.owners = (client, request)
        return items

    async def run() -> list[str]:
        shares, order = Shares(), []
        waiting = [*of("greedy", "g", 6), *of("patient", "a", 3), *of("patient", "b", 3)]
        while waiting:
            if len(order) == 4:
                waiting += of("another", "late", 2)
            if len(order) == 6:
                waiting += of("small", "s", 3, 10)
            first, *waiting = shares.in_turn(waiting)
            shares.count([first])
            order.append(first.texts[0])
        return order

    order = asyncio.run(run())
    assert order[:6] == ["g 0", "a 0", "b 0", "g 1", "a 1", "late 0"]
    small = [order.index(f"s {number}") for number in range(3)]
    assert small[2] - small[0] <= 5  # three of them are fewer tokens than the next of the others
    assert sorted(order[-3:]) != ["g 3", "g 4", "g 5"]


def test_an_idle_model_waits_for_more_only_as_long_as_it_may():
    model = Model()

    async def test(batcher):
        items = [item(10, text=str(number)) for number in range(3)]
        for each in items:
            batcher.submit([each])
            await asyncio.sleep(0.01)
        await asyncio.gather(*(each.outcome for each in items))

    working(model, test, max_wait_ms=400)
    assert model.batches == [["0", "1", "2"]]
    model = Model()
    working(model, test, max_wait_ms=0)
    assert model.batches == [["0"], ["1"], ["2"]]


def test_a_full_queue_refuses_the_whole_request_and_says_when_to_come_back():
    async def test(batcher):
        batcher.submit([item(10)])
        await asyncio.sleep(0.005)  # it runs
        batcher.submit([item(10), item(10)])
        assert batcher.submit([item(10), item(10)]) == 1  # second
        assert batcher.submit([item(10)]) is None
        assert len(batcher.waiting) == 3

    working(Model(0.1), test, max_queue=3, max_inputs=1)


def test_what_was_withdrawn_does_not_run_and_makes_room():
    model = Model(0.03)

    async def test(batcher):
        first, gone, last = item(10, text="first"), item(10, text="gone"), item(10, text="last")
        batcher.submit([first])
        await asyncio.sleep(0.005)
        batcher.submit([gone])
        batcher.withdraw([gone, first])  # the first runs already
        batcher.submit([last])
        assert await last.outcome == (DONE, b"last")

    working(model, test, max_queue=1, max_inputs=1)
    assert model.batches == [["first"], ["last"]]


def test_a_failed_batch_is_lost_and_the_next_one_runs():
    async def test(batcher):
        first, second = item(10), item(10, text="b")
        batcher.submit([first])
        assert (await first.outcome)[0] == LOST
        batcher.submit([second])
        assert await second.outcome == (DONE, b"b")

    working(Model(error=RuntimeError("gone")), test)

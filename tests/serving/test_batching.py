"""Tests of the queue: which inputs run together, how long they wait, and when they are refused."""

import asyncio
import math
import time
from types import SimpleNamespace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from bert.serving import batching
from bert.serving.batching import Batcher, Item, LengthEstimate, Shares, choose
from bert.serving.messages import DONE, ENCODE, LOST, PREDICT, Figures, Outcome
from bert.serving.settings import Limits


def item(length: int, kind: str = PREDICT, rows: int = 1, text: str = "a") -> Item:
    return Item(kind, (text,), 5, time.monotonic() + 9, rows * length, length, rows)


def chosen(*items: tuple, size: int = 64, tokens: int = 4096) -> list[tuple[int, str, int]]:
    """Return (length, kind, rows) of the items that run first; items are arguments of `item`."""

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
        ((100,) * 9, {"tokens": 400}, [100] * 4),
        ((100,) * 9, {"tokens": 399}, [100] * 3),
        ((99, 100, 100), {"tokens": 299}, [99, 100]),  # padded to 100, a third would make 300
        ((500, 500), {"tokens": 300}, [500]),  # a single one always runs
        ((7, 7, 7), {"size": 1}, [7]),
    ],
)
def test_the_oldest_runs_with_those_nearest_in_length_within_the_limits(lengths, limits, expected):
    assert [length for length, *_ in chosen(*((length,) for length in lengths), **limits)] == expected


def plain_choice(items: list[Item], max_size: int, max_tokens: int) -> list[Item]:
    """Choose the first, and by nearness in length all that fit and whose padding costs less than their own + 32."""
    batch = items[:1]
    others = [each for each in items[1:] if each.kind == items[0].kind]
    for each in sorted(others, key=lambda each: abs(each.length - items[0].length)):
        rows, longest = sum(i.rows for i in batch), max(i.length for i in batch)
        padded = (rows + each.rows) * max(longest, each.length)
        if len(batch) < max_size and padded <= max_tokens and padded - rows * longest <= each.rows * each.length + 32:
            batch.append(each)
    return batch


@settings(max_examples=100, deadline=None, derandomize=True, phases=[Phase.generate])
@given(
    st.lists(st.tuples(st.integers(1, 60), st.sampled_from([PREDICT, PREDICT, ENCODE]), st.integers(1, 3)), min_size=1),
    st.integers(1, 6),
    st.integers(1, 400),
)
def test_a_batch_is_that_of_the_rule_written_plainly(items, max_size, max_tokens):
    async def run() -> None:
        waiting = [item(*each) for each in items]
        assert choose(waiting, max_size, max_tokens) == plain_choice(waiting, max_size, max_tokens)

    asyncio.run(run())


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


def test_a_ratio_of_bytes_to_tokens_moves_by_a_tenth_and_stays_between_a_half_and_16():
    async def run():
        def after(size: int, tokens: int, texts: tuple[str, ...] = ("a",), rows: int = 1) -> float:
            """Return the tokens of 1,600 bytes after one batch of a single input; before it they were 400 and 3."""
            estimate = LengthEstimate(1_000)
            given = Item(PREDICT, texts, 5, 0.0, 9, 9, rows, size)
            estimate.learn([given], tokens)
            return estimate.item(PREDICT, ("x" * 1_600,), 5, 0.0).tokens - 3

        assert after(40, 22) == math.ceil(1_600 / 3.8)  # 2 bytes for each of 20 tokens beside [CLS] and [SEP]
        assert after(40, 23, ("a", "b")) == math.ceil(1_600 / 3.8)  # a pair has a [SEP] more
        assert after(4_000, 3) == math.ceil(1_600 / 5.2) and after(1, 999) == math.ceil(1_600 / 3.65)
        assert after(40, 2) == after(40, 22, rows=2) == 400  # no word, or windows: nothing to learn
        estimate = LengthEstimate(1_000)
        two = [Item(PREDICT, ("a",), 5, 0.0, 9, 9, 1, size) for size in (10, 30)]
        estimate.learn(two, 24)
        assert estimate.item(PREDICT, ("x" * 1_600,), 5, 0.0).tokens == 3 + math.ceil(1_600 / 3.8)

    asyncio.run(run())


def test_windows_begin_every_third_of_the_longest_sequence():
    async def run():
        estimate = LengthEstimate(90, windows=True)
        for size, rows in ((4 * 86, 1), (4 * 87, 4), (4 * 116, 4), (4 * 117, 5)):  # 4 tokens beside those of the texts
            found = estimate.item(PREDICT, ("", "x" * size), 5, 0.0)
            length = min(90, 4 + size // 4)
            assert (found.rows, found.length, found.tokens) == (rows, length, rows * length)
        assert estimate.item(PREDICT, ("ä" * 20,), 5, 0.0).tokens == 3 + 10, "bytes are counted"

    asyncio.run(run())


class Model:
    """Notes its batches; each takes `seconds`."""

    def __init__(self, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.batches: list[list[str]] = []
        self.rows: list[int] = []
        self.deadlines: list[float] = []
        self._seconds, self._error = seconds, error

    async def run(self, batch):
        texts = [given[0] for given, _ in batch.inputs]
        self.batches.append(texts)
        self.rows.append(batch.rows)
        self.deadlines.append(batch.deadline)
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
        assert await first.outcome == Outcome(DONE, b"first")
        assert [await other.outcome for other in others] == [Outcome(DONE, str(n).encode()) for n in range(5)]

    working(model, test, max_batch_tokens=100)
    assert model.batches == [["first"], ["0", "1", "2", "3", "4"]] and model.rows == [10, 10]


def test_clients_take_turns_in_the_loop_by_the_tokens_of_what_has_run():
    """A client with many inputs does not keep another waiting: one of 100 tokens runs after two of 60."""
    model = Model()

    async def test(batcher):
        greedy = [item(60, text=f"greedy {number}") for number in range(4)]
        patient = [item(100, text=f"patient {number}") for number in range(3)]
        batcher.submit(greedy, "greedy")
        batcher.submit(patient[:2], "patient")
        batcher.submit(patient[2:], "patient")
        await asyncio.gather(*(each.outcome for each in (*greedy, *patient)))

    working(model, test, max_batch_size=1)
    order = [text for (text,) in model.batches]
    assert order == ["greedy 0", "patient 0", "greedy 1", "patient 2", "greedy 2", "greedy 3", "patient 1"]


def test_a_batch_is_given_up_at_the_latest_deadline_of_its_inputs():
    model = Model()

    async def test(batcher):
        items = [item(10, text=str(number)) for number in range(3)]
        for each, deadline in zip(items, (50.0, 90.0, 70.0), strict=True):
            each.deadline = deadline
        batcher.submit(items)
        await asyncio.gather(*(each.outcome for each in items))

    working(model, test)
    assert model.deadlines == [90.0]


def test_a_sequence_that_is_longer_than_a_batch_may_be_runs_alone():
    model = Model()

    async def test(batcher):
        items = [item(10, text="short"), item(30, text="longer"), item(70, text="long")]
        batcher.submit(items)
        await asyncio.gather(*(each.outcome for each in items))

    working(model, test, max_batch_tokens=65)
    assert model.batches == [["short", "longer"], ["long"]] and model.rows == [2, 1]


def test_the_seconds_after_which_to_come_back_follow_the_time_of_an_input(monkeypatch):
    """A tenth of the way with each batch: from 0.01 s to 0.4 s it is 0.049, and of a queue of 41 inputs two seconds."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(batching, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def of(number: int) -> list[Item]:
        return [Item(PREDICT, ("a",), 5, 900.0, 10, 10, arrived=0.0) for _ in range(number)]

    async def run() -> None:
        noted = []

        async def answers(batch):
            clock.now += 0.8
            return Figures(9, 11, 0.5), [Outcome(DONE)] * len(batch.inputs)

        batcher = Batcher(answers, Limits(max_queue=70), LengthEstimate(128), lambda *each: noted.append(each))
        batcher.submit(first := of(2))
        loop = asyncio.create_task(batcher.work())
        await asyncio.gather(*(each.outcome for each in first))
        loop.cancel()
        assert noted == [(2, Figures(9, 11, 0.5))]
        for waiting, seconds in ((0, 1), (20, 1), (21, 2), (40, 2), (41, 3), (61, 3), (62, 4)):
            batcher.waiting = of(waiting)
            assert batcher.submit(of(71)) == seconds, waiting  # 0.049 s each
        assert len(batcher.waiting) == 62 and batcher.submit(of(8)) is None and len(batcher.waiting) == 70
        batcher.waiting = of(1) * 9_000
        assert batcher.submit(of(71)) == 60

    asyncio.run(run())


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
        assert await last.outcome == Outcome(DONE, b"last")

    working(model, test, max_queue=1, max_inputs=1)
    assert model.batches == [["first"], ["last"]]


def test_a_failed_batch_is_lost_and_the_next_one_runs():
    async def test(batcher):
        first, second = item(10), item(10, text="b")
        batcher.submit([first])
        assert (await first.outcome)[0] == LOST
        batcher.submit([second])
        assert await second.outcome == Outcome(DONE, b"b")

    working(Model(error=RuntimeError("gone")), test)

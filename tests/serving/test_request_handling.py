"""Tests of request handling with a stub of the model process: answers, the model's fingerprint, refusals."""

import asyncio
import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from bert.serving import request_handling
from bert.serving.messages import DONE, FAILED, LATE, LOST, PREDICT, REFUSED, Figures, Outcome
from bert.serving.request_handling import MODEL_HEADER, Service
from bert.serving.settings import ServerSettings
from tests.serving.fake_model import description


class Worker:
    """Stands in for the model process: an input's text names its outcome."""

    def __init__(self, settings, on_start) -> None:
        self.on_start, self.starts, self.is_ready, self.batches = on_start, 0, False, []
        self.outcomes: dict[str, Outcome] = {}
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    def start(self, fingerprint: str, task: str = "sequence-classification") -> None:
        self.starts, self.is_ready = self.starts + 1, True
        self.on_start(replace(description(task), fingerprint=fingerprint))

    async def run(self, batch):
        self.batches.append(batch)
        await self.may_answer.wait()
        texts = [texts[-1] for texts, _ in batch.inputs]
        done = [self.outcomes.get(text, Outcome(DONE, json.dumps(text).encode())) for text in texts]
        return Figures(7, 12, 0.25, 1), done

    async def stop(self) -> None:
        pass


@pytest.fixture
def running(monkeypatch):
    """Run `test(service, worker, ask)` with a service whose model is ready; ask(TEXT ...) -> its answer."""

    def run(test, **limits):
        monkeypatch.setattr(request_handling, "ModelWorker", Worker)
        monkeypatch.setattr(request_handling, "METRICS", CollectorRegistry())

        async def with_service():
            service = Service(ServerSettings(model="m", **limits))
            worker = service.worker
            worker.start("first")

            async def ask(*texts: str, top_k: int = 5, client: str = "one", leaving=None):
                stays = leaving or asyncio.create_task(asyncio.sleep(60))
                try:
                    return await service.answer(PREDICT, [(text,) for text in texts], top_k, client, stays)
                finally:
                    stays.cancel()

            try:
                return await test(service, worker, ask)
            finally:
                await service.stop()

        return asyncio.run(asyncio.wait_for(with_service(), 20))

    return run


def content(answer):
    return answer.status_code, json.loads(answer.body)


def test_an_answer_names_the_model_that_runs_now(running):
    """A model process that starts again may find another export in its folder."""

    async def test(service, worker, ask):
        loaded = []
        service.on_loaded.append(loaded.append)
        assert (await ask("a")).headers[MODEL_HEADER] == service.fingerprint == "first"
        worker.start("second")
        assert (await ask("a")).headers[MODEL_HEADER] == service.fingerprint == "second"
        assert loaded == [], "routes are made once, of the first start"

    running(test)


def test_those_who_wait_for_the_model_learn_of_its_first_start_alone(monkeypatch):
    monkeypatch.setattr(request_handling, "ModelWorker", Worker)
    monkeypatch.setattr(request_handling, "METRICS", CollectorRegistry())

    async def run():
        service, loaded = Service(ServerSettings(model="m")), []
        assert service.fingerprint == "" and service.why_not_ready() == "the model is being loaded"
        service.on_loaded += [loaded.append, loaded.append]
        for fingerprint in ("first", "second"):
            service.worker.start(fingerprint)
        assert [each.fingerprint for each in loaded] == ["first", "first"] and service.why_not_ready() is None
        service.worker.is_ready = False
        assert service.why_not_ready() == "the model process is started again"
        service.is_stopping = True
        assert service.why_not_ready() == "the server is stopping"
        metrics = request_handling.METRICS.get_sample_value
        assert [metrics(f"bert_{name}") for name in ("ready", "queue_inputs", "model_starts")] == [0, 0, 2]
        await service.stop()

    asyncio.run(run())


def test_results_are_in_the_order_of_the_inputs(running):
    async def test(service, worker, ask):
        assert content(await ask("c", "a", "b", top_k=3)) == (200, {"results": ["c", "a", "b"], "truncated": 0})
        worker.outcomes = {"a": Outcome(DONE, b'"long"', truncated=True)}
        assert content(await ask("c", "a", "a")) == (200, {"results": ["c", "long", "long"], "truncated": 2})
        assert worker.batches[0].inputs == [(("c",), 3), (("a",), 3), (("b",), 3)]
        assert 29 < worker.batches[0].deadline - time.monotonic() <= 30

    running(test)


def test_the_worst_outcome_of_an_input_decides(running):
    async def test(service, worker, ask):
        worker.outcomes = {
            "refused": Outcome(REFUSED, b'"no mask"'),
            "failed": Outcome(FAILED, b'"at this input"'),
            "late": Outcome(LATE),
            "lost": Outcome(LOST),
        }
        place = {"type": "value_error", "loc": ["body", "inputs", 1], "msg": "no mask"}
        assert content(await ask("a", "refused")) == (422, {"detail": [place]})
        assert content(await ask("refused", "failed", "a")) == (500, {"detail": "at this input"})
        lost = await ask("failed", "lost", "refused")
        assert content(lost) == (503, {"detail": "the model process ended; it is started again"})
        assert lost.headers["retry-after"] == "2"
        assert content(await ask("lost", "late")) == (504, {"detail": "no answer within 30 s"})

    running(test)


def test_ten_refused_inputs_are_named(running):
    async def test(service, worker, ask):
        worker.outcomes = {f"t{number}": Outcome(REFUSED, b'"no"') for number in range(1, 13)}
        status, body = content(await ask(*(f"t{number}" for number in range(13))))
        assert status == 422 and [mistake["loc"][-1] for mistake in body["detail"]] == [*range(1, 11)]

    running(test)


def test_a_request_that_does_not_fit_into_the_queue_is_told_when_to_come_back(running):
    async def test(service, worker, ask):
        worker.may_answer.clear()
        first = asyncio.create_task(ask("runs"))
        while not worker.batches:
            await asyncio.sleep(0)
        others = [asyncio.create_task(ask(f"{number}", "b")) for number in range(2)]
        await asyncio.sleep(0.01)
        refused = await ask("too", "many")
        assert content(refused) == (429, {"detail": "4 inputs wait for the model; try again in 1 s"})
        assert refused.headers["retry-after"] == "1" and MODEL_HEADER not in refused.headers
        assert request_handling.METRICS.get_sample_value("bert_queue_inputs") == 4
        worker.may_answer.set()
        assert [(await each).status_code for each in (first, *others)] == [200] * 3

    running(test, max_queue=5, max_inputs=2)


def test_a_client_that_leaves_is_499_and_its_inputs_wait_no_more(running):
    async def test(service, worker, ask):
        worker.may_answer.clear()
        first = asyncio.create_task(ask("runs"))
        while not worker.batches:
            await asyncio.sleep(0)
        leaves = asyncio.create_task(asyncio.sleep(0))
        assert content(await ask("gone", leaving=leaves)) == (499, {"detail": "the client closed the connection"})
        worker.may_answer.set()
        assert (await first).status_code == 200 and (await ask("next")).status_code == 200
        assert [texts for batch in worker.batches for (texts,), _ in batch.inputs] == ["runs", "next"]

    running(test)


def test_clients_take_turns_by_their_addresses(running):
    async def test(service, worker, ask):
        worker.may_answer.clear()
        first = asyncio.create_task(ask("first", client="another"))
        while not worker.batches:
            await asyncio.sleep(0)
        waiting = [asyncio.create_task(ask(f"g{number}", client="greedy")) for number in range(3)]
        waiting += [asyncio.create_task(ask("p", client="patient"))]
        await asyncio.sleep(0.01)
        worker.may_answer.set()
        await asyncio.gather(first, *waiting)
        assert [batch.inputs[0][0] for batch in worker.batches] == [("first",), ("g0",), ("p",), ("g1",), ("g2",)]

    running(test, max_batch_size=1)


def test_an_answer_that_does_not_come_in_time_is_504(running, monkeypatch):
    """The wait is as long as --timeout-seconds, which asyncio measures."""
    waited = []
    wait = asyncio.wait

    async def waits(tasks, *, timeout=None, return_when="ALL_COMPLETED"):
        waited.append(timeout)
        return await wait(tasks, timeout=timeout and 0.01, return_when=return_when)

    async def test(service, worker, ask):
        worker.may_answer.clear()
        monkeypatch.setattr(request_handling, "asyncio", SimpleNamespace(**{**vars(asyncio), "wait": waits}))
        answer = await ask("slow")
        assert content(answer) == (504, {"detail": "no answer within 7.5 s"})
        assert answer.headers[MODEL_HEADER] == "first" and 7.5 in waited
        worker.may_answer.set()

    running(test, timeout_seconds=7.5)


def test_the_metrics_of_a_batch_are_its_figures(running):
    names = (
        "batch_inputs_sum",
        "batch_inputs_count",
        "batch_seconds_sum",
        "tokens_total",
        "padding_tokens_total",
        "truncated_inputs_total",
    )
    registry = request_handling.METRICS

    async def test(service, worker, ask):
        before = [registry.get_sample_value(f"bert_{name}") for name in names]
        await ask("a", "b", "c")
        after = [registry.get_sample_value(f"bert_{name}") for name in names]
        assert [new - old for new, old in zip(after, before, strict=True)] == [3, 1, 0.25, 7, 5, 1]

    running(test)

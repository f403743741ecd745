"""Prometheus metrics of the server."""

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from bert.serving.worker import Figures

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counters and histograms in a registry of their own, named bert_...

    Attributes:
        requests: by route and status.
        seconds: from the arrival of a request's header to the end of its answer.
    """

    def __init__(self) -> None:
        disable_created_metrics()
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter("bert_requests", "Requests answered", ["route", "status"], registry=registry)
        self.seconds = Histogram(
            "bert_request_seconds", "Time to answer", ["route"], buckets=_SECONDS, registry=registry
        )
        self._batch_inputs = Histogram("bert_batch_inputs", "Inputs of a batch", buckets=_SIZES, registry=registry)
        self._batch_seconds = Histogram(
            "bert_batch_seconds", "Time of the model process for a batch", buckets=_SECONDS, registry=registry
        )
        self._tokens = Counter("bert_tokens", "Tokens run, without padding", registry=registry)
        self._padding = Counter("bert_padding_tokens", "Padding run", registry=registry)

    def watch(self, name: str, meaning: str, value: Callable[[], float]) -> None:
        """A gauge that is read when the metrics are."""
        Gauge(name, meaning, registry=self.registry).set_function(value)

    def on_batch(self, num_inputs: int, figures: Figures) -> None:
        self._batch_inputs.observe(num_inputs)
        self._batch_seconds.observe(figures.seconds)
        self._tokens.inc(figures.tokens)
        self._padding.inc(figures.padded_tokens - figures.tokens)

    def text(self) -> bytes:
        return generate_latest(self.registry)

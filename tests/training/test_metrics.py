"""Counts, rates and times in the log, with a simulated clock."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from bert.checkpoints.progress import Totals
from bert.model.optimization import CONSECUTIVE_SKIPPED_UPDATES, GRADIENT_NORM, LEARNING_RATE, SKIPPED_UPDATES
from bert.planning.estimates import training_flops_per_sequence
from bert.runtime.distributed import Collective, Group
from bert.runtime.paddle_api import place_of, read_variable, static
from bert.samples.collation import MicroBatch
from bert.training.devices import Device
from bert.training.metrics import Throughput, collect, plausible_mfu
from program import TRAINING_METRICS
from tests.support import tiny

AT_START = Totals()


class Leg:
    """Measures throughput by a clock that the test moves."""

    def __init__(self, before: Totals = AT_START):
        self.now = 50.0
        self.throughput = Throughput(tiny.MODEL, before, lambda: self.now)

    def interval(self, updates: int, seconds: float, pause: float = 0.0):
        """Count an interval of updates, after a pause that does not count."""
        self.now += pause
        self.throughput.start()
        self.now += seconds
        self.throughput.interval.updates += updates
        return self.throughput.end_interval()


def batch(sequences: int, tokens: int, padded: int, masked: int, documents: int = 0) -> MicroBatch:
    return MicroBatch({}, sequences, tokens, padded, masked, documents)


def test_micro_batches_are_counted_with_the_operations_of_their_shape():
    leg = Leg()
    leg.throughput.add_micro_batch(batch(4, 30, 64, 10))
    leg.throughput.add_micro_batch(batch(2, 20, 32, 3, documents=4))
    counts = leg.throughput.end_interval()
    assert (counts.sequences, counts.tokens, counts.padded_tokens) == (6, 50, 96)
    plain, packed = (training_flops_per_sequence(tiny.MODEL, *shape) for shape in ((16, 2), (8, 1)))
    assert counts.flops == 4 * plain + 4 * packed
    assert leg.throughput.interval.sequences == 0, "an interval begins anew"


def test_the_clock_stands_in_pauses():
    leg = Leg()
    leg.throughput.start()
    leg.now += 3
    leg.throughput.pause()
    leg.now += 100
    leg.throughput.start()
    leg.now += 4
    assert leg.throughput.end_interval().seconds == 7
    leg.now += 2
    assert leg.throughput.end_interval().seconds == 2, "it goes on after an interval"


def test_the_time_left_is_that_of_the_mean_update():
    leg = Leg()
    assert leg.throughput.seconds_left(10) == math.inf
    leg.interval(4, 8.0)
    leg.interval(4, 24.0, pause=100.0)
    assert leg.throughput.seconds_left(10) == 10 * 32 / 8
    leg.now += 8
    leg.throughput.interval.updates += 2
    assert leg.throughput.seconds_left(10) == 10 * 40 / 10, "with the interval that has not ended"
    leg.throughput.end_interval()
    leg.throughput.forget()
    assert leg.throughput.seconds_left(10) == math.inf


def test_the_speed_is_that_of_the_intervals_in_a_window():
    leg = Leg()
    assert leg.throughput.seconds_per_update(10.0) is None
    leg.interval(10, 10.0)  # 1 s an update, then 2, then 4
    assert leg.throughput.seconds_per_update(10.0) == 1
    leg.interval(5, 10.0)
    leg.interval(5, 20.0, pause=50.0)
    assert leg.throughput.seconds_per_update(0.0) == 4, "the last interval at least"
    assert leg.throughput.seconds_per_update(19.0) == 4
    assert leg.throughput.seconds_per_update(30.0) == 3
    assert leg.throughput.seconds_per_update(1000.0) == 2
    leg.interval(0, 5.0)
    assert leg.throughput.seconds_per_update(24.9) == 5, "back to the last interval with an update"


def test_of_a_long_run_only_the_last_thousand_intervals_are_kept():
    leg = Leg()
    for seconds in (*[9.0] * 100, *[1.0] * 1000):
        leg.interval(1, seconds)
    assert leg.throughput.seconds_per_update(1e9) == 1


class Ranks(Collective):
    """Stands in for three ranks with the same numbers."""

    def sum(self, values):
        return 3 * np.asarray(values)


def test_totals_are_of_all_ranks_and_legs():
    before = Totals(sequences=100, tokens=1000, flops=5, seconds=30, rank_seconds=60, total_seconds=40)
    leg = Leg(before)
    leg.throughput.add_micro_batch(batch(2, 30, 32, 0))
    leg.interval(1, 8.0, pause=4.0)
    flops = 2 * training_flops_per_sequence(tiny.MODEL, 16, 0)
    expected = Totals(100 + 3 * 2, 1000 + 3 * 30, 5 + 3 * flops, 30 + 8, 60 + 3 * 8, 40 + 12)
    assert leg.throughput.totals(Ranks(Group(0, 3, "cpu"), None), 3) == expected
    assert leg.throughput.seconds_of_run() == 40 + 12


def test_a_log_line_has_sums_of_all_ranks_and_rates_of_the_interval():
    scope, place, group = static.Scope(), place_of("cpu"), Group(0, 3, "cpu")
    values = {TRAINING_METRICS: np.array([4.0, 10.0, 2.0, 8.0]), LEARNING_RATE: np.array([0.5], "float32")}
    values |= {GRADIENT_NORM: np.array([2.5], "float32"), SKIPPED_UPDATES: np.array([1])}
    values |= {CONSECUTIVE_SKIPPED_UPDATES: np.array([0]), "scale": np.array([128.0], "float32")}
    for name, value in values.items():
        scope.var(name).get_tensor().set(value, place)
    device = Device(None, scope, place, group, Ranks(group, None), 1e-3)
    objective = SimpleNamespace(metric_names=("passes", "loss", "correct", "pairs"), summarise=dict)
    program, leg = SimpleNamespace(objective=objective, loss_scale="scale"), Leg()
    leg.throughput.start()
    leg.throughput.add_micro_batch(batch(6, 60, 96, 9))
    leg.throughput.interval.updates, leg.now = 4, leg.now + 8.0
    metrics, loss_sum, micro_steps = collect(program, device, leg.throughput, 24)
    flops = 6 * training_flops_per_sequence(tiny.MODEL, 16, round(9 / 6))
    assert metrics.pop("mfu") == pytest.approx(3 * flops / (3 * 8.0 * 1e9))
    assert metrics == {
        "passes": 12.0,
        "loss": 30.0,
        "correct": 6.0,
        "pairs": 24.0,
        "learning_rate": 0.5,
        "gradient_norm": 2.5,
        "skipped_steps": 1.0,
        "loss_scale": 128.0,
        "step_cost": 2.0,
        "step_samples": 24,
        "seqs_per_sec": 6 * 3 / 8,
        "tokens_per_sec": 3 * 60 / 8,
        "padded_tokens_per_sec": 3 * 96 / 8,
    }
    assert (loss_sum, micro_steps) == (30.0, 12.0)
    assert not read_variable(scope, TRAINING_METRICS).any(), "the next interval begins at 0"
    scope.var(CONSECUTIVE_SKIPPED_UPDATES).get_tensor().set(np.array([2]), place)
    program.loss_scale = None
    metrics, *_ = collect(program, device, leg.throughput, 24)
    assert math.isnan(metrics["gradient_norm"]), "of an update that overflowed"
    assert not {"loss_scale", "mfu"} & set(metrics)
    rates = {name: metrics[name] for name in ("step_cost", "seqs_per_sec", "tokens_per_sec", "padded_tokens_per_sec")}
    assert all(map(math.isnan, rates.values())), "no update was made: nothing was measured"


@pytest.mark.parametrize(
    ("flops", "peak", "expected"), [(5e12, 10.0, 0.25), (24e12, 10.0, 1.2), (24.1e12, 10.0, None), (0.0, 10.0, None)]
)
def test_a_utilisation_that_cannot_be_is_not_shown(flops, peak, expected):
    """The card has 10 Tflops for 2 seconds; a little above 1 is possible, as the last layer is spared counted work."""
    assert plausible_mfu(flops, 2.0, peak) == expected

"""Guards that read the device: skipped updates in a row, and parameters of ranks that differ."""

from types import SimpleNamespace

import numpy as np
import pytest

from bert.exit_codes import DIVERGED
from bert.model.optimization import CONSECUTIVE_SKIPPED_UPDATES
from bert.runtime.distributed import Collective, Group
from bert.runtime.paddle_api import place_of, static
from bert.training.device_guards import FiniteGuard, RankGuard, RanksDiffer
from bert.training.devices import Device
from bert.training.loss_guards import Interval, TrainingDiverged


class Ranks(Collective):
    """Stands in for ranks of which the first has other values of some parameters, by their numbers."""

    def __init__(self, group: Group, others: tuple[int, ...] = ()):
        super().__init__(group, None)
        self._others, self.gathered = others, 0

    def count_differences(self, program, names, scope):
        counts = np.zeros(len(names), "int64")
        counts[list(self._others)] = 2
        return counts

    def gather(self, values):
        self.gathered += 1
        table = np.array([values] * self.group.world_size)
        table[0, list(self._others)] += 1
        return table


def device_of(
    values: dict[str, np.ndarray], world_size: int = 1, others: tuple[int, ...] = (), kind: str = "cpu"
) -> Device:
    scope, place, group = static.Scope(), place_of("cpu"), Group(0, world_size, kind)
    for name, value in values.items():
        scope.var(name).get_tensor().set(value, place)
    return Device(None, scope, place, group, Ranks(group, others), 1.0)


@pytest.mark.parametrize(
    ("skipped", "scale", "is_dynamic", "ends"),
    [
        (2, None, False, False),
        (3, None, False, True),
        (9, 4.0, True, False),  # the scale may still become small enough
        (3, 1.0, True, True),
        (3, np.inf, True, True),
        (3, 128.0, False, True),
        (2, 1.0, True, False),
    ],
)
def test_three_skipped_updates_in_a_row_end_the_run_once_the_scale_is_down(skipped, scale, is_dynamic, ends):
    values = {CONSECUTIVE_SKIPPED_UPDATES: np.array([skipped], "int64")}
    values |= {} if scale is None else {"scale": np.array([scale], "float32")}
    counters = ("bad", "good") if is_dynamic else ()
    program = SimpleNamespace(loss_scale=None if scale is None else "scale", loss_scale_counters=counters)
    guard = FiniteGuard(program, device_of(values), 3)
    for look in (guard.before_save, lambda: guard.after_interval(Interval(9, 0, True, {}, 1.0, 1.0))):
        if ends:
            with pytest.raises(TrainingDiverged, match=f"the last {skipped} updates had NaN or Inf .*steps=3") as error:
                look()
            assert error.value.exit_code == DIVERGED
        else:
            look()


NAMES = ("a", "b", "c", "d", "e")
PROGRAM = SimpleNamespace(parameters=NAMES, main=None)
VALUES = {name: np.full(3, number, "float32") for number, name in enumerate(NAMES)}


def test_parameters_of_ranks_are_compared_as_often_as_was_said():
    for frequency, compared in ((3, 3), (0, 0), (1, 10)):
        device = device_of(VALUES, world_size=2)
        guard = RankGuard(PROGRAM, device, frequency)
        for step in range(1, 11):
            guard.after_update(step)
        assert device.collective.gathered == compared
    alone = device_of(VALUES, others=(1,))
    RankGuard(PROGRAM, alone, 1).check(1)
    assert alone.collective.gathered == 0, "one rank has no other"


def test_parameters_that_drifted_are_named():
    guard = RankGuard(PROGRAM, device_of(VALUES, 3, others=(0, 1, 3, 4)), 2)
    with pytest.raises(
        RanksDiffer, match=r"at step 4 the ranks hold .* of 4 of 5 parameters \(a, b, d\.\.\.\)"
    ) as error:
        guard.after_update(4)
    assert error.value.exit_code == DIVERGED


def test_gpus_compare_on_the_device():
    device = device_of(VALUES, 2, others=(1, 4), kind="gpu")
    with pytest.raises(RanksDiffer, match=r"at step 3 the ranks hold .* of 2 of 5 parameters \(b, e\.\.\.\)"):
        RankGuard(PROGRAM, device, 3).after_update(3)
    assert device.collective.gathered == 0
    RankGuard(PROGRAM, device_of(VALUES, 2, kind="gpu"), 3).after_update(3)

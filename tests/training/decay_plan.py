"""Simulates a decay without a training: the test sets the clock, the speed and the applied updates."""

from types import SimpleNamespace

import numpy as np

from bert.checkpoints.progress import DecayState, LoopState
from bert.model.optimization import APPLIED_UPDATES, LEARNING_RATE_TABLE
from bert.runtime.distributed import Collective, Group
from bert.runtime.paddle_api import place_of, read_variable, static
from bert.training.decay import Decay, open_time_limit
from bert.training.devices import Device
from bert.training.interruption import StopRequest
from tests.support import tiny

PEAK, END = 0.01, 0.002


class Plan:
    """Holds a decay of a run of at most `max_steps` updates, each of a second, 1,000 s after the clock's zero."""

    def __init__(self, folder, step=0, state=None, max_steps=1000, **changes):
        values = {"lr_schedule": "wsd", "lr_decay_share": 0.2, "learning_rate": PEAK, "end_learning_rate": END}
        values |= {"warmup_proportion": 0.002, "num_steps_per_checkpoint": 10**6, "max_steps": max_steps}
        self.config = tiny.pretraining_config(folder, **{**values, **changes})
        self.now, self.speed, self.windows, self.run_seconds = 1000.0, 1.0, [], 0.0
        self.stop, self.state, self.events = StopRequest(lambda: self.now), state or LoopState(), []
        scope, place, group = static.Scope(), place_of("cpu"), Group(0, 1, "cpu")
        scope.var(LEARNING_RATE_TABLE).get_tensor().set(np.zeros(max_steps, "float32"), place)
        scope.var(APPLIED_UPDATES).get_tensor().set(np.array([step]), place)
        self.device = Device(None, scope, place, group, Collective(group, None), 1.0)
        measured = SimpleNamespace(seconds_per_update=self._speed)
        log = lambda *event: self.events.append(event)  # noqa: E731
        self.time_limit = open_time_limit(self.config, self.state.totals, measured, self.stop)
        self.decay = Decay(self.config, self.device, self.state, self.time_limit, step, log)

    def _speed(self, window):
        self.windows.append(window)
        return self.speed

    def applied(self, number: int) -> None:
        self.device.scope.var(APPLIED_UPDATES).get_tensor().set(np.array([number]), self.device.place)

    def rates(self) -> np.ndarray:
        return read_variable(self.device.scope, LEARNING_RATE_TABLE)

    def after_interval(self, step: int) -> None:
        """Do the trainer's work at the end of a log interval."""
        self.decay.take_finish_file(self.stop, self.run_seconds)
        self.decay.after_interval(step, 0)

    def begin(self, step: int, seconds_before: float) -> DecayState:
        self.now += seconds_before
        self.applied(step)
        self.decay.begin(step, 0)
        return self.state.decay

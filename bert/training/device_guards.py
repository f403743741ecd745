"""Guards that read the device: they detect non-finite updates, and ranks whose parameters differ."""

import zlib

import numpy as np

from bert.exit_codes import DIVERGED, Failure
from bert.model.optimization import CONSECUTIVE_SKIPPED_UPDATES
from bert.runtime.paddle_api import read_variable
from bert.training.devices import Device
from bert.training.loss_guards import Guard, Interval, TrainingDiverged
from program import TrainingProgram


class RanksDiffer(Failure):
    exit_code = DIVERGED


class FiniteGuard(Guard):
    """Ends the run after `most` skipped updates in a row; with dynamic loss scaling only at the lowest scale."""

    def __init__(self, program: TrainingProgram, device: Device, most: int) -> None:
        self._program, self._device, self._most = program, device, most

    def after_interval(self, interval: Interval) -> None:
        self.before_save()

    def before_save(self) -> None:
        program, scope, most = self._program, self._device.scope, self._most
        skipped = int(read_variable(scope, CONSECUTIVE_SKIPPED_UPDATES)[0])
        scale = float(read_variable(scope, program.loss_scale)[0]) if program.loss_scale else 0
        still_falling = bool(program.loss_scale_counters) and 1.0 < scale < float("inf")
        if skipped >= most and not still_falling:
            raise TrainingDiverged(
                f"the last {skipped} updates had NaN or Inf gradients and changed no parameter "
                f"(--max-consecutive-skipped-steps={most}); lower --learning-rate or lengthen the warm-up, check the "
                "data, or use --amp-dtype bfloat16, and continue from the last checkpoint"
            )


class RankGuard(Guard):
    """Compares the ranks' parameters every `frequency` updates (0: never); RanksDiffer names the differing ones."""

    def __init__(self, program: TrainingProgram, device: Device, frequency: int) -> None:
        self._program, self._device, self._frequency = program, device, frequency

    def after_update(self, step: int) -> None:
        if self._frequency and step % self._frequency == 0:
            self.check(step)

    def check(self, step: int) -> None:
        """Compare with rank 0's parameters: on GPUs on the device, otherwise by checksum."""
        device, names = self._device, self._program.parameters
        if device.group.world_size == 1:
            return
        if device.group.device == "gpu":
            differ = device.collective.count_differences(self._program.main, names, device.scope) > 0
        else:
            sums = np.array([zlib.crc32(read_variable(device.scope, n).tobytes()) for n in names], "int64")
            table = device.collective.gather(sums)  # [world_size, parameters]
            differ = (table != table[0]).any(axis=0)
        drifted = [name for name, is_other in zip(names, differ, strict=True) if is_other]
        if drifted:
            raise RanksDiffer(
                f"at step {step} the ranks hold different values of {len(drifted)} of {len(names)} parameters "
                f"({', '.join(drifted[:3])}...); resume all ranks from the last checkpoint, and check that every host "
                "runs the same program, data and hardware"
            )

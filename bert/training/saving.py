"""Checkpoints of a training run: written while it runs, pruned to the newest and the best, restored for a roll back."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints import state as checkpoint
from bert.checkpoints.state import Progress
from bert.checkpoints.writer import CheckpointWriter, SaveTimes
from bert.config.training_settings import TrainingConfig
from bert.runtime.distributed import Group
from bert.training.devices import Device
from bert.training.initialization import is_own
from program import TrainingProgram

logger = logging.getLogger(__name__)


def progress_at_start(config: TrainingConfig, data_fingerprint: str, group: Group) -> Progress:
    """The progress of a run before its first update; a checkpoint must agree with it to be resumed."""
    return Progress(
        stage=config.stage(),
        step=0,
        epoch=0,
        seed=config.run.seed,
        global_batch_size=config.batch.resolved_global_batch_size(group.world_size),
        data_fingerprint=data_fingerprint,
        counters={},
        loss_scale=None,
        loss_scale_counters={},
        settings=json.loads(config.model_dump_json()),
    )


class NoCheckpoints:
    """Saves nothing: for benchmarks."""

    def save(self, step: int, epoch: int, carried: dict) -> None:
        pass

    def saved(self) -> list[SaveTimes]:
        return []

    def finish(self) -> None:
        pass

    def restore(self, step: int) -> Progress | None:
        return None

    def has(self, step: int) -> bool:
        """Whether the checkpoint of a step is there, as rank 0 sees it."""
        return False


class Checkpoints(NoCheckpoints):
    """Writes a run's checkpoints and restores them.

    Args:
        start: the run's progress before its first update; what it carries, all checkpoints carry.
        texts: further files of each checkpoint, by name: what a fine-tuned model needs to be used.
        best_metric: the held-out loss whose best checkpoint is never pruned; None: only the newest are kept.
        resumed: the progress of the checkpoint that is resumed.
    """

    def __init__(
        self,
        config: TrainingConfig,
        program: TrainingProgram,
        device: Device,
        start: Progress,
        writer: CheckpointWriter,
        texts: Mapping[str, str] | None = None,
        best_metric: str | None = None,
        resumed: Progress | None = None,
    ) -> None:
        self._config, self._device, self._start, self._writer = config, device, start, writer
        self._program, self._texts, self._best_metric = program, texts or {}, best_metric
        is_saved = resumed is not None and _is_saved(config, resumed.step)
        self._saved = (resumed.step, _followed(resumed.carried)) if resumed is not None and is_saved else None
        self._arrays: tuple[dict, dict] = ({}, {})  # of the last save; the next one reuses their memory

    def save(self, step: int, epoch: int, carried: dict) -> None:
        """Rank 0 copies the state and writes it, in the background if the writer does; the others continue.

        Of a step that was saved before, only what an evaluation has added since is written.

        Raises:
            SaveFailed: this save, or the one before.
        """
        if not self._device.group.is_main:
            return
        before, self._saved = self._saved, (step, _followed(carried))
        if before is None or before[0] != step:
            self._writer.save(step, lambda: self._capture(step, epoch, carried))
        elif before != self._saved:
            self._writer.amend(step, lambda: self._amend(step, carried))

    def saved(self) -> list[SaveTimes]:
        """Times of the saves that finished since the last call. Raises SaveFailed if one failed."""
        return self._writer.check()

    def finish(self) -> None:
        """Wait for the save in flight. Raises SaveFailed if it failed."""
        self._writer.finish()

    def restore(self, step: int) -> Progress | None:
        """Restore the newest valid checkpoint up to `step` on every rank; None if there is none."""
        self._writer.finish()
        self._saved = None
        parent, newest, found = self._config.checkpoint_dir(), None, 0
        collective, is_main = self._device.collective, self._device.group.is_main
        if is_main:
            newest = checkpoint_files.newest_valid(parent, up_to=step)
            found = int(newest.directory.name) if newest else 0
        found = int(collective.sum(np.array([found], "int64"))[0])
        if found == 0:
            return None
        parameters, optimizer, progress = checkpoint.load(newest or checkpoint_files.step_directory(parent, found))
        checkpoint.restore(self._device.scope, self._device.place, self._program, parameters, optimizer, progress)
        collective.sum(np.zeros(1, "int64"))  # all ranks have read it before anything is moved
        if is_main:
            checkpoint_files.set_aside_newer(parent, found)
        return progress

    def has(self, step: int) -> bool:
        return checkpoint_files.step_directory(self._config.checkpoint_dir(), step).is_dir()

    def _capture(self, step: int, epoch: int, carried: dict) -> Callable[[], None]:
        # One save is in flight at most, so the writer has finished with the arrays of the save before.
        parameters, optimizer, scalars = checkpoint.capture(self._device.scope, self._program, self._arrays)
        self._arrays = (parameters, optimizer)
        carried = {**self._start.carried, **carried}
        progress = replace(self._start, step=step, epoch=epoch, carried=carried, **scalars)
        return lambda: self._write(parameters, optimizer, progress)

    def _write(self, parameters: dict, optimizer: dict, progress: Progress) -> None:
        config, parent = self._config, self._config.checkpoint_dir()
        for path in checkpoint_files.set_aside_newer(parent, progress.step):
            logger.info(f"this run was rolled back; a newer checkpoint of the abandoned path is now {path}")
        directory = checkpoint.save(
            parent,
            config.run.model_prefix,
            parameters,
            optimizer,
            progress,
            config.model.to_json(),
            config.vocabulary_file(),
            self._texts,
            config.run.keep_checkpoints,
        )
        self._name_best(progress.carried)
        checkpoint_files.prune(parent, config.run.keep_checkpoints)
        logger.info(f"saved {directory}")

    def _amend(self, step: int, carried: dict) -> None:
        run, parent = self._config.run, self._config.checkpoint_dir()
        checkpoint.amend(parent, run.model_prefix, step, {**self._start.carried, **carried})
        self._name_best(carried)
        checkpoint_files.prune(parent, run.keep_checkpoints)  # the best before this one

    def _name_best(self, carried: dict) -> None:
        held_out = carried.get("held_out", {})
        if self._best_metric is not None and held_out.get("best"):
            step, loss = held_out["best"]
            facts = {self._best_metric: loss, "is_final": held_out["ends_with_best"]}
            checkpoint_files.write_best(self._config.checkpoint_dir(), step, facts)


def _is_saved(config: TrainingConfig, step: int) -> bool:
    """Whether the checkpoint that is continued is this run's own, not another's of the same step."""
    source = config.initialization.from_checkpoint
    directory = checkpoint_files.step_directory(config.checkpoint_dir(), step)
    return (
        source is not None
        and directory.is_dir()
        and (is_own(source, config) or source.resolve() == directory.resolve())
    )


def _followed(carried: dict) -> str:
    """What evaluations add to a checkpoint, to compare."""
    return json.dumps(carried.get("held_out"))

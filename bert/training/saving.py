"""Checkpoints of a training: saved while it runs, pruned to the newest and the best, restored for a roll back."""

import json
import logging
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import numpy as np

from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints import state as checkpoint
from bert.checkpoints.directories import BEST, STABLE, CheckpointError
from bert.checkpoints.progress import LoopState, Progress
from bert.checkpoints.writer import CheckpointWriter, DiskWatch, SaveTimes
from bert.config.training_settings import TrainingConfig
from bert.runtime.distributed import Group
from bert.tokenization.vocabulary_files import vocabulary_copy
from bert.training.devices import Device
from bert.training.resumption import is_own
from bert.training.task import Task
from program import TrainingProgram

logger = logging.getLogger(__name__)


def progress_at_start(
    config: TrainingConfig, data_fingerprint: str, group: Group, num_examples: int | None = None
) -> Progress:
    """Progress before the first update; a checkpoint must agree with it to be resumed."""
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
        num_examples=num_examples,
    )


class Checkpoints:
    """Saves and restores a run's checkpoints.

    Args:
        task: its `texts` and `fitted` are further files of each checkpoint and parameters beside the program's: what a
            fine-tuned model needs to be used. Evaluations may change them; a checkpoint has the parameters of its save,
            and one that is resumed or restored gives them back.
        metric: of the evaluations, whose best checkpoint is never pruned; empty: only the newest are kept.
        resumed: where the leg starts, if its checkpoint may be this run's own.
    """

    def __init__(
        self,
        config: TrainingConfig,
        program: TrainingProgram,
        device: Device,
        start: Progress,
        writer: CheckpointWriter,
        task: Task | None = None,
        metric: str = "",
        resumed: Progress | None = None,
    ) -> None:
        self._config, self._program, self._device, self._start, self._writer = config, program, device, start, writer
        self._parent, self._metric = config.checkpoint_dir(), metric
        # Read once: a large tokenizer.json takes seconds, and the file may change while the run goes on.
        name, vocabulary = vocabulary_copy(config.vocabulary_file())
        self._files = {name: vocabulary, checkpoint.CONFIG_FILE: config.model.to_json().encode()}
        self._texts, self._fitted = ({}, {}) if task is None else (task.texts, task.fitted)
        # Step of the newest checkpoint, and what evaluations and the start of a decay had added.
        self._saved: tuple[int, str] | None = None
        if resumed is not None and _is_saved(config, resumed.step):
            self._saved = (resumed.step, _added_later(resumed.carried))
            self._take_fitted(resumed.step)
            if device.group.is_main and resumed.step == max(checkpoint_files.list_steps(self._parent)):
                self._name_steps(resumed.carried)  # a kill can have come after the checkpoint and before the names
        stable = checkpoint_files.named_step(self._parent, STABLE)  # until a save: the decay after it is abandoned
        self._abandoned_from = stable if resumed is not None and resumed.step == stable else None
        self._disk = DiskWatch()
        self._arrays: tuple[dict, dict] = ({}, {})  # of the last save; the next one reuses their memory

    def save(self, step: int, epoch: int, state: LoopState) -> None:
        """On rank 0 copy the state and write it, possibly in the background; other ranks continue.

        Of a step that was saved before, only what an evaluation or the start of a decay has added since is written.
        """
        if not self._device.group.is_main:
            return
        before, self._saved = self._saved, (step, _added_later(state))
        state, texts, fitted = deepcopy(state), dict(self._texts), dict(self._fitted)  # the loop changes them
        if before is None or before[0] != step:
            self._writer.save(step, lambda: self._capture(step, epoch, state, texts, fitted))
        elif before != self._saved:
            self._writer.amend(step, lambda: self._amend(step, state, texts, fitted))

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
        device, newest = self._device, None
        if device.group.is_main:
            newest = checkpoint_files.newest_valid(self._parent, up_to=step)
        common = device.collective.from_main(int(newest.directory.name) if newest else 0)
        if common == 0:
            return None
        source = newest or checkpoint_files.step_directory(self._parent, common)
        parameters, optimizer, progress = checkpoint.load(source)
        checkpoint.restore(device.scope, device.place, self._program, parameters, optimizer, progress)
        self._take_fitted(common)
        device.collective.from_main(0)  # all ranks have read it before anything is moved
        if device.group.is_main:
            checkpoint_files.set_aside_newer(self._parent, common)
        return progress

    def _take_fitted(self, step: int) -> None:
        """Pass a checkpoint's texts and fitted parameters to the task."""
        directory = checkpoint_files.step_directory(self._parent, step)
        files = {name: directory / name for name in self._texts}
        self._texts |= {name: file.read_text(encoding="utf-8") for name, file in files.items() if file.is_file()}
        self._fitted.clear()
        self._fitted |= checkpoint.load_fitted(directory)

    def has(self, step: int) -> bool:
        """Whether a step has a checkpoint, as rank 0 sees it."""
        return checkpoint_files.step_directory(self._parent, step).is_dir()

    def _capture(
        self, step: int, epoch: int, state: LoopState, texts: dict[str, str], fitted: dict[str, np.ndarray]
    ) -> Callable[[], None]:
        # One save is in flight at most, so the writer has finished with the arrays of the save before.
        parameters, optimizer, scalars = checkpoint.capture(self._device.scope, self._program, self._arrays)
        self._arrays = (parameters, optimizer)
        progress = replace(self._start, step=step, epoch=epoch, carried=state, **scalars)
        files = self._files | {name: text.encode() for name, text in texts.items()}
        return lambda: self._write(parameters | fitted, optimizer, progress, files)

    def _write(self, parameters: dict, optimizer: dict, progress: Progress, files: dict[str, bytes]) -> None:
        config = self._config
        newest = progress.step if self._abandoned_from is None else self._abandoned_from
        self._abandoned_from = None
        for path in checkpoint_files.set_aside_newer(self._parent, newest):
            logger.info(
                f"this run continued from an earlier step; a newer checkpoint of the abandoned path is now {path}"
            )
        directory = checkpoint.save(
            self._parent, config.run.model_prefix, parameters, optimizer, progress, files, config.run.keep_checkpoints
        )
        self._name_steps_and_prune(progress.carried)
        logger.info(f"saved {directory}")
        if warning := self._disk.after_save(directory):
            logger.warning(warning)

    def _amend(self, step: int, state: LoopState, texts: dict[str, str], fitted: dict[str, np.ndarray]) -> None:
        checkpoint.amend(self._parent, self._config.run.model_prefix, step, state, texts, fitted)
        self._name_steps_and_prune(state)  # the best before this one may be surplus

    def _name_steps_and_prune(self, state: LoopState) -> None:
        self._name_steps(state)
        checkpoint_files.prune(self._parent, self._config.run.keep_checkpoints)

    def _name_steps(self, state: LoopState) -> None:
        if self._metric and state.evaluations.best is not None:
            step, value = state.evaluations.best
            facts = {self._metric: value, "is_final": state.evaluations.ends_with_best}
            checkpoint_files.name_step(self._parent, BEST, step, facts)
        if state.decay is not None:
            checkpoint_files.name_step(self._parent, STABLE, state.decay.first)


def _added_later(state: LoopState) -> str:
    """Parts of a step's state that may be added after it was saved."""
    return str((state.evaluations, state.decay))


def _is_saved(config: TrainingConfig, step: int) -> bool:
    """Whether the resumed checkpoint is this run's own, not another run's with the same step."""
    directory = checkpoint_files.step_directory(config.checkpoint_dir(), step)
    source = config.initialization.from_checkpoint
    if source is None or not directory.is_dir():
        return False
    return is_own(source, config) or source.resolve() == directory.resolve()


def use_best_weights(config: TrainingConfig, device: Device, last_step: int) -> int:
    """Load the weights of the best checkpoint on every rank; returns their step, 0 if there are none."""
    parent, step = config.checkpoint_dir(), 0
    if device.group.is_main and (best := checkpoint_files.named_step(parent, BEST)) is not None:
        try:
            checkpoint_files.verify(checkpoint_files.step_directory(parent, best))
            step = best
        except (CheckpointError, OSError) as error:
            logger.warning(f"the best checkpoint was refused: {error}")
    step = device.collective.from_main(step)
    if step == 0:
        logger.info(f"no complete best weights in {parent}: using the weights of the last step")
    elif step != last_step:
        weights = checkpoint.load_trained(checkpoint_files.step_directory(parent, step))
        checkpoint.write_parameters(device.scope, device.place, weights)
        logger.info(f"using the weights of step {step}, the best")
    return step

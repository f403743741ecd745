"""Chooses the weights that a folder stands for: one rule for every command.

chosen_weights("results")                   the result of that run, verified
chosen_weights("results/bert/phase2/7038")  that step, if its files match its manifest

A step that the path names is used, or refused. In the folder of a run, the result of the run is used: its newest step,
or its best step after early stopping. If that step is not valid, the newest valid step before it is used, and the
refused steps are named. A step without a manifest is never valid: a copy that was cut off looks like one.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from bert.checkpoints import directories
from bert.checkpoints.directories import BEST, MANIFEST, CheckpointError, VerifiedCheckpoint
from bert.files import read_json

logger = logging.getLogger(__name__)

_PARTS_OF_A_STEP = ("*_progress.json", f"*{directories.OPTIMIZER}")  # files that no other folder of a model has
_TRIES = 3  # while a training replaces its steps


@dataclass(frozen=True)
class ChosenWeights:
    """The folder of weights that a path stands for, and why it was chosen.

    Attributes:
        path: a folder of weights; the path itself if it is no folder of a run.
        checkpoint: the step, verified; None if the path is no step of a run: its reader examines it.
        refused: a line for each step that was refused before this one.
        steps: all steps of the run; empty if the path names the step.
    """

    path: Path
    checkpoint: VerifiedCheckpoint | None = None
    refused: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()

    def notes(self) -> list[str]:
        """Lines that name the refused steps, and the step of the run that is used."""
        if not self.steps:
            return list(self.refused)
        others = f"; the folder has {', '.join(map(str, self.steps))}" if len(self.steps) > 1 else ""
        return [*self.refused, f"step {self.path.name} of {self.path.parent} is taken{others}"]


def weights_folder(path: Path, report: Callable[[str], object] = logger.warning) -> Path:
    """The folder of weights that `chosen_weights` finds for `path`. Each refused step is reported once."""
    choice = chosen_weights(path)
    for line in choice.refused:
        _report_once(line, report)
    return choice.path


@lru_cache(maxsize=64)
def _report_once(line: str, report: Callable[[str], object]) -> None:
    report(line)


def chosen_weights(path: Path) -> ChosenWeights:
    """The folder of weights that `path` stands for.

    Raises:
        CheckpointError: a step that is incomplete or damaged, a run without a valid step, several runs.
    """
    if not path.is_dir():
        return ChosenWeights(path)
    if (path / MANIFEST).exists():
        return ChosenWeights(path, verified(path))
    if is_incomplete_step(path):
        raise CheckpointError(
            f"{path} is not a complete checkpoint: it has no {MANIFEST}, so its files cannot be verified; use another "
            "step, or copy the folder again. To use its weights all the same, name their file"
        )
    parent = _folder_of_steps(path)
    return ChosenWeights(path) if parent is None else _result_of_run(parent)


def verified(directory: Path) -> VerifiedCheckpoint:
    """Verify a checkpoint by `directories.verify`, unless its files are unchanged since the last verification."""
    stats = [(file.name, file.stat()) for file in sorted(directory.iterdir())]
    stamps = tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats)
    return _verify_once(directory, stamps)


@lru_cache(maxsize=8)
def _verify_once(directory: Path, stamps: tuple) -> VerifiedCheckpoint:
    return directories.verify(directory)


def is_incomplete_step(folder: Path) -> bool:
    """Whether a folder without a manifest is a checkpoint of ours, by its files or its number.

    The weights of other programs, which have no manifest, have other names; NVIDIA's Paddle program writes *.pdparams.
    """
    if any(folder.glob("*.pdparams")):
        return False
    if any(next(folder.glob(pattern), None) for pattern in _PARTS_OF_A_STEP):
        return True
    return folder.name.isdecimal() and (folder / "bert_config.json").is_file() and any(folder.glob("*.safetensors"))


def _folder_of_steps(path: Path) -> Path | None:
    """The folder of a run's steps at or below `path`, or None. Phase 2 is preferred to phase 1."""
    names = (MANIFEST, *_PARTS_OF_A_STEP)
    folders = {file.parent for depth in range(1, 4) for name in names for file in path.glob("*/" * depth + name)}
    parents = {
        folder.parent
        for folder in folders
        if folder.name.isdecimal() and ((folder / MANIFEST).exists() or is_incomplete_step(folder))
    }
    parents -= {parent.with_name("phase1") for parent in parents if parent.name == "phase2"}
    if len(parents) > 1:
        raise CheckpointError(
            f"{path} holds checkpoints of several runs ({', '.join(sorted(map(str, parents)))}); name one of them"
        )
    return parents.pop() if parents else None


def _result_of_run(parent: Path) -> ChosenWeights:
    """The newest valid step that is not after the result of the run."""
    for _ in range(_TRIES):
        steps, result, refused = directories.list_steps(parent), directories.final_step(parent), list[str]()
        tried = [step for step in steps if result is None or step <= result]
        about_best = _about_best(parent)
        for step in reversed(tried):
            directory = directories.step_directory(parent, step)
            try:
                checkpoint = verified(directory)
            except (CheckpointError, OSError) as error:
                refused.append(f"checkpoint refused, trying an older one: {error}")
            else:
                return ChosenWeights(directory, checkpoint, tuple(about_best + refused), tuple(steps))
        if directories.list_steps(parent) == steps:
            break
    later = steps[-1] if steps and steps[-1] != result else None
    remedy = "" if later is None else f"; name a later step if it will do: {parent / str(later)}"
    raise CheckpointError(f"{parent} holds steps {tried}, none of them valid: {'; '.join(refused)}{remedy}")


def _about_best(parent: Path) -> list[str]:
    """A warning if best.json cannot be read, or names a missing step as the result of the run; otherwise no line."""
    file = parent / BEST
    if not file.exists():
        return []
    content = read_json(file)
    if not isinstance(content.get("step"), int):
        return [f"{file} names no step: damaged; the newest step is taken as the result of the run"]
    if content.get("is_final") and directories.named_step(parent, BEST) is None:
        return [f"{file} names step {content['step']}, the result of the run, which is not there"]
    return []

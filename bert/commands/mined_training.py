"""The steps of `run_vectors.sh --mine`: a training, mining with its result, and a training on what was mined."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bert.commands.fine_tuning import FineTune
from bert.commands.mining import MineNegatives
from bert.config.training_settings import derive
from bert.jobs.job import Execution, Job, Step
from bert.vectors.settings import VectorConfig

FOLDER = "mined"  # in the output folder; round-N in it has a training and what was mined with its result


@dataclass(frozen=True, kw_only=True)
class TrainBeforeMining(FineTune):
    """Trains the vectors with which negatives are mined. It is done once they are: more hours are for what follows.

    Attributes:
        mining: with the result.
    """

    mining: MineNegatives

    @property
    def title(self) -> str:
        return "training vectors, to mine with"

    def is_done(self, execution: Execution) -> bool:
        return self.mining.is_done(execution) or super().is_done(execution)


def with_mining(job: Job, rounds: int) -> Job:
    """The job of a training of vectors, of which the updates, or the hours, are divided by `rounds` of mining.

    Each training but the first starts from the best weights of the training before, and has the negatives that were
    mined with these. The last one has the output folder of the job.
    """
    training = next(step for step in job.steps if isinstance(step, FineTune))
    config = training.config
    assert isinstance(config, VectorConfig)
    if not config.run.do_train or job.ranks.num_nodes > 1:
        what = "several nodes" if config.run.do_train else "nothing to train on"
        raise ValueError(f"mine={rounds} is for a training on one node, and there is {what}; omit --mine")
    updates = _part_of_updates(config, rounds + 1)
    before, steps = dict[str, Any](), list[Step]()
    data: tuple[Step, ...] = training.data
    for number in range(1, rounds + 1):
        folder = job.output_dir / FOLDER / f"round-{number}"
        own = derive(config, output_dir=folder, report_file=folder / "report.json", compare=None, **updates, **before)
        mining = MineNegatives(config=own, folder=folder)
        fields = {**vars(training), "config": own, "data": data, "repeats": False}
        steps.append(TrainBeforeMining(**fields, mining=mining))
        before, data = _start(folder, mining), (mining,)
    last = replace(training, config=derive(config, **updates, **before), data=data)
    return replace(job, steps=(*steps, last, *(step for step in job.steps if step is not training)))


def _start(folder: Path, mining: MineNegatives) -> dict[str, Any]:
    return {"from_pretrained_params": folder, "negatives_file": mining.negatives}


def _part_of_updates(config: VectorConfig, parts: int) -> dict[str, Any]:
    """The settings of the length of one of `parts` trainings."""
    if config.run.max_steps > 0:
        return {"max_steps": max(1, config.run.max_steps // parts)}
    return {"epochs": config.run.epochs / parts}

"""Pre-training put together: settings -> checked shards, loader, held-out evaluation, summary."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from bert.model.objectives import PretrainingObjective
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.evaluation import evaluate_pretraining
from bert.runtime.distributed import Group
from bert.samples.loader import PretrainingDataset, PretrainingLoader, evaluation_batches
from bert.tokenization.vocabulary import Vocabulary
from bert.training import run as runs
from bert.training.trainer import Device, Outcome
from program import TrainingProgram


def objective_of(config: PretrainingConfig) -> PretrainingObjective:
    return PretrainingObjective(config.model, fuse_mha=config.hardware.fuse_mha)


@dataclasses.dataclass(frozen=True)
class PretrainingData:
    """Checked shards and this rank's loader."""

    vocabulary: Vocabulary
    train: PretrainingDataset
    loader: PretrainingLoader
    held_out: PretrainingDataset | None


def open_data(config: PretrainingConfig, group: Group) -> PretrainingData:
    """Open and check all shards: every ValueError about data comes from here, before any program is built."""
    vocabulary = Vocabulary.from_file(config.data.vocab_file)
    vocabulary.check_model_size(config.model.vocab_size)

    def dataset(folder: Path) -> PretrainingDataset:
        return PretrainingDataset(folder, vocabulary, config.data, seed=config.run.seed)

    train = dataset(config.data.input_dir)
    held_out = dataset(config.data.eval_dir) if config.data.eval_dir else None
    loader = PretrainingLoader(
        train,
        global_batch_size=config.batch.resolved_global_batch_size(group.world_size),
        micro_batch_size=config.batch.batch_size,
        rank=group.rank,
        world_size=group.world_size,
    )
    return PretrainingData(vocabulary, train, loader, held_out)


def evaluator(
    config: PretrainingConfig, evaluation_program, data: PretrainingData, device: Device
) -> Callable[[int], dict[str, float]] | None:
    """`evaluate(step)` on the held-out shards, None without them."""
    held_out = data.held_out
    if held_out is None:
        return None

    def evaluate(step: int) -> dict[str, float]:
        batches = evaluation_batches(
            held_out,
            micro_batch_size=config.batch.batch_size,
            rank=device.group.rank,
            world_size=device.group.world_size,
            max_samples=config.run.eval_samples,
        )
        return evaluate_pretraining(device.executor, evaluation_program, batches, device.collective, device.scope)

    return evaluate


def summary(
    config: PretrainingConfig, outcome: Outcome, device: Device, program: TrainingProgram, unigram_entropy: float | None
) -> dict:
    """The figures of a phase."""
    common = runs.summary_of(config, outcome, device, program)
    return {"phase": config.run.phase, **common, "unigram_entropy": unigram_entropy}

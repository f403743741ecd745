"""Pre-training as a task: shards, loader, held-out evaluation."""

import logging
import math
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bert.conversion.usage import Usage, usage_texts
from bert.model.objectives import MaskedLMObjective, PretrainingObjective
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.epochs import sample_set
from bert.runtime.distributed import Collective, Group
from bert.samples.collation import MicroBatch
from bert.samples.dataset import PretrainingDataset
from bert.samples.global_batches import GlobalBatch
from bert.samples.loader import PretrainingLoader, evaluation_batches, evaluation_unigram_entropy
from bert.samples.mixture import read_mixture
from bert.samples.packing import Packing
from bert.tokenization.normalization import Normalization
from bert.tokenization.vocabulary import Vocabulary
from bert.tokenization.vocabulary_files import read_vocabulary
from bert.training.interruption import beat
from bert.training.loss_guards import BestMetric
from bert.training.task import Evaluation, Session, Task
from program import build_evaluation_program

logger = logging.getLogger(__name__)
HELD_OUT_LOSS = "eval_masked_lm_loss"  # decides the best checkpoint and early stopping
EXPECTED_LOSS = "eval_expected_masked_lm_loss"


def objective_of(config: PretrainingConfig) -> PretrainingObjective:
    """The objective that --objective names."""
    kind = PretrainingObjective if config.run.objective == "mlm_nsp" else MaskedLMObjective
    return kind(config.model, fuse_mha=config.hardware.fuse_mha)


class Pretraining(Task):
    """The training of one phase on one rank."""

    config: PretrainingConfig

    def __init__(self, config: PretrainingConfig, group: Group) -> None:
        self.config = config
        self.objective = objective_of(config)
        pairs = config.run.objective == "mlm_nsp"
        vocabulary = read_vocabulary(config.data.vocab_file)
        vocabulary.check_model_size(config.model.vocab_size)
        data, seed = config.data, config.run.seed
        self._train = PretrainingDataset(data.input_dir, vocabulary, data, seed=seed, next_sentence=pairs)
        self._held_out = held_out_sets(config, vocabulary)
        datasets = [self._train, *(part.data for part in self._held_out)]
        if any(dataset.has_separate_documents for dataset in datasets):
            self.objective = replace(self.objective, separate_documents=True)
            for dataset in datasets:
                dataset.separate_documents()
        normalization = Normalization.recorded(self._train.directory.made_with)
        self.texts = usage_texts(Usage(config.stage(), data.max_seq_length), normalization)
        self.fingerprint, self.evaluates = self._train.fingerprint, bool(self._held_out)
        self.num_examples = sum(self._train.mix.values())
        self._samples = samples = sample_set(config.data.input_dir)
        self._passes = samples.passes_over_text if samples and config.run.epochs_of == "text" else 1
        config = self.config = config.with_steps(sum(self._train.mix.values()), group.world_size)
        self.evaluates_first = self.evaluates
        if self._held_out:
            self.best_metric = BestMetric(
                HELD_OUT_LOSS,
                keeps=config.run.keep_best_checkpoint,
                overfitting_evaluations=config.run.overfitting_evaluations,
                early_stopping=config.run.early_stopping,
                counts_from=round(config.run.early_stopping_from * config.expected_steps()),
            )
        self._loader: "PretrainingLoader | LddlLoader"
        self._schedule = config.batch.schedule(group.world_size)
        if data.data_loader == "lddl":
            from bert.pretraining.lddl import LddlLoader  # of NVIDIA's library

            self._loader = LddlLoader(config, self._train, group)
            self.fingerprint = self._loader.fingerprint
        else:
            self._loader = PretrainingLoader(
                self._train,
                global_batch_size=self._schedule.full,
                schedule=self._schedule,
                micro_batch_size=config.batch.batch_size,
                rank=group.rank,
                world_size=group.world_size,
            )

    def epochs(self, step: int) -> float:
        return self._passes * self._train.epochs(step, self._schedule)

    def batches(self, step: int, packing: Packing | None = None) -> Generator[GlobalBatch, None, None]:
        return self._loader.batches(step, packing)

    def evaluation(self, session: Session) -> "HeldOutEvaluation":
        evaluation = HeldOutEvaluation(self.config, session, self._held_out, self._train.describe())
        if self._samples is not None:
            run, steps = self.config.run, self.config.expected_steps()
            about = "" if run.finish_in is None else "about " if run.expected_steps else "at most "
            sequences = self._schedule.sequences(steps)
            logger.info(f"{about}{steps:,} updates: {self._samples.describe(sequences, run.epochs_of)}")
        return evaluation


@dataclass(frozen=True)
class HeldOutSet:
    """Held-out samples, and their weight in the loss that selects the best checkpoint."""

    name: str
    data: PretrainingDataset
    weight: float


def held_out_sets(config: PretrainingConfig, vocabulary: Vocabulary) -> list[HeldOutSet]:
    """The held-out shards: one set for each folder of a mixture."""
    if (folder := config.data.eval_dir) is None:
        return []
    mix = read_mixture(folder) or {".": 1}
    pairs, seed, sets = config.run.objective == "mlm_nsp", config.run.seed, []
    settings = config.data.for_evaluation()
    for name, samples in mix.items():
        data = PretrainingDataset(folder / name, vocabulary, settings, seed=seed, next_sentence=pairs, alone=True)
        sets.append(HeldOutSet(name, data, samples / sum(mix.values())))
    return sets


class HeldOutEvaluation(Evaluation):
    """Evaluation of one phase on one rank."""

    def __init__(
        self, config: PretrainingConfig, session: Session, held_out: list[HeldOutSet], training_data: Any
    ) -> None:
        assert session.program is not None
        self._config, self._device, self._held_out = config, session.device, held_out
        self._training_data, self._objective = training_data, session.program.objective
        self._unigram_entropy: float | None = None
        carried = session.progress.carried.warmup_steps if session.progress else None
        self._warmup = config.warmup_steps() if carried is None else carried
        if held_out:
            self._program = build_evaluation_program(self._objective, config.precision)
            self._samples = max(1, config.run.eval_samples // len(held_out))
            self._unigram_entropy = sum(
                part.weight * evaluation_unigram_entropy(part.data, self._samples) for part in held_out if part.weight
            )
            logger.info(f"unigram entropy of the held-out labels: {self._unigram_entropy:.4f} nats")

    def facts(self) -> dict[str, Any]:
        return {"unigram_entropy": self._unigram_entropy, "training_data": self._training_data}

    def evaluate(self, step: int) -> dict[str, float]:
        device, names, metrics = self._device, self._objective.metric_names, dict[str, float]()
        for part in self._held_out:
            batches = evaluation_batches(
                part.data,
                micro_batch_size=self._config.batch.batch_size,
                rank=device.group.rank,
                world_size=device.group.world_size,
                max_samples=self._samples,
                packing=self._objective.packing(),
            )
            of_part = evaluate_pretraining(
                device.executor, self._program, batches, device.collective, device.scope, names
            )
            for name, value in of_part.items() if part.weight else ():
                weight = 1.0 if name == "eval_sequences" else part.weight
                metrics[name] = metrics.get(name, 0.0) + weight * value
            if part.name != ".":
                metrics[f"eval_{part.name}_masked_lm_loss"] = of_part[HELD_OUT_LOSS]
        if self._unigram_entropy is not None:
            from bert.pretraining.expectation import expected_loss, judgement  # only a rank that evaluates loads it

            expected = expected_loss(self._config, self._unigram_entropy, step, self._warmup)
            if expected is not None:
                metrics[EXPECTED_LOSS] = expected
                logger.info(judgement(metrics[HELD_OUT_LOSS], expected))
        return metrics

    def figures(self) -> dict[str, Any]:
        return {"phase": self._config.run.phase, "unigram_entropy": self._unigram_entropy}


def evaluate_pretraining(
    executor,
    program,
    batches: Iterable[MicroBatch],
    collective: Collective,
    scope=None,
    metric_names: Sequence[str] = PretrainingObjective.metric_names,
) -> dict[str, float]:
    """Loss and accuracy of masked words and next sentences on the held-out batches of all ranks together.

    `program` is a `program.EvaluationProgram`, `metric_names` are its objective's. Losses are means over masked
    tokens and over sequences, in nats, whatever the division into batches and ranks. Without next-sentence prediction
    its metrics are absent.
    """
    has_next_sentence = "next_sentence_loss" in metric_names
    sums = np.zeros(6)  # masked-LM loss, correct, tokens; sequences; next-sentence loss, correct
    for batch in batches:
        beat("evaluating a batch")
        (fetched,) = executor.run(program.main, feed=batch.feed, fetch_list=[program.metrics], scope=scope)
        values = dict(zip(metric_names, fetched.tolist(), strict=True))
        tokens, sequences = values["masked_tokens"], values["sequences"]
        loss = values.get("masked_lm_loss", values["loss"]) * tokens
        sums[:4] += [loss, values["masked_lm_correct"], tokens, sequences]
        if has_next_sentence:
            sums[4:] += [values["next_sentence_loss"] * sequences, values["next_sentence_correct"]]
    masked_lm, correct, tokens, sequences, next_sentence, next_correct = collective.sum(sums)
    masked, counted = tokens or math.nan, sequences or math.nan  # without tokens nothing is measured
    shares = {"masked_lm_loss": masked_lm / masked, "masked_lm_accuracy": correct / masked}
    if has_next_sentence:
        shares["next_sentence_loss"] = next_sentence / counted
        shares["next_sentence_accuracy"] = next_correct / counted
    return {f"eval_{name}": value for name, value in shares.items()} | {"eval_sequences": sequences}

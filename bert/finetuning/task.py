"""Fine-tuning as a task: what SQuAD, GLUE and NER share.

A task reads its files into a `FineTuningData`: tables of features, and functions that score and write the outputs.
"""

import logging
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bert.checkpoints.state import VOCABULARY_FILE
from bert.config.architecture import FusedKernels
from bert.config.training_settings import derive
from bert.finetuning.best_weights import BestWeights
from bert.finetuning.config import FineTuningConfig, with_steps
from bert.finetuning.loader import FeatureTable, FineTuningLoader
from bert.finetuning.prediction import predict
from bert.finetuning.streamed_prediction import Outputs, StreamedPrediction, StreamedSet
from bert.model.objectives import Objective
from bert.reporting.figures import metrics_line
from bert.runtime.distributed import Group
from bert.samples.global_batches import GlobalBatch
from bert.tokenization.vocabulary import vocabulary_content
from bert.training.initialization import load_weights_to_use
from bert.training.task import Session, Task
from program import build_prediction_program

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PredictedSet:
    """Labelled sequences to run the model over. Both functions are called on rank 0 only.

    Attributes:
        name: for messages: "dev", "matched" ...
        score: outputs -> metrics, their names starting with `eval_`.
        write: writes prediction files of the outputs into a folder.
    """

    name: str
    table: FeatureTable
    score: Callable[[Outputs], dict[str, float]]
    write: Callable[[Outputs, Path], None] | None = None


@dataclass(frozen=True)
class FineTuningData:
    """The feature tables and functions that a task makes from its files.

    Attributes:
        fingerprint: changes when the training features do; a checkpoint is resumed only with an equal one.
        best_metric: the evaluation metric that decides which weights are best; larger is better.
        texts: files to keep in checkpoints, name -> content: what is needed to use the model (labels, settings).
        summary_names: further names of metrics in the summary: metric -> name.
    """

    objective: Objective
    fingerprint: str
    best_metric: str
    train: FeatureTable | None = None
    evaluation: Sequence[PredictedSet] = ()
    prediction: Sequence[StreamedSet] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    summary_names: Mapping[str, str] = field(default_factory=dict)


class FineTuning(Task):
    """A fine-tuning run on one rank: training with evaluations, the best weights, scores and predictions."""

    config: FineTuningConfig
    finishes = True

    def __init__(self, config: FineTuningConfig, group: Group, data: FineTuningData) -> None:
        self._data = data
        if data.train is not None:
            config = _with_lasting_vocabulary(with_steps(config, len(data.train), group.world_size), group.is_main)
            self._loader = self._open_loader(config, group, data.train)
        self.config, self.objective, self.fingerprint, self.texts = config, data.objective, data.fingerprint, data.texts
        self.trains = data.train is not None
        self.evaluates = config.run.do_eval and bool(data.evaluation)
        self._best = BestWeights(config, data.best_metric, data.texts)
        self._evaluated: tuple[int, list[Outputs]] | None = None  # step and outputs of the last evaluation
        self._inference_rate: dict[str, float] = {}

    def batches(self, step: int) -> Generator[GlobalBatch, None, None]:
        return self._loader.batches(step, self.objective.packing())

    @staticmethod
    def _open_loader(config: FineTuningConfig, group: Group, table: FeatureTable) -> FineTuningLoader:
        return FineTuningLoader(
            table,
            config.batch.resolved_global_batch_size(group.world_size),
            config.batch.batch_size,
            group.rank,
            group.world_size,
            seed=config.run.seed,
            max_seq_length=config.data.max_seq_length,
            sequence_length_multiple=config.data.sequence_length_multiple,
            num_workers=config.data.num_workers,
        )

    def prepare(self, session: Session) -> dict[str, Any]:
        self._session, self._device = session, session.device
        precision, hardware, device = self.config.precision, self.config.hardware, session.device.group.device
        if session.program is not None:
            self.objective = session.program.objective  # with its fused kernels
        else:  # the start-up program's weights are float32
            precision = precision.model_copy(update={"use_pure_fp16": False})
            self.objective = replace(self.objective, kernels=FusedKernels(unpad=hardware.unpads(device)))
        self._program = build_prediction_program(self.objective, precision)
        if session.program is None:
            self._device.executor.run(self._program.startup)
            load_weights_to_use(self.config, self._program.parameters, self._device)
            return {}
        assert session.progress is not None
        step, settings = session.progress.step, self.config.initialization
        if step == 0 and settings.initial_weights() is None:
            logger.info("no weights were given (--from-pretrained-params): all start from random ones")
        if self._device.group.is_main and not self.config.run.benchmark:
            self._best.set_aside_newer(step)
        return {}

    def evaluate(self, step: int) -> dict[str, float]:
        """Metrics of all evaluation sets; better weights than before are kept."""
        outputs = [self._predict(part) for part in self._data.evaluation]
        self._evaluated = (step, outputs if self._device.group.is_main else [])
        if not self._device.group.is_main:
            return {}
        metrics = self._score(outputs)
        if self.config.run.keep_best:
            assert self._session.program is not None
            self._best.offer(step, metrics, self._device, self._session.program.parameters)
        return metrics

    def figures(self) -> dict[str, Any]:
        return {"stage": self.config.stage(), **self._inference_rate}

    def finish(self, last_step: int | None) -> dict[str, Any]:
        """Evaluate and predict as the settings ask, with the best weights."""
        run, figures = self.config.run, dict[str, Any]()
        if run.benchmark:
            if self._data.evaluation:
                self._predict(self._data.evaluation[0])
            elif self._data.prediction:
                self._stream(self._data.prediction[:1], StreamedPrediction.run)
            return self._inference_rate
        if last_step is not None and self.evaluates and run.keep_best:
            figures["best_step"] = self._best.use(self._device, last_step)
            if figures["best_step"] not in (0, last_step):
                self._evaluated = None  # of other weights
        if run.do_eval:
            figures |= self._finish_evaluation()
        if run.do_predict:
            folder = self.config.stage_dir()
            self._stream(self._data.prediction, lambda predicting, part: predicting.write(part, folder))
        return figures | self._inference_rate

    def _finish_evaluation(self) -> dict[str, float]:
        if self._evaluated is None:
            self._evaluated = (0, [self._predict(part) for part in self._data.evaluation])
        outputs = self._evaluated[1]
        if not self._device.group.is_main:
            return {}
        metrics = self._score(outputs)
        logger.info(f"{self.config.stage()}:  {metrics_line(metrics)}")
        self._write(self._data.evaluation, outputs)
        return metrics | {name: metrics[key] for key, name in self._data.summary_names.items()}

    def _predict(self, part: PredictedSet) -> Outputs:
        """Outputs of the whole set, on every rank."""
        begin = time.perf_counter()
        outputs = predict(
            self._device,
            self._program,
            part.table,
            self.config.batch.predict_batch_size,
            max_seq_length=self.config.data.max_seq_length,
            sequence_length_multiple=self.config.data.sequence_length_multiple,
        )
        seconds = max(time.perf_counter() - begin, 1e-9)
        self._inference_rate = {"inference_sequences_per_second": len(part.table) / seconds}
        return outputs

    def _stream(self, parts: Sequence[StreamedSet], run: Callable[[StreamedPrediction, StreamedSet], None]) -> None:
        """Run the model over sets that are read while it runs."""
        for part in parts:
            predicting = StreamedPrediction(self.config, self._device, self._program)
            run(predicting, part)
            self._inference_rate = {"inference_sequences_per_second": predicting.sequences_per_second()}

    def _score(self, outputs: list[Outputs]) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for part, output in zip(self._data.evaluation, outputs, strict=True):
            metrics |= part.score(output)
        return metrics

    def _write(self, parts: Sequence[PredictedSet], outputs: list[Outputs]) -> None:
        directory = self.config.stage_dir()
        for part, output in zip(parts, outputs, strict=True):
            if part.write is not None and self._device.group.is_main:
                part.write(output, directory)
                logger.info(f"predictions of {part.name} are in {directory}")


def _with_lasting_vocabulary(config: FineTuningConfig, is_main: bool) -> FineTuningConfig:
    """Use a copy of the vocabulary if it lies beside weights of this run, which may be pruned."""
    source, lasting = config.vocabulary_file(), config.stage_dir() / VOCABULARY_FILE
    if config.run.output_dir.resolve() not in source.resolve().parents:
        return config
    if is_main and source.resolve() != lasting.resolve():
        lasting.parent.mkdir(parents=True, exist_ok=True)
        lasting.write_bytes(vocabulary_content(source))
    return derive(config, vocab_file=lasting)

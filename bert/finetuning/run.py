"""A fine-tuning run, the same for all tasks: training with evaluations, the best weights, scores and predictions."""

import logging
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bert.checkpoints.state import VOCABULARY_FILE
from bert.config.architecture import FusedKernels
from bert.config.training_settings import derive
from bert.files import checksum_of, sha256_of_file, write_atomically
from bert.finetuning.config import FineTuningConfig, with_steps
from bert.finetuning.loader import FeatureTable, FineTuningLoader, prediction_batches
from bert.finetuning.prediction_stream import Window, append, key_of, write_stream
from bert.finetuning.task import FineTuningData, FineTuningTask, Outputs, Part
from bert.reporting.progress import metrics_line
from bert.runtime.distributed import Group
from bert.runtime.paddle_api import read_variable
from bert.samples.global_batches import GlobalBatch
from bert.samples.packing import Packing, pack
from bert.tokenization.vocabulary import vocabulary_content
from bert.training.guards import BestMetric
from bert.training.initialization import load_weights_to_use
from bert.training.saving import use_best_weights
from bert.training.task import Evaluation, Session, Task
from program import build_prediction_program

logger = logging.getLogger(__name__)
_NOT_IN_RESULTS = ("train_file", "eval_file", "num_workers", "sequence_length_multiple", "download")


class FineTuning(Task):
    """A fine-tuning on one rank: its data and batches."""

    config: FineTuningConfig
    finishes = True

    def __init__(self, config: FineTuningConfig, group: Group, task: FineTuningTask) -> None:
        data = task.read_data()
        if data.train is not None:
            config = _with_lasting_vocabulary(
                with_steps(config, len(data.train.table), group.world_size), group.is_main
            )
            self.fingerprint = data.train.fingerprint()
            self._loader = FineTuningLoader(
                data.train.table,
                config.batch.resolved_global_batch_size(group.world_size),
                config.batch.batch_size,
                group.rank,
                group.world_size,
                seed=config.run.seed,
                max_seq_length=config.data.max_seq_length,
                sequence_length_multiple=config.data.sequence_length_multiple,
                num_workers=config.data.num_workers,
            )
        self.config, self.objective, self.texts = config, task.objective(), task.texts()
        self._task, self._data = task, data
        self.trains, self.evaluates = data.train is not None, bool(data.evaluated)
        if self.evaluates and config.run.keep_best:
            self.best_metric = BestMetric(task.best_metric, larger_is_better=True, is_result=True)

    def batches(self, step: int, packing: Packing | None = None) -> Generator[GlobalBatch, None, None]:
        return self._loader.batches(step, packing)

    def evaluation(self, session: Session) -> "FineTuningEvaluation":
        return FineTuningEvaluation(self, self._task, self._data, session)


class FineTuningEvaluation(Evaluation):
    """Evaluation and prediction on one rank, with the weights in the scope."""

    def __init__(self, run: FineTuning, task: FineTuningTask, data: FineTuningData, session: Session) -> None:
        self._config, self._task, self._data, self._metric = run.config, task, data, run.best_metric
        self._device = device = session.device
        self._latest: tuple[dict[str, float], list[Any]] | None = None  # metrics, and predictions of each set
        self._sequences, self._seconds = 0, 0.0  # of the latest set or stream
        precision, hardware = run.config.precision, run.config.hardware
        if session.program is not None:
            objective = session.program.objective  # with its fused kernels
        else:  # the start-up program's weights are float32
            precision = precision.model_copy(update={"use_pure_fp16": False})
            objective = replace(run.objective, kernels=FusedKernels(unpad=hardware.unpads(device.group.device)))
        self._program = build_prediction_program(objective, precision)
        if session.program is None:
            device.executor.run(self._program.startup)
            load_weights_to_use(run.config, self._program.parameters, device)
            return
        assert session.progress is not None
        if session.progress.step == 0 and run.config.initialization.initial_weights() is None:
            logger.info("no weights were given (--from-pretrained-params): all start from random ones")

    def evaluate(self, step: int) -> dict[str, float]:
        """Metrics of all evaluation sets; their predictions are kept until the next evaluation."""
        metrics: dict[str, float] = {}
        predictions = []
        for part, features in self._data.evaluated:
            self._begin_rate()
            outputs = self._outputs(features.table)
            if self._device.group.is_main:
                predictions.append(self._task.decode(features, outputs))
                metrics |= self._task.score(part, features, predictions[-1])
        self._latest = metrics, predictions
        return metrics

    def figures(self) -> dict[str, Any]:
        return {"stage": self._config.stage(), **self._rate()}

    def finish(self, last_step: int | None) -> dict[str, Any]:
        """Evaluate and predict as the settings ask, with the best weights."""
        run, figures = self._config.run, dict[str, Any]()
        if run.benchmark:
            return self._benchmark()
        if last_step is not None and self._metric is not None:
            figures["best_step"] = use_best_weights(self._config, self._device, last_step)
            if figures["best_step"] not in (0, last_step):
                self._latest = None  # of other weights
        if self._data.evaluated:
            figures |= self._finish_evaluation()
        for part, number in self._data.predicted:
            self._begin_rate()
            self._write_predictions(part, number)
        return figures | self._rate()

    def _benchmark(self) -> dict[str, float]:
        self._begin_rate()
        if self._data.evaluated:
            self._outputs(self._data.evaluated[0][1].table)
        elif self._data.predicted:
            for examples in self._task.windows(self._data.predicted[0][0], 0):
                self._outputs(self._task.features(examples).table)
        return self._rate()

    def _finish_evaluation(self) -> dict[str, float]:
        if self._latest is None:
            self.evaluate(0)
        assert self._latest is not None
        metrics, predictions = self._latest
        if not self._device.group.is_main:
            return {}
        folder = self._config.stage_dir()
        logger.info(f"{self._config.stage()}:  {metrics_line(metrics)}")
        folder.mkdir(parents=True, exist_ok=True)
        for (part, features), found in zip(self._data.evaluated, predictions, strict=True):
            contents = self._task.render(part, features, found)
            for (name, file), content in zip(part.results.items(), contents, strict=True):
                write_atomically(folder / name, file.head + content + file.tail)
            logger.info(f"predictions of {part.name} are in {folder}")
        return metrics | {name: metrics[key] for key, name in self._task.summary_names.items()}

    def _write_predictions(self, part: Part, number: int) -> None:
        """Predict a file that is read while it is predicted; continued where an equal command was interrupted."""
        if not self._device.group.is_main:
            for _ in self._windows(part, None):
                pass
            return
        folder = self._config.stage_dir()
        folder.mkdir(parents=True, exist_ok=True)
        position = write_stream(
            [folder / name for name in part.results],
            lambda position, move_bar: self._windows(part, position, move_bar),
            lambda files, _: append(files, [form.tail for form in part.results.values()]),
            key=self._key(part),
            flag="--output-dir",
            unit=self._task.unit,
            total=number,
            total_unit=self._task.unit,
            log=logger.info,
        )
        assert position is not None, "a file without examples is refused when it is read"
        for line in self._task.describe(part.path, position["counts"]):
            logger.info(line)
        logger.info(f"predictions of {part.name} are in {folder}")

    def _windows(
        self, part: Part, position: Mapping[str, Any] | None, show: Callable[[int], Any] | None = None
    ) -> Iterator[Window]:
        """The windows after a position that rank 0 knows; every rank runs its share of them, rank 0 has the results."""
        counts: dict[str, int] = dict(position["counts"]) if position else {}
        done = int(self._device.collective.sum(np.array([position["done"] if position else 0], "int64"))[0])
        for examples in self._task.windows(part, done):
            features, before = self._task.features(examples), done
            size, number = len(features.table), len(examples)
            after_batch = None
            if show is not None:
                after_batch = lambda ran: show(before + number * min(ran, size) // size)  # noqa: B023, E731
            outputs = self._outputs(features.table, after_batch)
            done += number
            if self._device.group.is_main:
                contents = [
                    (form.separator if before else form.head) + content
                    for form, content in zip(
                        part.results.values(),
                        self._task.render(part, features, self._task.decode(features, outputs)),
                        strict=True,
                    )
                ]
                counts = {name: counts.get(name, 0) + value for name, value in features.counts.items()}
                yield Window(contents, done, {"done": done, "counts": counts})

    def _outputs(self, table: FeatureTable, after_batch: Callable[[int], None] | None = None) -> Outputs:
        begin = time.perf_counter()
        batch, data = self._config.batch, self._config.data
        outputs = predict(
            self._device,
            self._program,
            table,
            batch.predict_batch_size,
            max_seq_length=data.max_seq_length,
            sequence_length_multiple=data.sequence_length_multiple,
            after_batch=after_batch,
        )
        self._seconds += time.perf_counter() - begin
        self._sequences += len(table)
        return outputs

    def _begin_rate(self) -> None:
        self._sequences, self._seconds = 0, 0.0

    def _rate(self) -> dict[str, float]:
        return {"inference_sequences_per_second": self._sequences / self._seconds} if self._seconds else {}

    def _key(self, part: Part) -> str:
        """What decides the results: the file, the settings, the vocabulary, the classes, the model and the weights."""
        settings = self._config.data.model_dump()
        weights = {
            name: checksum_of(np.ascontiguousarray(read_variable(self._device.scope, name)).data.cast("B"))
            for name in self._program.parameters
        }
        return key_of(
            {
                **{name: value for name, value in settings.items() if name not in _NOT_IN_RESULTS},
                "vocabulary": sha256_of_file(self._config.vocabulary_file()),
                "precision": self._config.precision.model_dump(),
                "model": self._config.model.model_dump(),
                "labels": self._task.labels,
                "weights": weights,
            },
            [part.path],
        )


def predict(
    device: Any,
    program: Any,
    table: FeatureTable,
    batch_size: int,
    *,
    max_seq_length: int,
    sequence_length_multiple: int = 8,
    after_batch: Callable[[int], None] | None = None,
) -> dict[str, np.ndarray]:
    """The outputs of a `program.PredictionProgram` for every sequence of the table, on every rank.

    Args:
        after_batch: called with the number of sequences that all ranks have run, about.

    Returns:
        by the objective's names, float32 [n, ...] in the order of the table. Outputs of tokens are [n, longest, ...]
        where `longest` is the longest sequence; values at padding are 0.
    """
    tokens = (int(table.lengths().max()) if len(table) else 0,) if program.objective.outputs_per_token else ()
    outputs = {}
    for name, variable in program.outputs.items():
        shape = program.main.global_block().var(variable).shape[1 + len(tokens) :]
        outputs[name] = np.zeros((len(table), *tokens, *shape), "float32")
    world_size = device.group.world_size
    batches = prediction_batches(
        table,
        batch_size,
        rank=device.group.rank,
        world_size=world_size,
        sequence_length_multiple=sequence_length_multiple,
        max_seq_length=max_seq_length,
    )
    packing = program.objective.packing()
    for number, batch in enumerate(batches, start=1):
        feed = batch.feed if packing is None else pack(batch.feed, packing)
        values = device.executor.run(
            program.main, feed=feed, fetch_list=list(program.outputs.values()), scope=device.scope
        )
        for name, value in zip(program.outputs, values, strict=True):
            if not tokens:
                outputs[name][batch.rows] = value
                continue
            width = min(value.shape[1], *tokens)
            mask = batch.feed["attention_mask"][:, :width].reshape(len(batch.rows), width, *[1] * (value.ndim - 2))
            outputs[name][batch.rows, :width] = value[:, :width] * mask
        if after_batch is not None:
            after_batch(number * batch_size * world_size)
    # Every rank has zeros where the others have values, so sums are exact.
    return {name: device.collective.sum(values.reshape(-1)).reshape(values.shape) for name, values in outputs.items()}


def _with_lasting_vocabulary(config: FineTuningConfig, is_main: bool) -> FineTuningConfig:
    """Use a copy of the vocabulary if it lies beside weights of this run, which may be pruned."""
    source, lasting = config.vocabulary_file(), config.stage_dir() / VOCABULARY_FILE
    if config.run.output_dir.resolve() not in source.resolve().parents:
        return config
    if is_main and source.resolve() != lasting.resolve():
        lasting.parent.mkdir(parents=True, exist_ok=True)
        lasting.write_bytes(vocabulary_content(source))
    return derive(config, vocab_file=lasting)

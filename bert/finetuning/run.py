"""A fine-tuning run, the same for all tasks: training with evaluations, best weights, scores and predictions."""

import json
import logging
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from bert.checkpoints.directories import CheckpointError, step_directory
from bert.checkpoints.state import calibrate
from bert.config.architecture import FusedKernels
from bert.config.automatic import resolve_auto
from bert.config.training_settings import derive
from bert.files import checksum_of, sha256_of_file, write_atomically
from bert.finetuning.config import FineTuningConfig, with_steps
from bert.finetuning.loader import FeatureTable, check_finite, prediction_batches
from bert.finetuning.prediction_files import PredictionFiles, stamps
from bert.finetuning.task import Features, FineTuningData, FineTuningTask, Outputs, Part
from bert.reporting.progress import metric_form, metrics_line, progress
from bert.reporting.run_record import SCORES_FILE
from bert.runtime.distributed import Group
from bert.runtime.paddle_api import read_variable
from bert.samples.global_batches import GlobalBatch
from bert.samples.packing import Packing, pack
from bert.tokenization.vocabulary_files import vocabulary_copy
from bert.training.devices import device_features
from bert.training.interruption import beat
from bert.training.loss_guards import BestMetric
from bert.training.saving import use_best_weights
from bert.training.starts import load_weights_to_use, read_weights_to_use
from bert.training.task import Evaluation, Session, Task
from program import build_prediction_program

logger = logging.getLogger(__name__)
_NOT_IN_RESULTS = {"train_file", "eval_file", "num_workers", "sequence_length_multiple", "download"}


class FineTuning(Task):
    """The training of a fine-tuning on one rank: its data and batches."""

    config: FineTuningConfig
    finishes = True

    def __init__(self, config: FineTuningConfig, group: Group, task: FineTuningTask) -> None:
        data = task.read_data()
        if data.train is not None:
            config = _with_lasting_vocabulary(with_steps(config, len(data.train), group.world_size), group.is_main)
            self.fingerprint, self.num_examples = data.train.fingerprint(), len(data.train)
            self._loader = task.loader(
                data.train,
                global_batch_size=config.batch.resolved_global_batch_size(group.world_size),
                micro_batch_size=config.batch.batch_size,
                rank=group.rank,
                world_size=group.world_size,
                num_workers=config.data.num_workers,
                seed=config.run.seed,
                max_seq_length=config.data.max_seq_length,
                sequence_length_multiple=config.data.sequence_length_multiple,
            )
        self.config, self.objective = config, task.objective()
        self.texts: dict[str, str] = task.texts()  # which each evaluation brings up to date, as `fitted`
        self.fitted: dict[str, np.ndarray] = {}
        self._task, self._data, self.evaluates_first = task, data, task.evaluates_first
        self.trains, self.evaluates = data.train is not None, bool(data.evaluated)
        if self.evaluates and config.run.keep_best:
            self.best_metric = BestMetric(task.best_metric, larger_is_better=True, is_result=True)

    def batches(self, step: int, packing: Packing | None = None) -> Generator[GlobalBatch, None, None]:
        return self._loader.batches(step, packing)

    def evaluation(self, session: Session) -> "FineTuningEvaluation":
        return FineTuningEvaluation(self, self._task, self._data, session)


class RunnableTask(FineTuningTask):
    """Base class of the tasks."""

    @classmethod
    def open(cls, config: Any, group: Group) -> FineTuning:
        """Open the run of the task."""
        return FineTuning(config, group, cls(config))


class FineTuningEvaluation(Evaluation):
    """Evaluation and prediction on one rank, with the weights in Paddle's scope."""

    def __init__(self, run: FineTuning, task: FineTuningTask, data: FineTuningData, session: Session) -> None:
        self._config, self._task, self._data, self._metric = run.config, task, data, run.best_metric
        self._texts, self._fitted = run.texts, run.fitted
        self._device = device = session.device
        self._latest: tuple[dict[str, float], list[Any]] | None = None  # metrics, and predictions of each set
        self._sequences, self._seconds = 0, 0.0  # of the latest set or stream
        precision = run.config.precision
        if session.program is not None:
            objective = session.program.objective  # with its fused kernels
        else:
            resolved = resolve_auto(run.config, device_features(device.group))
            weights = read_weights_to_use(run.config)
            objective = task.objective_of(weights.parameters)
            objective = replace(objective, kernels=FusedKernels(unpad=resolved.kernels().unpad))
        self._program = build_prediction_program(objective, precision)
        if session.program is None:
            device.executor.run(self._program.startup)
            load_weights_to_use(weights, self._program.parameters, device)
            return
        assert session.progress is not None
        if session.progress.step == 0 and run.config.initialization.initial_weights() is None:
            logger.info("no weights were given (--from-pretrained-params): all start from random ones")

    def evaluate(self, step: int) -> dict[str, float]:
        """Metrics of all evaluation sets. Their predictions are kept until the next evaluation."""
        metrics: dict[str, float] = {}
        predictions = []
        for part, features in self._data.evaluated:
            self._sequences, self._seconds = 0, 0.0
            outputs = self._outputs(features.table)
            if self._device.group.is_main:
                if self._config.run.do_train:
                    self._task.learn_to_decode(features, outputs)
                predictions.append(self._task.decode(features, outputs))
                metrics |= self._task.score(part, features, predictions[-1])
        self._texts |= self._task.texts()
        self._fitted.clear()
        self._fitted |= self._task.fitted_parameters()
        self._latest = metrics, predictions
        return metrics

    def figures(self) -> dict[str, Any]:
        return {"stage": self._config.stage(), **self._rate()}

    def finish(self, last_step: int | None) -> dict[str, Any]:
        """Evaluate and predict with the best weights, as the settings request."""
        figures = dict[str, Any]()
        if self._config.run.benchmark:
            self._sequences, self._seconds = 0, 0.0
            for _, features in self._data.evaluated[:1]:
                self._outputs(features.table)
            for part, _ in self._data.predicted[: not self._data.evaluated]:
                for examples in self._task.windows(part):
                    self._outputs(self._task.features(examples)[0])
            return self._rate()
        if last_step is not None and self._metric.keeps:
            figures |= self._use_best(last_step)
        if self._data.evaluated:
            step = last_step and (figures.get("best_step") or last_step)
            figures |= self._finish_evaluation(step, is_best="last_step" in figures)
        for part, number in self._data.predicted:
            self._sequences, self._seconds = 0, 0.0
            self._write_predictions(part, number)
        return figures | self._rate()

    def _use_best(self, last_step: int) -> dict[str, Any]:
        """Load the weights of the best evaluation. If the last weights differ, their metrics become `last_NAME`."""
        best_step = use_best_weights(self._config, self._device, last_step)
        if best_step in (0, last_step):
            return {"best_step": best_step}
        metrics = self._latest[0] if self._latest else {}
        self._latest = None  # of other weights
        if metrics:  # rank 0 alone has them
            logger.info(f"{self._config.display_name()}, update {last_step} (last):  {metrics_line(metrics)}")
        last = {f"last_{name}": value for name, value in self._under_all_names(metrics).items()}
        return {"best_step": best_step, "last_step": last_step, **last}

    def _under_all_names(self, metrics: dict[str, float]) -> dict[str, float]:
        return metrics | {name: metrics[key] for key, name in self._task.summary_names.items() if key in metrics}

    def _finish_evaluation(self, step: int | None, is_best: bool) -> dict[str, Any]:
        """Write scores and predictions of the current weights; `step` names their checkpoint."""
        if self._latest is None:
            self.evaluate(0)
        assert self._latest is not None
        metrics, all_predictions = self._latest
        if not self._device.group.is_main:
            return {}
        folder = self._config.stage_dir()
        folder.mkdir(parents=True, exist_ok=True)
        for (part, features), predictions in zip(self._data.evaluated, all_predictions, strict=True):
            details = self._task.details(part, features, predictions, fits=step is not None)
            if details is not None:
                metrics |= self._task.score(part, features, predictions)
                text = json.dumps(details, ensure_ascii=False, indent=1, default=float)
                write_atomically(folder / SCORES_FILE, f"{text}\n".encode())
            contents = self._task.render(part, features, predictions)
            for (name, file), content in zip(part.results.items(), contents, strict=True):
                write_atomically(folder / name, file.head + content + file.tail)
            self._announce(part)
        which = f", update {step} (best)" if is_best else ""
        logger.info(f"{self._config.display_name()}{which}:  {metrics_line(metrics)}")
        if metrics.get(self._task.best_metric, np.inf) < self._task.near_zero:
            logger.warning(self._failure(metrics, is_trained=step is not None))
        figures: dict[str, Any] = self._under_all_names(metrics)
        if step is not None:
            self._keep_model(step)
        if step is not None or not self._task.baseline_is_trained:
            begin = time.perf_counter()
            try:
                baseline = self._task.baseline(self._data.evaluated[0][1], all_predictions[0])
                figures |= {**baseline, "baseline_seconds": time.perf_counter() - begin} if baseline else {}
            except (ValueError, MemoryError) as error:  # such as texts without a word, or fewer lines than parts
                logger.info(f"nothing stands beside the scores: {error}")
        return figures

    def _failure(self, metrics: dict[str, float], is_trained: bool) -> str:
        """A warning if the score is near zero, with what to change."""
        config, name = self._config, self._task.best_metric
        remedy = "use weights that were trained on this task and these labels"
        if is_trained:
            steps, rate = config.run.max_steps, config.optimizer.learning_rate
            remedy = f"train longer (now --max-steps {steps}) or with another --learning-rate (now {rate:g}), or "
            remedy += "start from better weights, or check that the labels are right"
        score = f"{name.removeprefix('eval_')} {metrics[name]:{metric_form(name, metrics)}}"
        return f"{score} is near zero: the model has learned next to nothing of this task; {remedy}"

    def _announce(self, part: Part) -> None:
        """Log where the results are. If the task wants it, link them in the folder of the checkpoints."""
        folder, beside = self._config.stage_dir(), self._config.checkpoint_dir()
        for name in part.results if self._task.results_beside_checkpoints else ():
            with suppress(OSError):  # a file system without links
                beside.mkdir(parents=True, exist_ok=True)
                (beside / name).unlink(missing_ok=True)
                (beside / name).symlink_to(os.path.relpath(folder.resolve() / name, beside.resolve()))
        what = "predictions" if part.name == "predictions" else f"predictions of {part.name}"
        if part.results:
            logger.info(f"{what} are in {folder}")

    def _keep_model(self, step: int) -> None:
        """Add the results of the last evaluation to the checkpoint: the calibrated head, and its files."""
        parent, task = self._config.checkpoint_dir(), self._task
        if step_directory(parent, step).is_dir():
            trained = {name: read_variable(self._device.scope, name) for name in self._program.parameters}
            prefix, final = self._config.run.model_prefix, task.final_head(trained)
            try:
                calibrate(parent, prefix, step, task.fitted_parameters(), final, task.texts())
            except CheckpointError as error:  # predictions of this command still have what was found
                logger.warning(f"the checkpoint of step {step} is not calibrated; start again to do it: {error}")

    def _write_predictions(self, part: Part, number: int) -> None:
        """Predict a file while it is read; an interrupted equal command is resumed."""
        counts = Counter[str]()
        if not self._device.group.is_main:
            for _ in self._windows(part, 0, counts):
                pass
            return
        folder = self._config.stage_dir()
        folder.mkdir(parents=True, exist_ok=True)
        unit, targets = self._task.unit, {folder / name: file.row_ends for name, file in part.results.items()}
        output = PredictionFiles(targets, self._command(part), flag="--output-dir", unit=unit, log=logger.info)
        with output as files, progress("predicted", number, unit) as bar:
            for contents, first in self._windows(part, files.rows, counts, lambda done: bar.update(done - bar.n)):
                files.append(contents, first)
            files.append([file.tail for file in part.results.values()])
        for line in self._task.describe(part.path, counts):
            logger.info(line)
        self._announce(part)

    def _windows(
        self, part: Part, done_rows: int, counts: Counter[str], move_bar: Callable[[int], Any] = lambda done: None
    ) -> Iterator[tuple[list[bytes], int]]:
        """The results of each part of the file, and the number of its first row.

        Every rank runs its share of the windows, rank 0 has the results.

        Args:
            done_rows: rows that an interrupted command wrote, as rank 0 knows: windows of these do not run.
            counts: gets what is counted, of all windows.
        """
        done_rows, done, end = self._device.collective.from_main(done_rows), 0, 0
        for examples in self._task.windows(part):
            features = Features(examples, *self._task.features(examples))
            counts.update(features.counts)
            before, done = done, done + len(examples)
            first, end = end, end + self._task.num_rows(examples)
            if end <= done_rows:
                continue
            outputs = self._outputs(
                features.table,
                lambda share: move_bar(before + int(share * len(examples))),  # noqa: B023
            )
            if self._device.group.is_main:
                contents = self._task.render(part, features, self._task.decode(features, outputs))
                begins = [file.separator if first else file.head for file in part.results.values()]
                yield [begin + content for begin, content in zip(begins, contents, strict=True)], first
                move_bar(done)

    def _outputs(self, table: FeatureTable, after_batch: Callable[[float], Any] = lambda share: None) -> Outputs:
        """The model's outputs for every sequence of the table, on every rank.

        Args:
            after_batch: called with the share of the table that was run.
        Returns:
            by the objective's names, float32 [n, ...], or [T, ...] of tokens, in the order of the table.
        """
        begin = time.perf_counter()
        program, device, data = self._program, self._device, self._config.data
        size, world_size = self._config.batch.predict_batch_size, device.group.world_size
        per_token, packing = program.objective.outputs_per_token, program.objective.packing()
        number = len(table.input_ids) if per_token else len(table)
        outputs: dict[str, np.ndarray] = {}
        for name, variable in program.outputs.items():
            shape = program.main.global_block().var(variable).shape[2 if per_token else 1 :]
            outputs[name] = np.zeros((number, *shape), "float32")
        batches = prediction_batches(
            table, size, device.group.rank, world_size, data.sequence_length_multiple, data.max_seq_length
        )
        for count, (rows, feed) in enumerate(batches, start=1):
            beat("evaluating or predicting a batch")
            values = device.executor.run(
                program.main,
                feed=feed if packing is None else pack(feed, packing),
                fetch_list=list(program.outputs.values()),
                scope=device.scope,
            )
            for array, value in zip(outputs.values(), values, strict=True):
                if per_token:
                    array[table.tokens_of(rows)] = value[np.arange(value.shape[1]) < table.lengths()[rows][:, None]]
                else:
                    array[rows] = value
            after_batch(min(1.0, count * size * world_size / len(table)))
        for name, array in outputs.items():  # every rank has zeros where the others have values, so sums are exact
            outputs[name] = device.collective.sum(array.reshape(-1)).reshape(array.shape)
        self._seconds += time.perf_counter() - begin
        self._sequences += len(table)
        check_finite(outputs)
        return outputs

    def _rate(self) -> dict[str, float]:
        return {"inference_sequences_per_second": self._sequences / self._seconds} if self._seconds else {}

    def _command(self, part: Part) -> dict[str, Any]:
        """The facts that decide the results: file, settings, vocabulary, classes, model and weights."""
        weights = [
            checksum_of(np.ascontiguousarray(read_variable(self._device.scope, name)).data.cast("B"))
            for name in self._program.parameters
        ]
        return {
            "settings": self._config.data.model_dump(exclude=_NOT_IN_RESULTS),
            "vocabulary": sha256_of_file(self._config.vocabulary_file()),
            "precision": self._config.precision.model_dump(),
            "model": self._config.model.model_dump(),
            "labels": self._task.labels,
            "weights": checksum_of("\n".join(weights).encode()),
            "files": stamps([part.path]),
        }


def _with_lasting_vocabulary(config: FineTuningConfig, is_main: bool) -> FineTuningConfig:
    """Copy the vocabulary if it is in a checkpoint of this run, which may be pruned."""
    source = config.vocabulary_file()
    if config.run.output_dir.resolve() not in source.resolve().parents:
        return config
    name, content = vocabulary_copy(source)
    lasting = config.stage_dir() / name
    if is_main and source.resolve() != lasting.resolve():
        lasting.parent.mkdir(parents=True, exist_ok=True)
        lasting.write_bytes(content)
    return derive(config, vocab_file=lasting)

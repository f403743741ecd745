"""A fine-tuning run put together: a task -> training with evaluations, the best weights, scores, predictions, summary.

A task gives tables of features and says what to do with the outputs; all that has to do with programs, ranks, guards,
checkpoints and logs is here and the same for every task.
"""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bert.checkpoints import files as checkpoint_files
from bert.checkpoints import state as checkpoint
from bert.checkpoints.writer import CheckpointWriter, SaveFailed
from bert.config.base import derive
from bert.config.command_line import dump_yaml
from bert.exit_codes import DIVERGED, INTERRUPTED
from bert.finetuning.config import FineTuningConfig, with_steps
from bert.finetuning.loader import FeatureTable, FineTuningLoader
from bert.finetuning.prediction import predict
from bert.model.objectives import Objective
from bert.reporting.logs import QUIET_STEPS, RunLog, Sink, replace_file, to_json
from bert.runtime import distributed
from bert.runtime.paddle_api import read_variable
from bert.training import initialization
from bert.training import run as runs
from bert.training.interruption import StopRequest
from bert.training.trainer import Device, Outcome, RanksDiffer, Trainer, TrainingDiverged
from program import PredictionProgram, TrainingProgram, build_prediction_program

Outputs = dict[str, np.ndarray]  # what the objective puts out, by name: float32 [n, ...], in the order of the table


@dataclass(frozen=True)
class PredictedSet:
    """Sequences to run the model over, and what becomes of the outputs. Both functions are called on rank 0 only.

    Attributes:
        name: for messages: "dev", "matched" ...
        score: outputs -> metrics, their names starting with `eval_`; None for a set without labels.
        write: writes prediction files of the outputs into a folder.
    """

    name: str
    table: FeatureTable
    score: Callable[[Outputs], dict[str, float]] | None = None
    write: Callable[[Outputs, Path], None] | None = None


@dataclass(frozen=True)
class FineTuningTask:
    """What a task's module makes of its settings.

    Attributes:
        fingerprint: changes when the training features do; a checkpoint is continued only with the same.
        best_metric: the evaluation metric that decides which weights are best; larger is better.
        texts: files to keep in checkpoints, name -> content: what is needed to use the model (labels, settings).
        summary_names: further names of metrics in the summary: the metric -> the name.
    """

    objective: Objective
    fingerprint: str
    best_metric: str
    train: FeatureTable | None = None
    evaluation: Sequence[PredictedSet] = ()
    prediction: Sequence[PredictedSet] = ()
    texts: Mapping[str, str] = field(default_factory=dict)
    summary_names: Mapping[str, str] = field(default_factory=dict)


OpenTask = Callable[[Any, Callable[[str], None]], FineTuningTask]


def run(config: FineTuningConfig, open_task: OpenTask) -> int:
    """Do what the settings say; returns the exit code: 0, 75 stopped and saved, 3 stopped by a guard.

    `open_task(config, report)` reads and checks the data; ValueErrors about it come before any program is built.
    """
    stop = StopRequest()  # first: a STOP file made from now on is meant for this run
    group = distributed.group_from_environment(runs.choose_device(config))
    notes: list[str] = []
    task = open_task(config, notes.append)
    if task.train is not None:
        config = _with_lasting_vocabulary(with_steps(config, len(task.train), group.world_size), group.is_main)
    stop.install()
    with contextlib.ExitStack() as stack:
        log = _open_log(config, group, stack) if group.is_main else None
        say = runs.say_to(log)
        for note in notes:
            say(note)
        threads = runs.join_ranks(config, group, say)
        session = _Session(config, task, log, say, stop)
        if log:
            log.parameters(
                {
                    **json.loads(config.model_dump_json()),
                    "world_size": group.world_size,
                    "cpu_threads_per_rank": threads,
                }
            )
        try:
            code = None
            if task.train is not None:
                code = session.train(group, stack)
            else:
                stop.leave_at_once()  # nothing will be saved
                session.load(group)
        except (TrainingDiverged, RanksDiffer) as error:
            print(f"error: {error}", file=sys.stderr)
            return DIVERGED
        if code is None:
            stop.leave_at_once()
            session.finish()
        distributed.finalize(group)
    return code or 0


def _with_lasting_vocabulary(config: FineTuningConfig, is_main: bool) -> FineTuningConfig:
    """A copy of a vocabulary that lies beside weights of this run, which are deleted when better or newer ones come."""
    source, lasting = config.vocabulary_file(), config.stage_dir() / checkpoint.VOCABULARY_FILE
    if config.run.output_dir.resolve() not in source.resolve().parents:
        return config
    if is_main and source.resolve() != lasting.resolve():
        lasting.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, lasting)
    return derive(config, vocab_file=lasting)


def _open_log(config: FineTuningConfig, group, stack: contextlib.ExitStack) -> RunLog:
    directory = config.stage_dir() / "benchmark" if config.run.benchmark else config.stage_dir()
    if config.run.do_train:
        stack.enter_context(checkpoint_files.run_lock(config.checkpoint_dir()))
    log = RunLog(
        directory,
        config.run.report_file,
        total_steps=max(config.run.max_steps, 1),
        visualdl=config.hardware.visualdl and config.run.do_train,
        show_steps=QUIET_STEPS not in os.environ,
    )
    stack.callback(log.close)
    (directory / "config.yaml").write_text(dump_yaml(config))
    return log


class _Session:
    """One run: weights in the scope, evaluations in training, the best of them, and what is left at the end."""

    device: Device
    prediction_program: PredictionProgram

    def __init__(
        self,
        config: FineTuningConfig,
        task: FineTuningTask,
        log: RunLog | None,
        say: Callable[[str], None],
        stop: StopRequest,
    ):
        self.config, self.task, self.log, self.say, self.stop = config, task, log, say, stop
        self.summary: dict[str, Any] = {"stage": config.stage()}
        self._evaluated: tuple[int, list[Outputs]] | None = None  # of the last evaluation, on rank 0

    def train(self, group, stack: contextlib.ExitStack) -> int | None:
        """Train to the end, or as far as asked: returns the exit code where there is nothing more to do."""
        config, task = self.config, self.task
        assert task.train is not None
        program, self.device = runs.build(config, task.objective, group)
        self.prediction_program = build_prediction_program(task.objective)
        start = runs.start_of_run(config, task.fingerprint, group)
        progress = initialization.initialize_weights(config, program, self.device, start, self.say)
        if progress.step == 0 and config.initialization.initial_weights() is None:
            self.say("no weights were given (--from-pretrained-params): all start from random ones")
        if self.log:
            self.log.first_step = progress.step
        if self.log and not config.run.benchmark:  # before its first checkpoint, another run may have left a best one
            for path in checkpoint_files.set_aside_newer(config.best_dir(), progress.step):
                self.say(f"the best weights of a run that is not continued are now {path}")
        runs.prepare_to_stop(config, group, self.stop, self.say)
        writer = stack.enter_context(CheckpointWriter(config.run.async_checkpoint))
        keeper = runs.Keeper(config, program, self.device, start, self.say, writer, task.texts)
        with runs.watchdog(config, group) as watchdog:
            trainer = Trainer(
                program,
                self.device,
                config,
                self.log,
                self.stop,
                save=keeper.save,
                evaluate=self.evaluate if self._evaluates() else None,
                restore=keeper.restore,
                writer=writer,
                watchdog=watchdog,
            )
            self._program = program
            outcome = trainer.run(
                self._loader(group).batches, progress.step, runs.last_step(config, progress.step), progress.carried
            )
        self._summarise(program, outcome)
        if outcome.interrupted_by:
            self.say(f"stopped by {outcome.interrupted_by} at step {outcome.step}, saved; start again to continue")
            return INTERRUPTED
        if config.run.benchmark or not outcome.finished:
            return None if config.run.benchmark else 0
        self._use_best(outcome.step)
        return None

    def load(self, group) -> None:
        """Weights for evaluation or prediction alone; every head must be among them."""
        self.device = runs.open_device(self.config, group)
        self.prediction_program = build_prediction_program(self.task.objective)
        self.device.executor.run(self.prediction_program.startup)
        initialization.load_weights_to_use(self.config, self.prediction_program.parameters, self.device, self.say)

    def evaluate(self, step: int) -> dict[str, float]:
        """Metrics of all evaluation sets after `step`; only rank 0 has them."""
        outputs = [self.predict(part) for part in self.task.evaluation]
        if not self.device.group.is_main:
            return {}
        metrics = self._score(outputs)
        self._evaluated = (step, outputs)
        best = self._best()
        if self.config.run.keep_best and (best is None or metrics[self.task.best_metric] > best[1]):
            self._keep(step, metrics)
        return metrics

    def predict(self, part: PredictedSet) -> Outputs:
        """Outputs of the whole set on every rank; counts and times them for the summary."""
        config, begin = self.config, time.perf_counter()
        outputs = predict(
            self.device,
            self.prediction_program,
            part.table,
            config.batch.predict_batch_size,
            max_seq_length=config.data.max_seq_length,
            sequence_length_multiple=config.data.sequence_length_multiple,
        )
        seconds = time.perf_counter() - begin
        self.summary["inference_sequences_per_second"] = len(part.table) / max(seconds, 1e-9)
        return outputs

    def finish(self) -> None:
        """Score and write what was asked for, with the weights that are in the scope now."""
        directory = self.config.stage_dir()
        if self.config.run.benchmark:
            for part in [*self.task.evaluation, *self.task.prediction][:1]:
                self.predict(part)
        elif self.config.run.do_eval or self.config.run.do_predict:
            self._finish_sets(directory)
        if self.log:
            self.log.summary(self.summary)

    def _finish_sets(self, directory: Path) -> None:
        run = self.config.run
        if run.do_eval:
            outputs = [self.predict(part) for part in self.task.evaluation] if self._stale() else None
            if self.log:
                outputs = outputs or self._evaluated[1]  # type: ignore[index]
                metrics = self._score(outputs)
                self.summary |= metrics | {name: metrics[key] for key, name in self.task.summary_names.items()}
                self.say(
                    "  ".join(
                        [
                            f"{self.config.stage()}:",
                            *(f"{name.removeprefix('eval_')} {value:.4f}" for name, value in metrics.items()),
                        ]
                    )
                )
                self._write(self.task.evaluation, outputs, directory)
        if run.do_predict:
            outputs = [self.predict(part) for part in self.task.prediction]
            if self.log:
                self._write(self.task.prediction, outputs, directory)

    def _write(self, parts: Sequence[PredictedSet], outputs: list[Outputs], directory: Path) -> None:
        for part, output in zip(parts, outputs, strict=True):
            if part.write is not None:
                part.write(output, directory)
                self.say(f"predictions of {part.name} are in {directory}")

    def _score(self, outputs: list[Outputs]) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for part, output in zip(self.task.evaluation, outputs, strict=True):
            metrics |= part.score(output) if part.score is not None else {}
        return metrics

    def _evaluates(self) -> bool:
        return self.config.run.do_eval and bool(self.task.evaluation)

    def _loader(self, group) -> FineTuningLoader:
        config = self.config
        assert self.task.train is not None
        return FineTuningLoader(
            self.task.train,
            config.batch.resolved_global_batch_size(group.world_size),
            config.batch.batch_size,
            group.rank,
            group.world_size,
            seed=config.run.seed,
            max_seq_length=config.data.max_seq_length,
            sequence_length_multiple=config.data.sequence_length_multiple,
            num_workers=config.data.num_workers,
        )

    # ---- the best weights ----------------------------------------------------------------------------------------

    def _keep(self, step: int, metrics: dict[str, float]) -> None:
        config, parent = self.config, self.config.best_dir()
        parameters = {name: read_variable(self.device.scope, name) for name in self._program.parameters}
        texts = {**self.task.texts, checkpoint.METRICS_FILE: to_json(metrics, indent=1) + "\n"}
        try:
            checkpoint.save_weights(
                parent,
                step,
                config.run.model_prefix,
                parameters,
                config.model.to_json(),
                config.vocabulary_file(),
                texts,
            )
            for other in checkpoint_files.list_steps(parent):
                if other != step:
                    checkpoint_files.remove_step(parent, other)
        except (OSError, ValueError) as error:
            raise SaveFailed(
                f"the best weights, those of step {step}, could not be kept ({error}); those before and "
                "the checkpoints are whole: make room, and start again to continue"
            ) from error
        self.say(
            f"best so far: {self.task.best_metric.removeprefix('eval_')} "
            f"{metrics[self.task.best_metric]:.4f} at step {step}, kept in {parent / str(step)}"
        )

    def _best(self) -> tuple[int, float] | None:
        """(step, value of the best metric) of what is kept, on rank 0."""
        path = checkpoint_files.newest_valid(self.config.best_dir(), self.say)
        if path is None:
            return None
        metrics = json.loads((path / checkpoint.METRICS_FILE).read_text())
        return int(path.name), metrics[self.task.best_metric]

    def _use_best(self, last_step: int) -> None:
        """Put the best weights into the scope of every rank."""
        if not (self._evaluates() and self.config.run.keep_best):
            return
        best = self._best() if self.device.group.is_main else None
        step = int(self.device.collective.sum(np.array([best[0] if best else 0], "int64"))[0])
        self.summary["best_step"] = step
        if step == 0:
            self.say(f"no best weights are whole in {self.config.best_dir()}: using those of the last step")
        if step in (0, last_step):
            return
        self._evaluated = None
        path = checkpoint_files.step_directory(self.config.best_dir(), step)
        checkpoint.write_parameters(self.device.scope, self.device.place, checkpoint.load_parameters(path))
        self.say(f"using the weights of step {step}, the best")

    def _stale(self) -> bool:
        """Whether the evaluation sets must be run again: the last outputs are of other weights, on any rank."""
        return self.device.collective.any(self.device.group.is_main and self._evaluated is None)

    def _summarise(self, program: TrainingProgram, outcome: Outcome) -> None:
        self.summary |= runs.summary_of(self.config, outcome, self.device, program)
        if self.log:  # also of a run that does not reach its end
            file, text = self.log.directory / "summary.json", to_json(self.summary, indent=1)
            Sink(file.name)(lambda: replace_file(file, text))

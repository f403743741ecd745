"""Trackers besides VisualDL (`--report-to`): they get the same names, and a resumed run continues its tracker's run.

Where they write is theirs to configure: WANDB_MODE=offline, WANDB_PROJECT, MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME.
"""

import importlib.util
import os
from collections.abc import Iterable

from bert.config.training_settings import OTHER_TRACKERS
from bert.interpreter import install_command
from bert.reporting.curves import Tracker, VisualDL, table_row
from bert.telemetry import switch_off_telemetry


class TensorBoard(Tracker):
    """Writes scalars to `directory`/tensorboard; steps that a resumed run repeats replace earlier ones."""

    def open(self, first_step: int) -> None:
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(str(self.directory / "tensorboard"), purge_step=first_step + 1)

    def write(self, step: int, scalars: dict[str, float]) -> None:
        for tag, value in scalars.items():
            self.writer.add_scalar(tag, value, step)

    def end(self) -> None:
        self.writer.close()


class WeightsAndBiases(Tracker):
    """Writes scalars to a run whose id is saved beside the logs; our step is a scalar and the x axis."""

    def open(self, first_step: int) -> None:
        switch_off_telemetry("wandb")
        import wandb

        identity = self.directory / "wandb_run"
        known = identity.read_text() if first_step and identity.is_file() else None
        place = {"project": os.environ.get("WANDB_PROJECT", "bert-on-paddle"), "dir": self.directory}
        self.writer = wandb.init(**place, name=self.name, id=known, resume="allow", config=self.hyper_parameters)
        identity.write_text(self.writer.id)
        self.writer.define_metric("*", step_metric="step")

    def write(self, step: int, scalars: dict[str, float]) -> None:
        self.writer.log({"step": step, **scalars})

    def end(self) -> None:
        self.writer.finish()


class MLflow(Tracker):
    """Writes scalars to a run whose id is saved beside the logs."""

    def open(self, first_step: int) -> None:
        # Ten threads, the default, make the folder of a file store's metric at once, and then lose a value.
        os.environ.setdefault("MLFLOW_ASYNC_LOGGING_THREADPOOL_SIZE", "1")
        switch_off_telemetry("mlflow")
        import mlflow

        self.writer, identity = mlflow.MlflowClient(), self.directory / "mlflow_run"
        if first_step and identity.is_file():
            self._run = identity.read_text()
            self.writer.update_run(self._run, "RUNNING")
            return
        experiment = mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", "bert-on-paddle")).experiment_id
        self._run = self.writer.create_run(experiment, run_name=self.name).info.run_id
        identity.write_text(self._run)
        for parameter, value in table_row(self.hyper_parameters).items():
            self.writer.log_param(self._run, parameter, value)

    def write(self, step: int, scalars: dict[str, float]) -> None:
        for tag, value in scalars.items():
            self.writer.log_metric(self._run, tag, value, step=step, synchronous=False)

    def end(self) -> None:
        import mlflow

        mlflow.flush_async_logging()
        self.writer.set_terminated(self._run)


_OTHERS: tuple[type[Tracker], ...] = (TensorBoard, WeightsAndBiases, MLflow)  # in the order of their names
TRACKERS: dict[str, type[Tracker]] = {"visualdl": VisualDL, **dict(zip(OTHER_TRACKERS, _OTHERS, strict=True))}
_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


def check_trackers(names: Iterable[str]) -> None:
    """Raise ValueError if a tracker's package or server is missing; without VisualDL only a warning is needed."""
    for name in names:
        package = _PACKAGES.get(name)
        if package and importlib.util.find_spec(package) is None:
            raise ValueError(f"report_to={name} needs the package {package}; run {install_command(name)}")
        if name == "mlflow" and "MLFLOW_TRACKING_URI" not in os.environ:
            raise ValueError("report_to=mlflow needs the address of your server in MLFLOW_TRACKING_URI; export it")

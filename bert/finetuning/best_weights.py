"""The best weights of a fine-tuning: kept beside its checkpoints, used at its end."""

import json
import logging
from collections.abc import Mapping

import numpy as np

from bert.checkpoints import directories as checkpoint_files
from bert.checkpoints import state as checkpoint
from bert.checkpoints.writer import SaveFailed
from bert.finetuning.config import FineTuningConfig
from bert.reporting.figures import metric_form
from bert.reporting.logs import to_json
from bert.runtime.paddle_api import read_variable
from bert.training.devices import Device

logger = logging.getLogger(__name__)


class BestWeights:
    """Keeps the weights whose evaluation metric is the largest so far.

    Args:
        metric: its name in the metrics of an evaluation.
        texts: files beside the weights, name -> content.
    """

    def __init__(self, config: FineTuningConfig, metric: str, texts: Mapping[str, str]) -> None:
        self._config, self._metric, self._texts, self._parent = config, metric, texts, config.best_dir()

    def set_aside_newer(self, step: int) -> None:
        """Rename best weights from later steps than this run starts at, which could otherwise win over this run's."""
        for path in checkpoint_files.set_aside_newer(self._parent, step):
            logger.info(f"the best weights of a run that is not continued are now {path}")

    def offer(self, step: int, metrics: Mapping[str, float], device: Device, names: tuple[str, ...]) -> None:
        """Keep the weights in the scope if they are better than those kept; on rank 0.

        Raises:
            SaveFailed: they could not be written.
        """
        best = self._best()
        if best is not None and not metrics[self._metric] > best[1]:  # NaN is not better either
            return
        config, texts = self._config, {**self._texts, checkpoint.METRICS_FILE: to_json(metrics, indent=1) + "\n"}
        parameters = {name: read_variable(device.scope, name) for name in names}
        try:
            checkpoint.save_weights(
                self._parent,
                step,
                config.run.model_prefix,
                parameters,
                config.model.to_json(),
                config.vocabulary_file(),
                texts,
            )
            checkpoint_files.prune(self._parent, 1)  # newer ones were set aside
        except (OSError, ValueError) as error:
            raise SaveFailed(
                f"the best weights, those of step {step}, could not be kept ({error}); earlier ones and "
                "the checkpoints are complete: free some space, then start again to resume"
            ) from error
        logger.info(
            f"best so far: {self._metric.removeprefix('eval_')} "
            f"{metrics[self._metric]:{metric_form(self._metric, metrics)}} at step {step}, "
            f"kept in {self._parent / str(step)}"
        )

    def use(self, device: Device, last_step: int) -> int:
        """Put the best weights into the scope of every rank; returns their step, 0 if there are none."""
        best = self._best() if device.group.is_main else None
        step = int(device.collective.sum(np.array([best[0] if best else 0], "int64"))[0])
        if step == 0:
            logger.info(f"no complete best weights in {self._parent}: using those of the last step")
        elif step != last_step:
            path = checkpoint_files.step_directory(self._parent, step)
            checkpoint.write_parameters(device.scope, device.place, checkpoint.load_parameters(path))
            logger.info(f"using the weights of step {step}, the best")
        return step

    def _best(self) -> tuple[int, float] | None:
        """(step, value of the metric) of the weights that are kept."""
        found = checkpoint_files.newest_valid(self._parent)
        if found is None:
            return None
        metrics = json.loads((found.directory / checkpoint.METRICS_FILE).read_text())
        return int(found.directory.name), metrics[self._metric]

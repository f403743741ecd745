"""The steps of a training on the user's text: data, training, results.

The plan was made from the text, the machine and its speed. The data are made once. With --hours the time decides the
end: the rate is stable until the last share of the time, in which it decays.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from bert.config.training_settings import derive
from bert.exit_codes import INTERRUPTED, OK
from bert.files import read_json
from bert.help_parser import wrapped
from bert.jobs.job import Execution, Job, Step
from bert.jobs.training import Train
from bert.launching.previous_run import is_done, newest_loop_state, newest_saved, without_effect
from bert.launching.processes import module_command
from bert.launching.ranks import Ranks
from bert.own_text import constants, corpus, report
from bert.own_text.length import LEAST_SECONDS
from bert.own_text.record import TextRecord
from bert.own_text.request import TextRequest
from bert.own_text.start import checkpoint_steps, training_config
from bert.pretraining.config import PretrainingConfig
from bert.reporting.progress import duration
from bert.reporting.results import next_commands, show_figures
from data.examples.documentation import FILE_NAME


def text_job(request: TextRequest, record: TextRecord, config: PretrainingConfig) -> Job:
    """The job of a plan: make the data, train, show the results.

    Args:
        record: its plan is followed; what the training learns of its own length is kept in it.
    """
    ranks = Ranks(num_processes=record.plan.ranks)
    training = TextTraining(
        script=request.job.script(),
        config=config,
        ranks=ranks,
        data=(TextData(request, record, config),),
        job_id=f"{request.job.job_name}_{config.stage()}",
        log_file=request.job.log_file(config, ranks.world_size()),
        text=request,
        record=record,
    )
    return Job("own text", request.output_dir, (training, TextResults(training)), ranks, request.length.hours)


@dataclass(frozen=True)
class Documentation(Step):
    """The step that collects this machine's documentation as text for the recipe `evening`."""

    folder: Path
    num_workers: int

    @property
    def title(self) -> str:
        return "collecting the documentation of this machine"

    @property
    def product(self) -> Path:
        return self.folder / FILE_NAME

    def is_done(self, execution: Execution) -> bool:
        return self.product.exists()

    def run(self, execution: Execution) -> int:
        print(f"{self.title} ...", flush=True)
        workers = {"local_n_workers": self.num_workers}
        return execution.command(module_command("data.examples.documentation", output_dir=self.folder, **workers))


@dataclass(frozen=True)
class TextData(Step):
    """The step that makes missing data: imported text, vocabulary, shards."""

    text: TextRequest
    record: TextRecord
    config: PretrainingConfig

    @property
    def title(self) -> str:
        return "importing the text, making vocabulary and shards"

    @property
    def product(self) -> Path:
        return self.text.output_dir / "data"

    def run(self, execution: Execution) -> int:
        record, plan, used = self.record, self.record.plan, execution.record.used
        keep_existing, files = bool(checkpoint_steps(self.text.output_dir)), record.data.get("files", "")
        began, expected = used(), plan.data_seconds
        run = execution.command
        code = corpus.prepare(self.text, plan, self.config, run, files=files, keep_existing=keep_existing)
        if (took := used() - began) > 1.2 * expected > 0:
            print(f"the data took {duration(took)}; {duration(expected)} were expected", flush=True)
            record.slowness = record.text.slowness * took / expected
        if not code:
            corpus.check_samples(self.text, self.config.batch.resolved_global_batch_size(plan.ranks))
        return code


@dataclass(frozen=True, kw_only=True)
class TextTraining(Train):
    """The step that trains on the user's text for the requested time, epochs or updates."""

    config: PretrainingConfig
    text: TextRequest
    record: TextRecord

    def settled(self, execution: Execution) -> Self:
        """The step with settings that follow from the data: vocabulary, samples and expected updates."""
        return replace(self, config=training_config(self.text, self.record))

    def run(self, execution: Execution) -> int:
        record, length = self.record, self.text.length
        seconds = self.seconds(execution)
        if record.length is None and seconds is not None:  # the first start
            speed = record.speeds[record.plan.model] / record.plan.settings["global_batch_size"]
            start_seconds = record.current_slowness() * constants.START_SECONDS[self.config.hardware.device]
            record.expected_updates = max(1, round(speed * (seconds - start_seconds)))
        record.length = length
        record.save(execution.record)
        config = self.settled(execution).config  # the shares of its schedule are of these updates
        if seconds is not None and length.hours is not None:
            config = config.ending_in(seconds)
        config = derive(config, finish_in=seconds, **self._start_before_the_decay(config))
        code = self.launch(config, execution)
        if code in (OK, INTERRUPTED):
            record.finished = length if code == OK and self._has_finished(config) else None
            record.save(execution.record)
        return code

    def seconds(self, execution: Execution) -> float | None:
        """Seconds from the start of the ranks; None if updates, or a recorded decay, decide the end."""
        record, length = self.record, self.text.length
        used, slowness = execution.record.used(), record.current_slowness()
        start_seconds, end_seconds = constants.START_SECONDS[self.config.hardware.device], length.end_seconds(slowness)
        left = length.seconds_left(used, end_seconds) if record.plan.is_timed() else None
        if left is None or length.finish_in or left >= start_seconds + LEAST_SECONDS:
            return left
        decay: dict[str, int] = newest_loop_state(self.config).get("decay") or {}  # of the newest checkpoint
        if not decay or max(checkpoint_steps(self.text.output_dir)) >= decay["last"]:
            length.refuse_used_up(used, execution.record.used_now(), start_seconds + end_seconds)
        return None

    def _start_before_the_decay(self, config: PretrainingConfig) -> dict[str, Any]:
        """Start settings for extending a run that ended by time; empty for other runs."""
        summary, finished, length = self._summary(), self.record.finished, self.text.length
        was_by_time, stable = finished is not None and finished.is_by_time(), summary.get("decay_from")
        if not was_by_time or stable is None or length.finish_in or length.hours is not None or length == finished:
            return {}
        if config.run.max_steps <= summary["last_step"]:
            return {}
        start = {"from_checkpoint": config.checkpoint_dir(), "last_step_of_checkpoint": stable}
        return {"from_pretrained_params": None, **start}

    def is_done(self, execution: Execution) -> bool:
        """Whether the training is finished with at least the requested length."""
        record, summary, patience = self.record, self._summary(), self.config.run.early_stopping
        if summary.get("stopped_early") and (patience == 0 or patience > summary.get("early_stopping", 0)):
            return False
        was_noted = record.finished is not None  # otherwise the launcher was killed before
        if not was_noted and record.length == self.text.length and summary.get("finished"):
            record.finished = record.length
        is_reached = self.text.length.is_reached(record.finished)
        return is_reached and (newest_saved(self.config) or -1) >= summary.get("steps", 0)

    def left(self, execution: Execution) -> str:
        config = self.settled(execution).config
        return "" if self._has_finished(config) else "the training has steps left; the same command continues"

    def _has_finished(self, config: PretrainingConfig) -> bool:
        return bool(self._summary().get("finished")) or is_done(config)

    def _summary(self) -> dict[str, Any]:
        return read_json(self.config.stage_dir() / "summary.json")


@dataclass(frozen=True)
class TextResults(Step):
    """The step that shows scores, examples of predictions, and next commands."""

    takes_time: ClassVar[bool] = False
    training: TextTraining

    @property
    def title(self) -> str:
        return "showing the results"

    def run(self, execution: Execution) -> int:
        step, request, used = self.training, self.training.text, execution.record.used()
        output_dir, plan, was_done = request.output_dir, step.record.plan, not execution.has_worked
        config = step.settled(execution).config
        show_figures("own text", [config], None if was_done else used)
        print(*map(wrapped, report.result_lines(plan, config)), "", sep="\n", flush=True)
        if was_done:
            step.record.save(execution.record)
            print(wrapped(f"Already done: {output_dir} (more --hours, --epochs or --max-steps train it on)"))
            print(without_effect(config, request.settings), end="")
            if request.length.finish_in:
                print("--finish-in had no effect: it ends a training that is not finished")
        else:
            text = corpus.text_folder(request, plan, "held_out")
            report.demonstrate(output_dir, text, request.job.code_dir / "run_predict.py", execution.runner)
        again = request.longer(max(plan.seconds, used) / 3600)
        print(next_commands(report.next_commands(output_dir, again)))
        return OK

"""The steps of a training on own text: data, training, report.

The plan is made from the text, the machine and its measured speed, and printed first. The data are made once. With
--hours the time decides the end: the rate is stable until the last share of the time, in which it decays. The command
is bert/commands/own_text.py.
"""

from typing import Any

from bert.config.run_file import dump_yaml
from bert.config.training_settings import derive
from bert.exit_codes import INTERRUPTED, OK
from bert.files import read_json
from bert.help_parser import wrapped
from bert.launching.previous_run import is_done, newest_loop_state, newest_saved, refuse_other_run, without_effect
from bert.launching.process_runner import Runner
from bert.launching.ranks import Ranks
from bert.launching.settings import LaunchPlan
from bert.launching.start_training import explain_exit
from bert.own_text import constants, corpus, report
from bert.own_text.length import LEAST_SECONDS
from bert.own_text.plan_table import table
from bert.own_text.record import TextRecord
from bert.own_text.request import TextRequest
from bert.own_text.start import checkpoint_steps, training_config
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.launch_settings import PretrainingLaunch
from bert.pretraining.phases import train_phase
from bert.reporting.progress import duration
from bert.reporting.results import next_commands, show_figures


def show(request: TextRequest, record: TextRecord) -> PretrainingConfig:
    """Print the plan; returns the settings of the training. ValueError if what is there cannot be continued so."""
    plan, done = record.plan, max(checkpoint_steps(request.output_dir), default=0)
    config = training_config(request, record)
    if "show_config" in request.line.launch:
        print(dump_yaml(config))
        return config
    print(f"\n{table(plan, request, has_begun=done > 0)}\n")
    if request.weights is not None:
        head = "is kept" if "masked-LM head" in request.weights.heads else "is missing there and begins anew"
        print(f"The masked-LM head of {request.weights.path.name} {head}.")
    for line in plan.warnings:
        print(wrapped(f"warning: {line}"))
    if done:
        print(f"The training is at update {done:,}; {duration(record.used())} were used.")
    print(flush=True)
    config.batch.gradient_accumulation_steps(plan.ranks)
    if config.run.max_steps < done:
        asked = f"max_steps={config.run.max_steps}"
        if request.length.epochs is not None:
            asked = f"epochs={request.length.epochs:g} are {config.run.max_steps:,} updates and"
        raise ValueError(
            f"{asked} must be at least the {done:,} updates that were made (more extends it); for a shorter training "
            "pass another --output-dir"
        )
    refuse_other_run(config, plan.ranks)
    return config


class TextRun:
    """The run of a plan: data, training, results."""

    def __init__(self, request: TextRequest, record: TextRecord, config: PretrainingConfig, begun: float) -> None:
        self._request, self._record, self._config, self._begun = request, record, config, begun
        self._plan, self._runner = record.plan, Runner()
        self._slowness, self._start_seconds = record.text.slowness, constants.START_SECONDS[config.hardware.device]

    def run(self) -> int:
        if self._is_finished():  # looking at the results costs no hours
            self._report(was_done=True)
            return OK
        with self._record.clock(self._request.output_dir, self._begun):
            if code := self._prepare() or self._train():
                return code
            if not (self._summary().get("finished") or is_done(self._config)):
                print("the training has steps left; the same command continues", flush=True)
                return OK
            self._record.finished = self._request.length
            self._record.save(self._request.output_dir)
            self._report(was_done=False)
            return OK

    def _prepare(self) -> int:
        """Make the data, as far as they are missing; exit code of the command that failed, else 0."""
        request, record, run = self._request, self._record, self._runner.run
        keep_existing, files = bool(checkpoint_steps(request.output_dir)), record.data.get("files", "")
        began, expected = record.used(), self._plan.data_seconds
        code = corpus.prepare(request, self._plan, self._config, run, files=files, keep_existing=keep_existing)
        if (took := record.used() - began) > 1.2 * expected > 0:
            print(f"the data took {duration(took)}; {duration(expected)} were expected", flush=True)
            self._slowness *= took / expected
        if not code:
            corpus.check_samples(request, self._config.batch.resolved_global_batch_size(self._plan.ranks))
            self._config = training_config(request, record)  # vocabulary and samples are known now
        return explain_exit(code, self._config, self._runner)

    def _train(self) -> int:
        """Exit code of the training."""
        record, request = self._record, self._request
        seconds = self._seconds_left()
        if record.length is None and seconds is not None:  # the first start
            speed = record.speeds[self._plan.model] / self._plan.settings["global_batch_size"]
            record.expected_updates = max(1, round(speed * (seconds - self._slowness * self._start_seconds)))
            self._config = training_config(request, record)  # the shares of its schedule are of these updates
        record.length = request.length
        record.save(request.output_dir)
        config = derive(self._config, finish_in=seconds, **self._start_before_the_decay())
        launch = PretrainingLaunch(nodes=Ranks(num_processes=self._plan.ranks), start=request.job)
        code = train_phase(LaunchPlan("own text", (config,), launch), config, self._runner)
        if code in (OK, INTERRUPTED):
            record.finished = None
            record.save(request.output_dir)
        return code

    def _seconds_left(self) -> float | None:
        """Seconds that the training may take, from the start of its ranks; None: the number of updates decides, or the
        decay that was recorded.
        """
        record, length = self._record, self._request.length
        used, here = record.used(), record.used() - record.seconds_used
        end_seconds = length.end_seconds(self._slowness)
        left = length.seconds_left(used, end_seconds) if self._plan.is_timed() else None
        if left is None or length.finish_in or left >= self._start_seconds + LEAST_SECONDS:
            return left
        decay: dict[str, int] = newest_loop_state(self._config).get("decay") or {}  # of the newest checkpoint
        if not decay or max(checkpoint_steps(self._request.output_dir)) >= decay["last"]:
            length.refuse_used_up(used, here, self._start_seconds + end_seconds)
        return None

    def _start_before_the_decay(self) -> dict[str, Any]:
        """The start of more updates after a training that the time ended; none otherwise."""
        summary, finished, length = self._summary(), self._record.finished, self._request.length
        was_by_time, stable = finished is not None and finished.is_by_time(), summary.get("decay_from")
        if not was_by_time or stable is None or length.finish_in or length.hours is not None or length == finished:
            return {}
        if self._config.run.max_steps <= summary["last_step"]:
            return {}
        start = {"from_checkpoint": self._config.checkpoint_dir(), "last_step_of_checkpoint": stable}
        return {"from_pretrained_params": None, **start}

    def _is_finished(self) -> bool:
        """Whether the training was finished with the length that is asked for now, or with more."""
        record, summary, patience = self._record, self._summary(), self._config.run.early_stopping
        if summary.get("stopped_early") and (patience == 0 or patience > summary.get("early_stopping", 0)):
            return False
        was_noted = record.finished is not None  # otherwise the launcher was killed before
        if not was_noted and record.length == self._request.length and summary.get("finished"):
            record.finished = record.length
        is_reached = self._request.length.is_reached(record.finished)
        if not is_reached or (newest_saved(self._config) or -1) < summary.get("steps", 0):
            return False
        if not was_noted:
            record.save(self._request.output_dir)
        return True

    def _summary(self) -> dict[str, Any]:
        return read_json(self._config.stage_dir() / "summary.json")

    def _report(self, was_done: bool) -> None:
        output_dir, plan = self._request.output_dir, self._plan
        show_figures("own text", [self._config], None if was_done else self._record.used())
        print(*map(wrapped, report.result_lines(plan, self._config)), "", sep="\n", flush=True)
        if was_done:
            print(wrapped(f"Already done: {output_dir} (more --hours, --epochs or --max-steps train it on)"))
            print(without_effect(self._config, self._request.settings), end="")
            if self._request.length.finish_in:
                print("--finish-in had no effect: it ends a training that is not finished")
        else:
            text = corpus.text_folder(self._request, plan, "held_out")
            report.demonstrate(output_dir, text, self._request.job.code_dir / "run_predict.py", self._runner)
        again = self._request.longer(max(plan.seconds, self._record.used()) / 3600)
        print(next_commands(report.next_commands(output_dir, again)))

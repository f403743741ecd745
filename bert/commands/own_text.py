"""`bash scripts/run_pretraining.sh --text FOLDER`: plans and trains a model of the right size for a folder of text.

The plan is made from the text, the machine and its measured speed, and printed first. Started again with the same line
it continues; with more --hours, --epochs or --max-steps it trains longer. Exit codes as in `bert.commands.pretrain`.
"""

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from bert.config.setting_errors import check_all, usage_errors
from bert.config.setting_sources import read_settings
from bert.exit_codes import OK
from bert.files import only_writer, refuse_busy, refuse_read_only, require_writable
from bert.jobs.job import Execution, Job, Planned, Step, execute, show_steps
from bert.jobs.record import JobRecord
from bert.launching.arguments import CommandLine
from bert.launching.settings import LaunchPlan
from bert.launching.start_training import require_script
from bert.own_text.given_files import with_given_files
from bert.own_text.hardware_plan import hardware_plan
from bert.own_text.length import Length
from bert.own_text.record import RECORD_NAME
from bert.own_text.request import TextRequest, read_text_request
from bert.own_text.start import record_of
from bert.own_text.steps import Documentation, text_job
from bert.own_text.summary import show
from bert.pretraining.launch_settings import PretrainingLaunch
from bert.reporting.job_file import job_facts
from bert.reporting.trackers import check_trackers

_QUESTIONS = frozenset({"show_config", "dry_run", "plan"})  # flags that are answered instead of training


def main(line: CommandLine, begun: float | None = None) -> int:
    """Plan the training, and run it unless only the plan was asked for.

    A start reads and measures while it holds the lock of the output folder: two starts would measure each other.

    Args:
        begun: when the hours of the command began to count (time.monotonic); None: now.
    """
    begun = time.monotonic() if begun is None else begun
    with contextlib.ExitStack() as stack:
        with usage_errors():
            request = _checked_request(line)
            if request.elsewhere is not None:
                print(hardware_plan(with_given_files(request)))
                return OK
            if is_question := not _QUESTIONS.isdisjoint(line.launch):
                refuse_read_only(request.output_dir)
                refuse_busy(request.output_dir)
            else:
                stack.enter_context(only_writer(request.output_dir))
                require_writable(request.output_dir)
            record = JobRecord.of(request.output_dir)
        if (collection := _collection(request)) and not is_question:
            if code := execute(Job("documentation", request.output_dir, collection), begun, record):
                return code
            begun = time.monotonic()  # the record has what was used until now
        with usage_errors():
            with line.notices_on_stderr_if_config_is_printed():
                request = with_given_files(request)
                text = record_of(request, record, begun, may_measure=not is_question)
            job = text_job(request, text, show(request, text, record))
            if "dry_run" in line.launch:
                show_steps(replace(job, steps=(*_collection(request), *job.steps)))
            if is_question:
                return OK
        text.keep_in(record)
        return execute(job, begun, record)


def planned(line: CommandLine) -> Planned:
    """Plan one of several trainings on own text (--seeds); each is planned when its turn comes."""
    request = _checked_request(line)
    questions = [partial(_answer, line)] if not _QUESTIONS.isdisjoint(line.launch) else []
    launch = read_settings(PretrainingLaunch, line.launch)
    step = TrainOnText(line, request)
    job = Job("own text", request.output_dir, (step,), hours=request.length.hours)
    return Planned(line, LaunchPlan("own text", (), launch, questions), job)


def _answer(line: CommandLine, phases: Sequence[Any], num_ranks: int) -> str:
    main(line)
    return ""


@dataclass(frozen=True)
class TrainOnText(Step):
    """The step of a job that does a whole training on own text, with its own record."""

    line: CommandLine
    text: TextRequest

    @property
    def title(self) -> str:
        return "training on own text"

    @property
    def product(self) -> Path:
        return self.text.output_dir

    def is_done(self, execution: Execution) -> bool:
        finished = job_facts(self.text.output_dir, RECORD_NAME).get("finished")
        return finished is not None and self.text.length.is_reached(TypeAdapter(Length).validate_python(finished))

    def run(self, execution: Execution) -> int:
        return main(self.line)


def _checked_request(line: CommandLine) -> TextRequest:
    """The request of a command line, checked before anything is read or measured."""
    request = read_text_request(line)
    trackers = request.setting("report_to", "none").split(",")
    check_all([partial(require_script, request.job.script()), partial(check_trackers, trackers)])
    return request


def _collection(request: TextRequest) -> tuple[Step, ...]:
    """Steps that collect the text of the recipe `evening` before planning; none if the user has text."""
    if request.documentation is None:
        return ()
    return (Documentation(request.documentation, num_workers=os.cpu_count() or 1),)

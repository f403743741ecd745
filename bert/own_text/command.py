"""`bash scripts/run_pretraining.sh --text FOLDER`: from a folder of files to a model that is sized for it.

The plan is made from the text, the machine and its measured speed, and printed first. The data are made once; both
phases are trained in the time that is left, and the results shown. Started again with the same line it continues; with
more --hours, --epochs or --max-steps it trains longer. Exit codes as in `pretraining`.
"""

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from pathlib import Path

from bert.config.command_line import dump_yaml, usage_errors
from bert.files import only_writer, require_writable
from bert.launching.arguments import CommandLine
from bert.launching.previous_run import refuse_other_run
from bert.launching.process_runner import Runner
from bert.own_text import corpus
from bert.own_text.arguments import TextRequest, read_text_arguments
from bert.own_text.candidates import candidates
from bert.own_text.choices import as_table, choices, warnings
from bert.own_text.evening import own_text_line
from bert.own_text.facts import MachineFacts
from bert.own_text.flags import is_evening
from bert.own_text.plan import TextPlan, make_plan, on_devices
from bert.own_text.reading import machine_facts, text_facts
from bert.own_text.record import TextRecord, as_first_asked, new_record, on_first_devices, read_record, without_batch
from bert.own_text.run import TextRun, Train, list_steps_of, phase_config, speed_file
from bert.own_text.speed import measure_speeds
from bert.reporting.progress import duration
from data.text.readers import Reading


def main(line: CommandLine, train: Train, started: float | None = None) -> int:
    """Plan, and unless only the plan was asked for, run.

    Args:
        train: starts the ranks of a phase; its exit code.
        started: time of the start of the command, from which its hours count; None: now.
    """
    started = time.time() if started is None else started
    with usage_errors():
        with line.notices_aside():
            request = read_text_arguments(own_text_line(line) if is_evening(line.launch) else line)
        if request.show_config or request.dry_run:
            _planned(request)
            return 0
        with _only_writer(request.output_dir):
            record, plan = _planned(request)
            return TextRun(request, plan, record, Runner(), train).run(started)


@contextlib.contextmanager
def _only_writer(output_dir: Path) -> Iterator[None]:
    """Lock the output folder before anything is read or measured; ValueError if it cannot be written."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(only_writer(output_dir))
            require_writable(output_dir)
        except OSError as error:
            raise ValueError(
                f"output_dir={output_dir} cannot be written ({error.strerror}); pass another --output-dir"
            ) from error
        yield


def _planned(request: TextRequest) -> tuple[TextRecord, TextPlan]:
    """The plan, shown and checked against the run that the output folder has."""
    with request.line.notices_aside():
        record, plan = plan_of(request)
    configs = {phase: phase_config(request, plan, record, phase) for phase in plan.phases}
    if request.show_config:
        print("\n".join(dump_yaml(config) for config in configs.values()))
        return record, plan
    _show(request, plan, record)
    for config in configs.values():
        config.batch.gradient_accumulation_steps(plan.candidate.ranks)
        refuse_other_run(config)
    return record, plan


def plan_of(request: TextRequest) -> tuple[TextRecord, TextPlan]:
    """The plan, made anew until there is a checkpoint; from then on of the facts that were recorded, on the devices
    that there are now.
    """
    before = read_record(request.output_dir)
    if before is not None and list_steps_of(request, 1):
        if request.wishes.model not in (None, before.model) and before.model is not None:
            raise ValueError(
                f"config={request.wishes.model} differs from {before.model} of the run in {request.output_dir}; pass "
                "another --output-dir, or delete that one"
            )
        plan = _begun_plan(request, before)
        data = corpus.data_facts(request, plan)
        if note := corpus.note_of_changes(before.data, data, request.output_dir):
            print(f"warning: {note}", flush=True)
        return before, plan
    options = request.import_options
    reading = Reading(
        request.language or "en",
        options.get("encoding") or "auto",
        options.get("document_separator") or "file",
        options.get("text_field"),
        group_by=options.get("group_by"),
    )
    print(f"reading {' '.join(map(str, request.text))} ...", flush=True)
    text = text_facts(request.text, reading, bool(options.get("follow_links")), lambda line: print(line, flush=True))
    machine = machine_facts(request.output_dir)
    if request.language is not None:  # of characters that Chinese and Japanese share, or of a mixed text
        text = dataclasses.replace(text, is_chinese=request.language.partition("-")[0] == "zh")
    found = candidates(text, machine, request.wishes)
    print("measuring the speed of this machine ...", flush=True)
    speeds = measure_speeds(found, machine, None if request.dry_run else speed_file(request))
    plan = make_plan(text, machine, request.wishes, found, speeds)
    record = new_record(request.output_dir, text, machine, speeds, request.wishes, before)
    record.data = corpus.data_facts(request, plan)
    return record, plan


def _begun_plan(request: TextRequest, before: TextRecord) -> TextPlan:
    """The plan of a run that has a checkpoint: as it was made, on the devices of now."""
    wishes = as_first_asked(request.wishes, before)
    first = on_first_devices(wishes, before)
    found = candidates(before.text, before.machine, first)
    machine = machine_facts(request.output_dir)
    if any((one.name, phase) not in before.speeds for one in found for phase in one.lengths):  # a phase is new
        before.speeds = {**measure_speeds(found, machine, None), **before.speeds}
    plan = make_plan(before.text, before.machine, first, found, before.speeds)
    if _devices(machine) == _devices(before.machine):
        machine = before.machine  # with the memory that was free then
    (here,) = candidates(before.text, machine, without_batch(wishes, plan.candidate.name))
    return on_devices(plan, wishes, machine, here)


def _devices(machine: MachineFacts) -> tuple[int, int, str]:
    return machine.cores, machine.gpus, machine.gpu_name


def _show(request: TextRequest, plan: TextPlan, record: TextRecord) -> None:
    known = {*(f"phase {phase}" for phase in record.steps), *(("epochs", "time") if record.steps else ())}
    print(f"\n{as_table([choice for choice in choices(plan) if choice.name not in known])}\n")
    if (weights := plan.wishes.weights) is not None:
        head = "is kept" if "masked-LM head" in weights.heads else "is missing there and begins with random weights"
        print(f"The masked-LM head of {weights.name} {head}.")
    for line in warnings(plan):
        print(f"warning: {line}")
    for phase, steps in record.steps.items():
        done = max(list_steps_of(request, phase), default=0)
        print(f"Phase {phase} is at update {done:,} of {steps:,}; {duration(record.used())} were used.")
    print(flush=True)

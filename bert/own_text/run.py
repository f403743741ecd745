"""`bash scripts/run_pretraining.sh --text FOLDER`: from a folder of files to a model that is sized for it.

The plan is made from the text, the machine and its measured speed, and printed first. The data are made once. With
--hours the time decides the end: the rate is stable until the last share of the time, in which it decays. The command
is bert/commands/own_text.py.
"""

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

from bert.checkpoints.directories import list_steps
from bert.config.command_line import dump_yaml, resolve_config
from bert.config.setting_sources import read_yaml
from bert.config.training_settings import derive
from bert.exit_codes import INTERRUPTED, OK
from bert.files import read_json
from bert.launching.previous_run import carried, is_done, refuse_other_run, settings_asked_for
from bert.launching.process_runner import Runner
from bert.launching.ranks import Ranks
from bert.launching.settings import LaunchPlan
from bert.launching.start_training import explain_exit
from bert.own_text import constants, corpus, report
from bert.own_text.facts import TextFacts, machine_facts, text_facts
from bert.own_text.model_choice import candidates
from bert.own_text.plan import make_plan, on_devices, refuse_hours
from bert.own_text.record import TextRecord, read_record
from bert.own_text.request import TextRequest
from bert.own_text.sources import refuse_shared_groups
from bert.own_text.speed import measure_speeds
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.entry import ENTRY
from bert.pretraining.launch_settings import PretrainingLaunch
from bert.pretraining.phases import train_phase
from bert.reporting.progress import duration
from bert.reporting.results import show_commands, show_figures
from bert.reporting.trackers import check_trackers
from data.text.readers import Reading

_LEAST_SECONDS = 5.0  # of a training


# ---- the plan --------------------------------------------------------------------------------------------------------


def record_of(request: TextRequest) -> TextRecord:
    """Before the first checkpoint: a new plan. After it: the recorded plan, on the devices of now."""
    with request.line.notices_aside():
        before = read_record(request.output_dir)
        if before is None or not _list_steps(request.output_dir):
            return _new_record(request, before)
        if request.model not in (None, before.plan.model):
            raise ValueError(
                f"config={request.model} differs from {before.plan.model} of the run in {request.output_dir}; pass "
                "another --output-dir, or delete that one"
            )
        refuse_hours(request.hours, before.plan.settings["lr_schedule"])
        before.plan = on_devices(before.plan, request, machine_facts(request.output_dir))
        data = corpus.data_facts(request, before.plan)
        corpus.refuse_other_data(before.data, data, request.output_dir)
        corpus.warn_of_changed_files(before.data, data, request.output_dir)
        return before


def _new_record(request: TextRequest, before: TextRecord | None) -> TextRecord:
    reading = Reading(
        request.lang or "en",
        request.encoding or "auto",
        request.document_separator or "file",
        request.text_field,
        group_by=request.group_by,
    )
    facts, groups = dict[str, TextFacts](), dict[str, set[str]]()
    for source in request.sources:
        of_name = f"{source.name}: " if source.name else ""
        print(f"reading {of_name}{' '.join(map(str, source.paths))} ...", flush=True)
        of_source = dataclasses.replace(reading, group_by=source.group_by(request.group_by))
        facts[source.name], groups[source.name] = text_facts(source.paths, of_source, request.follow_links)
    if reading.folders() is None:  # the folders of a source are its own
        refuse_shared_groups(request.group_by, groups)
    text, machine = TextFacts.of(facts), machine_facts(request.output_dir)
    if request.lang is not None:  # of characters that Chinese and Japanese share, or of a mixed text
        text = dataclasses.replace(text, is_chinese=request.lang.partition("-")[0] == "zh")
    found = candidates(text, machine, request)
    print("measuring the speed of this machine ...", flush=True)
    begun = time.monotonic()
    speeds = measure_speeds(found)
    start_seconds = max(0.0, time.monotonic() - begun - constants.PROBE_SECONDS * len(found))
    plan = make_plan(text, machine, request, found, speeds)
    used = 0.0 if before is None else before.seconds_used
    data = corpus.data_facts(request, plan)
    return TextRecord(text, machine, speeds, plan, data, start_seconds=start_seconds, seconds_used=used)


def _list_steps(output_dir: Path) -> list[int]:
    """The checkpoints in the output folder, of whatever model."""
    return [step for folder in output_dir.glob("*/phase1") for step in list_steps(folder)]


def show(request: TextRequest, record: TextRecord) -> PretrainingConfig:
    """Print the plan; returns the settings of the training. ValueError if what is there cannot be continued so."""
    plan, done = record.plan, max(_list_steps(request.output_dir), default=0)
    config = training_config(request, record)
    if "show_config" in request.line.launch:
        print(dump_yaml(config))
        return config
    print(f"\n{plan.table(request, has_begun=done > 0)}\n")
    if request.weights is not None:
        head = "is kept" if "masked-LM head" in request.weights.heads else "is missing there and begins anew"
        print(f"The masked-LM head of {request.weights.path.name} {head}.")
    for line in plan.warnings:
        print(f"warning: {line}")
    if done:
        print(f"The training is at update {done:,}; {duration(record.used())} were used.")
    print(flush=True)
    config.batch.gradient_accumulation_steps(plan.ranks)
    if config.run.max_steps < done:
        asked = f"max_steps={config.run.max_steps}"
        if request.epochs is not None:
            asked = f"epochs={request.epochs:g} are {config.run.max_steps:,} updates and"
        raise ValueError(
            f"{asked} must be at least the {done:,} updates that were made (more extends it); for a shorter training "
            "pass another --output-dir"
        )
    refuse_other_run(config)
    return config


def training_config(request: TextRequest, record: TextRecord) -> PretrainingConfig:
    """The settings of the training: the plan's, the run's paths, what was given now, and the most updates."""
    plan, output_dir = record.plan, request.output_dir
    settings: dict[str, Any] = {
        **plan.settings,
        "phase": 1,
        "output_dir": output_dir,
        "report_file": output_dir / "phase1/report.json",
        "input_dir": corpus.shards(request, "train"),
        "eval_dir": corpus.shards(request, "held_out") if plan.held_out_fraction else None,
        "vocab_file": corpus.vocabulary_file(request),
        "from_pretrained_params": None if request.weights is None else request.weights.path,
        **request.settings,
    }
    steps = settings["max_steps"] = _most_updates(request, record)
    if plan.is_timed():  # the shares are those of the updates that are expected
        first = record.first_updates or steps
        expected = min(plan.updates, record.expected_updates or plan.updates)
        settings["warmup_proportion"] = settings["warmup_proportion"] * min(1.0, expected / first)
        settings["early_stopping_from"] = settings.get("early_stopping_from", 0.0) * min(1.0, expected / steps)
    config: PretrainingConfig = resolve_config(settings, ENTRY)
    if (request.tokens is None or request.add_words) and config.data.vocab_file.exists():
        return derive(config, vocab_size=len(config.data.vocab_file.read_bytes().splitlines()))
    if _list_steps(output_dir) and (asked_for := settings_asked_for(config)).exists():
        # The data were deleted, and the vocabulary is made again.
        return derive(config, vocab_size=read_yaml(asked_for)["vocab_size"])
    return config


def _most_updates(request: TextRequest, record: TextRecord) -> int:
    """The updates that were given or that the epochs make; where the time decides, more than will fit."""
    plan = record.plan
    if (steps := request.setting("max_steps")) is not None:
        return int(steps)
    if request.hours is not None:
        longer = max(1.0, request.hours * 3600 / plan.seconds)
        return max(record.first_updates or 0, math.ceil(constants.MOST_UPDATES * plan.updates * longer))
    return corpus.updates_of(request, plan, request.epochs or constants.EPOCHS) or plan.updates


# ---- the run ---------------------------------------------------------------------------------------------------------


class TextRun:
    """The run of a plan: data, training, results."""

    def __init__(self, request: TextRequest, record: TextRecord, config: PretrainingConfig, begun: float) -> None:
        self._request, self._record, self._config, self._begun = request, record, config, begun
        self._plan, self._runner = record.plan, Runner()
        # The end loads Paddle once more, as the ranks that measured the speed did: on a busy machine both take longer.
        # A run whose end takes less than what is kept for it ends early, so a share of the hours bounds that.
        most = constants.END_SHARE * 3600 * (request.hours or constants.MOST_HOURS)
        kept = min(constants.END_COST * record.start_seconds, constants.MOST_END_SECONDS, most)
        self._end_seconds = max(constants.END_SECONDS, kept)
        self._length = {"hours": request.hours, "epochs": request.epochs, "max_steps": request.setting("max_steps")}

    def run(self) -> int:
        if self._is_finished():  # looking at the results costs no hours
            self._report(was_done=True)
            return OK
        check_trackers(self._config.hardware.trackers())
        with self._record.clock(self._request.output_dir, self._begun):
            if code := self._prepare() or self._train_in_time():
                return code
            if not (_summary(self._config).get("finished") or is_done(self._config)):
                print("the training has steps left; the same command continues", flush=True)
                return OK
            self._record.finished = self._length
            self._record.save(self._request.output_dir)
            self._report(was_done=False)
            return OK

    def _prepare(self) -> int:
        """Make the data, as far as they are missing; exit code of the command that failed, else 0."""
        request, record, run = self._request, self._record, self._runner.run
        steps, files = _list_steps(request.output_dir), "" if record.additions else record.data.get("files", "")
        code = corpus.prepare(request, self._plan, self._config, run, files=files, has_trained=bool(steps))
        if not code:
            corpus.check_samples(request, self._config.batch.resolved_global_batch_size(self._plan.ranks))
            self._config = training_config(request, record)  # vocabulary and samples are known now
        return explain_exit(code, self._config, self._runner)

    def _train_in_time(self) -> int:
        record, request = self._record, self._request
        seconds = None if request.setting("finish_in") else self._seconds_left()
        if record.first_updates is None:
            record.first_updates = self._config.run.max_steps
            if seconds is not None:
                speed = record.speeds[self._plan.model] / self._plan.settings["global_batch_size"]
                record.expected_updates = max(1, round((seconds - constants.START_SECONDS) * speed))
            self._config = training_config(request, record)  # the shares are those of these updates
        record.length = self._length
        record.save(request.output_dir)
        config = derive(self._config, finish_in=seconds or self._config.run.finish_in, **self._start())
        code = train_phase(self._launch_plan(), config, self._runner)
        if code in (OK, INTERRUPTED):
            record.finished = None
            record.save(request.output_dir)
        return code

    def _start(self) -> dict[str, Any]:
        """A number of updates after a training that the time ended: it continues before the decay."""
        summary, finished, run = _summary(self._config), self._record.finished, self._config.run
        was_timed = finished is not None and finished["max_steps"] is None and finished["epochs"] is None
        stable, hours = summary.get("decay_from"), self._length["hours"]
        if not was_timed or stable is None or run.finish_in or hours is not None or self._length == finished:
            return {}
        if run.max_steps <= summary["last_step"]:
            return {}
        start = {"from_checkpoint": self._config.checkpoint_dir(), "last_step_of_checkpoint": stable}
        return {"from_pretrained_params": None, **start}

    def _seconds_left(self) -> float | None:
        """Seconds that the training may take, from the start of its ranks; None: the number of updates decides, or the
        decay that was recorded.
        """
        record, request = self._record, self._request
        used, here = record.used(), record.used() - record.seconds_used
        if not self._plan.is_timed() or request.epochs is not None or request.setting("max_steps") is not None:
            return None
        hours = request.hours or constants.MOST_HOURS
        left = hours * 3600 - used - self._end_seconds
        if left >= constants.START_SECONDS + _LEAST_SECONDS:
            return left
        if _is_decaying(self._config):
            return None
        least = math.ceil((used + here + 2 * (constants.START_SECONDS + self._end_seconds)) / 36) / 100
        raise ValueError(
            f"hours={hours:g} leave no time for training: {duration(used)} were used; pass at least --hours {least:g}, "
            "which continues with what is there, or --finish-in 5m to end with what was learned"
        )

    def _is_finished(self) -> bool:
        """Whether the training was finished with the length that is asked for now, or with more."""
        record, config = self._record, self._config
        summary = _summary(config)
        if not _list_steps(self._request.output_dir):
            return False
        if record.finished is None and record.length == self._length and summary.get("finished"):
            if (config.checkpoint_dir() / str(summary.get("steps", 0))).is_dir():  # killed before it could be noted
                record.finished = record.length
                record.save(self._request.output_dir)
        if record.finished is None:
            return False
        patience = config.run.early_stopping
        if summary.get("stopped_early") and (patience == 0 or patience > summary.get("early_stopping", 0)):
            return False
        finished = record.finished
        return all(
            asked is None or ((last := finished.get(name)) is not None and asked <= last)
            for name, asked in self._length.items()
        )

    def _launch_plan(self) -> LaunchPlan:
        ranks = Ranks(num_processes=self._plan.ranks)
        return LaunchPlan("own text", (self._config,), PretrainingLaunch(nodes=ranks, start=self._request.job))

    def _report(self, was_done: bool) -> None:
        output_dir, plan = self._request.output_dir, self._plan
        show_figures("own text", [self._config], None if was_done else self._record.used())
        print("\n".join(report.result_lines(plan, self._config)) + "\n", flush=True)
        if was_done:
            print(f"Already done: {output_dir} (more --hours, --epochs or --max-steps train it on)")
            if self._request.setting("finish_in"):
                print("--finish-in had no effect: it ends a training that is not finished")
        else:
            text = corpus.text_folder(self._request, plan, "held_out")
            report.demonstrate(output_dir, text, self._request.job.code_dir / "run_predict.py", self._runner)
        again = self._request.longer(max(plan.seconds, self._record.used()) / 3600)
        show_commands(report.next_commands(output_dir, again))


def _summary(config: PretrainingConfig) -> dict[str, Any]:
    return read_json(config.stage_dir() / "summary.json")


def _is_decaying(config: PretrainingConfig) -> bool:
    """Whether the newest checkpoint lies in a decay, whose end it has recorded."""
    decay: dict[str, int] = carried(config).get("decay") or {}
    return bool(decay) and list_steps(config.checkpoint_dir())[-1] < decay["last"]

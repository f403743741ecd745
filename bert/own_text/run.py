"""The run of a plan for own text: data, phase 1, phase 2, results; how many updates each phase makes."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from bert.checkpoints.directories import list_steps
from bert.config.command_line import resolve_config
from bert.config.training_settings import derive
from bert.files import read_json
from bert.launching import pretraining
from bert.launching.arguments import errors_of_phase
from bert.launching.previous_run import has_checkpoint, is_done, kept_start, settings_asked_for
from bert.launching.process_runner import Runner
from bert.launching.settings import JobSettings, LaunchPlan, PretrainingLaunch, Ranks
from bert.launching.start_training import explain_exit
from bert.own_text import corpus, report
from bert.own_text.arguments import TextRequest
from bert.own_text.plan import TextPlan, num_evaluations, step_settings
from bert.own_text.record import TextRecord
from bert.own_text.speed import expected_start
from bert.own_text.steps import extended_steps, speed_after, steps_in_time_left, steps_of_new_phase
from bert.pretraining.config import PretrainingConfig
from bert.pretraining.entry import ENTRY
from bert.samples.manifest import read_manifest

_FIRST_LEG = 0.15  # of a phase's updates, after which its number is corrected by the speed of the training itself
_FIRST_LEG_SECONDS = 120.0  # shorter phases are not interrupted
_CORRECTED = 0.05  # a smaller correction is not worth it

Train = Callable[[LaunchPlan, PretrainingConfig, Runner], int]


def speed_file(request: TextRequest) -> Path:
    return request.output_dir / "speed.json"


def list_steps_of(request: TextRequest, phase: int) -> list[int]:
    """The checkpoints of a phase in the output folder, of whatever model."""
    return [step for folder in request.output_dir.glob(f"*/phase{phase}") for step in list_steps(folder)]


def phase_config(request: TextRequest, plan: TextPlan, record: TextRecord, phase: int) -> PretrainingConfig:
    """The settings of a phase: the plan's, the run's paths, and over them what was given."""
    made = plan.phases[phase]
    vocabulary = corpus.vocabulary_file(request)
    settings: dict[str, Any] = {
        **made.settings,
        "phase": phase,
        "output_dir": request.output_dir,
        "report_file": request.output_dir / f"phase{phase}/report.json",
        "input_dir": corpus.shards(request, phase, "train"),
        "eval_dir": corpus.shards(request, phase, "held_out") if plan.held_out_fraction else None,
        "vocab_file": vocabulary,
        "from_pretrained_params": request.weights,
        **request.flags,
        **request.phase_flags.get(phase, {}),
    }
    if phase in record.steps:
        settings["max_steps"] = record.steps[phase]
    if request.tokens is None and "vocab_size" in settings and vocabulary.exists():
        settings["vocab_size"] = len(vocabulary.read_bytes().splitlines())
    with errors_of_phase(phase, request.phase_flags.get(phase, ())):
        return resolve_config(settings, ENTRY)


class TextRun:
    """The run of a plan: data, phase 1, phase 2, results."""

    def __init__(self, request: TextRequest, plan: TextPlan, record: TextRecord, runner: Runner, train: Train) -> None:
        self._request, self._record, self._runner, self._train = request, record, runner, train
        self._plan = dataclasses.replace(plan, wishes=request.wishes)
        self._start_seconds = expected_start(speed_file(request))

    def run(self, started: float) -> int:
        """Args: started: time of the start of the command, from which its hours count."""
        self._record.begin(started)
        try:
            if code := self._prepare():
                return code
            self._extend()
            configs = self._configs()
            was_done = len(self._record.steps) == len(configs) and all(map(is_done, configs.values()))
            for phase in self._plan.phases:
                if code := self._phase(phase):
                    return code
                config = self._with_steps(phase)
                if config.run.steps_this_run and not is_done(config):
                    print(f"phase {phase} has steps left; the same command continues", flush=True)
                    return 0
            self._report(was_done)
            return 0
        finally:
            self._record.end()

    def _configs(self) -> dict[int, PretrainingConfig]:
        return {phase: phase_config(self._request, self._plan, self._record, phase) for phase in self._plan.phases}

    def _prepare(self) -> int:
        configs = self._configs()
        code = corpus.prepare(
            self._request,
            self._plan,
            configs,
            self._runner.run,
            files=self._record.data.get("files", ""),
            has_trained=bool(list_steps_of(self._request, 1)),
        )
        if code:
            return explain_exit(code, configs[1], self._runner)
        for config in self._configs().values():
            corpus.check_samples(config, self._plan.candidate.ranks)
        return 0

    # ---- the number of updates ---------------------------------------------------------------------------------------

    def _extend(self) -> None:
        """More updates for the phase that is trained, if this start asks for more than the last one."""
        record, asked = self._record, self._request.wishes
        started = max(record.steps, default=None)
        if started is not None:
            config = self._configs()[started]
            before, done = record.steps[started], max(list_steps(config.checkpoint_dir()), default=0)
            record.steps[started] = extended_steps(
                self._plan,
                started,
                record,
                asked,
                done=done,
                updates_per_second=self._updates_per_second(started, done),
                samples=self._samples(started) / self._plan.duplicate_factor,
            )
            if record.steps[started] != before:
                print(f"phase {started}: {before:,} updates become {record.steps[started]:,}", flush=True)
        if asked.hours is not None or asked.epochs is not None:
            record.hours, record.epochs = asked.hours, asked.epochs
        record.model = self._plan.candidate.name if self._plan.candidate.rule is not None else None
        record.save()

    def _speed(self, phase: int) -> float:
        """Sequences per second: as the training itself had it, otherwise as measured for the plan, corrected by how
        the phase before differed from that."""
        seen = self._seen_speed(phase)
        if seen is not None:
            return seen
        before = self._seen_speed(phase - 1) if phase - 1 in self._plan.phases else None
        return (
            self._plan.phases[phase].sequences_per_second if before is None else speed_after(self._plan, phase, before)
        )

    def _seen_speed(self, phase: int) -> float | None:
        return self._summary(phase).get("training_sequences_per_second")

    def _updates_per_second(self, phase: int, done: int) -> float:
        """As the phase had it until now, with evaluations and checkpoints; as planned, if it has made none."""
        seconds = self._summary(phase).get("e2e_train_time")
        made = self._plan.phases[phase]
        return done / seconds if seconds and done else made.steps / made.seconds_of(made.steps, self._speed(phase))

    def _summary(self, phase: int) -> dict[str, Any]:
        return read_json(self._request.output_dir / f"phase{phase}/summary.json")

    def _samples(self, phase: int) -> int:
        manifest = read_manifest(corpus.shards(self._request, phase, "train"))
        assert manifest is not None, "made by `prepare`"
        return corpus.num_samples(manifest)

    def _sample_ratio(self, phase: int) -> float:
        """Samples that the text gave, as a share of the estimate."""
        return self._samples(phase) / max(self._plan.samples(phase) * self._plan.duplicate_factor, 1)

    # ---- training ----------------------------------------------------------------------------------------------------

    def _phase(self, phase: int) -> int:
        record = self._record
        if phase not in record.steps:
            steps = steps_of_new_phase(
                self._plan,
                phase,
                record,
                sample_ratio=self._sample_ratio(phase),
                speed=self._speed(phase),
                start_seconds=self._start_seconds,
                stopped_early=bool(self._summary(phase - 1).get("stopped_early")),
            )
            record.steps[phase] = steps
            record.save()
        config = self._with_steps(phase)
        while not is_done(config):
            leg = self._first_leg(config)
            if leg:
                config = derive(config, steps_this_run=leg)
            if code := self._timed_training(config):
                return code
            if not leg or self._summary(phase).get("stopped_early"):
                break
            self._correct(phase, config)
            config = self._with_steps(phase)
        return 0

    def _timed_training(self, config: PretrainingConfig) -> int:
        """The exit code of a training; what its start took is expected of the next ones."""
        begun, before = time.monotonic(), self._seconds_trained(config.run.phase)
        code = self._train(self._launch_plan(), config, self._runner)
        trained = self._seconds_trained(config.run.phase) - before
        self._start_seconds = max(0.0, time.monotonic() - begun - trained)
        return code

    def _seconds_trained(self, phase: int) -> float:
        return self._summary(phase).get("e2e_train_time") or 0.0

    def _with_steps(self, phase: int) -> PretrainingConfig:
        """The settings with the recorded steps; evaluations are spread over those of the phase's start."""
        config, made, steps = self._configs()[phase], self._plan.phases[phase], self._record.steps[phase]
        if has_checkpoint(config):
            before = yaml.safe_load(settings_asked_for(config).read_text(encoding="utf-8"))
            spread = {name: before.get(name) for name in ("eval_freq", "num_steps_per_checkpoint")}
        else:
            speed = self._speed(phase)
            spread = dict(step_settings(steps, num_evaluations(made.seconds_of(steps, speed), made.evaluated, speed)))
        given = self._request.wishes
        return derive(config, **{name: value for name, value in spread.items() if given.setting(phase, name) is None})

    def _first_leg(self, config: PretrainingConfig) -> int | None:
        """Updates after which the number of updates is corrected; None where it is fixed or the phase is short."""
        phase, wishes = config.run.phase, self._plan.wishes
        if wishes.hours is None or wishes.setting(phase, "max_steps") or has_checkpoint(config):
            return None
        seconds = self._plan.phases[phase].seconds_of(config.run.max_steps, self._speed(phase))
        if config.run.steps_this_run or seconds < _FIRST_LEG_SECONDS:
            return None
        return max(1, round(config.run.max_steps * _FIRST_LEG))

    def _correct(self, phase: int, config: PretrainingConfig) -> None:
        done, before = max(list_steps(config.checkpoint_dir()), default=0), config.run.max_steps
        rate = self._updates_per_second(phase, done)
        steps = steps_in_time_left(
            self._plan, phase, self._record, done=done, updates_per_second=rate, start_seconds=self._start_seconds
        )
        if abs(steps - before) > _CORRECTED * before:
            print(f"phase {phase}: {before:,} updates become {steps:,}, by its own speed", flush=True)
            self._record.steps[phase] = max(steps, done + 1)
            self._record.save()

    def _launch_plan(self) -> LaunchPlan:
        request, configs = self._request, self._configs()
        job = JobSettings(job_name=request.job_name, code_dir=request.code_dir, create_logfile=request.create_logfile)
        ranks = Ranks(num_processes=self._plan.candidate.ranks)
        return LaunchPlan("own text", tuple(configs.values()), PretrainingLaunch(nodes=ranks, start=job))

    def _report(self, was_done: bool) -> None:
        output_dir, configs = self._request.output_dir, self._configs()
        pretraining.show_figures(self._launch_plan(), None if was_done else self._record.used())
        samples = {phase: self._samples(phase) for phase in configs}
        print("\n".join(report.result_lines(self._plan, configs, samples)) + "\n", flush=True)
        if len(configs) > 1 and (notice := kept_start(configs[2], configs[1])):
            print(notice)
        if was_done:
            print(f"Already done: {output_dir} (more --hours, --epochs or --max-steps train it on)")
        else:
            text = corpus.text_folder(self._request, self._plan, "held_out")
            report.demonstrate(output_dir, text, self._request.code_dir / "run_predict.py", self._runner)
        again = self._request.longer(max(self._plan.seconds(), self._record.used()) / 3600)
        pretraining.show_commands(report.next_commands(output_dir, again))

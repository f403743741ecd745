"""`run_pretraining.sh --text`, from arguments to results. Training, data and the measurement are stand-ins here; the
last test runs the real ones."""

import dataclasses
import gzip
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from bert import REPOSITORY
from bert.config.command_line import dump_yaml
from bert.launching.preparation import Steps
from bert.launching.pretraining import first_start
from bert.launching.pretraining_plan import parse_launch_arguments
from bert.own_text import command, corpus, rules
from bert.own_text.arguments import read_text_arguments
from bert.own_text.facts import MachineFacts
from bert.own_text.reading import machine_facts, text_facts
from bert.own_text.record import read_record
from bert.own_text.speed import expected_start
from bert.own_text.steps import speed_after, steps_of_new_phase
from bert.samples.manifest import Manifest, ShardRecord, write_manifest
from bert.tokenization.vocabulary import SPECIAL_TOKENS
from data.examples.documentation import docstrings_of
from data.text.readers import Reading
from tests.support.launching import line_of

SENTENCE = "The committee read the report twice before anybody asked where the figures came from. "
STOPPED = {"stopped_early": True, "ends_with_best": True, "early_stopping": 5, "max_steps": 10**9}  # of a summary
LAPTOP = MachineFacts(cores=2, memory_bytes=16 * 10**9, disk_bytes=10**11)


def gpus(number: int) -> MachineFacts:
    return MachineFacts(16, 60 * 10**9, 10**12, number, "RTX 3090", 24 << 30)


class Workplace:
    """A folder with text, and stand-ins that note what they are asked for.

    Attributes:
        trained: (phase, max_steps, steps_this_run) of every start.
        speed: sequences per second that the trainings report.
        figures: further ones of every summary.
        stops: exit codes of the next trainings instead of success.
    """

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.folder, self.trained, self.speed, self.stops, self.ran = folder, [], 400.0, [], []
        self.figures: dict[str, float] = {}
        self.text = folder / "text"
        self.text.mkdir()
        for number in range(60):
            (self.text / f"{number}.txt").write_text(SENTENCE * 100 + str(number))
        monkeypatch.setattr(command, "machine_facts", lambda output_dir: LAPTOP)
        monkeypatch.setattr(command, "measure_speeds", self._speeds)
        monkeypatch.setattr(corpus, "prepare", self._prepare)
        monkeypatch.setattr(command, "Runner", lambda: self)
        self.stop_requested, self.stopped_by = False, None

    def start(self, *words: str) -> int:
        line = ["--text", str(self.text), "--output-dir", str(self.folder / "out"), *words]
        return command.main(line_of(*line), self._train)

    def run(self, command) -> int:
        self.ran.append(command)
        return 0

    def record(self) -> dict:
        return json.loads((self.folder / "out/own_text.json").read_text())

    def _speeds(self, found, machine, cache_file):
        return {(candidate.name, phase): 200.0 / phase for candidate in found for phase in candidate.lengths}

    def _prepare(self, request, plan, configs, run, *, files, has_trained) -> int:
        for phase in configs:
            folder = corpus.shards(request, phase, "train")
            folder.mkdir(parents=True, exist_ok=True)
            samples = round(plan.samples(phase) * plan.duplicate_factor)
            write_manifest(folder, Manifest({"shard-0.parquet": ShardRecord(samples, 1, "")}, None))
        return 0

    def _train(self, plan, config, runner) -> int:
        start = first_start(config, plan.phases[0]).initialization
        self.trained.append((config.run.phase, config.run.max_steps, config.run.steps_this_run, start))
        code = self.stops.pop(0) if self.stops else 0
        before = [int(path.name) for path in config.checkpoint_dir().glob("*")]
        step = min(max(before, default=0) + (config.run.steps_this_run or 10**9), config.run.max_steps)
        step = step // 2 if code else step
        (config.checkpoint_dir() / str(step)).mkdir(parents=True, exist_ok=True)
        config.stage_dir().mkdir(exist_ok=True)
        figures = {"steps": step, "training_sequences_per_second": self.speed / config.run.phase}
        figures["e2e_train_time"] = step * config.batch.global_batch_size / self.speed * config.run.phase
        figures |= {"eval_masked_lm_loss": 5.25, "unigram_entropy": 6.0, **self.figures}
        (config.stage_dir() / "summary.json").write_text(json.dumps(figures))
        (config.run.output_dir / f"{config.stage()}.yaml").write_text(dump_yaml(config))
        return code


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Workplace(tmp_path, monkeypatch)


# ---- the plan ----


def test_a_dry_run_shows_the_plan_and_makes_nothing(workplace, capsys):
    assert workplace.start("--hours", "0.5", "--dry-run") == 0
    shown = capsys.readouterr().out
    for name in ("text ", "model ", "vocabulary ", "batch ", "phase 1 ", "epochs ", "time ", "disk "):
        assert f"\n{name}" in shown, shown
    assert "60 files" in shown and not (workplace.folder / "out").exists() and not workplace.trained


def test_the_settings_of_the_plan_are_shown_as_yaml_alone(workplace, capsys):
    assert workplace.start("--hours", "0.5", "--show-config", "--learning-rate", "1e-3") == 0
    shown = capsys.readouterr()
    assert list(yaml.safe_load(shown.out.split("\n\n")[0])) and "reading" not in shown.out and "reading" in shown.err
    assert shown.out.count("learning_rate: 0.001") == 2 and shown.out.count("hidden_size: 128") == 2


def test_flags_win_over_the_plan(workplace):
    line = "--hours 0.2 --config mini --phase2-learning-rate 7e-4 --seed 9 --global-batch-size 48 --phase1-max-steps 30"
    assert workplace.start(*line.split()) == 0
    one, two = (config_of(workplace, phase) for phase in (1, 2))
    assert (one["max_steps"], one["hidden_size"], one["seed"], one["global_batch_size"]) == (30, 256, 9, 48)
    assert two["learning_rate"] == 7e-4 and one["learning_rate"] != 7e-4


def config_of(workplace, phase) -> dict:
    return yaml.safe_load((workplace.folder / f"out/phase{phase}.yaml").read_text())


# ---- the run ----


def test_both_phases_results_and_what_it_can_do(workplace, capsys):
    assert workplace.start("--epochs", "3") == 0
    assert [phase for phase, *_ in workplace.trained] == [1, 2]
    assert workplace.trained[1][3].from_phase1_final_params == workplace.folder / "out/bert-quickstart/phase1"
    (shown,) = workplace.ran
    assert shown[-2:] == ["--show", str(workplace.folder / "out/data/text/held_out/source")]
    output = capsys.readouterr().out
    assert "chosen: quickstart, 2 layers of 128" in output and "learned: held-out masked-LM loss 5.250" in output
    assert "0.750 below the unigram entropy" in output and " 3 epochs over" in output
    assert f"--output-dir {workplace.folder / 'out'} --epochs 6   # train on" in output

    assert workplace.start("--epochs", "3") == 0
    again = capsys.readouterr().out
    assert "Already done" in again and "\nTrained before, in " in again
    assert len(workplace.trained) == 2 and len(workplace.ran) == 1


def test_the_steps_follow_the_speed_of_the_training(workplace, capsys):
    """Faster than measured: the first leg corrects the steps; the training of the stand-in takes no time."""
    assert workplace.start("--hours", "0.5") == 0
    (first, planned, leg, _), (_, corrected, no_leg, _), *_ = workplace.trained
    assert (first, no_leg) == (1, None) and leg == round(0.15 * planned)
    assert corrected == pytest.approx(2 * planned, rel=0.35) and corrected > 1.5 * planned
    assert "updates become" in capsys.readouterr().out


def test_stopped_and_started_again_it_continues_with_the_same_steps(workplace, capsys):
    workplace.stops = [75]
    assert workplace.start("--epochs", "4") == 75
    assert workplace.start("--epochs", "4") == 0
    (_, first, *_), (_, second, *_), (phase, *_) = workplace.trained
    assert first == second and phase == 2
    assert "Phase 1 is at update" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("first", "second", "words", "ranks"),
    [
        (LAPTOP, gpus(1), [], 1),
        (LAPTOP, dataclasses.replace(LAPTOP, cores=8), [], 8),
        (LAPTOP, LAPTOP, ["--num-processes", "1"], 1),
        (dataclasses.replace(LAPTOP, cores=12), gpus(8), ["--device", "cpu", "--num-processes", "2"], 2),
        (gpus(1), gpus(8), ["--num-gpus", "8"], 8),
        (gpus(1), gpus(8), [], 8),
        (gpus(6), gpus(4), [], 4),
        (gpus(6), LAPTOP, [], 2),
        (gpus(1), gpus(2), ["both", "--global-batch-size", "32", "--batch-size", "32"], 1),
        (gpus(2), gpus(3), ["both", "--global-batch-size", "32"], 2),
        (LAPTOP, dataclasses.replace(LAPTOP, cores=16), ["both", "--phase1-batch-size", "8"], 4),
    ],
)
def test_a_run_continues_on_another_machine(workplace, monkeypatch, capsys, first, second, words, ranks):
    """Only devices, ranks and micro-batches change, of the phase that has begun and of the next."""
    monkeypatch.setattr(command, "machine_facts", lambda output_dir: first)
    workplace.stops = [75]
    words, before = words[words[:1] == ["both"] :], words[1:] if words[:1] == ["both"] else []
    assert workplace.start("--epochs", "4", *before) == 75
    begun = config_of(workplace, 1)
    monkeypatch.setattr(command, "machine_facts", lambda output_dir: second)
    capsys.readouterr()
    assert workplace.start("--epochs", "4", *words) == 0
    one, two = (config_of(workplace, phase) for phase in (1, 2))
    changed = {name for name in one if one[name] != begun.get(name)}
    assert changed <= {"batch_size", "device", "cpu_threads", "num_workers"}
    device = "gpu" if second.gpus and "cpu" not in words else "cpu"
    assert one["device"] == two["device"] == device and one["amp"] == begun["amp"]
    for settings in (one, two):
        assert settings["global_batch_size"] % (settings["batch_size"] * ranks) == 0
    assert re.search(rf"\n(ranks|GPUs|devices?) .*\b{ranks}\b", shown := capsys.readouterr().out), shown


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        (dataclasses.replace(LAPTOP, cores=12), ["--num-processes", "3"]),
        (gpus(4), ["--num-gpus", "3"]),
        (gpus(1), ["--device", "cpu"]),
        (dataclasses.replace(gpus(1), gpu_bytes=1 << 29), ["--device", "cpu"]),
    ],
)
def test_phase_2_is_planned_as_in_one_start(workplace, monkeypatch, machine, words):
    monkeypatch.setattr(command, "machine_facts", lambda output_dir: machine)
    found = []
    for stops in ([], [75]):
        workplace.stops = list(stops)
        for code in (*stops, 0):
            assert workplace.start("--epochs", "4", *words) == code
        found.append((workplace.folder / "out/phase2.yaml").read_text())
        shutil.rmtree(workplace.folder / "out")
    assert found[0] == found[1]


def test_phase_2_can_be_asked_for_when_phase_1_is_done(workplace):
    assert workplace.start("--epochs", "4", "--phase1") == 0
    assert workplace.start("--epochs", "4") == 0
    assert [phase for phase, *_ in workplace.trained] == [1, 2]
    assert {phase for _, phase, _ in workplace.record()["speeds"]} == {1, 2}


def test_the_time_of_a_killed_start_counts_until_its_last_sign_of_life(workplace):
    assert workplace.start("--epochs", "2") == 0
    file, content = workplace.folder / "out/own_text.json", workplace.record()
    progress = workplace.folder / "out/phase1/progress.json"
    progress.write_text("{}")
    file.write_text(json.dumps({**content, "seconds_used": 10.0, "begun": progress.stat().st_mtime - 50.0}))
    record = read_record(workplace.folder / "out")
    record.begin(time.time())
    assert record.seconds_used == pytest.approx(60, abs=1) and record.used() == pytest.approx(60, abs=2)


@pytest.mark.parametrize(
    ("first", "more"), [(["--epochs", "2"], ["--epochs", "5"]), (["--max-steps", "40"], ["--max-steps", "90"])]
)
def test_a_finished_run_is_extended_in_its_last_phase(workplace, first, more, capsys):
    assert workplace.start(*first) == 0
    before = {phase: steps for phase, steps, *_ in workplace.trained}
    assert workplace.start(*more) == 0
    (phase, steps, *_) = workplace.trained[-1]
    assert len(workplace.trained) == 3 and phase == 2 and steps > before[2]
    assert "Already done" not in capsys.readouterr().out
    assert workplace.start(*more) == 0 and len(workplace.trained) == 3


def test_fewer_updates_than_were_made_are_refused_and_forgotten(workplace, capsys):
    assert workplace.start("--max-steps", "40") == 0
    with pytest.raises(SystemExit) as ended:
        workplace.start("--max-steps", "20")
    assert ended.value.code == 2
    assert "max_steps=20 must be at least the 40 updates that phase 2 has made" in capsys.readouterr().err
    assert workplace.record()["steps"] == {"1": 40, "2": 40}
    assert workplace.start("--max-steps", "90") == 0 and workplace.trained[-1][:2] == (2, 90)


def test_phase_2_waits_for_the_end_of_phase_1(workplace, capsys):
    words = ("--max-steps", "40", "--steps-this-run", "25")
    assert workplace.start(*words) == 0
    assert [phase for phase, *_ in workplace.trained] == [1]
    assert "phase 1 has steps left; the same command continues" in capsys.readouterr().out
    assert workplace.start(*words) == 0
    assert [phase for phase, *_ in workplace.trained] == [1, 1, 2]


def test_more_hours_extend_a_finished_run(workplace):
    workplace.speed = 200.0
    assert workplace.start("--hours", "0.1") == 0
    last, number = workplace.trained[-1][1], len(workplace.trained)
    assert workplace.start("--hours", "0.2") == 0
    assert workplace.trained[-1][0] == 2 and workplace.trained[-1][1] > last and len(workplace.trained) == number + 1


def test_another_model_in_the_same_folder_is_refused(workplace, capsys):
    assert workplace.start("--epochs", "2") == 0
    with pytest.raises(SystemExit):
        workplace.start("--epochs", "2", "--config", "mini")
    assert "config=mini differs from quickstart of the run in" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        workplace.start("--epochs", "2", "--learning-rate", "0.5")
    assert "learning_rate=0.5 differs from" in capsys.readouterr().err


def test_files_that_change_after_the_training_began_are_noticed(workplace, capsys):
    assert workplace.start("--hours", "0.1") == 0
    assert workplace.start("--hours", "0.1") == 0
    assert "changed" not in capsys.readouterr().out
    (workplace.text / "new.txt").write_text(SENTENCE * 10)
    assert workplace.start("--hours", "0.1") == 0
    assert "warning: the files of" in (shown := capsys.readouterr().out) and "continues the model on" in shown

    workplace.text = workplace.folder / "other"
    workplace.text.mkdir()
    (workplace.text / "new.txt").write_text(SENTENCE * 10)
    with pytest.raises(SystemExit):
        workplace.start("--hours", "0.1")
    assert re.search("text=.*/other differs from .*/text of the run in", capsys.readouterr().err)


def test_a_model_that_was_better_before_is_named(workplace, capsys):
    workplace.figures = {"best_eval_masked_lm_loss": 5.24, "best_step": 300}
    assert workplace.start("--hours", "0.1") == 0
    assert "better before" not in capsys.readouterr().out, "a difference within the noise"
    workplace.figures = {"best_eval_masked_lm_loss": 5.0, "best_step": 300}
    assert workplace.start("--hours", "0.2") == 0
    assert re.search("better before: 5.000 nats after update 300, kept in .*/phase2/300;", capsys.readouterr().out)


def test_early_stopping_is_on_and_its_result_is_the_best_model(workplace, capsys):
    workplace.figures = STOPPED | {"best_eval_masked_lm_loss": 5.0, "best_step": 3}
    assert workplace.start("--hours", "0.5") == 0
    shown = capsys.readouterr().out
    assert config_of(workplace, 1)["early_stopping"] == 5
    assert re.search(r"\nearly stopping +5 evaluations without a lower held-out loss +the best is the result", shown)
    assert re.search(r"stopped early: phase 2 after update [\d,]+ of [\d,]+; its held-out loss was lowest after", shown)
    assert (
        "learned: held-out masked-LM loss 5.000 nats after update 3, which is the result (the last had 5.250)" in shown
    )
    assert "better before" not in shown


def test_a_loss_that_was_never_finite_is_told(workplace, capsys):
    workplace.figures = STOPPED | {"eval_masked_lm_loss": float("nan"), "ends_with_best": False}
    assert workplace.start("--max-steps", "40") == 0
    assert "its held-out loss was never finite: lower --learning-rate" in capsys.readouterr().out


def test_a_phase_2_that_keeps_its_start_is_noticed(workplace, capsys):
    assert workplace.start("--max-steps", "8") == 0
    assert "keeps its start" not in capsys.readouterr().out
    second = workplace.folder / "out/bert-quickstart/phase2/8/bert_paddle_progress.json"
    second.write_text(json.dumps({"carried": {"started_from": str(second.parents[2] / "phase1/4")}}))
    assert workplace.start("--max-steps", "8") == 0
    assert "phase2 keeps its start, the weights of phase1 after update 4, though" in capsys.readouterr().out


def test_the_time_that_an_overfitting_phase_left_is_not_spent_on_the_next(workplace):
    workplace.speed = 200.0
    assert workplace.start("--hours", "8", "--phase1-early-stopping", "0") == 0
    usual = workplace.record()["steps"]["2"]
    workplace.folder = workplace.folder / "second"
    workplace.folder.mkdir()
    workplace.figures = STOPPED | {"best_eval_masked_lm_loss": 5.0, "best_step": 3}
    assert workplace.start("--hours", "8") == 0
    assert workplace.record()["steps"]["2"] < 0.5 * usual, "the stand-in takes no time, so phase 2 had nearly all"


def test_early_stopping_can_be_turned_off(workplace, capsys):
    assert workplace.start("--hours", "0.1", "--early-stopping", "0", "--dry-run", "--phase1-early-stopping", "2") == 0
    assert re.search(r"\nearly stopping +2, then 0 evaluations", capsys.readouterr().out)
    assert workplace.start("--hours", "0.1", "--early-stopping", "0") == 0
    assert re.search(r"\nearly stopping +off +as given", capsys.readouterr().out)
    assert config_of(workplace, 2)["early_stopping"] == 0


# ---- the clock ----


def test_the_hours_count_from_the_start_of_the_command(workplace):
    """And what the ranks needed to start is expected of phase 2, and in proportion of the end."""
    workplace.speed = 200.0
    line = ["--text", str(workplace.text), "--output-dir", str(workplace.folder / "out"), "--hours", "0.1"]
    assert command.main(line_of(*line), workplace._train, started=time.time() - 100) == 0
    later = workplace.record()
    assert later["seconds_used"] == pytest.approx(100, abs=20)
    assert command.main(line_of(*line[:3], str(workplace.folder / "two"), *line[4:]), workplace._train) == 0
    other = json.loads((workplace.folder / "two/own_text.json").read_text())
    assert later["steps"]["1"] / other["steps"]["1"] == pytest.approx((360 - 132) / (360 - 32), rel=0.05)


def test_hours_that_the_data_used_up_are_refused_and_more_continue(workplace, capsys):
    line = ["--text", str(workplace.text), "--output-dir", str(workplace.folder / "out"), "--hours"]
    with pytest.raises(SystemExit) as ended:
        command.main(line_of(*line, "0.1"), workplace._train, started=time.time() - 400)
    error = capsys.readouterr().err
    assert ended.value.code == 2 and "hours=0.1 leave no time for training: 6.7 minutes were used for the data" in error
    hours = re.search("pass at least --hours ([0-9.]+), which continues", error).group(1)
    assert workplace.start("--hours", hours) == 0 and float(hours) < 0.3


def test_the_hours_that_are_suggested_are_enough_where_starts_take_long(workplace, capsys):
    """A busy machine: what the ranks need to start is no time for training either."""
    facts = json.loads('{"sequences_per_second": {}, "start_seconds": 60.0}')
    (workplace.folder / "out").mkdir(exist_ok=True)
    (workplace.folder / "out/speed.json").write_text(json.dumps(facts))
    line = ["--text", str(workplace.text), "--output-dir", str(workplace.folder / "out"), "--hours"]
    with pytest.raises(SystemExit):
        command.main(line_of(*line, "0.08"), workplace._train, started=time.time() - 150)
    hours = re.search("pass at least --hours ([0-9.]+), which continues", capsys.readouterr().err).group(1)
    assert float(hours) > 0.08 and workplace.start("--hours", hours) == 0


# ---- nothing held out ----


def test_without_held_out_text_nothing_is_evaluated(workplace, capsys):
    assert workplace.start("--held-out-fraction", "0", "--hours", "0.1", "--dry-run") == 0
    shown = capsys.readouterr().out
    assert re.search(r"\nheld out +nothing +as given; so no evaluation", shown)
    assert re.search(r"\nearly stopping +off +nothing is held out", shown) and "uncertain" not in shown
    workplace.figures = {"eval_masked_lm_loss": None}
    assert workplace.start("--held-out-fraction", "0", "--hours", "0.1") == 0
    assert config_of(workplace, 1)["eval_dir"] is None and config_of(workplace, 1)["early_stopping"] == 0
    assert "nothing was held out to measure it on" in capsys.readouterr().out
    text = workplace.folder / "out/data/text/source"
    assert workplace.ran[-1][-2:] == ["--show", str(text)]
    request = read_text_arguments(line_of("--text", str(workplace.text), "--held-out-fraction", "0"))
    assert request.wishes.held_out_fraction == 0.0
    with pytest.raises(SystemExit):
        workplace.start("--held-out-fraction", "0.1", "--hours", "0.1")
    assert "held_out_fraction=0.1 differs from 0.0, with which the data" in capsys.readouterr().err


@pytest.mark.parametrize(("first", "second"), [(200.0, 95.0), (76.0, 122.0), (250.0, 20.0)])
def test_the_speed_of_phase_2_follows_phase_1_though_one_of_them_was_measured_badly(
    workplace, first, second, monkeypatch
):
    """On a busy machine 76 and 122 sequences/s were measured where the trainings made 253 and 141."""
    speeds = {("quickstart", 1): first, ("quickstart", 2): second}
    monkeypatch.setattr(command, "measure_speeds", lambda found, machine, cache_file: speeds)
    request = read_text_arguments(line_of("--text", str(workplace.text), "--output-dir", "out", "--hours", "0.1"))
    _, plan = command.plan_of(request)
    assert speed_after(plan, 2, 253.0) == pytest.approx(125.0, rel=0.3)


def test_phase_2_is_trained_though_phase_1_took_too_long(workplace):
    request = read_text_arguments(line_of("--text", str(workplace.text), "--output-dir", "out", "--hours", "0.1"))
    record, plan = command.plan_of(request)
    record.begin(time.time() - 360)
    steps = steps_of_new_phase(plan, 2, record, sample_ratio=1.0, speed=100.0)
    assert steps == pytest.approx(0.25 * plan.phases[2].steps, rel=0.3)


def test_the_start_that_is_expected_of_the_ranks_was_measured(tmp_path):
    assert expected_start(tmp_path / "speed.json") == rules.START_SECONDS
    (tmp_path / "speed.json").write_text('{"key": "k", "sequences_per_second": {}, "start_seconds": 20.0}')
    assert expected_start(tmp_path / "speed.json") == 20.0 * rules.START_COST


def test_what_a_start_takes_is_subtracted_from_the_time_of_a_phase(workplace):
    request = read_text_arguments(line_of("--text", str(workplace.text), "--output-dir", "out", "--hours", "0.1"))
    record, plan = command.plan_of(request)
    record.begin(time.time())
    facts = {"sample_ratio": 1.0, "speed": 100.0}
    usual, slow = (steps_of_new_phase(plan, 2, record, **facts, start_seconds=seconds) for seconds in (12.0, 36.0))
    per_second = 100.0 / plan.phases[2].global_batch
    assert usual - slow == pytest.approx((36 - 12 + 2 * 8) * per_second, abs=3)


def test_a_folder_that_was_moved_is_the_same_text(workplace, capsys):
    assert workplace.start("--hours", "0.1") == 0
    workplace.text = workplace.text.rename(workplace.folder / "moved")
    assert workplace.start("--hours", "0.1") == 0
    assert "Already done" in (shown := capsys.readouterr().out) and "warning: the files" not in shown


@pytest.mark.parametrize("flag", [("--held-out-fraction", "0.3"), ("--vocab-size", "3000"), ("--deduplicate", "near")])
def test_other_data_for_a_trained_model_are_refused(workplace, flag, capsys):
    assert workplace.start("--hours", "0.1") == 0
    with pytest.raises(SystemExit):
        workplace.start("--hours", "0.1", *flag)
    name = flag[0][2:].replace("-", "_")
    assert f"{name}={flag[1]} differs from" in capsys.readouterr().err


def vocabulary_of(folder: Path, *words: str) -> Path:
    (folder / "mine.txt").write_text("\n".join([*SPECIAL_TOKENS, *"abcdefghijklmnopqrstuvwxyz", *words]) + "\n")
    return folder / "mine.txt"


def test_another_vocabulary_for_a_trained_model_is_refused(workplace, capsys):
    vocabulary = vocabulary_of(workplace.folder, "report")
    assert workplace.start("--epochs", "2") == 0
    with pytest.raises(SystemExit):
        workplace.start("--epochs", "2", "--vocab-file", str(vocabulary))
    assert "error: the vocabulary differs from that with which the data of the run in" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_measured(workplace, capsys):
    (workplace.folder / "out").write_text("a file")
    with pytest.raises(SystemExit):
        workplace.start("--hours", "0.1")
    shown = capsys.readouterr()
    assert "out cannot be written (File exists); pass another --output-dir" in shown.err and "reading" not in shown.out


def test_a_given_vocabulary_decides_its_size_and_case(workplace):
    vocabulary = vocabulary_of(workplace.folder, "Report", "##s")
    assert workplace.start("--vocab-file", str(vocabulary), "--epochs", "2") == 0
    assert config_of(workplace, 1)["vocab_size"] == 5 + 26 + 2
    request = read_text_arguments(line_of("--text", "t", "--vocab-file", str(vocabulary)))
    assert request.lowercase is False


# ---- the command line ----


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["256", "--text", "t"], "--text contradicts the positional argument 256; drop it"),
        (["--text", "t", "--phase1-input-dir", "x"], "--input-dir contradicts --text, which makes its own shards"),
        (["--text", "t", "--wikipedia-source", "x"], "--wikipedia-source contradicts --text"),
        (["--text", "t", "--from-checkpoint", "x"], "--from-checkpoint contradicts --text, which resumes by itself"),
        (["--text", "t", "--num-nodes", "2"], "--num-nodes contradicts --text, which trains on one machine"),
        (["--text", "t", "--plan"], "--plan contradicts --text, .* pass --dry-run"),
        (["--text", "t", "--benchmark"], "--benchmark contradicts --text"),
        (["--text", "t", "--phase2"], "--phase2 with --text has no phase 1"),
        (["--text", "t", "--hours", "1", "--epochs", "2"], "both decide how long to train; give one of them"),
        (["--text", "t", "--hours", "soon"], "hours=soon must be a number above 0; change --hours"),
        (
            ["--text", "t", "--config", "smal"],
            "config=smal with --text must be the size of a model; did you mean small",
        ),
        (["--text", "t", "--bert-model", "bert-tiny"], "bert_model=bert-tiny with --text must be one of"),
        (["--text", "t", "--vocab-file", "none.txt"], "vocab_file=none.txt must be an existing vocabulary"),
        (["--text", "t", "--from-pretrained-params", "x", "--config", "mini"], "--config contradicts --text"),
        (["--text", "t", "--learning-rate", "fast"], "learning_rate"),
        (["--text", "t", "--held-out-fraction", "0.9"], "held_out_fraction=0.9 must be at most 0.5"),
        (["--text", "t", "--held-out-fraction", "-0.1"], "held_out_fraction=-0.1 must be .* at least 0, which"),
        (["--text", "t", "--held-out-fraction", "nan"], "held_out_fraction=nan must be"),
        (
            ["--text", "t", "--held-out-fraction", "0", "--phase2-early-stopping", "3"],
            "early_stopping=3 needs held-out text, of which --held-out-fraction 0 leaves none; drop one of the two",
        ),
        (["--text", "t", "--lerning-rate", "1"], "did you mean --learning-rate"),
        (["--text", ""], "names no file or folder"),
        (["--text", "."], r"output_dir=.* lies in --text \., whose files are all read; pass --output-dir"),
        (["--text", "t", "--encoding", "utf9"], "encoding='utf9' is not known to Python"),
        (["--text", "t", "--document-separator", "paragraph"], "document_separator=paragraph must be one of"),
        (["--text", "t", "--lang", "EN"], "language='EN' must be a code"),
    ],
)
def test_contradictions_are_refused_with_the_rule_and_the_remedy(words, message):
    with pytest.raises(ValueError, match=message):
        read_text_arguments(line_of(*words))


def test_flags_of_own_text_need_text():
    with pytest.raises(ValueError, match="--hours is for own text; pass --text FOLDER with it, or drop it"):
        parse_launch_arguments(["--hours", "8"])


def test_a_missing_folder_is_refused_before_anything(workplace, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(line_of("--text", "nowhere", "--hours", "1"), workplace._train)
    assert ended.value.code == 2 and "nowhere" in capsys.readouterr().err


def test_results_have_the_name_of_the_text():
    assert read_text_arguments(line_of("--text", "my texts/")).output_dir == Path("results/my-texts")


def test_the_suggestion_to_train_longer_keeps_the_other_words():
    request = read_text_arguments(line_of("--text", "my text", "--hours", "2", "--seed", "3"))
    assert request.longer(2.0) == "bash scripts/run_pretraining.sh --text 'my text' --seed 3 --hours 4"
    assert request.longer(2.0).count("--hours") == 1
    request = read_text_arguments(line_of("--text", "t", "--phase1-max-steps", "40", "--phase2-max-steps=20"))
    longer = "bash scripts/run_pretraining.sh --text t --phase1-max-steps 80 --phase2-max-steps 40"
    assert request.longer(2.0) == longer


# ---- facts and data ----


def test_facts_of_the_text(tmp_path):
    (tmp_path / "one.txt").write_text("Zwei Wörter.")
    (tmp_path / "rows.jsonl").write_text('{"text": "three more words"}\n{"text": "and four more words"}\n')
    (tmp_path / "paper.txt").write_bytes(b"%PDF-1.4\n\x00\x01\x02")
    facts = text_facts([tmp_path], Reading())
    assert (facts.documents, facts.words) == (3, 2 + 3 + 4) and not facts.is_estimate
    assert facts.characters == 12 + 16 + 19 and facts.distinct_characters >= 10


def test_much_text_is_estimated_from_a_part(tmp_path, monkeypatch):
    for number in range(200):
        (tmp_path / f"{number:03}.txt").write_text("word " * 1000)
    monkeypatch.setattr("data.text.survey.MOST_READ_BYTES", 100_000)
    facts = text_facts([tmp_path], Reading())
    assert facts.is_estimate and facts.words == pytest.approx(200_000, rel=0.01) and facts.documents == 200


@pytest.mark.parametrize(("visible", "gpus"), [(None, 2), ("1", 1), ("", 0)])
def test_only_visible_gpus_are_planned_for(tmp_path, monkeypatch, visible, gpus):
    program = tmp_path / "nvidia-smi"
    answer = "A100, 8.0, 81920, 550\\nA100, 8.0, 81920, 550"
    program.write_text(f'#!/bin/sh\n[ "$1" = --list-gpus ] && printf "GPU 0\\nGPU 1\\n" || printf "{answer}\\n"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr("bert.own_text.reading.has_package", lambda name: True)
    found = machine_facts(tmp_path)
    assert found.gpus == gpus and found.gpu_name == ("A100" if gpus else "")
    assert ("CUDA_VISIBLE_DEVICES" in found.note) is (gpus == 0)


def test_facts_of_this_machine(tmp_path):
    machine = machine_facts(tmp_path / "not/yet/there")
    assert machine.cores >= 1 and machine.memory_bytes > 1e8 and machine.disk_bytes > 0


def test_a_step_that_is_made_again_removes_what_was_made_of_it(tmp_path):
    made = {name: tmp_path / name for name in ("text/report.json", "vocab.txt", "phase1/manifest.json")}

    def run(command):
        product = made[command[-1]]
        assert not product.exists()
        product.parent.mkdir(parents=True, exist_ok=True)
        product.write_text("made")
        return 0

    for options in (["--a"], ["--b"]):
        steps = Steps(tmp_path / "prepared.json", run)
        for name, product in made.items():
            steps.step(name, [*options, name], product)
            if name == "text/report.json" and options == ["--b"]:
                assert not made["vocab.txt"].exists() and not (tmp_path / "phase1").exists()


# ---- the real thing ----


def odd_files(folder: Path) -> None:
    """300 kB of English in files of many kinds, and files that are none."""
    sources = sorted(Path(gzip.__file__).parent.glob("*.py"))
    documents = [" ".join(texts) for path in sources if (texts := docstrings_of(path.read_bytes()))]
    folder.mkdir()
    size = 0
    for number, document in enumerate(text for text in documents if len(text) > 800):
        if size > 300_000:
            break
        size += len(document)
        kinds = {
            "txt": f"Café. {document}".encode("latin-1", "replace"),
            "jsonl": (json.dumps({"text": document}) + "\n").encode(),
            "txt.gz": gzip.compress(document.encode()),
            "md": f"# Title {number}\n\n{document}\n".encode(),
        }
        suffix = list(kinds)[number % len(kinds)]
        (folder / f"{number}.{suffix}").write_bytes(kinds[suffix])
    (folder / "paper.txt").write_bytes(b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n" + bytes(range(256)))
    (folder / "empty.txt").write_text("")
    (folder / "picture.png").write_bytes(b"\x89PNG\r\n")


@pytest.mark.slow  # the documents' own command is run by the gate, without the interruption
def test_a_folder_of_odd_files_becomes_a_model_is_interrupted_and_extended(tmp_path):
    odd_files(tmp_path / "odd")
    line = [sys.executable, "-m", "bert.launching", "pretraining", "--text", "odd", "--output-dir", "out"]

    def start(*words):
        variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        options = ["--log-freq", "1", "--eval-samples", "64", *words]
        return subprocess.Popen([*line, *options], cwd=tmp_path, env=variables, **pipes)

    process = start("--max-steps", "400")
    seen = []
    while not (seen and seen[-1].startswith("step 5/")):
        seen.append(next(process.stdout))
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=300)
    assert process.returncode == 75, "".join(seen) + rest
    assert "is not text (PDF signature)" in "".join(seen) and "saved step" in rest

    process = start("--max-steps", "20")  # shortened
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    assert "importing the text" not in output and "Phase 1 is at update" in output
    assert "masked words, the three most likely" in output and "nearest sentences" in output
    assert "chosen: quickstart" in output and "learned: held-out masked-LM loss" in output
    suggested = [text.strip() for text in output.splitlines() if "   # " in text]
    assert len(suggested) >= 5
    for line in [text for text in suggested if "run_export.py" in text or "--encode" in text]:
        piped = f"cd {tmp_path} && echo 'One sentence.' | {line}"
        done = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr

    process = start("--max-steps", "30")
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0 and "phase 2: 20 updates become 30" in output, output
    assert json.loads((tmp_path / "out/phase2/summary.json").read_text())["steps"] == 30


@pytest.mark.slow
def test_all_text_becomes_a_model_when_nothing_is_held_out(tmp_path):
    odd_files(tmp_path / "odd")
    line = [sys.executable, "-m", "bert.launching", "pretraining", "--text", "odd", "--held-out-fraction", "0"]
    variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)}
    line += ["--output-dir", "out", "--max-steps", "3"]
    done = subprocess.run(line, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "learned: nothing was held out to measure it on" in done.stdout and "with the training text" in done.stdout
    assert not list((tmp_path / "out/data").glob("**/held_out"))
    for phase in (1, 2):
        assert "eval_masked_lm_loss" not in json.loads((tmp_path / f"out/phase{phase}/summary.json").read_text())

"""`run_pretraining.sh --text`, from arguments to results. Training, data and the measurement are stand-ins here; the
last test runs the real ones."""

import contextlib
import dataclasses
import gzip
import io
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
from bert.commands import own_text as command
from bert.commands.pretrain import parse_launch_arguments
from bert.config.command_line import dump_yaml, explain
from bert.launching.previous_run import settings_asked_for
from bert.own_text import corpus, start
from bert.own_text import run as own_text
from bert.own_text.facts import MachineFacts, machine_facts, text_facts
from bert.own_text.given_files import with_given_files
from bert.own_text.request import read_text_request
from bert.reporting import results
from bert.samples.manifest import Manifest, ShardRecord, write_manifest
from bert.tokenization.vocabulary import SPECIAL_TOKENS
from data.examples.documentation import docstrings_of
from data.text.readers import Reading
from tests.support.launching import line_of
from tests.support.waiting import wait_until

SENTENCE = "The committee read the report twice before anybody asked where the figures came from. "
STOPPED = {"stopped_early": True, "ends_with_best": True, "early_stopping": 5}  # of a summary
PREPARE = corpus.prepare
LAPTOP = MachineFacts(cores=2, memory_bytes=16 * 10**9, disk_bytes=10**11)


def gpus(number: int) -> MachineFacts:
    return MachineFacts(16, 60 * 10**9, 10**12, number, "RTX 3090", 24 << 30)


class Workplace:
    """A folder with text, and stand-ins that note what they are asked for.

    Attributes:
        trained: the settings of every start.
        speed: sequences per second that the training has.
        figures: further ones of every summary.
        stops: exit codes of the next trainings instead of success.
    """

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.folder, self.trained, self.speed, self.stops, self.ran = folder, [], 200.0, [], []
        self.figures: dict[str, float] = {}
        self.initializations, self.configs = [], []
        self.text = folder / "text"
        self.text.mkdir()
        for number in range(60):
            (self.text / f"{number}.txt").write_text(SENTENCE * 100 + str(number))
        monkeypatch.setattr(start, "machine_facts", lambda output_dir: LAPTOP)
        monkeypatch.setattr(start, "measure_speeds", lambda found: {one.name: 200 for one in found})
        monkeypatch.setattr(corpus, "prepare", self._prepare)
        monkeypatch.setattr(own_text, "Runner", lambda: self)
        monkeypatch.setattr(own_text, "train_phase", self._train)
        monkeypatch.setattr(results, "draw", lambda *_: None)
        self.stop_requested, self.stopped_by = False, None

    def start(self, *words: str) -> int:
        line = ["--text", str(self.text), "--output-dir", str(self.folder / "out"), *words]
        return command.main(line_of(*line))

    def refused(self, *words: str) -> str:
        """The error of a start that is refused."""
        with contextlib.redirect_stderr(io.StringIO()) as errors, pytest.raises(SystemExit) as ended:
            self.start(*words)
        assert ended.value.code == 2
        return errors.getvalue()

    def run(self, command) -> int:
        self.ran.append(command)
        return 0

    def record(self) -> dict:
        return json.loads((self.folder / "out/own_text.json").read_text())

    def settings(self) -> dict:
        return yaml.safe_load((self.folder / "out/phase1.yaml").read_text())

    def summary(self) -> dict:
        return json.loads((self.folder / "out/phase1/summary.json").read_text())

    def _prepare(self, request, plan, config, run, *, files, has_trained) -> int:
        folder = corpus.shards(request, "train")
        folder.mkdir(parents=True, exist_ok=True)
        samples = round(plan.updates * plan.settings["global_batch_size"] / plan.epochs * plan.duplicate_factor)
        (folder / "shard-0.parquet").touch()
        write_manifest(folder, Manifest({"shard-0.parquet": ShardRecord(samples, 1, "")}, None))
        return 0

    def _train(self, plan, config, runner) -> int:
        """As the training: up to its last step, or to what the time allows."""
        self.trained.append(config.run)
        self.configs.append(config)
        self.initializations.append(config.initialization)
        code = self.stops.pop(0) if self.stops else 0
        before = max((int(path.name) for path in config.checkpoint_dir().glob("*")), default=0)
        in_time = 10**9
        if config.run.finish_in is not None:
            in_time = round(config.run.finish_in * self.speed / config.batch.global_batch_size)
        last = min(before + min(config.run.steps_this_run or 10**9, in_time), config.run.max_steps)
        step = last // 2 if code else last
        (config.checkpoint_dir() / str(step)).mkdir(parents=True, exist_ok=True)
        config.stage_dir().mkdir(exist_ok=True)
        finished = not code and (config.run.finish_in is not None or step == config.run.max_steps)
        figures = {"steps": step, "max_steps": config.run.max_steps, "finished": finished}
        figures |= {"eval_masked_lm_loss": 5.25, "unigram_entropy": 6.0, "e2e_train_time": 1.0, **self.figures}
        (config.stage_dir() / "summary.json").write_text(json.dumps(figures))
        settings_asked_for(config).write_text(dump_yaml(config))
        return code


@pytest.fixture
def workplace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Workplace(tmp_path, monkeypatch)


# ---- the plan ----


def test_a_dry_run_shows_the_plan_and_makes_nothing(workplace, capsys):
    assert workplace.start("--hours", "0.5", "--dry-run") == 0
    shown = capsys.readouterr().out
    for name in ("text ", "model ", "vocabulary ", "batch ", "schedule ", "updates ", "epochs ", "time ", "disk "):
        assert f"\n{name}" in shown, shown
    assert "60 files" in shown and not (workplace.folder / "out").exists() and not workplace.trained


def test_the_settings_of_the_plan_are_shown_as_yaml_alone(workplace, capsys):
    assert workplace.start("--hours", "0.5", "--show-config", "--learning-rate", "1e-3") == 0
    shown = capsys.readouterr()
    assert list(yaml.safe_load(shown.out.split("\n\n")[0])) and "reading" not in shown.out and "reading" in shown.err
    assert shown.out.count("learning_rate: 0.001") == 1 and shown.out.count("hidden_size: 128") == 1


def test_flags_win_over_the_plan(workplace):
    line = "--config mini --learning-rate 7e-4 --seed 9 --global-batch-size 48 --max-steps 30"
    assert workplace.start(*line.split()) == 0
    settings = workplace.settings()
    assert (settings["max_steps"], settings["hidden_size"], settings["seed"]) == (30, 256, 9)
    assert (settings["global_batch_size"], settings["learning_rate"]) == (48, 7e-4)


# ---- the run ----


def test_results_and_what_it_can_do(workplace, capsys):
    assert workplace.start("--epochs", "3") == 0
    (run,) = workplace.trained
    assert run.finish_in is None and run.phase == 1
    (shown,) = workplace.ran
    assert shown[-2:] == ["--show", str(workplace.folder / "out/data/text/held_out/source")]
    output = capsys.readouterr().out
    assert "chosen: quickstart, 2 layers of 128" in output and "learned: held-out masked-LM loss 5.250" in output
    assert (
        "Guessing by frequency alone: 6.00; your model: 5.25: it uses what stands" in output
        and " 3 epochs over" in output
    )
    assert f"--output-dir {workplace.folder / 'out'} --epochs 6   # train on" in output

    assert workplace.start("--epochs", "3") == 0
    again = capsys.readouterr().out
    assert "Already done" in again and "\nTrained before, in " in again
    assert len(workplace.trained) == 1 and len(workplace.ran) == 1


@pytest.mark.parametrize(
    ("figures", "words", "later"),
    [
        ({"eval_masked_lm_loss": 6.1}, "has learned nothing more yet", ""),  # far behind what is expected
        ({"eval_masked_lm_loss": 5.71}, "has learned little yet", "Twice as long brings about 5.0"),
        (STOPPED | {"eval_masked_lm_loss": 5.71}, "has learned little yet", ""),
    ],
)
def test_a_poor_model_is_called_one(workplace, capsys, figures, words, later):
    workplace.figures = figures
    assert workplace.start("--max-steps", "200", "--learning-rate", "1e-2") == 0
    shown = capsys.readouterr().out
    assert words in shown and "This model is poor" in shown and "--hours" in shown
    assert later in shown and bool(later) == ("Twice as long" in shown)


def test_the_time_decides_the_end(workplace):
    """The training gets the seconds that are left, and may make more updates than were expected."""
    assert workplace.start("--hours", "0.5") == 0
    (run,) = workplace.trained
    assert 0.5 * 3600 - 30 < run.finish_in < 0.5 * 3600
    plan = workplace.record()["plan"]
    assert run.max_steps > 3 * plan["updates"] and workplace.settings()["lr_schedule"] == "wsd"
    settings, expected = workplace.settings(), workplace.record()["expected_updates"]
    assert settings["expected_steps"] == min(expected, plan["updates"]) and settings["warmup_proportion"] == 0.1
    assert workplace.configs[0].warmup_steps() == settings["expected_steps"] // 10


def test_without_a_length_forty_epochs_and_at_most_eight_hours(workplace):
    assert workplace.start() == 0
    (run,) = workplace.trained
    assert 8 * 3600 - 30 < run.finish_in < 8 * 3600
    epochs = run.max_steps * workplace.settings()["global_batch_size"] / corpus_samples(workplace)
    assert epochs == pytest.approx(40, rel=0.05)


def corpus_samples(workplace) -> float:
    """Samples of one pass over the text."""
    plan = workplace.record()["plan"]
    return plan["updates"] * plan["settings"]["global_batch_size"] / plan["epochs"]


def test_stopped_and_started_again_it_continues_in_the_time_that_is_left(workplace, capsys):
    workplace.stops = [75]
    assert workplace.start("--hours", "0.5") == 75
    spend(workplace, 600)
    assert workplace.start("--hours", "0.5") == 0
    first, second = workplace.trained
    assert first.max_steps == second.max_steps
    assert first.finish_in - second.finish_in == pytest.approx(600, abs=10)
    assert "The training is at update" in capsys.readouterr().out


def spend(workplace, seconds: float) -> None:
    """As if a start had taken so long."""
    record = workplace.record()
    record["seconds_used"] = seconds
    (workplace.folder / "out/own_text.json").write_text(json.dumps(record))


def test_more_hours_continue_a_finished_run(workplace):
    assert workplace.start("--hours", "0.1") == 0
    spend(workplace, 360)
    assert workplace.start("--hours", "0.2") == 0
    first, second = workplace.trained
    assert second.finish_in == pytest.approx(360, abs=20) and second.max_steps >= first.max_steps
    settings = workplace.settings()
    assert workplace.start("--hours", "0.15") == 0 and len(workplace.trained) == 2, "it had more already"
    assert workplace.settings() == settings


def test_hours_that_are_used_up_are_refused_and_more_continue(workplace):
    workplace.stops = [75]
    assert workplace.start("--hours", "0.1") == 75
    spend(workplace, 400)
    error = workplace.refused("--hours", "0.1")
    assert "hours=0.1 leave no time for training: 6.7 minutes were used" in error
    assert "--finish-in 5m" in error
    hours = re.search("pass at least --hours ([0-9.]+), which continues", error).group(1)
    assert workplace.start("--hours", hours) == 0 and float(hours) < 0.3


def test_the_remedies_of_used_up_hours_work(workplace):
    """--finish-in trains though the hours are used up; so does a decay that was recorded."""
    workplace.stops = [75, 75]
    assert workplace.start("--hours", "0.1") == 75
    spend(workplace, 400)
    assert workplace.start("--hours", "0.1", "--finish-in", "5m") == 75 and workplace.trained[-1].finish_in == 300
    step = max((workplace.folder / "out/bert-quickstart/phase1").glob("*"), key=lambda path: int(path.name))
    progress = {"carried": {"decay": {"first": 1, "last": 10**6}}}
    (step / "bert_paddle_progress.json").write_text(json.dumps(progress))
    spend(workplace, 400)
    workplace.stops = [75]
    assert workplace.start("--hours", "0.1") == 75 and workplace.trained[-1].finish_in is None


def test_a_training_that_ended_after_its_launcher_was_killed_is_finished(workplace, capsys):
    assert workplace.start("--hours", "0.1") == 0
    record = workplace.record()
    record |= {"finished": None, "seconds_used": 400}
    (workplace.folder / "out/own_text.json").write_text(json.dumps(record))
    assert workplace.start("--hours", "0.1") == 0 and len(workplace.trained) == 1
    assert "Already done" in capsys.readouterr().out


def test_a_start_that_is_refused_or_fails_forgets_nothing(workplace):
    assert workplace.start("--hours", "0.1") == 0
    spend(workplace, 395)
    workplace.refused("--hours", "0.11")
    workplace.stops = [1]
    assert workplace.start("--hours", "0.2") == 1
    trained = len(workplace.trained)
    assert workplace.start("--hours", "0.1") == 0 and len(workplace.trained) == trained
    assert workplace.record()["seconds_used"] == pytest.approx(395, abs=5), "looking at results costs no hours"


def test_updates_after_a_training_that_the_time_ended_continue_before_its_decay(workplace):
    workplace.figures = {"decay_from": 5, "last_step": 6}
    assert workplace.start("--hours", "0.1") == 0
    assert workplace.start("--max-steps", "100000") == 0
    initialization = workplace.initializations[-1]
    assert initialization.last_step_of_checkpoint == 5 and initialization.from_pretrained_params is None


def test_without_early_stopping_a_run_that_it_ended_goes_on(workplace):
    workplace.figures = STOPPED | {"best_eval_masked_lm_loss": 5.0, "best_step": 3}
    assert workplace.start("--hours", "0.5") == 0
    assert workplace.start("--hours", "0.5", "--early-stopping", "0") == 0 and len(workplace.trained) == 2


def test_folders_may_be_named_otherwise(workplace, monkeypatch):
    """A shell leaves `--output-dir=~/out` as it is."""
    monkeypatch.setenv("HOME", str(workplace.folder))
    workplace.stops = [75, 75]
    assert workplace.start("--epochs", "3") == 75
    assert command.main(line_of("--text", "~/text", "--output-dir", "~/out", "--epochs", "3")) == 75
    assert command.main(line_of("--text", "text", "--output-dir", "out", "--epochs", "3")) == 0
    assert len(workplace.trained) == 3 and not (workplace.folder / "~").exists()


def test_a_record_of_a_version_with_fewer_settings_continues(workplace):
    workplace.stops = [75]
    assert workplace.start("--epochs", "3") == 75
    record = workplace.record()
    del (
        record["plan"]["settings"]["hidden_act"],
        record["additions"],
        record["text"]["parts"],
        record["data"]["weights"],
    )
    record["plan"]["settings"]["hidden_dropout_prob"] = 0.0
    (workplace.folder / "out/own_text.json").write_text(json.dumps(record))
    (workplace.folder / "out/phase1.yaml").unlink()
    assert workplace.start("--epochs", "3") == 0


def test_a_damaged_record_is_told_in_one_line(workplace):
    (workplace.folder / "out").mkdir()
    (workplace.folder / "out/own_text.json").write_text('{"version": 2, "speeds": 3}')
    error = workplace.refused("--hours", "1")
    assert "own_text.json is damaged; restore it, or pass another --output-dir" in error and error.count("\n") == 1


def test_a_run_can_be_ended_now(workplace, capsys):
    workplace.stops = [75]
    assert workplace.start("--hours", "4") == 75
    assert workplace.start("--hours", "4", "--finish-in", "5m") == 0
    assert workplace.trained[-1].finish_in == 300
    assert workplace.start("--hours", "4") == 0 and len(workplace.trained) == 2
    capsys.readouterr()
    assert workplace.start("--hours", "4", "--finish-in", "5m") == 0 and len(workplace.trained) == 2
    shown = capsys.readouterr().out
    assert "--finish-in had no effect" in shown and re.search(r"\nend +in 5.0 minutes +as given +--finish-in", shown)


@pytest.mark.parametrize(
    ("first", "second", "row"),
    [
        ("--hours 0.1", "--hours 0.2", r"\ntime +12\.0 minutes +as given"),
        ("--epochs 2", "--epochs 5", r"\nepochs +5 over the text +as given"),
        ("--max-steps 40", "--max-steps 90", r"\nupdates +90 +as given"),
        ("--hours 0.1", "--hours 0.1 --eval-freq 7", r"\neval-freq +7 +as given +--eval-freq"),
    ],
)
def test_the_table_of_a_later_start_shows_the_flags_of_now(workplace, capsys, first, second, row):
    assert workplace.start(*first.split()) == 0
    capsys.readouterr()
    assert workplace.start(*second.split(), "--dry-run") == 0
    assert re.search(row, shown := capsys.readouterr().out), shown
    assert workplace.start(*first.split()) == 0
    assert not re.search(row, capsys.readouterr().out), "it is not recorded"


def test_a_schedule_without_a_stable_rate_needs_a_number_of_updates(workplace):
    assert "lr_schedule=linear needs the number of updates" in workplace.refused(
        "--hours", "1", "--lr-schedule", "linear"
    )
    assert workplace.start("--epochs", "2", "--lr-schedule", "linear") == 0
    assert workplace.settings()["lr_schedule"] == "linear" and workplace.settings()["warmup_proportion"] == 0.1


def test_nothing_need_be_held_out(workplace, capsys):
    assert workplace.start("--epochs", "3", "--held-out-fraction", "0") == 0
    shown = capsys.readouterr().out
    assert re.search("\nearly stopping +off +nothing is held out", shown) and workplace.settings()["eval_dir"] is None
    assert workplace.ran[0][-1] == str(workplace.folder / "out/data/text/source")
    assert re.search("\nheld out +nothing, so no evaluation +as given", shown) and "uncertain" not in shown
    with pytest.raises(ValueError, match="early_stopping=3 needs held-out text"):
        read_text_request(line_of("--text", "t", "--held-out-fraction", "0", "--early-stopping", "3"))


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
        (LAPTOP, dataclasses.replace(LAPTOP, cores=16), ["both", "--global-batch-size", "32", "--batch-size", "8"], 4),
    ],
)
def test_a_run_continues_on_another_machine(workplace, monkeypatch, capsys, first, second, words, ranks):
    """Only devices, ranks and micro-batches change."""
    monkeypatch.setattr(start, "machine_facts", lambda output_dir: first)
    workplace.stops = [75]
    words, before = words[words[:1] == ["both"] :], words[1:] if words[:1] == ["both"] else []
    assert workplace.start("--epochs", "4", *before) == 75
    begun = workplace.settings()
    monkeypatch.setattr(start, "machine_facts", lambda output_dir: second)
    capsys.readouterr()
    assert workplace.start("--epochs", "4", *words) == 0
    now = workplace.settings()
    changed = {name for name in now if now[name] != begun.get(name)}
    assert changed <= {"batch_size", "device", "cpu_threads", "num_workers"}
    device = "gpu" if second.gpus and "cpu" not in words else "cpu"
    assert now["device"] == device and now["amp"] == begun["amp"]
    assert now["global_batch_size"] % (now["batch_size"] * ranks) == 0
    assert re.search(rf"\n(ranks|GPUs|devices?) .*\b{ranks}\b", shown := capsys.readouterr().out), shown


def test_the_ranks_that_are_advised_divide_the_batch_of_a_run_that_has_begun(workplace):
    assert workplace.start("--epochs", "2", "--global-batch-size", "32") == 0
    shown = workplace.refused("--epochs", "3", "--num-processes", "3")
    assert "batch_size x ranks = 1 x 3; pass --num-processes 2\n" in shown
    shown = workplace.refused("--epochs", "3", "--num-processes", "2", "--batch-size", "24")
    assert "pass a --batch-size that divides it\n" in shown


def test_the_time_of_a_start_is_kept_while_it_runs(workplace, monkeypatch):
    """So that it counts of one that is killed."""
    monkeypatch.setattr("bert.own_text.record._TICK_SECONDS", 0.01)
    seen = []

    def train(plan, config, runner):
        wait_until(lambda: workplace.record()["seconds_used"] > 100.02)
        seen.append(workplace.record()["seconds_used"])
        return 75

    line = ["--text", str(workplace.text), "--output-dir", str(workplace.folder / "out"), "--hours", "0.5"]
    monkeypatch.setattr(own_text, "train_phase", train)
    assert command.main(line_of(*line), started=time.time() - 100) == 75
    assert seen[0] == pytest.approx(100, abs=20) and workplace.record()["seconds_used"] >= seen[0]


@pytest.mark.parametrize(
    ("first", "more"), [(["--epochs", "2"], ["--epochs", "5"]), (["--max-steps", "40"], ["--max-steps", "90"])]
)
def test_a_finished_run_is_extended(workplace, first, more, capsys):
    assert workplace.start(*first) == 0
    assert workplace.start(*more) == 0
    before, after = workplace.trained
    assert after.max_steps > 2 * before.max_steps and "Already done" not in capsys.readouterr().out
    assert workplace.start(*more) == 0 and len(workplace.trained) == 2


def test_a_part_of_the_updates_can_be_made(workplace, capsys):
    words = ("--max-steps", "40", "--steps-this-run", "25")
    assert workplace.start(*words) == 0
    assert "the training has steps left; the same command continues" in capsys.readouterr().out
    assert workplace.start(*words) == 0 and workplace.summary()["steps"] == 40


def test_the_folder_of_an_earlier_version_is_refused(workplace):
    (workplace.folder / "out").mkdir()
    (workplace.folder / "out/own_text.json").write_text(json.dumps({"speeds": [], "steps": {"1": 5}}))
    assert "is of an earlier version, which trained in two phases; pass another --output-dir" in workplace.refused(
        "--hours", "1"
    )


@pytest.mark.parametrize("name", ["0.txt", "added.txt"])
def test_a_run_goes_on_with_the_text_that_it_has(workplace, capsys, name):
    """Files that are changed or added later are not taken in."""
    assert workplace.start("--hours", "0.1") == 0
    assert workplace.start("--hours", "0.1") == 0
    assert "were imported" not in capsys.readouterr().out
    (workplace.text / name).write_text(SENTENCE * 10)
    workplace.text = workplace.text / "../text"
    assert workplace.start("--hours", "0.2") == 0 and len(workplace.trained) == 2
    shown = capsys.readouterr().out
    assert re.search("warning: the files of .* are not those that were imported; the training goes on with", shown)
    assert re.search("--from-pretrained-params .*/out --output-dir NEW continues the model on the new text", shown)

    (other := workplace.folder / "other").mkdir()
    (other / "new.txt").write_text(SENTENCE * 10)
    refused = workplace.refused("--text", str(other), "--hours", "0.1")
    assert re.search("text=.*/other differs from .*/text of the run in .*--from-pretrained-params", refused)


def test_a_run_to_which_an_earlier_version_added_files_continues(workplace, monkeypatch):
    workplace.stops = [75]
    assert workplace.start("--max-steps", "9") == 75
    addition = {"files": 2, "documents": 2, "samples": 9, "from_pass": 4, "from_update": 8}
    record = workplace.record() | {"additions": [addition]}
    (workplace.folder / "out/own_text.json").write_text(json.dumps(record))
    assert workplace.start("--max-steps", "12") == 0 and workplace.record()["additions"] == [addition]
    monkeypatch.setattr(corpus, "prepare", PREPARE)
    refused = workplace.refused("--max-steps", "20")
    assert "data of the run" in refused and "cannot be made again" in refused, "by one import of all files"


def test_data_that_are_gone_are_made_again_only_of_the_same_files(workplace, monkeypatch):
    assert workplace.start("--max-steps", "9") == 0
    monkeypatch.setattr(corpus, "prepare", PREPARE)
    number = len(workplace.ran)
    assert "should exist after" in workplace.refused("--max-steps", "12") and len(workplace.ran) == number + 1, (
        "of the same files"
    )
    (workplace.text / "7.txt").write_text(SENTENCE * 90)
    shown = workplace.refused("--max-steps", "12")
    assert re.search("error: the data of the run in .* are gone .*, and files of --text are not as they were", shown)
    assert len(workplace.ran) == number + 1 and len(workplace.trained) == 1
    request = read_text_request(line_of("--text", str(workplace.text), "--output-dir", str(workplace.folder / "out")))
    record = start.record_of(request)
    config = start.training_config(request, record)
    for name in ("vocab.txt", "shards/train/manifest.json", "shards/held_out/manifest.json"):
        (file := workplace.folder / "out/data" / name).parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert PREPARE(request, record.plan, config, workplace.run, files="other", has_trained=True) == 0, "without text"


def test_a_vocabulary_smaller_than_planned_is_of_the_run_when_its_data_are_gone(workplace, monkeypatch, capsys):
    vocabulary = workplace.folder / "out/data/vocab.txt"
    vocabulary.parent.mkdir(parents=True)
    vocabulary.write_text("word\n" * 110)
    assert workplace.start("--max-steps", "9") == 0 and workplace.settings()["vocab_size"] == 110
    shutil.rmtree(vocabulary.parent)
    assert workplace.start("--max-steps", "9") == 0 and "Already done" in capsys.readouterr().out
    monkeypatch.setattr(corpus, "prepare", PREPARE)
    assert "should exist after" in workplace.refused("--max-steps", "12"), "made again"


def test_other_labelled_lines_for_a_run_whose_best_they_choose_are_refused(workplace, capsys):
    for name in ("a.csv", "b.csv"):
        (workplace.folder / name).write_text("text,label\n" + "x y,0\nz w,1\n" * 3)
    words = ("--max-steps", "9", "--best-by", "probe", "--held-out-fraction", "0", "--early-stopping", "4")
    assert workplace.start(*words, "--probe-file", "a.csv") == 0
    shown = capsys.readouterr().out
    assert re.search(r"\nprobe +6 labelled lines +about 0.0 s an evaluation; the best is the result", shown)
    assert re.search("\nearly stopping +4 evaluations without a better probe", shown)
    assert "probe_file=b.csv differs from a.csv of the run in" in workplace.refused(*words, "--probe-file", "b.csv")
    (workplace.folder / "a.csv").write_text("text,label\n" + "x y,1\nz w,0\n" * 3)
    assert "the content of --probe-file, which chooses" in workplace.refused(*words, "--probe-file", "a.csv")


def test_a_model_that_was_better_before_is_named(workplace, capsys):
    workplace.figures = {"best_eval_masked_lm_loss": 5.24, "best_step": 300}
    assert workplace.start("--hours", "0.1") == 0
    assert "better before" not in capsys.readouterr().out, "a difference within the noise"
    workplace.figures = {"best_eval_masked_lm_loss": 5.0, "best_step": 300}
    assert workplace.start("--hours", "0.2") == 0
    assert re.search("better before: 5.000 nats after update 300, kept in .*/phase1/300;", capsys.readouterr().out)


def test_early_stopping_is_on_and_its_result_is_the_best_model(workplace, capsys):
    workplace.figures = STOPPED | {"best_eval_masked_lm_loss": 5.0, "best_step": 3}
    assert workplace.start("--hours", "0.5") == 0
    shown = capsys.readouterr().out
    assert workplace.settings()["early_stopping"] == 5
    assert re.search(r"\nearly stopping +5 evaluations without a lower held-out loss +the best is the result", shown)
    assert re.search(r"stopped early: after update [\d,]+; its held-out loss was lowest after update 3", shown)
    assert (
        "learned: held-out masked-LM loss 5.000 nats after update 3, which is the result (the last had 5.250)" in shown
    )
    assert "better before" not in shown


def test_a_loss_that_was_never_finite_is_told(workplace, capsys):
    workplace.figures = STOPPED | {"eval_masked_lm_loss": float("nan"), "ends_with_best": False}
    assert workplace.start("--max-steps", "40") == 0
    assert "its held-out loss was never finite: lower --learning-rate" in capsys.readouterr().out


def test_early_stopping_can_be_turned_off(workplace, capsys):
    assert workplace.start("--hours", "0.1", "--early-stopping", "0") == 0
    assert re.search(r"\nearly stopping +off +as given", capsys.readouterr().out)
    assert workplace.settings()["early_stopping"] == 0
    assert workplace.start("--hours", "0.1", "--early-stopping", "3") == 0
    assert re.search(r"\nearly stopping +3 evaluations .* as given", capsys.readouterr().out)


def test_a_folder_that_was_moved_is_the_same_text(workplace, capsys):
    assert workplace.start("--hours", "0.1") == 0
    workplace.text = workplace.text.rename(workplace.folder / "moved")
    assert workplace.start("--hours", "0.1") == 0
    assert "Already done" in (shown := capsys.readouterr().out) and "were imported" not in shown


def vocabulary_of(folder: Path, *words: str) -> Path:
    (folder / "mine.txt").write_text("\n".join([*SPECIAL_TOKENS, *"abcdefghijklmnopqrstuvwxyz", *words]) + "\n")
    return folder / "mine.txt"


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            "--epochs 1 --lr-schedule cosine",
            "--lr-schedule cosine --hours 0.2",
            "lr_schedule=cosine needs the number of",
        ),
        ("--max-steps 4000000", "--max-steps 2000000", "max_steps=2000000 must be at least the 4,000,000 updates"),
        ("--max-steps 40", "--epochs 0.05", "epochs=0.05 are [0-9]+ updates and must be at least the 40 "),
        ("--epochs 2", "--epochs 2 --config mini", "config=mini differs from quickstart of the run in"),
        ("--epochs 2", "--epochs 2 --learning-rate 0.5", "learning_rate=0.5 differs from"),
        ("--hours 0.1", "--hours 0.1 --held-out-fraction 0.3", "held_out_fraction=0.3 differs from"),
        ("--hours 0.1", "--hours 0.1 --vocab-size 3000", "vocab_size=3000 differs from"),
        ("--hours 0.1", "--hours 0.1 --deduplicate near", "deduplicate=near differs from"),
        (
            "--epochs 2",
            "--epochs 2 --vocab-file mine.txt",
            "error: the vocabulary differs from that with which the data",
        ),
    ],
)
def test_what_contradicts_the_run_is_refused(workplace, first, second, message):
    vocabulary_of(workplace.folder, "report")
    assert workplace.start(*first.split()) == 0
    assert re.search(message, workplace.refused(*second.split()))


def test_a_given_vocabulary_decides_its_size_and_case(workplace):
    vocabulary = vocabulary_of(workplace.folder, "Report", "##s")
    assert workplace.start("--vocab-file", str(vocabulary), "--epochs", "2") == 0
    assert workplace.settings()["vocab_size"] == 5 + 26 + 2
    given = with_given_files(read_text_request(line_of("--text", "t", "--vocab-file", str(vocabulary))))
    assert given.lowercase is False
    assert "vocab_file=none.txt must be an existing vocabulary" in workplace.refused("--vocab-file", "none.txt")


# ---- the command line ----


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["256", "--text", "t"], "--text contradicts the positional argument 256; drop it"),
        (["--text", "t", "--input-dir", "x"], "--input-dir contradicts --text, which makes its own shards"),
        (["--text", "t", "--phase2-learning-rate", "1"], "--phase2-learning-rate contradicts .*; pass --learning-rate"),
        (["--text", "t", "--wikipedia-source", "x"], "--wikipedia-source contradicts --text"),
        (["--text", "t", "--from-checkpoint", "x"], "--from-checkpoint contradicts --text, which resumes by itself"),
        (["--text", "t", "--num-nodes", "2"], "--num-nodes contradicts --text, which trains on one machine"),
        (["--text", "t", "--plan"], "--plan contradicts --text, .* pass --dry-run"),
        (["--text", "t", "--benchmark"], "--benchmark contradicts --text"),
        (["--text", "t", "--phase2"], "--phase2 contradicts --text, which trains in one phase"),
        (["--text", "t", "--hours", "1", "--epochs", "2"], "both decide how long to train; give one of them"),
        (["--text", "t", "--max-steps", "0"], "max_steps=0 must be at least 1"),
        (["--text", "t", "--hours", "soon"], "hours=soon must be a valid number, .*; change --hours"),
        (
            ["--text", "t", "--config", "smal"],
            "config=smal with --text must be the size of a model; did you mean small",
        ),
        (["--text", "t", "--bert-model", "bert-tiny"], "bert_model=bert-tiny with --text must be one of"),
        (["--text", "t", "--from-pretrained-params", "x", "--config", "mini"], "--config contradicts --text"),
        (["--text", "t", "--learning-rate", "fast"], "learning_rate"),
        (["--text", "t", "--held-out-fraction", "0.9"], "held_out_fraction=0.9 must be less than or"),
        (["--text", "t", "--lerning-rate", "1"], "did you mean --learning-rate"),
        (["--text", ""], "names no file or folder"),
        (["--text", "."], r"output_dir=.* lies in --text \., whose files are all read; pass --output-dir"),
        (["--text", "t", "--encoding", "utf9"], "encoding='utf9' is not known to Python"),
        (["--text", "t", "--document-separator", "paragraph"], "document_separator=paragraph must be one of"),
        (["--text", "t", "--replay-share", "1"], "replay_share=1 must be less than or equal to 0.9"),
        (["--text", "t", "--word-segmenter", "jeiba"], "must be one of auto, jieba, none; did you mean jieba"),
        (["--text", "t", "--lang", "EN"], "language='EN' must be a code"),
    ],
)
def test_contradictions_are_refused_with_the_rule_and_the_remedy(words, message):
    with pytest.raises(ValueError) as refused:
        read_text_request(line_of(*words))
    assert re.search(message, "\n".join(explain(refused.value)))


def test_flags_of_own_text_need_text():
    with pytest.raises(ValueError, match="--hours is for own text; pass --text FOLDER with it, or drop it"):
        parse_launch_arguments(["--hours", "8"])


def test_a_missing_folder_is_refused_before_anything(workplace, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(line_of("--text", "nowhere", "--hours", "1"))
    assert ended.value.code == 2 and "nowhere" in capsys.readouterr().err


def test_results_have_the_name_of_the_text():
    assert read_text_request(line_of("--text", "my texts/")).output_dir == Path("results/my-texts")


@pytest.mark.parametrize(
    ("words", "longer"),
    [
        ("my-text --hours 2 --seed 3", "my-text --seed 3 --hours 4"),
        ("t --max-steps=20 --finish-in 5m --steps-this-run=3", "t --max-steps 40"),
        ("t --max_steps 20 --finish_in 5m", "t --max-steps 40"),
        ("myhours --seed 3", "myhours --seed 3 --hours 4"),
    ],
)
def test_the_suggestion_to_train_longer_keeps_the_other_words(words, longer):
    request = read_text_request(line_of("--text", *words.split()))
    assert request.longer(2.0) == f"bash scripts/run_pretraining.sh --text {longer}"


# ---- facts and data ----


def test_facts_of_the_text(tmp_path):
    (tmp_path / "one.txt").write_text("Zwei Wörter.")
    (tmp_path / "rows.jsonl").write_text('{"text": "three more words"}\n{"text": "and four more words"}\n')
    (tmp_path / "paper.txt").write_bytes(b"%PDF-1.4\n\x00\x01\x02")
    facts, _ = text_facts([tmp_path], Reading())
    assert (facts.documents, facts.words) == (3, 2 + 3 + 4) and not facts.is_estimate
    assert facts.characters == 12 + 16 + 19 and facts.distinct_characters >= 10


def test_much_text_is_estimated_from_a_part(tmp_path, monkeypatch):
    for number in range(200):
        (tmp_path / f"{number:03}.txt").write_text("word " * 1000)
    monkeypatch.setattr("data.text.survey.MOST_READ_BYTES", 100_000)
    facts, _ = text_facts([tmp_path], Reading())
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
    monkeypatch.setattr("bert.own_text.facts.has_package", lambda name: True)
    found = machine_facts(tmp_path)
    assert found.gpus == gpus and found.gpu_name == ("A100" if gpus else "")
    assert ("CUDA_VISIBLE_DEVICES" in found.note) is (gpus == 0)


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


@pytest.mark.long  # the documents' own command is run by the gate, without the interruption
def test_a_folder_of_odd_files_becomes_a_model_is_interrupted_and_extended(tmp_path):
    odd_files(tmp_path / "odd")
    line = [sys.executable, "-m", "bert.commands", "pretraining", "--text", "odd", "--output-dir", "out"]

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
    assert "importing the text" not in output and "The training is at update" in output
    assert "masked words of held-out sentences" in output and "nearest sentences" in output
    assert "chosen: quickstart" in output and "learned: held-out masked-LM loss" in output
    suggested = [text.strip() for text in output.splitlines() if "   # " in text]
    assert len(suggested) >= 5
    for line in [text for text in suggested if "run_export.py" in text or "--encode" in text]:
        piped = f"cd {tmp_path} && echo 'One sentence.' | {line}"
        done = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr

    process = start("--max-steps", "30")
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0 and "continuing at step" in output, output
    assert json.loads((tmp_path / "out/phase1/summary.json").read_text())["steps"] == 30

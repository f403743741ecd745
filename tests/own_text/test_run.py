"""`run_pretraining.sh --text`, from arguments to results, with stand-ins for training, data and the measurement."""

import dataclasses
import json
import re
import shutil
import string
import time

import pytest
import yaml

from bert.commands import own_text as command
from bert.jobs import training
from bert.jobs.record import JobRecord
from bert.own_text import constants, corpus, start
from bert.own_text.request import read_text_request
from bert.tokenization.vocabulary import SPECIAL_TOKENS
from tests.own_text.workplace import LAPTOP, PREPARE, SENTENCE, STOPPED, unwrapped
from tests.support.launching import line_of
from tests.support.waiting import wait_until

# ---- the plan ----


def test_a_dry_run_estimates_the_speed_and_makes_nothing(workplace, monkeypatch, capsys):
    monkeypatch.delattr(start, "measure_speeds")
    assert workplace.start("--hours 0.5 --dry-run") == 0
    shown = capsys.readouterr().out
    for name in ("text ", "model ", "vocabulary ", "batch ", "schedule ", "updates ", "epochs ", "time ", "disk "):
        assert f"\n{name}" in shown, shown
    assert "sequences/s (estimated)" in unwrapped(shown) and "the real run measures it" in shown
    assert "60 files" in shown and not workplace.out.exists() and not workplace.trained


def test_the_settings_of_the_plan_are_shown_as_yaml_alone(workplace, capsys):
    assert workplace.start("--hours 0.5 --show-config --learning-rate 1e-3") == 0
    shown = capsys.readouterr()
    assert list(yaml.safe_load(shown.out.split("\n\n")[0])) and "reading" not in shown.out and "reading" in shown.err
    assert "estimated speed; the real run measures it" in shown.err
    assert shown.out.count("learning_rate: 0.001") == 1 and shown.out.count("hidden_size: 128") == 1


@pytest.mark.parametrize(
    ("first", "second", "row"),
    [
        ("--hours 0.1", "--hours 0.2", r"\ntime +12\.0 minutes +as given"),
        ("--epochs 2", "--epochs 5", r"\nepochs +5 over the text +as given"),
        ("--max-steps 40", "--max-steps 90", r"\nupdates +90 +as given"),
        ("--hours 0.1", "--hours 0.1 --eval-freq 7", r"\neval-freq +7 +as given +--eval-freq"),
        ("--hours 0.1", "--hours 0.2 --early-stopping 3", r"\nearly stopping +3 evaluations .* as given"),
    ],
)
def test_the_table_of_a_later_start_shows_its_flags(workplace, capsys, first, second, row):
    assert workplace.start(first) == 0
    capsys.readouterr()
    assert workplace.start(f"{second} --dry-run") == 0
    assert re.search(row, shown := unwrapped(capsys.readouterr().out)), shown
    assert workplace.start(first) == 0
    assert not re.search(row, unwrapped(capsys.readouterr().out)), "it is not recorded"


# ---- results ----


def test_results_and_what_it_can_do(workplace, capsys, caplog):
    assert workplace.start("--epochs 3") == 0
    (config,) = workplace.trained
    assert config.run.finish_in is None and config.run.phase == 1 and config.run.expected_steps is None
    (shown,) = workplace.ran
    assert shown[-2:] == ["--show", str(workplace.out / "data/text/held_out/source")]
    output = capsys.readouterr().out
    assert not [line for line in output.splitlines() if len(line) > 100 and "/" not in line]
    commands = " ".join(output.replace("\\\n", "").split())  # a long path breaks them
    assert "run_classify.sh --train YOUR.csv --model" in commands and "run_glue" not in commands
    output = " ".join(output.replace("\\\n", " ").split())
    assert "chosen: quickstart, 2 layers of 128" in output and "learned: held-out masked-LM loss 5.250" in output
    assert "Guessing by frequency alone: 6.00; your model: 5.25: it uses what stands" in output
    assert " 3.00 epochs over" in output and f"--output-dir {workplace.out} --epochs 6" in output
    assert "# train on" in output

    assert workplace.start("--epochs 3") == 0
    again = capsys.readouterr().out
    assert "Already done" in again and "\nTrained before, in " in again
    assert len(workplace.trained) == 1 and len(workplace.ran) == 1

    (weights,) = workplace.out.glob("bert-quickstart/phase1/*/weights")
    weights.write_text("damaged")
    assert workplace.start("--epochs 3") == 0 and len(workplace.trained) == 2
    assert "checkpoint refused" in caplog.text and "Already done" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("figures", "words", "later"),
    [
        ({"eval_masked_lm_loss": 6.1}, "has learned nothing more yet", ""),  # far behind what is expected
        ({"eval_masked_lm_loss": 5.71}, "has learned little yet", "Twice as long brings about 5.2"),
        (STOPPED | {"eval_masked_lm_loss": 5.71}, "has learned little yet", ""),
    ],
)
def test_a_poor_model_is_called_one(workplace, capsys, figures, words, later):
    workplace.figures = figures
    assert workplace.start("--max-steps 200 --learning-rate 3e-3") == 0
    shown = unwrapped(capsys.readouterr().out)
    assert words in shown and "This model is poor" in shown and "--hours" in shown
    assert later in shown and bool(later) == ("Twice as long" in shown)


def test_the_best_model_is_the_result_of_early_stopping(workplace, capsys):
    workplace.figures = STOPPED | {"best_eval_masked_lm_loss": 5.0, "best_step": 3}
    assert workplace.start("--hours 0.5") == 0
    shown = unwrapped(capsys.readouterr().out)
    assert workplace.settings()["early_stopping"] == 5
    assert re.search(r"\nearly stopping +5 evaluations without a lower held-out loss +the best is the result", shown)
    assert re.search(r"stopped early: after update [\d,]+; its held-out loss was lowest after update 3", shown)
    better = "learned: held-out masked-LM loss 5.000 nats after update 3, which is the result (the last had 5.250)"
    assert better in " ".join(shown.split()) and "better before" not in shown
    assert workplace.start("--hours 0.5 --early-stopping 0") == 0 and len(workplace.trained) == 2, "it goes on"
    assert re.search(r"\nearly stopping +off +as given", capsys.readouterr().out)
    assert workplace.settings()["early_stopping"] == 0


def test_a_model_that_was_better_before_is_named(workplace, capsys):
    workplace.figures = {"best_eval_masked_lm_loss": 5.24, "best_step": 300}
    assert workplace.start("--hours 0.1") == 0
    assert "better before" not in capsys.readouterr().out, "a difference within the noise"
    workplace.figures = {"best_eval_masked_lm_loss": 5.0, "best_step": 300}
    assert workplace.start("--hours 0.2") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search("better before: 5.000 nats after update 300, kept in .*/phase1/300;", shown)
    workplace.figures = STOPPED | {"eval_masked_lm_loss": float("nan"), "ends_with_best": False}
    assert workplace.start("--hours 0.4") == 0
    assert "its held-out loss was never finite: lower --learning-rate" in capsys.readouterr().out


def test_nothing_need_be_held_out(workplace, capsys):
    assert workplace.start("--epochs 3 --held-out-fraction 0") == 0
    shown = capsys.readouterr().out
    assert re.search("\nearly stopping +off +nothing is held out", shown) and workplace.settings()["eval_dir"] is None
    assert workplace.ran[0][-1] == str(workplace.out / "data/text/source")
    assert re.search("\nheld out +nothing, so no evaluation +as given", shown) and "uncertain" not in shown


# ---- the length ----


def test_the_time_decides_the_end(workplace):
    """The training gets the seconds that are left; its warm-up is a share of the updates expected in them."""
    assert workplace.start("--hours 0.5") == 0
    (config,) = workplace.trained
    assert 0.5 * 3600 - 30 < config.run.finish_in < 0.5 * 3600
    plan, expected = workplace.record()["plan"], workplace.record()["expected_updates"]
    assert config.run.max_steps > 3 * plan["updates"] and workplace.settings()["lr_schedule"] == "wsd"
    assert config.run.expected_steps == min(expected, plan["updates"])
    assert config.warmup_steps() == config.run.expected_steps // 10
    assert workplace.settings()["warmup_proportion"] == 0.1


def test_the_time_for_the_results_is_kept_free(workplace, monkeypatch):
    """The reserve is the time of the results on a machine as slow as this machine was measured to be."""
    monkeypatch.setattr(constants, "END_SECONDS", 300.0)
    assert workplace.start("--hours 0.5") == 0
    (config,) = workplace.trained
    kept = 300 * workplace.record()["text"]["slowness"]
    assert 1800 - kept - 60 < config.run.finish_in < 1800 - kept


def test_stopped_and_started_again_it_continues_in_the_time_that_is_left(workplace, capsys):
    workplace.stops = [75]
    assert workplace.start("--hours 0.5") == 75
    workplace.spend(600)
    assert workplace.start("--hours 0.5") == 0
    first, second = (config.run for config in workplace.trained)
    assert (first.max_steps, first.expected_steps) == (second.max_steps, second.expected_steps)
    assert first.finish_in - second.finish_in == pytest.approx(600, abs=10)
    assert "The training is at update" in capsys.readouterr().out


def test_more_hours_continue_a_finished_run(workplace):
    assert workplace.start("--hours 0.1") == 0
    workplace.spend(360)
    assert workplace.start("--hours 0.2") == 0
    first, second = (config.run for config in workplace.trained)
    assert second.finish_in == pytest.approx(360, abs=20) and second.max_steps >= first.max_steps
    settings = workplace.settings()
    assert workplace.start("--hours 0.15") == 0 and len(workplace.trained) == 2, "it had more already"
    assert workplace.settings() == settings


def test_hours_that_are_used_up_are_refused_with_remedies_that_work(workplace):
    """The remedies are more hours, --finish-in, or a decay that was recorded."""
    workplace.stops = [75, 75]
    assert workplace.start("--hours 0.1") == 75
    workplace.spend(400)
    error = workplace.refused("--hours 0.1")
    assert "hours=0.1 leave no time for training: 6.7 minutes were used" in error and "--finish-in 5m" in error
    hours = re.search("pass at least --hours ([0-9.]+), which continues", error).group(1)
    assert float(hours) < 0.3
    assert workplace.start("--hours 0.1 --finish-in 5m") == 75 and workplace.trained[-1].run.finish_in == 300
    workplace.spend(400)
    step = max((workplace.out / "bert-quickstart/phase1").glob("*"), key=lambda path: int(path.name))
    progress = {"carried": {"decay": {"first": 1, "last": 10**6}}}
    (step / "bert_paddle_progress.json").write_text(json.dumps(progress))
    workplace.stops = [75]
    assert workplace.start("--hours 0.1") == 75 and workplace.trained[-1].run.finish_in is None
    assert workplace.start(f"--hours {hours}") == 0


def test_a_training_that_ended_after_its_launcher_was_killed_is_finished(workplace, capsys):
    assert workplace.start("--hours 0.1") == 0
    workplace.write_record(finished=None)
    workplace.spend(400)
    assert workplace.start("--hours 0.1") == 0 and len(workplace.trained) == 1
    assert "Already done" in capsys.readouterr().out


def test_a_start_that_is_refused_or_fails_forgets_nothing(workplace):
    assert workplace.start("--hours 0.1") == 0
    workplace.spend(395)
    workplace.refused("--hours 0.11")
    workplace.stops = [1]
    assert workplace.start("--hours 0.2") == 1
    trained = len(workplace.trained)
    assert workplace.start("--hours 0.1") == 0 and len(workplace.trained) == trained
    assert workplace.seconds_used() == pytest.approx(395, abs=5), "looking at results costs no hours"


def test_updates_after_a_training_that_the_time_ended_continue_before_its_decay(workplace):
    workplace.figures = {"decay_from": 5, "last_step": 6}
    assert workplace.start("--hours 0.1") == 0
    assert workplace.start("--max-steps 100000") == 0
    initialization = workplace.trained[-1].initialization
    assert initialization.last_step_of_checkpoint == 5 and initialization.from_pretrained_params is None


def test_a_run_can_be_ended_now(workplace, capsys):
    workplace.stops = [75]
    assert workplace.start("--hours 4") == 75
    assert workplace.start("--hours 4 --finish-in 5m") == 0
    assert workplace.trained[-1].run.finish_in == 300
    assert workplace.start("--hours 4") == 0 and len(workplace.trained) == 2
    capsys.readouterr()
    assert workplace.start("--hours 4 --finish-in 5m") == 0 and len(workplace.trained) == 2
    shown = capsys.readouterr().out
    assert "--finish-in had no effect" in shown and re.search(r"\nend +in 5.0 minutes +as given +--finish-in", shown)


@pytest.mark.parametrize("length", ["epochs", "max-steps"])
def test_a_finished_run_is_extended(workplace, length, capsys):
    assert workplace.start(f"--{length} 20") == 0
    assert workplace.start(f"--{length} 50") == 0
    before, after = (config.run for config in workplace.trained)
    assert after.max_steps > 2 * before.max_steps and "Already done" not in capsys.readouterr().out
    assert workplace.start(f"--{length} 50") == 0 and len(workplace.trained) == 2


def test_a_part_of_the_updates_can_be_made(workplace, capsys):
    assert workplace.start("--max-steps 40 --steps-this-run 25") == 0
    assert "the training has steps left; the same command continues" in capsys.readouterr().out
    assert workplace.start("--max-steps 40 --steps-this-run 25") == 0
    assert json.loads((workplace.out / "phase1/summary.json").read_text())["steps"] == 40


def test_the_time_of_a_start_is_kept_while_it_runs(workplace, monkeypatch):
    """Time that is recorded during a start counts even if the start is killed."""
    monkeypatch.setattr("bert.jobs.record._TICK_SECONDS", 0.01)
    seen = []

    def train(*_, **start):
        wait_until(lambda: workplace.seconds_used() > 100.02)
        seen.append(workplace.seconds_used())
        return 75

    monkeypatch.setattr(training, "launch", train)
    line = line_of("--text", str(workplace.text), "--output-dir", str(workplace.out), "--hours", "0.5")
    assert command.main(line, begun=time.monotonic() - 100) == 75
    assert seen[0] == pytest.approx(100, abs=20) and workplace.seconds_used() >= seen[0]


# ---- a run that has begun ----


def test_a_run_continues_on_another_machine(workplace, monkeypatch, capsys):
    """The other machine changes only devices, ranks and micro-batches."""
    workplace.stops = [75]
    assert workplace.start("--epochs 4 --global-batch-size 24") == 75
    begun = workplace.settings()
    gpus = dataclasses.replace(LAPTOP, gpus=3, gpu_name="A100", gpu_bytes=80 << 30)
    monkeypatch.setattr(start, "machine_facts", lambda output_dir: gpus)
    capsys.readouterr()
    assert workplace.start("--epochs 4") == 0
    changed = {name for name, value in workplace.settings().items() if value != begun.get(name)}
    assert changed == {"batch_size", "device", "cpu_threads", "num_workers"}
    shown = capsys.readouterr().out
    assert re.search(r"\nmicro-batch +8 a rank", shown) and re.search(r"\ndevice +3 x A100 +3 here; float32", shown)


def test_free_space_is_that_of_this_start(workplace, monkeypatch, capsys):
    workplace.stops = [75]
    assert workplace.start("--epochs 4") == 75
    assert "100 GB free" in (first := capsys.readouterr().out) and "GB are needed" not in first
    full = dataclasses.replace(LAPTOP, disk_bytes=9_000_000)
    monkeypatch.setattr(start, "machine_facts", lambda output_dir: full)
    for _ in range(2):  # the warning is not kept twice
        assert workplace.start("--epochs 4 --dry-run") == 0
        shown = unwrapped(capsys.readouterr().out)
        assert re.search(r"\ndisk +about 0.0\d GB +0 GB free", shown), shown
        assert shown.count("GB are needed and 0.0 GB are free") == 1


def test_folders_may_be_named_otherwise(workplace, monkeypatch, capsys):
    """A shell leaves `--output-dir=~/out` as it is; a folder that was moved holds the same text."""
    monkeypatch.setenv("HOME", str(workplace.folder))
    workplace.stops = [75, 75]
    assert workplace.start("--epochs 3") == 75
    assert command.main(line_of("--text", "~/text", "--output-dir", "~/out", "--epochs", "3")) == 75
    assert command.main(line_of("--text", "text", "--output-dir", "out", "--epochs", "3")) == 0
    assert len(workplace.trained) == 3 and not (workplace.folder / "~").exists()
    workplace.text = workplace.text.rename(workplace.folder / "moved")
    assert workplace.start("--epochs 3") == 0
    assert "Already done" in (shown := capsys.readouterr().out) and "were imported" not in shown


def test_a_record_of_a_version_with_fewer_settings_continues(workplace):
    workplace.stops = [75]
    assert workplace.start("--epochs 3") == 75
    record = workplace.record()
    for part, name in (("text", "parts"), ("data", "weights")):
        del record[part][name]
    record["data"]["labelled_lines"] = None  # as commit 88b30792 wrote it
    del record["plan"]["settings"]["hidden_act"]
    record["plan"]["settings"]["hidden_dropout_prob"] = 0.0
    workplace.leave_old_record(record, seconds_used=500)
    (workplace.out / "phase1.yaml").unlink()
    assert workplace.start("--epochs 3") == 0
    assert workplace.seconds_used() >= 500 and workplace.record()["finished"]["epochs"] == 3


DAMAGED = "is damaged; restore it, or pass another --output-dir"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("own_text.json", '{"version": 2, "speeds": 3}', DAMAGED),
        ("own_text.json", "{cut", DAMAGED),
        ("own_text.json", '{"version": 2, "seconds_used": []}', DAMAGED),
        ("own_text.json", '{"speeds": [], "steps": {"1": 5}}', "is of an earlier version, which trained in two phases"),
        ("job.json", "{cut", DAMAGED),
        ("job.json", '{"facts": {"own_text": []}}', DAMAGED),
    ],
)
def test_a_record_that_cannot_be_read_is_refused_in_one_line(workplace, name, content, message):
    workplace.out.mkdir()
    (workplace.out / name).write_text(content)
    assert f"{name} {message}" in (error := workplace.refused("--hours 1")) and error.count("\n") == 1


@pytest.mark.parametrize("name", ["0.txt", "added.txt"])
def test_a_run_goes_on_with_the_text_that_it_has(workplace, capsys, name):
    """Files that are changed or added later are not taken in."""
    assert workplace.start("--hours 0.1") == 0
    assert workplace.start("--hours 0.1") == 0
    assert "were imported" not in capsys.readouterr().out
    (workplace.text / name).write_text(SENTENCE * 10)
    workplace.text = workplace.text / "../text"
    assert workplace.start("--hours 0.2") == 0 and len(workplace.trained) == 2
    shown = capsys.readouterr().out
    assert re.search("warning: the files of .* are not those that were imported; the training goes on with", shown)
    assert re.search("--from-pretrained-params .*/out --output-dir NEW continues the model on the new text", shown)

    (other := workplace.folder / "other").mkdir()
    (other / "new.txt").write_text(SENTENCE * 10)
    refused = workplace.refused(f"--text {other} --hours 0.1")
    assert re.search("text=.*/other differs from .*/text of the run in .*--from-pretrained-params", refused)


def test_data_that_are_gone_are_made_again_only_of_the_same_files(workplace, monkeypatch):
    assert workplace.start("--max-steps 9") == 0
    monkeypatch.setattr(corpus, "prepare", PREPARE)
    number = len(workplace.ran)
    assert "should exist after" in workplace.refused("--max-steps 12") and len(workplace.ran) == number + 1
    (workplace.text / "7.txt").write_text(SENTENCE * 90)
    shown = workplace.refused("--max-steps 12")
    assert re.search("error: the data of the run in .* are gone .*, and files of --text are not as they were", shown)
    assert len(workplace.ran) == number + 1 and len(workplace.trained) == 1
    request = read_text_request(line_of("--text", str(workplace.text), "--output-dir", str(workplace.out)))
    record = start.record_of(request, JobRecord.of(workplace.out))
    config = start.training_config(request, record)
    for name in ("vocab.txt", "shards/train/manifest.json", "shards/held_out/manifest.json"):
        (file := workplace.out / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert PREPARE(request, record.plan, config, workplace.run, files="other", keep_existing=True) == 0, "without text"


def test_a_vocabulary_smaller_than_planned_is_of_the_run_when_its_data_are_gone(workplace, monkeypatch, capsys):
    vocabulary = workplace.out / "data/vocab.txt"
    vocabulary.parent.mkdir(parents=True)
    vocabulary.write_text("word\n" * 110)
    assert workplace.start("--max-steps 9") == 0 and workplace.settings()["vocab_size"] == 110
    shutil.rmtree(vocabulary.parent)
    assert workplace.start("--max-steps 9") == 0 and "Already done" in capsys.readouterr().out
    monkeypatch.setattr(corpus, "prepare", PREPARE)
    assert "should exist after" in workplace.refused("--max-steps 12"), "made again"


def vocabulary_of(workplace, *words: str) -> str:
    file = workplace.folder / "mine.txt"
    letters = [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase)]
    file.write_text("\n".join([*SPECIAL_TOKENS, *letters, *words]) + "\n")
    return str(file)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("--epochs 1 --lr-schedule cosine", "--lr-schedule cosine --hours 0.2", "lr_schedule=cosine needs the number"),
        ("--max-steps 4000000", "--max-steps 2000000", "max_steps=2000000 must be at least the 4,000,000 updates"),
        ("--max-steps 40", "--epochs 0.05", "epochs=0.05 are [0-9]+ updates and must be at least the 40 "),
        ("--epochs 2", "--epochs 2 --config mini", "config=mini differs from quickstart of the run in"),
        ("--epochs 2", "--epochs 2 --learning-rate 0.5", "learning_rate=0.5 differs from"),
        (
            "--epochs 2 --global-batch-size 32",
            "--epochs 2 --global-batch-size 8 --batch-size 16",  # 16 does not divide 8, which is not the reason
            "global_batch_size=8 differs from 32 of the run in .*; drop --global-batch-size, or pass another",
        ),
        ("--hours 0.1", "--hours 0.1 --held-out-fraction 0.3", "held_out_fraction=0.3 differs from"),
        ("--hours 0.1", "--hours 0.1 --vocab-size 3000", "vocab_size=3000 differs from"),
        ("--hours 0.1", "--hours 0.1 --deduplicate near", "deduplicate=near differs from"),
        ("--epochs 2", "--epochs 2 --vocab-file mine.txt", "error: the vocabulary differs from that with which"),
    ],
)
def test_what_contradicts_the_run_is_refused(workplace, first, second, message):
    vocabulary_of(workplace, "report")
    assert workplace.start(first) == 0
    assert re.search(message, workplace.refused(second))


def test_a_given_vocabulary_decides_its_size_and_case(workplace):
    file = vocabulary_of(workplace, "Report", *string.ascii_uppercase)
    assert workplace.start(f"--vocab-file {file} --epochs 2") == 0
    assert workplace.settings()["vocab_size"] == 5 + 2 * 26 + 27
    assert workplace.record()["data"]["lowercase"] is False
    assert "vocab_file=none.txt must be an existing vocabulary" in workplace.refused("--vocab-file none.txt")


def test_a_missing_folder_is_refused_before_anything(workplace, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(line_of("--text", "nowhere", "--hours", "1"))
    assert ended.value.code == 2 and "nowhere" in capsys.readouterr().err

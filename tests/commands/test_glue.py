"""Arguments of `run_glue.sh`, and the settings that they stand for."""

from pathlib import Path

import pytest

from bert.commands.__main__ import main
from bert.commands.fine_tuning import planned_of
from bert.glue.config import GlueConfig
from bert.jobs.job import Execution
from bert.jobs.record import JobRecord
from bert.launching.start_training import Runner
from bert.tokenization.vocabulary import SPECIAL_TOKENS
from tests.support.commands import refused
from tests.support.launching import LAUNCHERS


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def plan(words, name="glue"):
    """Return (entry point, settings, ranks)."""
    task = LAUNCHERS[name]
    found = planned_of(task, words).plan
    return task.entry, found.phases[0], found.ranks


def test_a_start_checks_the_files_once(weights, tmp_path, monkeypatch):
    """A dry run on another machine checks the files that the user named, and leaves the others."""
    (tmp_path / "notes.csv").write_text("text,label\nfine,a\nbad,b\n" * 20)
    words = ["--train", str(tmp_path / "notes.csv"), "--model", str(weights), "--device", "cpu", "--output-dir", "out"]
    job, checked = planned_of(LAUNCHERS["classify"], words).job, []
    monkeypatch.setattr(GlueConfig, "check_files", lambda self: checked.append(self.run.output_dir))
    job.check(here=True)
    assert checked == [Path("out")]
    checked.clear()
    job.check(here=False)
    assert checked == [Path("out")]


def test_a_task_its_folder_and_a_checkpoint(weights):
    entry, config, ranks = plan(["mrpc", "/data/MRPC", str(weights), "--device", "cpu", "--epochs", "2"])
    assert entry.script == "run_glue.py" and config.stage() == "glue-mrpc" and ranks.num_processes == 1
    assert config.data.data_dir == Path("/data/MRPC") and config.model.hidden_size == 48
    assert (config.run.epochs, config.batch.global_batch_size, config.optimizer.learning_rate) == (2, 32, 2e-5)
    assert config.run.do_train and config.run.do_eval and not config.run.do_predict


def test_the_diagnostics_are_predicted_only(weights):
    _, config, _ = plan(["AX", "/data/AX", str(weights), "--device", "cpu"])
    assert config.run.do_predict and not config.run.do_train


def test_a_task_alone_is_trained_by_its_recipe_on_data_to_be_fetched(weights, monkeypatch):
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", "/d")
    words = ["--task-name", "mrpc", "--from-pretrained-params", str(weights), "--device", "cpu"]
    config = plan([*words, "--download"])[1]
    assert config.data.data_dir == Path("/d/download/glue/MRPC") and config.run.do_train and config.run.epochs == 5
    for spelling in ("MRPC", "m_r-pc"):
        assert plan(["--task-name", spelling, *words[2:], "--data-dir", "/data"])[1].run.epochs == 5
    config = plan([*words, "--do-predict", "--data-dir", "/data"])[1]
    assert config.run.do_predict and not config.run.do_train  # as it says


def test_files_without_a_task_are_the_users_own_and_never_get_the_quickstart(weights):
    named = ["--from-pretrained-params", str(weights), "--device", "cpu"]
    for mode in ("predict", "eval", "train"):
        config = plan([*named, f"--do-{mode}", f"--{mode}-file", "mine.tsv"])[1]
        assert config.data.task_name == "custom" and config.run.epochs == 2
        assert config.run.do_train == (mode == "train") and config.data.train_file in (None, Path("mine.tsv"))
    config = plan([*named, "--train-file", "mine.tsv"])[1]  # files say what to do
    assert config.run.do_train and config.run.do_eval and config.holds_out() and not config.run.do_predict
    config = plan([*named, "--eval-file", "mine.tsv", "--predict-file", "new.tsv"])[1]
    assert not config.run.do_train and config.run.do_eval and config.run.do_predict
    with pytest.raises(ValueError, match="--task-name must be given"):
        plan([*named, "--data-dir", "/data", "--do-predict"])


@pytest.mark.parametrize("processes, per_pass", [(1, 32), (2, 16), (4, 8), (32, 1)])
def test_the_global_batch_is_the_same_on_any_number_of_ranks(weights, processes, per_pass):
    _, config, _ = plan(["RTE", "/data", str(weights), "--device", "cpu", "--num-processes", str(processes)])
    assert config.batch.batch_size == per_pass
    assert config.batch.resolved_global_batch_size(processes) == 32


@pytest.mark.parametrize(
    ("recipe", "epochs", "batch", "rate", "warmup", "amp"),
    [
        ("sst-2", 3, 32, 2e-5, 0.1, False),
        ("mrpc", 5, 32, 2e-5, 0.1, False),
        ("cola_large", 3, 128, 2.4e-5, 0.1, True),  # NVIDIA's run_glue.sh and glue_config.sh
        ("mnli_large", 3, 128, 2.4e-5, 0.1, True),
        ("mrpc_large", 3, 128, 1.8e-5, 0.3, True),
        ("sst-2_large", 3, 1024, 1e-5, 0.1, True),
    ],
)
def test_published_settings(weights, recipe, epochs, batch, rate, warmup, amp):
    _, config, _ = plan(
        ["--config", recipe, "--data-dir", "/data", "--from-pretrained-params", str(weights), "--device", "cpu"]
    )
    optimizer = config.optimizer
    assert (config.run.epochs, config.batch.global_batch_size, optimizer.learning_rate) == (epochs, batch, rate)
    assert (optimizer.warmup_proportion, optimizer.weight_decay, optimizer.end_learning_rate) == (warmup, 0.01, 0)
    assert (config.data.max_seq_length, config.precision.amp) == (128, amp)
    assert config.run.do_train and config.run.do_eval and config.run.keep_best


def test_a_quickstart_has_its_own_folder_unless_another_is_named(weights):
    named = ["--from-pretrained-params", str(weights), "--device", "cpu", "--max-seq-length", "64"]
    entry, config, _ = plan(["--config", "quickstart_entities", *named], "ner")
    assert (entry.script, config.stage()) == ("run_ner.py", "ner")
    assert config.run.output_dir == Path("results/glue_quickstart/entities")
    entry, config, ranks = plan(["--config", "quickstart_pairs", *named, "--output-dir", "mine"])
    assert (entry.script, config.run.output_dir) == ("run_glue.py", Path("mine"))
    assert config.batch.resolved_global_batch_size(ranks.num_processes) == 16


WORDS = [*SPECIAL_TOKENS, "note", "of", "number", *map(str, range(60)), *(f"w{number}" for number in range(9))]
ROWS = "note;urgency\n" + "".join(f"note of number {row};{'no yes'.split()[row % 3 == 0]}\n" for row in range(60))


def test_a_table_is_enough_to_train_a_classifier(weights, tmp_path):
    (tmp_path / "notes.csv").write_text(ROWS)
    words = ["--train", "notes.csv", "--device", "cpu", "--model", str(weights)]
    config = plan(words, "classify")[1]
    data, run = config.data, config.run
    assert (data.text_column, data.label_column, data.regression) == ("note", "urgency", False)
    assert config.holds_out() and run.output_dir == Path("results/classify-notes") and run.epochs == 20
    assert config.batch.batch_size == 16 and config.optimizer.learning_rate > 5e-5  # the model is small
    config = plan([*words, "--eval", "notes.csv", "--epochs", "2", "--output-dir", "out"], "classify")[1]
    assert not config.holds_out() and config.run.epochs == 2 and config.run.output_dir == Path("out")


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ([], "--train FILE must be given"),
        (["--train", "notes.csv", "--eval", "notes.csv", "--cross-validate", "5"], "omit --eval"),
        (["--train", "notes.csv", "--cross-validate", "1"], "must be greater than or equal to 2"),
        (["--train", "notes.csv", "--cross-validate", "4", "--fold", "1"], "omit --fold and --folds"),
        (["--train", "notes.csv", "--fold", "7"], "fold=7 must be below folds=5"),
        (["--train", "notes.csv", "--wanted-recall", "0.9"], "pass --positive-label"),
        (
            ["--train", "notes.csv", "--label-column", "urgncy", "--dry-run"],
            "no column 'urgncy'.*did you mean urgency?",
        ),
        (["--train", "notes.csv", "--group-column", "patient", "--dry-run"], "--group-by names the right one"),
        (["--train", "notes.csv", "--positive-label", "yess", "--dry-run"], "did you mean yes?"),
        (["--train", "notes.csv", "--best-by", "recal:yes", "--dry-run"], "did you mean recall:yes?"),
        (["--train", "notes.csv", "--label-separator", ";", "--balance", "--dry-run"], "a text has one; omit them"),
    ],
)
def test_mistakes_of_a_classifier_are_refused_before_the_start(weights, tmp_path, words, rule):
    (tmp_path / "notes.csv").write_text(ROWS)
    (weights / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    with refused(rule.replace("?", r"\?")):
        main(["classify", *words, "--model", str(weights), "--device", "cpu"])


def test_a_dry_run_of_a_cross_validation_is_that_of_its_first_part(weights, tmp_path, capfd):
    (tmp_path / "notes.csv").write_text(ROWS)
    (weights / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    words = ["--train", "notes.csv", "--cross-validate", "3", "--model", str(weights), "--device", "cpu", "--dry-run"]
    assert main(["classify", *words]) == 0
    said = capfd.readouterr()
    assert "held out: 20 of 60 rows (part 0 of 3" in said.out + said.err and "one of 3 trainings" in said.err


@pytest.mark.parametrize(("more", "seconds"), [([], 36), (["--cross-validate", "3"], 12), (["--seeds", "2"], 18)])
def test_a_dry_run_with_hours_says_how_many_updates_fit_in_the_part_of_a_training(
    more, seconds, weights, tmp_path, capfd
):
    (tmp_path / "notes.csv").write_text(ROWS)
    (weights / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    words = ["--train", "notes.csv", "--model", str(weights), "--device", "cpu", "--dry-run", "--epochs", "99999999"]
    assert main(["classify", *words, "--hours", "0.01", *more]) == 0
    shown = " ".join(capfd.readouterr().out.split())
    assert (
        f"time {seconds} seconds, in which about" in shown and "updates fit" in shown and "0.01 hours in all" in shown
    )


def test_the_help_of_a_classifier_has_no_flags_of_published_tasks(capsys):
    with pytest.raises(SystemExit):
        plan(["--help"], "classify")
    shown = capsys.readouterr().out
    assert "--label-column" in shown and not any(flag in shown for flag in ("--task-name", "--data-dir", "--download"))


def test_entities_have_a_script_of_their_own(weights, capsys):
    named = ["--from-pretrained-params", str(weights), "--device", "cpu", "--max-seq-length", "64"]
    assert plan(named, "ner") == plan(["--config", "quickstart_entities", *named], "ner")
    entry, config, _ = plan([*named, "--train-file", "a", "--eval-file", "b", "--do-train"], "ner")
    assert entry.script == "run_ner.py" and config.data.train_file == Path("a") and config.run.epochs == 2
    with pytest.raises(ValueError, match="mrpc must be a flag, there are no positional arguments"):
        plan(["mrpc", *named], "ner")
    with pytest.raises(SystemExit):
        plan(["--help"], "ner")
    assert "run_ner.sh [--config NAME] [flags]" in capsys.readouterr().out


def test_the_quickstart_makes_its_vocabulary_where_there_is_no_model(tmp_path, capsys):
    job = planned_of(LAUNCHERS["glue"], ["--device", "cpu"]).job
    assert "There is no pre-trained model" in capsys.readouterr().out and not any(tmp_path.iterdir())
    execution = Execution(job, JobRecord(job.output_dir), Runner())
    (training, _) = job.steps
    for step in training.needs():
        assert execution.run(step) == 0
    config = training.settled(execution).config
    tokens = config.data.vocab_file.read_text().splitlines()
    assert tokens[0] == "[PAD]" and len(tokens) == config.model.vocab_size <= 1024
    config.check_files()


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["mrpc"], "1 positional arguments .mrpc. must be TASK DATA_DIR CHECKPOINT"),
        (["mrcp", "/data", "model"], "task_name='mrcp' is not one of"),
        (["mrpc", "/data", "model", "--config", "rte"], "config=rte contradicts"),
        (["--config", "mrpc", "--data-dir", "/data", "--epoch", "3"], "did you mean --epochs"),
    ],
)
def test_mistakes_are_refused(words, rule):
    with refused(rule):
        main(["glue", *words, "--device", "cpu"])


@pytest.mark.parametrize("wrong", [["--unpad", "sideways"], ["--epochs", "-3"], ["--learning-rate", "fast"]])
def test_the_quickstarts_make_nothing_for_settings_that_are_wrong(wrong, tmp_path):
    for name in ("glue", "ner"):
        with pytest.raises(ValueError):
            plan([*wrong, "--device", "cpu"], name)
    assert not any(tmp_path.iterdir())

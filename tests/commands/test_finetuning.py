"""Behaviour that the launchers of all fine-tuning tasks share."""

import json
import math
import time

import pytest

from bert.commands import classify
from bert.commands.__main__ import main
from bert.commands.fine_tuning import evaluation_scores, planned_of, result_lines
from bert.config.training_settings import derive
from bert.launching import ranks as launch_ranks
from bert.launching.ranks import Ranks
from bert.reporting.curves import curves_command
from bert.reporting.progress import duration, metrics_line
from tests.support.commands import refused
from tests.support.fake_hub import tiny_model
from tests.support.launching import LAUNCHERS


def plan(words):
    return planned_of(LAUNCHERS["glue"], words).plan


@pytest.fixture
def words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    return ["--config", "small_pairs", "--bert-model", "bert-tiny", "--vocab-file", "vocab.txt", "--device", "cpu"]


def test_flags_are_shared_between_the_launcher_and_the_settings(words):
    found = plan([*words, "--num-gpus", "2", "--seed", "5"])
    assert (found.ranks.num_processes, found.phases[0].run.seed, found.phases[0].run.epochs) == (2, 5, 6.0)
    with pytest.raises(ValueError, match="--num-node is not a flag; did you mean --num-nodes?"):
        plan([*words, "--num-node", "2"])


def test_without_a_number_there_is_a_rank_for_each_gpu(words, monkeypatch):
    monkeypatch.setattr(launch_ranks, "num_gpus", lambda: 4)
    assert plan(words).ranks == Ranks()
    assert plan([*words, "--device", "auto"]).ranks == Ranks(num_processes=4)


@pytest.mark.parametrize(("name", "recipe"), [("squad", "squad_base"), ("glue", "mrpc"), ("ner", "conll2003")])
def test_a_plan_needs_nothing_but_the_settings(name, recipe, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([name, "--config", recipe, "--plan", "--hardware", "8xA100-80GB"]) == 0
    assert "memory     " in (shown := capsys.readouterr().out) and "sequences/s on all devices" in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["squad", "glue", "ner"])
def test_a_folder_that_cannot_be_written_is_refused_in_one_line_before_any_work(name, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with refused(r"\Aerror: file/results: Not a directory; .*\n\Z"):
        main([name, "--output-dir", "file/results"])
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("question", ["--dry-run", "--show-config"])
@pytest.mark.parametrize("name", ["glue", "squad"])
def test_questions_about_a_quickstart_start_and_write_nothing(name, question, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(
        "bert.launching.start_training.start_process", lambda *_, **__: pytest.fail("started a process")
    )
    assert main([name, question, "--output-dir", "out", "--num-gpus", "2", "--device", "cpu"]) == 0
    shown = capfd.readouterr().out
    assert ("vocab_file: out/data/vocab.txt" in shown) if question == "--show-config" else ("2 ranks = " in shown)
    assert not list(tmp_path.iterdir())


def test_a_dry_run_without_data_shows_what_the_settings_decide(capfd):
    assert main(["ner", "--config", "conll2003", "--dry-run"]) == 0
    shown = capfd.readouterr().out
    assert "not read: do_train=true needs train_file" in shown and "steps      3 epochs" in shown and "memory" in shown


def test_scores_are_shown_as_people_write_them():
    glue_scores = {"eval_accuracy": 0.885, "eval_f1": 0.54, "eval_matthews": 0.5211, "eval_loss": 0.3}
    shown = [format(glue_scores[name], form) for _, name, form in evaluation_scores(glue_scores)]
    assert shown == ["88.5%", "54.0%", "0.5211", "0.3000"]
    assert metrics_line(glue_scores) == "accuracy 88.5%  f1 54.0%  matthews 0.5211  loss 0.3000"
    assert metrics_line({"eval_exact_match": 80.8123, "eval_f1": 88.1}) == "exact_match 80.81  f1 88.10"
    durations = [duration(seconds) for seconds in (1, 48.4, 402, 9000, 900_000, math.inf, math.nan)]
    assert durations == ["1 second", "48 seconds", "6.7 minutes", "2.5 hours", "10.4 days", "unknown", "unknown"]


def test_the_results_are_a_table_and_the_best_weights_come_first(words):
    (found,) = plan(words).phases
    folder = found.stage_dir()
    (folder / "benchmark").mkdir(parents=True)
    (folder / "summary.json").write_text(json.dumps({"eval_f1": 0.5}))
    purpose, command = curves_command(folder)
    (folder / "benchmark/summary.json").write_text(json.dumps({"training_sequences_per_second": 7.25}))

    rows = (("F1", "eval_f1", ".2f"), ("recall", "eval_recall", ".2f"))
    figures = {"eval_f1": 0.5, "best_step": 200, "last_eval_f1": 0.4, "last_step": 1400}

    def lines(config):
        return [line.split() for line in result_lines(config, rows)]

    *shown, commands = lines(found)
    assert shown == [[], ["F1", "0.50"], [], ["Predictions", "and", "summary.json:", str(folder)]]
    assert [word for word in commands if word != "\\"] == ["Next,", "try:", "#", *purpose.split(), *command.split()]
    (folder / "summary.json").write_text(json.dumps(figures))
    best = [["best", "evaluation,", "after", "update", "200"], ["F1", "0.50"]]
    assert lines(found)[1:5] == [*best, ["last", "update", "1,400"], ["F1", "0.40"]]
    config = derive(found, benchmark=True)
    throughput = ["training,", "sequences/s", "7.2"]
    assert lines(config) == [[], throughput, [], ["Summary:", f"{folder}/benchmark/summary.json"]]
    (folder / "benchmark/summary.json").write_text(json.dumps({"training_sequences_per_second": None}))
    nothing = ["nothing", "was", "measured"]
    assert lines(config) == [[], [], nothing, ["Summary:", f"{folder}/benchmark/summary.json"]]
    model = config.checkpoint_dir()
    (model / "7").mkdir(parents=True)
    assert f"run_predict.py {model}" in " ".join(lines(found)[-1]).replace("\\ ", "")


def test_hours_are_refused_with_a_schedule_that_needs_the_updates(words):
    assert plan([*words, "--hours", "1"]).phases[0].optimizer.lr_schedule == "wsd"
    with pytest.raises(ValueError, match="lr_schedule=cosine needs the number of updates, which --hours=1 leaves open"):
        plan([*words, "--hours", "1", "--lr-schedule", "cosine"])


def test_texts_that_are_not_english_are_not_classified_with_an_english_model(tmp_path):
    """The cases: German without a model named, German with one, and English. The texts were written for this test."""
    german = "Der Server ist nicht erreichbar, und wir haben es mit dem Router für das Büro auf die alte Art versucht."
    english = "The server is not reachable, and we have tried it with the router of the office in the old way."
    for name, text in (("de", german), ("en", english)):
        rows = [f"{text} {number}\t{number % 2}" for number in range(40)]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows]), "utf-8")
    names = "--train", str(tmp_path / "de.tsv"), "--output-dir", str(tmp_path / "out")
    with pytest.raises(
        ValueError, match=r"not English. Without --model bert-base-uncased would be downloaded \(440 MB\)"
    ):
        classify.planned([*names, "--dry-run"])
    for words in ([*names, "--model", "bert-base-uncased"], ["--train", str(tmp_path / "en.tsv"), *names[2:]]):
        try:
            classify.planned([*words, "--dry-run"])
        except ValueError as error:  # the model is not here
            assert "not English" not in str(error)


def test_a_missing_file_is_named_beside_a_model_that_is_not_here(tmp_path):
    """An earlier version named only the model, and the file after the model was there."""
    file, model = tmp_path / "none.tsv", tmp_path / "model"
    with pytest.raises(ValueError) as refusal:
        classify.planned(["--train", str(file), "--model", str(model), "--dry-run"])
    assert str(model) in str(refusal.value)
    assert f"train_file={file} must be an existing file; check --train-file" in str(refusal.value)


def test_a_command_says_what_it_reads_and_asks_about_columns_after_the_first_rows(tmp_path, capfd):
    """An earlier version read 5,000 rows once for each column, silently, for two minutes before this question."""
    rows = [
        f"{number},subject {number},a text of some words {number},{'ab'[number % 2]},{'xyz'[number % 3]}"
        for number in range(12_000)
    ]
    (file := tmp_path / "a.csv").write_text("\n".join(["id,subject,body,queue,priority", *rows]))
    begun = time.process_time()
    for name, content in tiny_model().items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(SystemExit):
        main(["classify", "--train", str(file), "--model", str(tmp_path), "--output-dir", str(tmp_path / "out")])
    assert time.process_time() - begun < 3, "CPU seconds"
    told, asked = capfd.readouterr().err.splitlines()
    assert told == f"reading {file}, 0.6 MB ..."
    assert (
        asked == f"error: {file}: which column holds the labels? it may be 'queue' or 'priority'; pass --label-column"
    )

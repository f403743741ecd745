"""Arguments of `run_squad.sh`, and the settings that they stand for."""

import json
import subprocess
from pathlib import Path

import pytest

from bert import REPOSITORY, interpreter
from bert.checkpoints.directories import write_manifest
from bert.commands import fine_tuning, squad
from bert.conversion.usage import READER_FILE
from bert.finetuning.config import usual_settings
from bert.finetuning.squad.answer_settings import ReaderSettings
from bert.jobs.job import Execution, execute
from bert.jobs.record import JobRecord
from bert.launching.settings import LaunchPlan
from bert.launching.start_training import Runner
from tests.support.commands import refused
from tests.support.launching import LAUNCHERS
from tests.support.squad_files import file_of, paragraph, question


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", "/prep")


def plan(words) -> LaunchPlan:
    return fine_tuning.planned_of(LAUNCHERS["squad"], words).plan


def settings(*words: str):
    found = plan([*words, "--device", "cpu"])
    return found.phases[0], found.ranks


def test_positional_arguments_in_the_known_order(weights):
    words = "3 16 5e-5 0.1 tf32 2 7 /data/v1.1 - /out eval None 50 true 11 12 false"
    config, ranks = settings(str(weights), *words.split())
    run, optimizer = config.run, config.optimizer
    assert (run.epochs, config.batch.batch_size) == (3, 16)
    assert (optimizer.learning_rate, optimizer.warmup_proportion) == (5e-5, 0.1)
    assert (config.precision.amp, config.precision.tf32, ranks.num_processes, run.seed) == (False, "on", 2, 7)
    assert config.data.predict_file == Path("/data/v1.1/dev-v1.1.json") and run.output_dir == Path("/out")
    assert (run.do_train, run.do_eval, run.do_predict) == (False, True, True)
    assert (run.max_steps, run.benchmark, run.benchmark_steps, run.benchmark_warmup_steps) == (50, True, 11, 12)
    assert (config.hardware.fuse_mha, config.hardware.fuse_attention) == (False, "off")
    assert config.model.hidden_size == 48
    assert config.data.vocab_file == weights / "vocab.txt"


def test_the_published_recipe_is_what_the_defaults_say():
    config, ranks = settings("-")
    assert (config.run.epochs, config.batch.batch_size, config.optimizer.learning_rate) == (2, 32, 4.6e-5)
    assert (config.optimizer.optimizer, config.optimizer.warmup_proportion) == ("AdamW", 0.2)
    data = config.data
    assert (data.max_seq_length, data.doc_stride, data.max_query_length) == (384, 128, 64)
    assert (data.n_best_size, data.max_answer_length) == (20, 30)
    assert config.precision.amp and config.precision.scale_loss == 128 and ranks.num_processes == 8
    assert data.train_file == Path("/prep/download/squad/v1.1/train-v1.1.json")
    assert config.run.bert_model == "bert-large-uncased"
    assert config.run.do_train and config.run.do_eval and config.run.do_predict


@pytest.mark.parametrize("precision", ["amp", "tf32"])
def test_the_presets_of_the_shell_and_by_name_agree(precision):
    name = f"dgxa100-80g_8gpu_{precision}"
    line = f"source {REPOSITORY}/scripts/configs/squad_config.sh && {name}"
    words = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout.split()
    words[0] = "-"  # the checkpoint is not here
    typed, ranks = settings(*words)
    named, other = settings("--config", name)
    assert ranks == other and ranks.num_processes == 8
    for section in ("optimizer", "precision", "batch", "model"):
        assert getattr(typed, section) == getattr(named, section)


def test_version_2_goes_by_the_folder(weights):
    start = ["--config", "squad", "--from-pretrained-params", str(weights)]
    config, _ = settings(*start, "--squad-dir", "/d/v2.0", "--mode", "train")
    assert config.data.version_2_with_negative and config.data.train_file == Path("/d/v2.0/train-v2.0.json")
    assert config.run.do_train and not config.run.do_eval
    config, _ = settings(*start, "--squad-dir", "/d/v2.0", "--no-version-2-with-negative", "--do-predict")
    assert not config.data.version_2_with_negative and not config.run.do_train


def test_published_questions_to_be_fetched(weights, monkeypatch):
    monkeypatch.setenv("BERT_PREP_WORKING_DIR", "/d")
    config = plan(["--download", "--from-pretrained-params", str(weights), "--device", "cpu"]).phases[0]
    assert config.data.train_file == Path("/d/download/squad/v1.1/train-v1.1.json") and config.run.do_train
    assert config.data.predict_file == Path("/d/download/squad/v1.1/dev-v1.1.json") and config.run.do_eval


def test_without_arguments_a_small_model_on_questions_of_this_project(capsys):
    (config,), ranks = plan([]).phases, plan([]).ranks
    assert config.run.bert_model == "bert-quickstart" and ranks.num_processes in (1, 2)
    assert "the weights are random" in capsys.readouterr().out
    job = fine_tuning.planned_of(LAUNCHERS["squad"], []).job
    execution = Execution(job, JobRecord(job.output_dir), Runner())
    for step in job.steps[0].needs():
        assert execution.run(step) == 0
    made = job.steps[0].settled(execution).config
    assert len(config.data.vocab_file.read_text().splitlines()) == made.model.vocab_size <= config.model.vocab_size
    assert made.data.train_file.is_file() and made.data.predict_file.is_file()


def test_weights_alone_are_tried_on_questions_of_this_project_with_and_without_answer(weights):
    config, _ = settings("--from-pretrained-params", str(weights))
    assert config.data.version_2_with_negative and config.data.train_file.name == "train.json"
    assert config.model.hidden_size == 48 and config.optimizer.learning_rate == 1e-4


@pytest.mark.parametrize("processes, per_pass", [("1", 8), ("2", 4), ("8", 1)])
def test_the_questions_of_this_project_are_learned_with_one_global_batch_on_any_number_of_ranks(
    weights, processes, per_pass
):
    for recipe in ("squad_small", "squad_quickstart"):
        named = ["--config", recipe, "--from-pretrained-params", str(weights), "--num-processes", processes]
        batch = settings(*named)[0].batch
        assert (batch.batch_size, batch.resolved_global_batch_size(int(processes))) == (per_pass, 8)


@pytest.mark.parametrize(
    ("words", "modes"),
    [
        ([], (False, False, True)),
        (["--do-train"], (True, False, True)),
        (["--do-train", "False"], (False, False, True)),
        (["--mode", "eval"], (False, True, True)),
    ],
)
def test_a_file_of_settings_says_itself_what_to_do(words, modes, weights, tmp_path):
    questions = tmp_path / "questions.json"
    questions.write_text(json.dumps({"version": "1.1", "data": []}))
    file = tmp_path / "settings.yaml"
    lines = {"do_train": "false", "do_eval": "false", "do_predict": "true", "from_pretrained_params": weights}
    lines |= {"predict_file": questions, "train_file": questions}
    file.write_text("".join(f"{name}: {value}\n" for name, value in lines.items()))
    run = plan(["--config", str(file), *words]).phases[0].run
    assert (run.do_train, run.do_eval, run.do_predict) == modes


def test_data_of_the_users_own_never_gets_the_settings_of_the_quickstart(weights):
    config, _ = settings("--from-pretrained-params", str(weights), "--squad-dir", "/d/v1.1")
    assert config.optimizer.learning_rate == 4.6e-5 and config.data.max_seq_length == 384
    config, _ = settings("--from-pretrained-params", str(weights), "--predict-file", "f.json", "--do-predict")
    assert config.data.max_seq_length == 384 and not config.run.do_train


def test_rate_and_epochs_follow_the_users_own_questions_and_the_model(weights, tmp_path):
    file = file_of(tmp_path / "own.json", paragraph("The Nile.", question("q", "What?", ("Nile", 4))))
    words = ["--from-pretrained-params", str(weights), "--train-file", str(file), "--predict-file", str(file)]
    words += ["--output-dir", str(tmp_path / "out")]
    config = settings(*words)[0]
    usual = usual_settings(1, config.model.model_dump())
    assert (config.run.epochs, config.optimizer.learning_rate) == (usual["epochs"], usual["learning_rate"])
    length = min(384, config.model.max_position_embeddings)
    assert (config.data.max_seq_length, config.data.doc_stride) == (length, min(128, length // 3))
    named = settings(*words, "--config", "squad_small", "--epochs", "2")[0]
    assert (named.run.epochs, named.optimizer.learning_rate) == (2, 1e-4)
    assert settings(*words, "--learning-rate", "0.5")[0].optimizer.learning_rate == 0.5
    (tmp_path / "out").mkdir()
    (tmp_path / "out/squad.yaml").write_text("learning_rate: 4.6e-05\nepochs: 2.0\nbatch_size: 32\n")
    earlier = settings(*words)[0]
    assert (earlier.run.epochs, earlier.optimizer.learning_rate) == (2, 4.6e-5), "a run goes on as it began"


def test_without_training_windows_and_answers_are_those_of_the_training_of_the_weights(weights):
    kept = ReaderSettings(
        max_seq_length=99,
        doc_stride=33,
        max_query_length=22,
        n_best_size=7,
        max_answer_length=11,
        version_2_with_negative=True,
        null_score_diff_threshold=0.5,
    )
    (weights / READER_FILE).write_text(kept.file_content())
    named = ["--from-pretrained-params", str(weights), "--predict-file", "f.json"]
    positional = [str(weights), *"-" * 10, "prediction", "--squad-dir", "/d/v2.0"]
    for words in (["--mode", "eval", *named], ["--do-predict", *named], positional):
        data = settings(*words)[0].data
        assert {name: getattr(data, name) for name in ReaderSettings.model_fields} == kept.model_dump()
    assert settings("--config", "squad", "--mode", "eval", *named)[0].data.max_seq_length == 384
    assert settings("--do-predict", "--doc-stride", "5", *named)[0].data.doc_stride == 5
    assert settings("--do-train", "--train-file", "g.json", *named)[0].data.max_seq_length == 384


def test_the_quickstart_starts_from_what_pre_training_left(capsys):
    step = Path("results/quickstart/bert-quickstart/phase2/500")
    step.mkdir(parents=True)
    (step / "bert_config.json").write_text('{"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}')
    (step / "vocab.txt").write_text("[PAD]\n")
    write_manifest(step, 500)
    config, _ = settings()
    assert config.initialization.from_pretrained_params == step and config.data.vocab_file == step / "vocab.txt"
    assert f"starting from the pre-trained weights in {step}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        (["-"] * 19, "19 positional arguments must be at most 18"),
        (["-"] * 5 + ["int8"], "precision=int8"),
        (["-"] * 6 + ["many"], "num_gpus=many .* --num-gpus"),
        (["-", "--config", "squad"], "config=squad contradicts the positional arguments"),
        (["--mode", "test"], "mode=test must be one of train, eval, prediction, train_eval"),
        (["--config", "squad_largo"], "squad_largo"),
        (["--doc-strid", "3"], "--doc-strid .* did you mean --doc-stride"),
    ],
)
def test_mistakes_are_refused(words, rule):
    with refused(rule):
        squad.main([*words, "--device", "cpu"])


def test_nothing_is_made_for_settings_that_are_wrong(tmp_path):
    for wrong in (["--unpad", "sideways"], ["--epochs", "-3"], ["--max-seq-length", "4"]):
        with pytest.raises(ValueError):
            settings(*wrong)
    assert not any(tmp_path.iterdir())


def test_files_of_the_quickstart_that_cannot_be_made_are_an_error(monkeypatch):
    job = fine_tuning.planned_of(LAUNCHERS["squad"], ["--output-dir", "out"]).job
    monkeypatch.setattr(interpreter, "CODE", Path("/nowhere"))
    monkeypatch.setenv("PYTHONPATH", "")
    assert execute(job) == 1
    assert not Path("out/squad").exists()

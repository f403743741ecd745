"""run_squad.py on a tiny model that learns to find the Nile: training, scores, prediction, dialogue, refused input."""

import json
import random
from pathlib import Path

import pytest

import run_squad
from bert.checkpoints import directories as checkpoint_files
from bert.conversion.usage import Usage
from bert.finetuning.squad.answer_settings import ReaderSettings
from bert.finetuning.squad.config import SquadConfig
from bert.finetuning.squad.examples import read_squad
from bert.finetuning.squad.metrics import answers_of, score_squad_2
from bert.finetuning.squad.task import SquadTask
from bert.inference.heads import load_model
from bert.runtime.paddle_api import static
from bert.training import training_run
from tests.finetuning.squad.test_features import VOCABULARY
from tests.support import tiny
from tests.support.disk_cache import made_once
from tests.support.squad_files import file_of, paragraph, question

MODEL = tiny.MODEL.model_copy(update={"vocab_size": len(VOCABULARY), "max_position_embeddings": 32})
WORDS = "the is a long river ice cream sea in egypt and who".split(" ")


def nile_file(path: Path, count: int, seed: int, with_answers: bool = True) -> Path:
    """Write a file whose answers are "Nile"; a fifth of the paragraphs do not have it, and some need two windows."""
    rng, paragraphs = random.Random(seed), []
    for number in range(count):
        words = [rng.choice(WORDS) for _ in range(rng.randint(5, 20))]
        answerable = number % 5 > 0
        if answerable:
            words.insert(rng.randrange(len(words)), "Nile")
        context = " ".join(words)
        answers = [("Nile", context.index("Nile"))] if answerable and with_answers else []
        members = {"is_impossible": True} if not answerable and with_answers else {}
        paragraphs.append(paragraph(context, question(f"q{number}", "What?", *answers, **members)))
    return file_of(path, *paragraphs)


def config_of(directory: Path, output: str = "results", **changes) -> SquadConfig:
    vocabulary = directory / "vocab.txt"
    vocabulary.write_text("".join(token + "\n" for token in VOCABULARY.tokens))
    data = {"vocab_file": vocabulary, "train_file": directory / "train.json", "predict_file": directory / "dev.json"}
    data |= {"max_seq_length": 16, "doc_stride": 6, "max_query_length": 4, "num_workers": 0, "n_best_size": 3}
    run = {"do_train": True, "do_eval": True, "do_predict": True, "epochs": 8, "bert_model": "bert-test", "log_freq": 5}
    sections = {
        "model": MODEL,
        "data": {**data, "version_2_with_negative": True},
        "batch": {"batch_size": 16},
        "optimizer": {"learning_rate": 1e-2},
        "run": {**run, "output_dir": directory / output, "report_file": directory / "report.json"},
        "initialization": {},
        "hardware": {"device": "cpu", "visualdl": False, "peak_tflops": 1.0},
    }
    for name, value in changes.items():
        sections[name] |= value
    return SquadConfig(**sections)


def run(config: SquadConfig) -> int:
    with static.scope_guard(static.Scope()):
        return training_run.run(config, SquadTask.open)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> SquadConfig:
    def make(directory):
        nile_file(directory / "train.json", 200, seed=1)
        nile_file(directory / "dev.json", 60, seed=2)
        assert run(config_of(directory)) == 0

    return config_of(made_once(tmp_path_factory, "squad", make))


def summary_of(config: SquadConfig) -> dict:
    return json.loads((config.stage_dir() / "summary.json").read_text())


def test_it_learns_and_tells_the_official_scores_under_the_known_names(trained):
    summary = summary_of(trained)
    assert summary["F1"] == summary["eval_f1"] > 90
    assert summary["exact_match"] == summary["eval_exact_match"] <= summary["eval_best_exact"]
    assert summary["eval_total"] == 60 and summary["eval_HasAns_total"] == 48 and summary["eval_NoAns_f1"] > 80
    assert summary["training_sequences_per_second"] > 0 and summary["inference_sequences_per_second"] > 0


def test_the_files_hold_what_was_scored(trained):
    directory = trained.stage_dir()
    predictions = json.loads((directory / "predictions.json").read_text())
    n_best = json.loads((directory / "nbest_predictions.json").read_text())
    null_odds = json.loads((directory / "null_odds.json").read_text())
    assert predictions.keys() == n_best.keys() == null_odds.keys() and len(predictions) == 60
    examples = read_squad(trained.data.predict_file, version_2=True)
    assert score_squad_2(answers_of(examples), predictions)["f1"] == pytest.approx(summary_of(trained)["F1"])
    for identity, candidates in n_best.items():
        assert 1 <= len(candidates) <= 3 and "" in [candidate["text"] for candidate in candidates]
        assert (predictions[identity] == "") == (null_odds[identity] > 0)


def test_the_files_are_also_beside_the_checkpoints(trained):
    """NVIDIA's users look for the files there: one file, found in two places, also after its folder was moved."""
    for name in ("predictions.json", "nbest_predictions.json", "null_odds.json"):
        beside = trained.checkpoint_dir() / name
        assert beside.samefile(trained.stage_dir() / name) and not beside.readlink().is_absolute()


def test_the_saved_model_answers_as_in_the_run(trained):
    reader = load_model(trained.run.output_dir)
    names = ReaderSettings.model_fields
    assert reader.reader.model_dump() == {name: getattr(trained.data, name) for name in names}
    assert reader.opened.usage == Usage("squad", trained.data.max_seq_length)
    predictions = json.loads((trained.stage_dir() / "predictions.json").read_text())
    examples = read_squad(trained.data.predict_file, version_2=True)
    for item in examples.questions[:12]:
        found = reader.answer(item.text, examples.contexts[item.context])
        assert found.text == predictions[item.id]
        assert examples.contexts[item.context][found.start : found.end] == found.text


def test_evaluation_alone_gives_the_same_scores(trained):
    again = config_of(
        trained.data.vocab_file.parent,
        "again",
        run={"do_train": False},
        initialization={"from_pretrained_params": trained.run.output_dir},
    )
    assert run(again) == 0
    for name in ("eval_f1", "eval_exact_match", "eval_best_f1"):
        assert summary_of(again)[name] == summary_of(trained)[name]


def test_prediction_needs_no_answers(trained, tmp_path):
    nile_file(tmp_path / "unlabelled.json", 10, seed=3, with_answers=False)
    config = config_of(
        tmp_path,
        run={"do_train": False, "do_eval": False},
        data={"predict_file": tmp_path / "unlabelled.json"},
        initialization={"from_pretrained_params": trained.checkpoint_dir()},
    )
    for _ in range(2):  # the second finds links
        assert run(config) == 0
    predictions = json.loads((config.checkpoint_dir() / "predictions.json").read_text())
    assert [predictions[f"q{number}"].lower() for number in range(1, 5)] == ["nile"] * 4
    assert "F1" not in summary_of(config)


def test_a_threshold_that_nothing_reads_is_named(tmp_path):
    for name in ("train", "dev"):
        file_of(tmp_path / f"{name}.json", paragraph("the long Nile", question("q", "What?", ("Nile", 9))))
    for version_2, threshold, count in ((True, 1.0, 0), (False, 1.0, 1), (False, 0.0, 0)):
        data = {"version_2_with_negative": version_2, "null_score_diff_threshold": threshold}
        notes = SquadTask(config_of(tmp_path, data=data)).notes
        assert sum(note.startswith("not used: null_score_diff_threshold") for note in notes) == count


def test_benchmark_gives_both_speeds_and_saves_nothing(trained):
    directory = trained.data.vocab_file.parent
    config = config_of(directory, "speed", run={"benchmark": True, "benchmark_steps": 3, "benchmark_warmup_steps": 1})
    assert run(config) == 0
    summary = json.loads((config.stage_dir() / "benchmark/summary.json").read_text())
    assert summary["training_sequences_per_second"] > 0 and summary["inference_sequences_per_second"] > 0
    assert not checkpoint_files.list_steps(config.checkpoint_dir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "nothing to do"),
        ("--interactive", "interactive=true needs a fine-tuned model; pass --from-pretrained-params"),
        ("--interactive --do-train", "omit --do-train and --do-eval"),
        ("--do-train --max-seq-length 60", "max_seq_length=60 must leave room for a question"),
        ("--do-train --train-batch-size 0", "batch_size=0"),
    ],
)
def test_what_cannot_work_is_refused_before_paddle_is_loaded(words, message, tmp_path, capsys):
    config_of(tmp_path)
    given = ["--vocab-file", str(tmp_path / "vocab.txt"), "--vocab-size", str(len(VOCABULARY))] if words else []
    with pytest.raises(SystemExit) as stopped:
        run_squad.main([*given, *words.split()])
    assert stopped.value.code == 2 and message in capsys.readouterr().err.replace("\n", " ")

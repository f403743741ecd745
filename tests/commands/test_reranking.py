"""Tests of run_vectors.sh --reranker: one job trains vectors, mines and trains a reranker, and resumes exactly."""

import json
import shlex

import numpy as np
import pytest
from safetensors.numpy import load_file

import run_reranker
from bert.commands import vectors
from bert.commands.__main__ import main
from bert.commands.reranking import TrainReranker
from bert.conversion.task_file import read_usage
from bert.inference.heads import load_model
from bert.jobs.record import JobRecord
from bert.jobs.training import trainings
from bert.runtime.paddle_api import static
from tests.glue.test_glue import WORDS, weights  # noqa: F401
from tests.support import tiny
from tests.support.commands import refused


def write_pairs(path, number: int = 80) -> None:
    rng, rows = np.random.RandomState(1), ["query,passage"]
    for _ in range(number):
        numbers = rng.choice(len(WORDS) // 2 - 1, 4, replace=False) * 2
        rows.append(",".join(" ".join(WORDS[number + shift] for number in numbers) for shift in (0, 1)))
    path.write_text("\n".join(rows) + "\n")


def words_of(folder, weights) -> str:  # noqa: F811
    return (
        f"--pairs {folder}/pairs.csv --model {weights} --batch-size 8 --global-batch-size 8 --max-seq-length 16 "
        f"--held-out-fraction 0.25 --device cpu --no-visualdl --output-dir {folder}/out --peak-tflops 1 --reranker"
    )


def test_the_steps_of_the_job_and_what_the_reranker_has_from_the_vectors(weights, tmp_path, capsys):  # noqa: F811
    write_pairs(tmp_path / "pairs.csv")
    words = [*shlex.split(words_of(tmp_path, weights)), "--hours", "0.5", "--seed", "7"]
    job = vectors.planned(words).job
    assert [step.title.partition(" ")[0] for step in job.all_steps() if step.product] == [
        "training",
        "mining",  # which the reranker needs
        "training",
    ]
    first, second = (step.config for step in trainings(job))
    assert isinstance(trainings(job)[1], TrainReranker)
    assert (second.run.output_dir, second.run.seed, second.data.max_seq_length) == (tmp_path / "out/reranker", 7, 16)
    assert second.initialization == first.initialization and second.optimizer.lr_schedule == "wsd"
    assert main(["vectors", *words, "--dry-run"]) == 0
    assert f"3. training reranker: {tmp_path}/out/reranker/" in capsys.readouterr().out.replace("\n  ", " ")
    with refused("--reranker is trained after the vectors; give --text FOLDER or --pairs FILE to train on"):
        evaluation = f"--eval {tmp_path}/pairs.csv --model {weights} --max-seq-length 16 --device cpu --reranker"
        main(["vectors", *shlex.split(evaluation)])
    (tmp_path / "sts.csv").write_text("sentence1,sentence2,score\nword1,word2,3\n")
    with refused("sts.csv has pairs with a score, and --reranker is measured by the order of passages; give queries"):
        main(["vectors", *words, "--eval", str(tmp_path / "sts.csv")])


def test_the_hours_bound_how_many_held_out_queries_are_measured(weights, tmp_path, monkeypatch):  # noqa: F811
    write_pairs(tmp_path / "pairs.csv")
    job = vectors.planned([*shlex.split(words_of(tmp_path, weights)), "--hours", "0.1"]).job
    step = trainings(job)[1]
    launched = []
    monkeypatch.setattr("bert.jobs.training.launch", lambda script, config, *_, **__: launched.append(config) or 0)
    execution = type("Execution", (), {"job": job, "runner": None, "record": JobRecord(tmp_path)})()
    (folder := step.vectors.stage_dir()).mkdir(parents=True)
    for rate in (0, 40, 222, 10_000):  # texts a second
        (folder / "summary.json").write_text(json.dumps({"inference_sequences_per_second": rate}))
        assert step.launch(step.config, execution) == 0
    # 5% of 360 s are 18 s, in which 222 texts a second are 1,998 pairs of twice the length: 99 queries of 20.
    assert [config.data.most_queries for config in launched] == [500, 50, 99, 500]


@pytest.mark.long
def test_one_command_trains_vectors_and_a_reranker_and_a_second_start_adds_nothing(weights, tmp_path, capfd):  # noqa: F811
    write_pairs(tmp_path / "pairs.csv")
    words = [*shlex.split(words_of(tmp_path, weights)), "--max-steps", "4", "--num-processes", "1"]
    assert main(["vectors", *words]) == 0
    printed = capfd.readouterr().out
    assert "The reranked order " in printed and "first stage mrr at 10" in printed
    folder = tmp_path / "out/reranker"
    summary = json.loads((folder / "reranker/summary.json").read_text())
    assert summary["eval_reranker_weight"] == read_usage(load_model(folder).opened.path).reranking.weight
    scores = load_model(folder).rank_scores(WORDS[0], [WORDS[1], WORDS[2]])
    assert scores.shape == (2,) and np.isfinite(scores).all()
    assert load_model(tmp_path / "out").opened.task == "encoder", "the vectors are the model of the folder itself"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")}
    assert main(["vectors", *words]) == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.safetensors")} == before
    assert "The reranked order " in capfd.readouterr().out


@pytest.mark.long
def test_a_resumed_training_of_a_reranker_is_the_same(weights, tmp_path):  # noqa: F811
    rng = np.random.RandomState(2)
    texts = [" ".join(rng.choice(WORDS, 4)) for _ in range(60)]
    rows = [{"query": texts[n], "passage": texts[n + 1], "negatives": texts[n + 2 : n + 5 + n % 3]} for n in range(40)]
    (tmp_path / "negatives.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    candidates = {"candidates": texts[:8], "relevant": [False] * 7 + [True], "scores": [*range(8, 0, -1)]}
    lines = [json.dumps({"query": text, **candidates}) + "\n" for text in texts[50:]]
    (tmp_path / "candidates.jsonl").write_text("".join(lines))

    def run(name: str, words: str) -> dict:
        common = (
            f"--pairs {tmp_path}/negatives.jsonl --eval {tmp_path}/candidates.jsonl --model {weights} --batch-size 2 "
            f"--global-batch-size 4 --max-steps 12 --max-seq-length 16 --depth 8 --output-dir {tmp_path}/{name} "
            f"--report-file {tmp_path}/report.json --device cpu --no-visualdl --peak-tflops 1 --eval-freq 6 "
            "--num-steps-per-checkpoint 6"
        )
        with static.scope_guard(static.Scope()):
            assert run_reranker.main(shlex.split(f"{common} {words}")) == 0
        return json.loads((tmp_path / name / "reranker/summary.json").read_text())

    whole = run("whole", "")
    run("parts", "--steps-this-run 6")
    resumed = run("parts", f"--from-checkpoint {tmp_path}/parts --last-step-of-checkpoint auto")
    assert resumed["eval_mrr_at_10"] == whole["eval_mrr_at_10"] and "verdict" in resumed
    folders = [next((tmp_path / name).rglob("reranker/12")) for name in ("whole", "parts")]
    tiny.assert_identical(*(load_file(next(folder.glob("*.safetensors"))) for folder in folders))


def test_files_that_are_wrong_are_refused_with_their_line(weights, tmp_path):  # noqa: F811
    for content, message in (
        ('{"query": "a", "passage": "b"}\n', "line 1: must be an object with query, passage, negatives; mine again"),
        ('{"query": "a", "passage": "b", "negatives": []}\n', "has no pair with a negative; mine again, with more"),
    ):
        (tmp_path / "negatives.jsonl").write_text(content)
        words = f"--pairs {tmp_path}/negatives.jsonl --model {weights} --output-dir {tmp_path}/out --device cpu"
        with refused(message):
            run_reranker.main(shlex.split(words))

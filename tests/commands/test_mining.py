"""Tests of the mining step: it writes both files, is not repeated, and starts again after a stop."""

import json
import shlex
from dataclasses import replace

import numpy as np
import pytest

import run_vectors
from bert.commands.mining import MineNegatives
from bert.config.command_line import parse_arguments
from bert.exit_codes import INTERRUPTED
from bert.jobs.job import Execution, Job
from bert.jobs.record import JobRecord
from bert.launching.start_training import Runner
from bert.runtime.paddle_api import static
from bert.vectors.mining_process import MiningRequest
from bert.vectors.mining_rule import MiningRule
from bert.vectors.settings import ENTRY, VectorConfig
from bert.vectors.task import VectorTask
from tests.glue.test_glue import WORDS, weights  # noqa: F401
from tests.support.jobs import execution_of
from tests.vectors.test_task import config_of


def train(folder, weights) -> VectorConfig:  # noqa: F811
    rng, rows = np.random.RandomState(1), ["query,passage"]
    for _ in range(80):
        numbers = rng.choice(len(WORDS) // 2 - 1, 4, replace=False) * 2
        rows.append(",".join(" ".join(WORDS[number + shift] for number in numbers) for shift in (0, 1)))
    (folder / "pairs.csv").write_text("\n".join(rows) + "\n")
    words = (
        f"--pairs {folder}/pairs.csv --model {weights} --batch-size 8 --max-steps 4 --max-seq-length 16 "
        f"--global-batch-size 8 --held-out-fraction 0.25 --device cpu --no-visualdl --output-dir {folder}/out "
        f"--report-file {folder}/report.json --peak-tflops 1 --learning-rate 0.001"
    )
    with static.scope_guard(static.Scope()):
        assert run_vectors.main(shlex.split(words)) == 0
    return parse_arguments(ENTRY, shlex.split(words))


@pytest.mark.long
def test_a_mining_writes_negatives_and_candidates_once(weights, tmp_path, capfd):  # noqa: F811
    config = train(tmp_path, weights)
    step = MineNegatives(config=config, folder=tmp_path / "out/mined", rule=MiningRule(number=3))
    execution = Execution(Job("test", tmp_path / "out", (step,)), JobRecord(tmp_path / "out"), Runner())
    assert not step.is_done(execution)
    assert execution.run(step) == 0 and step.is_done(execution)
    rows = [json.loads(line) for line in step.negatives.read_text().splitlines()]
    task = VectorTask(config)
    assert [row["query"] for row in rows] == task.training["query"].tolist()
    assert [row["passage"] for row in rows] == task.training.passage.tolist()
    assert all(len(row["negatives"]) <= 3 and row["passage"] not in row["negatives"] for row in rows)
    assert any(row["negatives"] for row in rows)
    candidates = [json.loads(line) for line in step.candidates.read_text().splitlines()]
    answers = dict(zip(task.held_out["query"], task.held_out.passage, strict=True))
    assert [row["query"] for row in candidates] == [*answers]
    for row in candidates:
        assert len(row["candidates"]) == 20 and row["scores"] == sorted(row["scores"], reverse=True)
        right = [text for text, is_right in zip(row["candidates"], row["relevant"], strict=True) if is_right]
        assert right == [answers[row["query"]]]
    printed = capfd.readouterr().out
    assert "mining negatives of 60 pairs" in printed and "mined negative: " in printed
    record = json.loads((tmp_path / "out/mined/mined.json").read_text())
    assert record["negatives"] == sum(len(row["negatives"]) for row in rows) and record["held_out_queries"] == 20
    written = step.negatives.stat().st_mtime_ns
    assert execution.run(step) == 0 and step.negatives.stat().st_mtime_ns == written
    other = replace(step, rule=MiningRule(number=2))
    assert not other.is_done(execution)
    (tmp_path / "out/mined/mined.json").unlink()  # as after a stop
    negatives = step.negatives.read_bytes()
    assert not step.is_done(execution) and execution.run(step) == 0
    assert step.negatives.read_bytes() == negatives
    for line, row in zip(step.candidates.read_text().splitlines(), candidates, strict=True):
        assert json.loads(line) == row | {"scores": pytest.approx(row["scores"], abs=1e-5)}


def test_a_stopped_mining_leaves_nothing_that_a_reranker_would_read(tmp_path):
    """Results that were mined with earlier weights are removed before the mining begins."""
    step = MineNegatives(config=config_of(tmp_path), folder=tmp_path / "mined")
    step.folder.mkdir()
    for name in ("negatives.jsonl", "candidates.jsonl", "mined.json"):
        (step.folder / name).write_text("{}")
    execution = execution_of(tmp_path, lambda words: INTERRUPTED)
    assert not step.is_done(execution) and step.run(execution) == INTERRUPTED
    assert not step.is_done(execution)
    assert sorted(path.name for path in step.folder.iterdir()) == [".lock", "request.json"]
    (words,) = execution.runner.ran
    assert words[1:] == ["-m", "bert.vectors.mining_process", "--run", str(step.folder / "request.json")]
    assert MiningRequest.model_validate_json((step.folder / "request.json").read_text()).rule == step.rule


def test_so_many_pairs_are_mined_as_a_share_of_the_time_allows(tmp_path):
    """A tenth of half an hour is 180 s, in which 20 texts a second are 1,800 pairs."""
    (folder := tmp_path / "out/vectors").mkdir(parents=True)
    step = MineNegatives(config=config_of(tmp_path), folder=tmp_path)
    assert step._most_pairs(0.5) is None
    (folder / "summary.json").write_text('{"inference_sequences_per_second": 20.0}')
    assert [step._most_pairs(hours) for hours in (None, 0.5, 0.001)] == [None, 1800, 500]

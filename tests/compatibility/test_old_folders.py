"""Output folders of version 88b30792, before jobs, are resumed, and nothing in them is made again."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from bert import REPOSITORY
from bert.checkpoints.directories import write_checkpoint
from bert.commands.__main__ import main
from bert.commands.pretrain import job_of, parse_launch_arguments
from bert.jobs import job as execution
from bert.jobs import training
from bert.jobs.making import Make, Products
from bert.jobs.record import JobRecord
from bert.own_text import constants, corpus, start
from bert.own_text.facts import MachineFacts
from bert.own_text.record import read_record
from bert.own_text.request import read_text_request
from bert.reporting import results
from bert.samples.manifest import Manifest, ShardRecord, write_manifest
from tests.support.jobs import StandInRunner, execution_of
from tests.support.launching import line_of

GOLDEN = REPOSITORY / "tests/golden/jobs"
LINE = "--text text --output-dir own --config quickstart --hours 0.2 --num-steps-per-checkpoint 40"
USED = 185.91845922847006  # seconds, as it was recorded
REMOVED = {"best_by"}  # settings that the version had and this one has not


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """Make the current folder, in which the runs were; large files are stand-ins."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(GOLDEN / "own_text", tmp_path / "own")
    for name in ("own_text.json", "data/prepared.json"):
        file = tmp_path / "own" / name
        file.write_text(file.read_text().replace("FOLDER", str(tmp_path)))
    (tmp_path / "text").mkdir()
    for number in range(60):
        (tmp_path / f"text/{number}.txt").write_text("The committee read the report. " * 200)
    (tmp_path / "own/data/vocab.txt").write_text("word\n" * 150)
    (tmp_path / "own/data/text").mkdir()
    (tmp_path / "own/data/text/report.json").write_text("{}")
    for part, samples in (("train", 1260), ("held_out", 151)):
        shards = tmp_path / "own/data/shards" / part
        shards.mkdir(parents=True)
        (shards / "shard-0.parquet").touch()
        write_manifest(shards, Manifest({"shard-0.parquet": ShardRecord(samples, 1, "")}, None))
    laptop = MachineFacts(cores=2, memory_bytes=16 * 10**9, disk_bytes=10**11)
    monkeypatch.setattr(start, "machine_facts", lambda output_dir: laptop)
    monkeypatch.setattr(start, "measure_speeds", lambda *_: pytest.fail("it was measured before"))
    monkeypatch.setattr(results, "draw", lambda *_: None)
    return tmp_path


def test_own_text_continues_with_its_plan_its_data_and_its_time(folder, monkeypatch):
    runner, started = StandInRunner(), []
    monkeypatch.setattr(execution, "Runner", lambda: runner)

    def train(script, config, ranks, runner, **start):
        started.append((config, ranks))
        return 75

    monkeypatch.setattr(training, "launch", train)
    write_checkpoint(folder / "own/bert-quickstart/phase1", 45, lambda checkpoint: None)
    before = yaml.safe_load((folder / "own/phase1.yaml").read_text())
    assert main(["pretraining", *LINE.split()]) == 75
    assert runner.ran == [], "no data were made again"
    ((config, ranks),) = started
    now = {name: value for _, section in config.model_dump(mode="json").items() for name, value in section.items()}
    changed = {name: (before.get(name), now.get(name)) for name in {*before, *now} if before.get(name) != now.get(name)}
    assert changed.keys() - REMOVED == {"finish_in"}, changed
    left = 0.2 * 3600 - USED - constants.END_SECONDS * 4.0  # of results, on a machine of the recorded slowness
    assert left - 60 < config.run.finish_in <= left and ranks.num_processes == 2
    record = json.loads((folder / "own/job.json").read_text())
    assert USED < record["seconds_used"] < USED + 60
    old = json.loads((folder / "own/own_text.json").read_text())
    facts = record["facts"]["own_text"]
    assert facts["text"].pop("language") == "en" and facts["text"]["case"].pop("equal_letters") is False, "newer ones"
    for name in ("speeds", "expected_updates", "length", "text"):
        assert facts[name] == old[name]


def test_own_text_whose_data_were_being_made_continues_with_those_that_are_there(folder):
    """The commands are, word by word, as that version recorded them."""
    request = read_text_request(line_of(*LINE.split()))
    record = read_record(JobRecord.of(folder / "own"), folder / "own")
    config = start.training_config(request, record)
    products = Products(folder / "own/data", record.data["files"])
    commands = corpus.commands(request, record.plan, config)
    assert len(commands) == 4
    assert [product for _, command, product in commands if not products.has(product, command)] == []


def test_the_data_of_the_quickstart_are_not_made_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    shutil.copytree(GOLDEN / "quickstart", tmp_path / "results/quickstart")
    job = job_of(parse_launch_arguments(["--device", "cpu", "--num-processes", "2"]))
    steps = [step for step in job.all_steps() if isinstance(step, Make)]
    for step in steps:
        step.product.parent.mkdir(parents=True, exist_ok=True)
        step.product.touch()
    assert len(steps) == 8 and all(step.is_done(execution_of(tmp_path)) for step in steps)


def test_the_quickstart_continues_with_its_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(GOLDEN / "quickstart", tmp_path / "results/quickstart")
    for phase in (1, 2):
        write_checkpoint(tmp_path / f"results/quickstart/bert-quickstart/phase{phase}", 3, lambda checkpoint: None)
    words = ["--device", "cpu", "--num-processes", "2"]
    job_of(parse_launch_arguments(words)).check(here=False)
    with pytest.raises(ValueError, match="learning_rate=0.5 differs from .* of the run in results/quickstart"):
        job_of(parse_launch_arguments([*words, "--learning-rate", "0.5"])).check(here=False)

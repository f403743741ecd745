"""What the scripts of fine-tuning start, and what they refuse before they start it."""

import argparse
import json
import os
import socket
import sys

import pytest

from bert.config.command_line import EntryPoint, dump_yaml
from bert.launching import finetuning as finetuning_launcher
from bert.launching.finetuning import Ranks, add_rank_flags, launch, parse, ranks_of
from tests.finetuning.test_run import Config, config_of

ENTRY = EntryPoint("run_numbers.py", Config, {}, "[flags]", "Numbers.")


def parsed(words: list[str], device: str = "cpu") -> Ranks:
    parser = argparse.ArgumentParser()
    add_rank_flags(parser)
    return ranks_of(parser.parse_args(words), device)


def test_processes_and_nodes(monkeypatch):
    monkeypatch.setattr(finetuning_launcher, "num_gpus", lambda: 4)
    assert parsed(["--num-gpus", "3"], "auto") == Ranks(3)
    assert parsed([], "auto") == Ranks(4)
    assert parsed([]) == Ranks(1)
    assert parsed(["--num-nodes", "2", "--node-rank", "1", "--master", "a:1"]) == Ranks(1, 2, 1, "a:1")
    with pytest.raises(ValueError, match="num_gpus=5 must be at most the 4 GPUs of this machine; pass --num-gpus 4"):
        parsed(["--num-gpus", "5"], "auto")
    with pytest.raises(ValueError, match="num_nodes=2 needs the address of the first node; pass --master HOST:PORT"):
        parsed(["--num-nodes", "2"])


def test_flags_are_shared_between_the_launcher_and_the_settings(tmp_path):
    (tmp_path / "all.yaml").write_text(dump_yaml(config_of(tmp_path)))
    parser = argparse.ArgumentParser()
    add_rank_flags(parser)
    words = ["--config", str(tmp_path / "all.yaml"), "--num-gpus", "2", "--seed", "5"]
    own, config = parse(ENTRY, words, parser, {"epochs": 7.0})
    assert (own.num_processes, config.run.seed, config.run.epochs) == (2, 5, 7.0)
    with pytest.raises(ValueError, match="--num-node is not a flag; did you mean --num-nodes?"):
        parse(ENTRY, ["--num-node", "2"], argparse.ArgumentParser(parents=[parser], add_help=False, allow_abbrev=False))


@pytest.fixture
def started(monkeypatch):
    commands = []

    class FakeRunner:
        stop_requested = False

        def run(self, command, phase):
            commands.append(command)
            return 0

    monkeypatch.setattr(finetuning_launcher, "Runner", FakeRunner)
    return commands


@pytest.mark.parametrize(("code", "result"), [(75, 75), (143, 75), (0, 0), (74, 74), (70, 70), (3, 3)])
def test_a_failure_after_a_request_to_stop_is_still_a_failure(tmp_path, started, monkeypatch, code, result):
    runner = finetuning_launcher.Runner
    monkeypatch.setattr(runner, "stop_requested", True)
    monkeypatch.setattr(runner, "run", lambda self, command, phase: code)
    assert launch(ENTRY, config_of(tmp_path), Ranks(1)) == result


def test_nodes_wait_for_the_first_one_and_keep_their_logs_apart(tmp_path, started, monkeypatch, capsys):
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("NO_PROXY", "")
    with socket.create_server(("127.0.0.1", 0)) as first:
        master = f"127.0.0.1:{first.getsockname()[1]}"
        assert launch(ENTRY, config_of(tmp_path), Ranks(1, 2, 1, master)) == 0
    command = started[0]
    assert command[command.index("--log_dir") + 1].endswith("/launch/node1")
    assert os.environ["no_proxy"] == "127.0.0.1"
    monkeypatch.setattr(finetuning_launcher, "MASTER_TIMEOUT_SECONDS", 0.0)
    with pytest.raises(SystemExit):
        launch(ENTRY, config_of(tmp_path), Ranks(1, 2, 1, master))
    assert "did not answer within 0 s" in capsys.readouterr().err and len(started) == 1


def test_what_the_guards_advise_can_be_followed(tmp_path, started):
    config = config_of(tmp_path)
    (config.checkpoint_dir() / "5").mkdir(parents=True)
    assert launch(ENTRY, config, Ranks(1)) == 0
    assert launch(ENTRY, config_of(tmp_path, run={"watchdog_seconds": 7200.0}), Ranks(1)) == 0


def test_the_same_command_continues_and_another_one_is_refused(tmp_path, started, capsys):
    config = config_of(tmp_path)
    assert launch(ENTRY, config, Ranks(2)) == 0
    command = started[0]
    assert command[:4] == [sys.executable, "-u", "-m", "paddle.distributed.launch"]
    assert command[command.index("--nproc_per_node") + 1] == "2"
    assert command[-3].endswith("run_numbers.py") and command[-1] == str(config.stage_dir() / "launch.yaml")
    assert "from_checkpoint: null" in (config.stage_dir() / "launch.yaml").read_text()
    (config.checkpoint_dir() / "5").mkdir(parents=True)
    assert launch(ENTRY, config, Ranks(2)) == 0
    settings = (config.stage_dir() / "launch.yaml").read_text()
    assert f"from_checkpoint: {json.dumps(str(config.checkpoint_dir()))}".replace('"', "") in settings
    assert "last_step_of_checkpoint: auto" in settings
    other = config_of(tmp_path, optimizer={"learning_rate": 0.5})
    with pytest.raises(SystemExit):
        launch(ENTRY, other, Ranks(2))
    assert "learning_rate=0.5 differs from 0.01 of the run in" in capsys.readouterr().err
    assert launch(ENTRY, config_of(tmp_path, hardware={"device": "cpu", "cpu_threads": 1}), Ranks(1)) == 0

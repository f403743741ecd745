"""A training is started so that the same command resumes it, and another training is refused."""

import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from bert.config.run_file import read_run
from bert.config.setting_sources import resolve_config
from bert.files import only_writer
from bert.glue.config import ENTRY
from bert.launching import nodes
from bert.launching import start_training as launching
from bert.launching.nodes import address_towards, launcher_addresses, wait_for_master
from bert.launching.ranks import Ranks

SCRIPT = Path("run_numbers.py")


def config_of(folder: Path, **changes):
    (folder / "vocab.txt").write_text("[PAD]\nword\n")
    given = {
        "config": "quickstart_sentiment",
        "bert_model": "bert-tiny",
        "vocab_file": folder / "vocab.txt",
        "output_dir": folder / "results",
        "learning_rate": 0.01,
    }
    return resolve_config({**given, **changes}, ENTRY)


class FakeRunner:
    """Notes the commands, and ends them with a code."""

    def __init__(self, code: int = 0, stopped_by: str | None = None):
        self.code, self.stopped_by, self.stop_requested = code, stopped_by, stopped_by is not None
        self.commands: list[list[str]] = []
        self.variables: list[dict[str, str]] = []

    def train(self, command, config, log_dir, log_file, variables):
        self.commands.append(command)
        self.variables.append(variables)
        return self.code


@pytest.fixture
def runner():
    return FakeRunner()


def started(config):
    """Return the settings that the ranks read."""
    return read_run(config.stage_dir() / "run.json", type(config))


def launch(config, ranks, runner):
    return launching.launch(SCRIPT, config, ranks, runner)


@pytest.mark.parametrize(("code", "result"), [(75, 75), (143, 75), (247, 75), (0, 0), (70, 70)])
def test_a_failure_after_a_request_to_stop_is_still_a_failure(tmp_path, code, result):
    assert launch(config_of(tmp_path), Ranks(num_processes=1), FakeRunner(code, "SIGTERM")) == result


@pytest.mark.parametrize("saved", [False, True])
def test_an_interrupted_run_names_the_reason_and_the_step(tmp_path, saved, capsys):
    config = config_of(tmp_path)
    if saved:
        (config.checkpoint_dir() / "22").mkdir(parents=True)
    assert launch(config, Ranks(num_processes=2), FakeRunner(75, "Ctrl-C")) == 75
    found = capsys.readouterr()
    assert found.err == f"interrupted (Ctrl-C){': saved step 22' if saved else ''}; the same command resumes\n"
    action = "continuing" if saved else "starting"  # the ranks name the step, which they verify
    assert " ".join(found.out.split()).startswith(
        f"labels: {action} with 2 ranks (processes) on the CPU, results in {config.log_dir()}; Ctrl-C "
    )


def test_a_stop_file_is_named_as_the_reason(tmp_path, capsys):
    config = config_of(tmp_path)
    config.log_dir().mkdir(parents=True)
    (config.log_dir() / "summary.json").write_text('{"interrupted_by": "results/STOP"}')
    assert launch(config, Ranks(num_processes=1), FakeRunner(75)) == 75
    assert capsys.readouterr().err == "interrupted (results/STOP); the same command resumes\n"


def test_a_rank_that_the_kernel_killed_is_explained(tmp_path, capsys):
    assert launch(config_of(tmp_path), Ranks(num_processes=1), FakeRunner(247)) == 247
    assert "exit code 247; a rank was killed, often because memory ran out (lower --batch-size)" in (
        capsys.readouterr().err
    )


def test_a_second_start_is_refused_while_the_first_one_runs(tmp_path, runner, capsys):
    config = config_of(tmp_path)
    with only_writer(config.stage_dir() / "launch"), pytest.raises(SystemExit) as ended:
        launch(config, Ranks(num_processes=1), runner)
    assert ended.value.code == 2 and not runner.commands
    assert "another run is writing to it" in capsys.readouterr().err


def test_a_first_start_that_the_ranks_refuse_leaves_nothing(tmp_path):
    class RefusingRunner(FakeRunner):
        def train(self, command, config, log_dir, log_file, variables):
            (log_dir / "workerlog.0").write_text("error: the shards have no masks")
            return super().train(command, config, log_dir, log_file, variables)

    config, runner = config_of(tmp_path), RefusingRunner(2)
    (tmp_path / "results").mkdir()  # as the executor has made and locked it
    assert launch(config, Ranks(num_processes=1), runner) == 2
    assert list((tmp_path / "results").rglob("*")) == []
    assert launch(config, Ranks(num_processes=1), RefusingRunner(0)) == 0  # a run is there
    before = {path: path.read_bytes() for path in (tmp_path / "results").rglob("*") if path.is_file()}
    assert launch(config_of(tmp_path, log_freq=3), Ranks(num_processes=1), runner) == 2
    assert {path: path.read_bytes() for path in before} == before


def test_nodes_wait_for_the_first_one_and_keep_their_logs_apart(tmp_path, runner, monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as first:
        master = f"127.0.0.1:{first.getsockname()[1]}"
        assert launch(config_of(tmp_path), Ranks(num_nodes=2, node_rank=1, master=master), runner) == 0
    command = runner.commands[0]
    assert command[command.index("--log_dir") + 1].endswith("/launch/node1")
    assert f"--nnodes 2 --master {master} --host 127.0.0.1 --rank 1" in " ".join(command)
    monkeypatch.setattr(nodes, "MASTER_TIMEOUT_SECONDS", 0.0)
    with pytest.raises(SystemExit):
        launch(config_of(tmp_path), Ranks(num_nodes=2, node_rank=1, master=master), runner)
    assert "did not answer within 0 s" in capsys.readouterr().err and len(runner.commands) == 1


def test_the_same_command_continues_and_another_one_is_refused(tmp_path, runner, capsys):
    config = config_of(tmp_path)
    assert launch(config, Ranks(num_processes=2), runner) == 0
    command = runner.commands[0]
    assert command[:4] == [sys.executable, "-u", "-m", "paddle.distributed.launch"]
    assert command[command.index("--nproc_per_node") + 1] == "2"
    assert command[-3].endswith("run_numbers.py") and command[-1] == str(config.stage_dir() / "run.json")
    assert command[-2] == "--run" and started(config).initialization.from_checkpoint is None
    (config.checkpoint_dir() / "5").mkdir(parents=True)
    assert launch(config, Ranks(num_processes=2), runner) == 0
    start = started(config).initialization
    assert (start.from_checkpoint, start.last_step_of_checkpoint) == (config.checkpoint_dir(), "auto")
    other = config_of(tmp_path, learning_rate=0.5)
    with pytest.raises(SystemExit):
        launch(other, Ranks(num_processes=2), runner)
    assert "learning_rate=0.5 differs from 0.01 of the run in" in capsys.readouterr().err
    assert launch(config_of(tmp_path, cpu_threads=1), Ranks(num_processes=1), runner) == 0


def test_settings_that_the_ranks_refuse_are_not_recorded(tmp_path):
    assert launch(config_of(tmp_path), Ranks(num_processes=1), FakeRunner(75)) == 75
    config = config_of(tmp_path)
    records = [config.stage_dir() / "run.json", *config.run.output_dir.glob("*.yaml")]
    before = [path.read_bytes() for path in records]
    assert len(before) == 2
    other = config_of(tmp_path, batch_size=2)
    assert launch(other, Ranks(num_processes=1), FakeRunner(2)) == 2
    assert [path.read_bytes() for path in records] == before
    assert launch(other, Ranks(num_processes=1), FakeRunner(0)) == 0
    assert [path.read_bytes() for path in records] != before


def test_addresses_of_the_first_node_and_of_this_one():
    assert launcher_addresses("127.0.0.1:6070") == ("127.0.0.1:6070", "127.0.0.1")
    assert launcher_addresses("localhost:6070", lambda name: "127.0.0.1") == ("127.0.0.1:6070", "127.0.0.1")
    own = address_towards("192.0.2.77")  # documentation's network: nothing is sent, only routes are looked at
    assert launcher_addresses("first:6070", {"first": "192.0.2.77"}.get) == ("192.0.2.77:6070", own)


def unknown(name):
    raise socket.gaierror(-2, "Name or service not known")


@pytest.mark.parametrize(
    ("master", "resolve", "rule"),
    [
        *((master, unknown, "must be HOST:PORT") for master in ("node1", "node1:", "node1:http", "node1:0", ":6070")),
        ("node1:70000", unknown, "must be HOST:PORT"),
        ("nod1:6070", unknown, "cannot be resolved .* pass the first node's IPv4 address"),
        # Debian writes the host's own name beside 127.0.1.1 into /etc/hosts.
        ("node1:6070", lambda name: "127.0.1.1", "is 127.0.1.1 on this node, where no other node finds it"),
    ],
)
def test_an_address_that_other_nodes_cannot_use_is_refused(master, resolve, rule):
    with pytest.raises(ValueError, match=f"master={master} {rule}"):
        launcher_addresses(master, resolve)


def test_waiting_ends_when_the_first_node_listens(capsys):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        master = f"127.0.0.1:{listener.getsockname()[1]}"
        threading.Timer(0.3, listener.listen).start()
        wait_for_master(master, 30.0, every_seconds=0.05)
    assert capsys.readouterr().out == f"waiting for the first node at {master}\n"


def test_waiting_ends_with_advice_when_nobody_listens_and_at_once_when_stopped():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # taken, and never listened to
        master = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(ValueError, match=f"master={master} did not answer within 0 s .*--node-rank 0"):
            wait_for_master(master, 0.2, every_seconds=0.05)
        start = time.monotonic()
        wait_for_master(master, 60.0, stopped=lambda: True)
        assert time.monotonic() - start < 30, "it waited"

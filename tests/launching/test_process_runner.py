"""Commands are run one at a time, their output is shown once, and signals reach the ranks."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.command_errors import EXIT_CODE_FILE, command
from bert.commands.pretrain import parse_launch_arguments
from bert.exit_codes import INTERRUPTED
from bert.launching.processes import ranks_of
from bert.launching.ranks import Ranks, start_of_ranks
from bert.launching.start_training import Runner
from bert.launching.worker_output import WorkerOutput
from bert.training.interruption import STOPPED_BY, StopRequest
from bert.training.loss_guards import TrainingDiverged
from tests.support.waiting import wait_until

CONFIG = parse_launch_arguments([]).phases[0]
LAUNCHER = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
folder = pathlib.Path(sys.argv[1])
print("banner of the launcher", flush=True)
with open(folder / "workerlog.0", "a") as log:
    print("step 1", file=log, flush=True)
    stop = pathlib.Path(os.environ["BERT_STOPPED_BY"])
    while sys.argv[2] == "waits" and not stop.exists():
        time.sleep(0.02)
    print("last line without an end", end="", file=log)
print("LAUNCHER: the log of the worker once more: step 1", flush=True)
sys.exit(int(sys.argv[3]))
"""


@pytest.fixture
def runner(monkeypatch):
    # Where other tests of this process have tokenized, `tokenizers` would warn of the fork.
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    yield Runner()
    for name in ("SIGTERM", "SIGHUP", "SIGUSR1"):
        signal.signal(signal.Signals[name], signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def train(runner, folder, mode="ends", code=0, log_file=None):
    return runner.train([sys.executable, "-c", LAUNCHER, str(folder), mode, str(code)], CONFIG, folder, log_file, {})


def test_a_signal_before_training_stops_too(runner):
    runner._on_signal(signal.SIGTERM, None)
    assert runner.run([sys.executable, "-c", "1/0"]) == INTERRUPTED


HANGS_UP = """
import os, signal, sys
from bert.launching.start_training import Runner
if sys.argv[1] == "nohup":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
runner = Runner()
signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGHUP))
signal.setitimer(signal.ITIMER_REAL, 0.5)
sys.stderr = open("/dev/full", "w", buffering=1)  # a terminal that is gone refuses what is written too
code = runner.run([sys.executable, "-c", "import time; time.sleep(1.5)"])
print(code, runner.stopped_by)
"""


@pytest.mark.parametrize(("mode", "result"), [("terminal", "143 SIGHUP"), ("nohup", "0 None")])
def test_a_terminal_that_is_closed_stops_the_run_unless_nohup_was_asked_for(mode, result):
    command = [sys.executable, "-c", HANGS_UP, mode]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.strip() == result, done.stderr


@pytest.mark.parametrize("code", [0, 2, 75])
def test_the_lines_of_this_start_are_shown_once_and_the_launchers_are_kept(runner, tmp_path, capfdbinary, code):
    (tmp_path / "workerlog.0").write_text("a line of an earlier start\nerror: of an earlier start\n")
    assert train(runner, tmp_path, code=code, log_file=tmp_path / "kept.log") == code
    shown = capfdbinary.readouterr().out
    assert shown == b"step 1\nlast line without an end" == (tmp_path / "kept.log").read_bytes()
    assert (tmp_path / "launcher.log").read_text().startswith("banner")


def test_ctrl_c_is_named_to_the_user_and_to_the_ranks(runner, tmp_path, capfd, monkeypatch):
    def interrupt() -> None:
        wait_until((tmp_path / "workerlog.0").exists, 60)  # the launcher takes signals now
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    assert train(runner, tmp_path, "waits", 75) == 75
    found = capfd.readouterr()
    assert found.err == "\nCtrl-C: saving, then stopping ...\n" and found.out.startswith("step 1\n")
    assert runner.stopped_by == "Ctrl-C"
    stop = StopRequest()
    monkeypatch.setenv(STOPPED_BY, str(tmp_path / "stopped_by"))
    stop._set(signal.SIGTERM, None)
    assert stop.signal_name == "Ctrl-C"
    train(Runner(), tmp_path)  # the next start is not told an old reason
    stop._set(signal.SIGTERM, None)
    assert stop.signal_name == "SIGTERM"


def test_ranks_of_paddles_launcher_are_signalled_directly(tmp_path):
    """Paddle's launcher would kill the ranks 30 seconds after its own SIGTERM, in the middle of a long save."""
    script = "import subprocess, sys; subprocess.Popen(['sleep', '30']).wait()"
    process = subprocess.Popen([sys.executable, "-c", script, "paddle.distributed.launch"])
    try:
        wait_until(lambda: ranks_of(process))
        ranks = ranks_of(process)
        assert len(ranks) == 1
        command = Path(f"/proc/{ranks[0]}/cmdline")  # empty until the process is that command
        wait_until(lambda: command.read_bytes().startswith((b"sleep", sys.executable.encode())))
    finally:
        for pid in ranks_of(process):
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()


ONLY_RANK = """
import os, signal, sys
from bert.parent_death import end_with_launcher
end_with_launcher()
print("rank", os.environ["PADDLE_TRAINER_ID"], os.environ.get("SECRET_KEY"), sys.flags.optimize, flush=True)
if sys.argv[1] == "forks":
    reading, writing = os.pipe()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        os.write(writing, b"x")
        signal.pause()
    os.read(reading, 1)
if sys.argv[1] == "waits":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(75))
    print("ready", flush=True)
    signal.pause()
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
print("error: a bad line")
sys.exit(2)
"""


@pytest.mark.parametrize(("mode", "code"), [("fails", 2), ("killed", 137), ("waits", 75)])
def test_a_single_rank_is_a_process_of_its_own(tmp_path, runner, monkeypatch, capfd, mode, code):
    """Output, exit code and signals are as for a rank of Paddle's launcher, which is not started."""
    monkeypatch.setenv("SECRET_KEY", "known to the rank")
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")  # Paddle's launcher would not start with it
    (tmp_path / "rank.py").write_text(ONLY_RANK)
    (tmp_path / "workerlog.0").write_text("a line of an earlier start\n")
    command, variables = start_of_ranks(Ranks(), "cpu", None, tmp_path, [tmp_path / "rank.py", mode])
    if mode == "waits":

        def stop():
            wait_until(lambda: "ready" in (tmp_path / "workerlog.0").read_text(), 60)
            runner._on_signal(signal.SIGTERM, None)

        threading.Thread(target=stop).start()
    assert runner.train(command, CONFIG, tmp_path, None, variables) == code
    shown = {"fails": "error: a bad line\n", "killed": "", "waits": "ready\n"}[mode]
    assert capfd.readouterr().out == f"rank 0 known to the rank 0\n{shown}"
    log = (tmp_path / "workerlog.0").read_text()
    assert log == f"a line of an earlier start\nrank 0 known to the rank 0\n{shown}"
    assert "known" not in "".join(path.read_text() for path in tmp_path.iterdir() if path.suffix != ".0")


def test_what_a_single_rank_forks_ends_with_it(tmp_path, runner):
    (tmp_path / "rank.py").write_text(ONLY_RANK)
    command, variables = start_of_ranks(Ranks(), "cpu", None, tmp_path, [tmp_path / "rank.py", "forks"])
    assert runner.train(command, CONFIG, tmp_path, None, variables) == 2
    numbers = [line for line in (tmp_path / "workerlog.0").read_text().splitlines() if line.isdecimal()]
    assert len(numbers) == 1
    wait_until(lambda: not Path(f"/proc/{numbers[0]}").exists(), 30)


PASSING_ON = """
import sys
from pathlib import Path
from bert.launching.worker_output import Display
display = Display(Path(sys.argv[1]), None)
for number in range(9999):
    display(f"line {number}\\n".encode())
"""


@pytest.mark.parametrize("broken", ["log", "folder", "stdout"])
def test_output_that_goes_nowhere_does_not_end_the_training(tmp_path, broken):
    (tmp_path / "file").write_text("")
    log = {"log": Path("/dev/full"), "folder": tmp_path / "file" / "log", "stdout": tmp_path / "log"}[broken]
    found = subprocess.Popen(
        [sys.executable, "-c", PASSING_ON, str(log)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if broken == "stdout":
        found.stdout.close()  # as `| head` does
        assert "console output failed and is switched off" in found.stderr.read()
        assert found.wait(timeout=60) == 0 and len(log.read_text().splitlines()) == 9999
        return
    stdout, stderr = found.communicate(timeout=60)
    assert found.returncode == 0 and len(stdout.splitlines()) == 9999
    assert stderr.count("failed and is switched off") == 1


def test_lines_are_given_once_and_only_when_they_are_complete(tmp_path):
    log = tmp_path / "workerlog.0"
    output = WorkerOutput(tmp_path)
    assert list(output.new_lines()) == []
    log.write_bytes(b"one\ntw")
    assert list(output.new_lines()) == [b"one\n"]
    log.write_bytes(b"one\ntwo\nthree")
    assert list(output.new_lines()) == [b"two\n"]
    assert list(output.new_lines(ended=True)) == [b"three"]
    assert list(WorkerOutput(tmp_path).new_lines(ended=True)) == []  # of an earlier start


def test_the_reason_is_of_the_rank_that_was_not_shown(tmp_path):
    (tmp_path / "workerlog.1").write_text("error: of an earlier start\n")
    output = WorkerOutput(tmp_path)
    (tmp_path / "workerlog.0").write_text("step 1\n")
    with open(tmp_path / "workerlog.1", "a") as log:
        log.write("Traceback (most recent call last):\n  a line\nMemoryError\n")
    assert output.unseen_reason() == [
        f"{tmp_path / 'workerlog.1'}:",
        "Traceback (most recent call last):",
        "  a line",
        "MemoryError",
    ]
    (tmp_path / "workerlog.0").write_text("step 1\nerror: the disk is full\n")
    assert output.unseen_reason() == []  # it was shown


DUMP = """

--------------------------------------
C++ Traceback (most recent call last):
--------------------------------------
No stack trace in paddle, may be caused by external reasons.

----------------------
Error Message Summary:
----------------------
FatalError: `Termination signal` is detected by the operating system.
  [SignalInfo: *** SIGTERM (@0x6dac) received by PID 28094 (TID 0x7fd416c92b80) from PID 28076 ***]

"""


def test_a_rank_that_the_launcher_ended_is_not_the_reason(tmp_path):
    """Paddle's launcher ends the other ranks when one fails, and then returns their exit code."""
    output = WorkerOutput(tmp_path)
    (tmp_path / "workerlog.0").write_text("step 1\n" + DUMP[:90])
    assert list(output.new_lines()) == [b"step 1\n"]
    (tmp_path / "workerlog.0").write_text("step 1\n" + DUMP)
    assert list(output.new_lines()) == []
    (tmp_path / "workerlog.1").write_text("error: a bad line\n")
    assert output.unseen_reason() == [f"{tmp_path / 'workerlog.1'}:", "error: a bad line"]
    assert output.exit_code() is None
    (tmp_path / "launcher.log").write_text(
        "LAUNCH ERROR Container failed !!!\nContainer rank 1 status failed cmd ['python'] code 2 log a/workerlog.1 \n"
    )
    assert output.exit_code() == 2


def test_the_code_of_a_rank_that_refused_counts_and_not_of_one_that_lost_it(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv(EXIT_CODE_FILE, str(tmp_path / "exit_code"))
    for error in (ValueError("a bad shard"), TrainingDiverged("later, on another rank")):
        with pytest.raises(SystemExit), command():
            raise error
    output = WorkerOutput(tmp_path)
    (tmp_path / "launcher.log").write_text("Container rank 0 status failed cmd ['python'] code 1 log a/workerlog.0 \n")
    assert output.exit_code() == 2  # of the first that reported an error
    (tmp_path / "exit_code").unlink()
    assert output.exit_code() == 1


def test_the_launchers_own_failure_is_shown_when_no_rank_started(tmp_path):
    output = WorkerOutput(tmp_path)
    (tmp_path / "launcher.log").write_text("".join(f"line {number}\n" for number in range(50)) + "port in use\n")
    reason = output.unseen_reason()
    assert len(reason) == 20 and reason[-1] == "port in use"
    (tmp_path / "workerlog.0").write_text("a rank began, and was killed\n")
    assert output.unseen_reason() == []

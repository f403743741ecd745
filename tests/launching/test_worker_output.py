"""The output of the ranks: lines as they come, and the reason of a failure that no shown line names."""

from bert.launching.process_runner import WorkerOutput


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
    """Paddle's launcher ends the other ranks when one fails, and then has their exit code."""
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


def test_the_launchers_own_failure_is_shown_when_no_rank_started(tmp_path):
    output = WorkerOutput(tmp_path)
    (tmp_path / "launcher.log").write_text("".join(f"line {number}\n" for number in range(50)) + "port in use\n")
    reason = output.unseen_reason()
    assert len(reason) == 20 and reason[-1] == "port in use"
    (tmp_path / "workerlog.0").write_text("a rank began, and was killed\n")
    assert output.unseen_reason() == []

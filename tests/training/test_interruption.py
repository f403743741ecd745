"""What stops a run: signals and a file. They set a flag and change nothing else.

That ranks stop together: tests/runtime/test_distributed.py.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.exit_codes import HUNG, STALLED
from bert.runtime.distributed import Collective, Group
from bert.training.interruption import STOP_FILE, StopOnAnyRank, StopRequest, Watchdog
from tests.support.messages import messages
from tests.support.waiting import wait_until


def test_a_file_made_while_the_run_starts_stops_it(tmp_path):
    stop = StopRequest()
    (tmp_path / STOP_FILE).touch()
    os.utime(tmp_path / STOP_FILE, (time.time() + 1,) * 2)
    with messages() as said:
        stop.watch(tmp_path)
    assert stop and said == [] and list(tmp_path.iterdir()) == []


class Sums(Collective):
    """The other ranks add nothing. Counts what makes the host wait for the device."""

    waits = 0

    def sum(self, values):
        self.waits += 1
        return values


def ranks(device: str, world_size: int = 8) -> tuple[StopOnAnyRank, StopRequest, Sums]:
    stop, sums = StopRequest(), Sums(Group(0, world_size, device), None)
    return StopOnAnyRank(stop, Group(0, world_size, device), sums), stop, sums


@pytest.mark.parametrize(("seconds_per_update", "looks"), [(15.0, 100), (0.5, 50), (0.1, 10), (0.004, 0), (0.0, 0)])
def test_the_host_waits_about_once_a_second(seconds_per_update, looks):
    shared, _, sums = ranks("gpu")
    shared.measured(seconds_per_update)
    sums.waits = 0
    assert not any(shared.after(step, waits=False) for step in range(1, 101))
    assert sums.waits == looks


def test_a_request_is_known_at_the_next_look():
    shared, stop, _ = ranks("gpu")
    shared.measured(0.1)
    stop.signal_name = "SIGTERM"
    assert [step for step in range(1, 31) if shared.after(step, waits=step == 25)] == [10, 20, 25, 30]


def test_before_anything_is_measured_and_on_a_cpu_each_update_is_followed_by_a_look():
    for device in ("gpu", "cpu"):
        shared, _, sums = ranks(device)
        if device == "cpu":
            shared.measured(0.001)
        assert not any(shared.after(step, waits=False) for step in range(1, 11))
        assert sums.waits == 10


PROGRAM = """
import ctypes, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from bert.training.interruption import Watchdog
library = None if sys.argv[3] == "beats" else ctypes.PyDLL(None) if sys.argv[3] == "held" else ctypes.CDLL(None)
def a_pass_that_hangs():
    for second in range(int(sys.argv[6])):
        if library is not None:
            library.sleep(60)
        time.sleep(0.05)
        watchdog.beat(f"update {second}")
with Watchdog(float(sys.argv[4]), Path(sys.argv[2]), int(sys.argv[5]), grace_seconds=0.5) as watchdog:
    watchdog.beat("update 7")
    a_pass_that_hangs()
"""


def start(folder: Path, kind: str, seconds: float = 0.6, rank: int = 0, beats: int = 20) -> subprocess.Popen:
    """`beats` come every 0.05 s."""
    words = [str(REPOSITORY), str(folder), kind, str(seconds), str(rank), str(beats)]
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stderr=subprocess.PIPE, text=True)


def test_a_run_that_moves_is_left_alone_and_leaves_nothing(tmp_path):
    process = start(tmp_path, "beats", seconds=1.5, beats=40)
    assert process.communicate(timeout=60)[1] == "" and process.returncode == 0
    assert not list(tmp_path.iterdir())


def test_a_request_of_a_run_that_was_given_up_does_not_end_the_next(tmp_path):
    (tmp_path / ".stalled").write_text("rank 0: nothing moved\n")
    with Watchdog(1.0, tmp_path, 0):
        time.sleep(0.4)
    assert not list(tmp_path.iterdir())


def test_ctrl_z_of_any_length_does_not_end_a_run(tmp_path):
    """Longer than the guard's time, while code outside of Python keeps the main thread; without care most runs end."""
    program, processes = PROGRAM.replace("sleep(60)", "sleep(3)"), {}
    for name in "abc":
        (tmp_path / name).mkdir()
        words = [sys.executable, "-c", program, str(REPOSITORY), str(tmp_path / name), "released", "4", "0", "1"]
        processes[name] = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, process_group=0)
    for name, process in processes.items():
        wait_until((tmp_path / name / "stacks/rank0.txt").exists)
        time.sleep(0.1)  # until the guard is there
        process.send_signal(signal.SIGTSTP)
        stat = Path(f"/proc/{process.pid}/stat")
        wait_until(lambda stat=stat: ") T " in stat.read_text())
    time.sleep(7)
    for process in processes.values():
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=60)[1] == "" and process.returncode == 0


@pytest.mark.parametrize("full", [True, False])
def test_a_log_that_cannot_be_written_does_not_keep_it_from_leaving(tmp_path, full):
    """Standard error is a closed pipe, the log a full device."""
    if full:
        (tmp_path / "stacks").mkdir()
        (tmp_path / "stacks" / "rank0.txt").symlink_to("/dev/full")
    process = start(tmp_path, "released")
    process.stderr.close()
    assert process.wait(timeout=60) == STALLED


def test_code_that_never_releases_the_interpreter_lock_ends_too(tmp_path):
    """No Python thread can run any more: faulthandler writes the stacks and exits, with the one code it knows."""
    process = start(tmp_path, "held")
    process.communicate(timeout=60)
    assert process.returncode == HUNG
    assert "a_pass_that_hangs" in (tmp_path / "stacks" / "rank0.txt").read_text()

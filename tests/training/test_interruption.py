"""Stop requests by signals and a file, which set a flag and change nothing else.

That ranks stop together: tests/runtime/test_distributed.py.
"""

import faulthandler
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from bert import REPOSITORY
from bert.exit_codes import HUNG, INTERRUPTED, STALLED
from bert.runtime.distributed import Collective, Group
from bert.training.interruption import (
    COMMAND_STARTED,
    FINISH_FILE,
    SIGNALS,
    STOP_FILE,
    STOPPED_BY,
    StopOnAnyRank,
    StopRequest,
    Watchdog,
)
from tests.support.messages import messages
from tests.support.waiting import wait_until


class Clock:
    def __init__(self):
        self.now = 10.0

    def __call__(self):
        return self.now


def test_the_file_is_looked_for_at_most_once_a_second(tmp_path):
    clock = Clock()
    stop = StopRequest(clock, age_seconds=4.0)
    assert stop.started == 6.0
    stop.watch(tmp_path)
    assert not stop
    (tmp_path / STOP_FILE).touch()
    clock.now += 0.9
    assert not stop
    clock.now += 0.1
    assert stop and stop.signal_name == str(tmp_path / STOP_FILE) and not (tmp_path / STOP_FILE).exists()
    (tmp_path / STOP_FILE).touch()
    clock.now += 9
    assert stop and (tmp_path / STOP_FILE).exists(), "one request is enough"


@pytest.mark.parametrize("name", [STOP_FILE, FINISH_FILE])
def test_a_file_of_an_earlier_run_is_removed_and_asks_for_nothing(tmp_path, monkeypatch, name):
    """The file is older than the command, which the launcher started before this process."""
    now = time.time()
    monkeypatch.setenv(COMMAND_STARTED, str(now - 100))
    for age, remains in ((101, False), (99, True)):
        stop = StopRequest(Clock())
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now - age,) * 2)
        with messages() as said:
            stop.watch(tmp_path)
        assert (tmp_path / name).exists() == remains
        assert said == ([] if remains else [f"{tmp_path / name} was left from an earlier run; removed"])
        asked = bool(stop) if name == STOP_FILE else stop.take_finish() == ""
        assert asked == remains and not (tmp_path / name).exists()


def test_what_the_file_finish_says_is_taken_once_and_by_the_rank_that_watches(tmp_path):
    stop = StopRequest(Clock())
    (tmp_path / FINISH_FILE).write_text(" 10m\n")
    assert stop.take_finish() is None, "it does not watch"
    stop.watch(tmp_path)
    assert stop.take_finish() == "10m" and stop.take_finish() is None
    (tmp_path / FINISH_FILE).write_bytes(b"\xff")
    assert stop.take_finish() == "", "no text"
    (tmp_path / STOP_FILE / "x").mkdir(parents=True)
    assert stop, "a folder cannot be removed, and counts all the same"


@pytest.fixture
def handlers():
    """Restore the signal handlers after the test."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_is_noted_by_its_name_or_by_that_of_the_launcher(tmp_path, monkeypatch, handlers):
    monkeypatch.delenv(STOPPED_BY, raising=False)
    for number, name in zip(SIGNALS, ("SIGTERM", "SIGINT", "SIGUSR1"), strict=True):
        stop = StopRequest().install()
        assert not stop
        signal.raise_signal(number)
        assert stop and stop.signal_name == name
    (tmp_path / "stopped").write_text("SIGHUP\n")
    monkeypatch.setenv(STOPPED_BY, str(tmp_path / "stopped"))
    stop = StopRequest().install()
    signal.raise_signal(signal.SIGTERM)
    assert stop.signal_name == "SIGHUP"


def test_once_all_is_saved_a_signal_ends_the_process(handlers):
    early = StopRequest().install()
    signal.raise_signal(signal.SIGTERM)
    with pytest.raises(SystemExit) as end:
        early.leave_at_once()
    assert end.value.code == INTERRUPTED
    for number in SIGNALS:
        stop = StopRequest()
        stop.leave_at_once()
        with pytest.raises(SystemExit) as end:
            signal.raise_signal(number)
        assert end.value.code == INTERRUPTED and stop


def test_a_file_made_while_the_run_starts_stops_it(tmp_path):
    stop = StopRequest()
    (tmp_path / STOP_FILE).touch()
    os.utime(tmp_path / STOP_FILE, (time.time() + 1,) * 2)
    with messages() as said:
        stop.watch(tmp_path)
    assert stop and said == [] and list(tmp_path.iterdir()) == []


class Sums(Collective):
    """Stands in for the sum over ranks: the others add nothing. It counts waits of the host for the device."""

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
    assert not any(shared.after(step, will_sync=False) for step in range(1, 101))
    assert sums.waits == looks


def test_a_request_is_known_at_the_next_look():
    shared, stop, _ = ranks("gpu")
    shared.measured(0.1)
    stop.signal_name = "SIGTERM"
    assert [step for step in range(1, 31) if shared.after(step, will_sync=step == 25)] == [10, 20, 25, 30]


def test_before_anything_is_measured_and_on_a_cpu_each_update_is_followed_by_a_look():
    for device in ("gpu", "cpu"):
        shared, _, sums = ranks(device)
        if device == "cpu":
            shared.measured(0.001)
        assert not any(shared.after(step, will_sync=False) for step in range(1, 11))
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
    """Start the program of this kind; its `beats` come every 0.05 s."""
    words = [str(REPOSITORY), str(folder), kind, str(seconds), str(rank), str(beats)]
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stderr=subprocess.PIPE, text=True)


def test_a_run_that_moves_is_left_alone_and_leaves_nothing(tmp_path):
    process = start(tmp_path, "beats", seconds=60, beats=3)
    assert process.communicate(timeout=60)[1] == "" and process.returncode == 0
    assert not list(tmp_path.iterdir())


class GaveUp(Exception):
    pass


class Watched(Watchdog):
    """Has a scripted clock: at each look this many seconds have passed, and something may have happened."""

    def __init__(self, folder, looks, seconds=8.0, rank=0):
        self.now, self._looks, self.armed = 100.0, iter(looks), []
        super().__init__(seconds, folder, rank, clock=lambda: self.now)
        self._thread = threading.Thread(target=lambda: None)  # the test looks instead

    def look(self) -> str | None:
        """Return the reason for which the process ends, if it does."""
        try:
            self._watch()
        except GaveUp as reason:
            return str(reason)
        return None

    def _wait(self, seconds):
        assert seconds == min(1.0, self._seconds / 4)
        step = next(self._looks, None)
        if step is None:
            return True
        passed, happens = step if isinstance(step, tuple) else (step, lambda watchdog: None)
        self.now += passed
        happens(self)
        return False

    def _arm(self, seconds):
        self.armed.append(seconds)

    def _give_up(self, reason, is_first):
        raise GaveUp(f"{'first' if is_first else 'follows'}: {reason}")


def beating(watchdog):
    watchdog.beat("update 8")


def test_only_a_silence_of_the_whole_time_ends_a_run(tmp_path):
    assert Watched(tmp_path, [1.0] * 7).look() is None
    reason = Watched(tmp_path, [1.0] * 9).look()
    assert reason == "first: rank 0: nothing moved for 8 s (--watchdog-seconds=8) since 'starting' began"
    assert Watched(tmp_path, [*[1.0] * 7, (1.0, beating), *[1.0] * 7]).look() is None
    reason = Watched(tmp_path, [*[1.0] * 7, (1.0, beating), *[1.0] * 8], rank=3).look()
    assert reason == "first: rank 3: nothing moved for 8 s (--watchdog-seconds=8) since 'update 8' began"
    assert Watched(tmp_path, [0.25] * 3, seconds=1.0).look() is None


def test_a_pause_of_the_whole_process_does_not_count(tmp_path):
    """After Ctrl-Z or a pause of the container, the watchdog itself slept far longer than it meant to."""
    assert Watched(tmp_path, [1.0, 1.0, 1000.0, *[1.0] * 4]).look() is None
    reason = Watched(tmp_path, [1.0, 1.0, 1000.0, *[1.0] * 5]).look()
    assert reason is not None and "nothing moved for 8 s" in reason, "the seconds before it do"
    assert Watched(tmp_path, [3.5] * 7).look() is None, "a quarter of its time longer than it meant to"
    assert Watched(tmp_path, [3.0, 3.0, 2.9]).look() is not None, "a busy machine is no pause"


def test_the_guard_of_a_stuck_interpreter_is_later_than_the_watchdog(tmp_path):
    watched = Watched(tmp_path, [1.0, 1.0, (1.0, beating), 1.0])
    watched.look()
    assert watched.armed == [8 - silent + 2 * 5 + 1 for silent in (1, 2, 0, 1)]


def stalls(watchdog):
    (watchdog._request).write_text("rank 1: nothing moved for 9 s\n")


def test_other_ranks_follow_one_that_stalled_in_this_run(tmp_path):
    (tmp_path / ".stalled").write_text("rank 5: of a run that was given up\n")
    os.utime(tmp_path / ".stalled", (1.0, 1.0))
    watched = Watched(tmp_path, [1.0, 1.0], rank=2)
    with watched:
        assert watched.look() is None, "that of an earlier run is ignored"
        watched._looks = iter([1.0, (1.0, stalls), 1.0])
        assert watched.look() == "follows: rank 2: rank 1: nothing moved for 9 s; here 'starting' began 4 s ago"


def test_a_request_of_a_run_that_was_given_up_does_not_end_the_next(tmp_path):
    (tmp_path / ".stalled").write_text("rank 0: nothing moved\n")
    with Watched(tmp_path, [1.0]) as watched:
        assert watched.look() is None and not (tmp_path / ".stalled").exists()
        assert Watchdog.active is watched
    assert signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL and signal.set_wakeup_fd(-1) == -1
    assert Watchdog.active is None
    assert not list(tmp_path.iterdir())


class Ended(BaseException):
    pass


@pytest.mark.parametrize("is_first", [True, False])
def test_a_rank_that_gives_up_writes_its_stacks_tells_the_others_and_ends(tmp_path, monkeypatch, capfd, is_first):
    """The first rank waits for the others, who see its file."""
    codes, slept = [], []

    def leave(code):
        codes.append(code)
        raise Ended

    monkeypatch.setattr(os, "_exit", leave)
    monkeypatch.setattr(time, "sleep", slept.append)
    watched = Watched(tmp_path, [], rank=3)
    with watched:
        with pytest.raises(Ended):
            Watchdog._give_up(watched, "rank 3: nothing moved", is_first)
        assert watched.armed[0] == 8 + 2 * 5, "the guard begins with the block"
        assert codes == [STALLED] and slept == ([5.0] if is_first else []) and watched.armed[-1] == 11.0
        stacks = (tmp_path / "stacks/rank3.txt").read_text()
        assert "rank 3: nothing moved\n" in stacks and "test_a_rank_that_gives_up" in stacks
        request = tmp_path / ".stalled"
        assert (request.read_text() if request.exists() else "") == ("rank 3: nothing moved\n" if is_first else "")
    errors = capfd.readouterr().err
    assert f"error: rank 3: nothing moved; stacks of all threads are in {tmp_path}/stacks. Start again" in errors


@pytest.mark.parametrize("has_shell", [True, False])
def test_at_ctrl_z_the_guard_is_off_before_the_process_stops(tmp_path, monkeypatch, has_shell):
    """Without a shell that could continue it, the process goes on."""
    calls = []
    monkeypatch.setattr(os, "getpgrp", lambda: os.getpid())
    monkeypatch.setattr(os, "getsid", lambda _: os.getppid() if has_shell else os.getpid())
    watchdog = Watchdog(60.0, tmp_path, 0)
    with watchdog:
        monkeypatch.setattr(faulthandler, "cancel_dump_traceback_later", lambda: calls.append("guard is off"))
        monkeypatch.setattr(os, "kill", lambda process, number: calls.append((process == os.getpid(), number)))
        os.write(watchdog._wake, bytes([signal.SIGTERM, signal.SIGTSTP]))
        wait_until(lambda: calls or not has_shell and not select.select([watchdog._signals], [], [], 0)[0])
    stopped = ["guard is off", (True, signal.SIGSTOP)]
    assert calls == ([*stopped, "guard is off"] if has_shell else ["guard is off"]), "and at the end"


@pytest.mark.long
def test_ctrl_z_of_any_length_does_not_end_a_run(tmp_path):
    """The pause is longer than the guard's time, while code outside of Python keeps the main thread."""
    words = [sys.executable, "-c", PROGRAM.replace("sleep(60)", "sleep(3)"), str(REPOSITORY), str(tmp_path)]
    options = {"stderr": subprocess.PIPE, "text": True, "process_group": 0}
    with subprocess.Popen([*words, "released", "4", "0", "1"], **options) as process:
        wait_until((tmp_path / "stacks/rank0.txt").exists)
        time.sleep(0.1)  # until the guard is there
        process.send_signal(signal.SIGTSTP)
        wait_until(lambda: ") T " in Path(f"/proc/{process.pid}/stat").read_text())
        time.sleep(7)
        process.send_signal(signal.SIGCONT)
        assert process.communicate(timeout=60)[1] == "" and process.returncode == 0


@pytest.mark.parametrize("full", [True, False])
def test_a_log_that_cannot_be_written_does_not_keep_it_from_leaving(tmp_path, full):
    """Standard error is a closed pipe, and the log is a full device."""
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

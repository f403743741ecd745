"""Tasks in several processes: the order of results, and every way in which a process may end."""

import errno
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait
from pathlib import Path
from types import SimpleNamespace

import pytest

from bert import REPOSITORY
from data.preprocessing import workers
from data.preprocessing.workers import run_ordered, scheduler
from tests.support.waiting import wait_until


def tasks(count: int) -> list[tuple[int]]:
    return [(number,) for number in range(count)]


def twice(number):
    time.sleep(0.02 * (number % 3 == 0))
    return os.getpid(), 2 * number


@pytest.mark.parametrize("num_workers", [1, 2, 5, 50])
@pytest.mark.parametrize("count", [0, 1, 2, 20])
def test_results_come_in_order_from_as_many_processes(num_workers, count):
    results = list(run_ordered(twice, tasks(count), num_workers))
    assert [result for _, result in results] == [2 * number for number in range(count)]
    pids = {pid for pid, _ in results}
    if num_workers == 1 or count < 2:
        assert pids <= {os.getpid()}
    else:
        assert os.getpid() not in pids and len(pids) <= num_workers
    assert not multiprocessing.active_children()


def count_starts(monkeypatch, then=lambda: None) -> list:
    """Count the processes that are started from now on; `then` is called after each start."""
    start, started = multiprocessing.context.ForkProcess.start, []

    def counted(process):
        start(process)
        started.append(process)
        then()

    monkeypatch.setattr(multiprocessing.context.ForkProcess, "start", counted)
    return started


@pytest.mark.parametrize(("num_workers", "count", "number"), [(50, 3, 3), (2, 9, 2), (1, 9, 0), (9, 1, 0)])
def test_no_more_processes_are_started_than_there_are_tasks(monkeypatch, num_workers, count, number):
    started = count_starts(monkeypatch)
    assert list(run_ordered(abs, [(-1,)] * count, num_workers)) == [1] * count and len(started) == number
    assert os.environ["TOKENIZERS_PARALLELISM"] == "false", "or the library warns of each fork"


def signal_oneself(number):
    os.kill(os.getpid(), signal.SIGINT)
    return number


def test_workers_leave_a_ctrl_c_to_their_parent():
    assert list(run_ordered(signal_oneself, tasks(3), 2)) == [0, 1, 2]


def fail_at_seven(number):
    if number == 7:
        raise ValueError("seven")
    return bytes(90_000)  # more than a pipe takes at once


def test_a_failure_ends_the_others_whatever_they_are_sending():
    with pytest.raises(ValueError, match="seven") as caught:
        list(run_ordered(fail_at_seven, tasks(60), 4))
    assert "fail_at_seven" in caught.value.__notes__[0]  # where it was
    assert not multiprocessing.active_children()


def fail_with(number, kind, *arguments):
    raise kind(*arguments)


def test_what_the_system_refused_a_task_keeps_its_number_and_path():
    arguments = (errno.ENOSPC, "No space left on device", "/somewhere")
    with pytest.raises(OSError) as caught:
        list(run_ordered(fail_with, [(number, OSError, *arguments) for number in range(2)], 2))
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/somewhere")


class OddError(Exception):
    """Cannot be copied: a copy is made with its text alone."""

    def __init__(self, number, text):
        super().__init__(text)


class OddValueError(OddError, ValueError):
    pass


@pytest.mark.parametrize(("kind", "copy"), [(OddError, RuntimeError), (OddValueError, ValueError)])
def test_an_error_that_cannot_be_copied_becomes_one_of_the_same_text(kind, copy):
    with pytest.raises(copy) as caught:
        list(run_ordered(fail_with, [(number, kind, 7, "seven of nine") for number in range(2)], 2))
    assert type(caught.value) is copy and str(caught.value) == "seven of nine"
    assert f"{kind.__name__}: seven of nine" in caught.value.__notes__[0]


def test_a_ctrl_c_while_workers_are_started_comes_when_all_are(monkeypatch):
    """A signal during a fork would be dropped, or would end a child that nobody waits for."""
    started = count_starts(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGINT))
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        list(run_ordered(time.sleep, [(5,)] * 3, 3))
    assert len(started) == 3 and not multiprocessing.active_children()
    assert signal.getsignal(signal.SIGINT) is before


@contextmanager
def in_own_session(program):
    """Run a Python program; at the end all its processes are ended, even if the test fails."""
    with subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.long
@pytest.mark.parametrize("num_workers", [2, 64])
def test_a_ctrl_c_while_workers_are_started_is_not_lost(num_workers):
    program = (
        "import time\nfrom data.preprocessing.workers import run_ordered\n"
        "def work(number):\n    time.sleep(600)\n"
        "try:\n    print(flush=True)\n    list(run_ordered(work, [(number,) for number in range(99)], "
        f"{num_workers}))\nexcept KeyboardInterrupt:\n    print('interrupted')"
    )
    for trial in range(8):
        with in_own_session(program) as process:
            process.stdout.readline()
            time.sleep(0.01 * trial)
            os.killpg(process.pid, signal.SIGINT)
            output, errors = process.communicate(timeout=60)
            assert (output, errors) == ("interrupted\n", ""), trial


def has_ended(pid: str) -> bool:
    """Tell whether a process is gone, or only its parent still waits for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:
        return True


def outlast_the_others(number, folder):
    """Make the first task wait for the end of the other task's process, which has nothing left to do."""
    if number:
        (folder / "pid").write_text(str(os.getpid()))
        return number
    wait_until(lambda: (folder / "pid").exists() and (folder / "pid").read_text())
    wait_until(lambda: has_ended((folder / "pid").read_text()))
    return number


def test_the_end_of_a_worker_without_work_is_no_failure(tmp_path):
    assert list(run_ordered(outlast_the_others, [(0, tmp_path), (1, tmp_path)], 2)) == [0, 1]


def end_at_three(number, how):
    if number == 3:
        how()
    return number


@pytest.mark.parametrize(
    "how,message",
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), r"by signal 9 \(Killed\), .*fewer workers"),
        (lambda: os._exit(0), "with status 0, and start again"),
        (lambda: os._exit(5), "with status 5, and start again: finished work is kept"),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), r"by signal 15 \(Terminated\), and start again"),
    ],
)
def test_a_worker_that_is_lost_is_an_error_and_not_a_wait(how, message):
    with pytest.raises(ChildProcessError, match=f"a worker process ended {message}"):
        list(run_ordered(end_at_three, [(number, how) for number in range(9)], 2))
    assert not multiprocessing.active_children()


def outlast_sigterm(folder):
    """Ignore SIGTERM, as a task whose library handles it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / f"{os.getpid()} began").touch()
    time.sleep(5)
    (folder / f"{os.getpid()} ended").touch()


def test_a_worker_that_ignores_sigterm_is_killed(tmp_path):
    results = run_ordered(lambda number: number or outlast_sigterm(tmp_path), [(1,), (0,), (0,)], 2)
    assert next(results) == 1
    wait_until(lambda: [*tmp_path.glob("* began")])
    results.close()
    assert not multiprocessing.active_children() and not [*tmp_path.glob("* ended")]


def leave_a_thread(number, folder):
    """Leave a thread, as a library of a task may do: the process waits for its thread before it ends."""

    def work():
        time.sleep(5)
        (folder / "ended").touch()

    if number:
        threading.Thread(target=work).start()
    return outlast_the_others(number, folder)


def test_a_worker_that_does_not_end_after_its_last_task_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "_SECONDS_TO_END", 0.2)
    assert list(run_ordered(leave_a_thread, [(0, tmp_path), (1, tmp_path)], 2)) == [0, 1]
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists(), "not even as an entry that nobody waits for"
    assert not multiprocessing.active_children() and not (tmp_path / "ended").exists()


def test_a_caller_that_leaves_ends_the_workers():
    results = run_ordered(twice, tasks(1000), 2)
    assert next(results)[1] == 0
    results.close()
    assert not multiprocessing.active_children()


def test_workers_end_with_their_parent():
    program = (
        "import os, time\nfrom data.preprocessing.workers import run_ordered\n"
        "def work(number):\n    os.write(1, b'%d\\n' % os.getpid())\n    time.sleep(600)\n"
        "list(run_ordered(work, [(1,), (2,)], 2))"
    )
    with in_own_session(program) as process:
        workers = [Path(f"/proc/{int(process.stdout.readline())}/cmdline") for _ in range(2)]
        process.kill()
        process.wait()
        wait_until(lambda: not any(worker.exists() and worker.read_bytes() for worker in workers), 30)


def let_seem_idle(monkeypatch, waits: set[int], ticks) -> None:
    """Let the wait for results with each of these numbers end without one."""
    numbers = itertools.count(1)
    monkeypatch.setattr(workers, "wait", lambda pipes, _: [] if next(numbers) in waits else wait(pipes))
    monkeypatch.setattr(workers, "_cpu_ticks", lambda _: next(ticks))


def test_workers_that_seem_idle_once_are_waited_for(monkeypatch):
    """After a Ctrl-Z the clock has moved while all processes stood still; workers that seem idle twice are an error."""
    numbers = [(-number,) for number in range(9)]
    let_seem_idle(monkeypatch, {1, 3, 5}, itertools.repeat(0))
    assert list(run_ordered(abs, numbers, 2)) == [*range(9)]
    let_seem_idle(monkeypatch, {2, 3}, itertools.repeat(0))
    with pytest.raises(ChildProcessError, match="have done nothing"):
        list(run_ordered(abs, numbers, 2))


def test_workers_that_use_the_processor_are_not_idle_however_long_a_task_takes(monkeypatch):
    let_seem_idle(monkeypatch, {*range(1, 20)}, itertools.count())
    assert list(run_ordered(abs, [(-1,), (-2,)], 2)) == [1, 2]


def test_workers_that_do_nothing_are_an_error_and_not_a_wait(monkeypatch):
    """Workers do nothing, for example, if a file system does not answer."""
    monkeypatch.setattr("data.preprocessing.workers._IDLE_SECONDS", 0.2)
    with pytest.raises(ChildProcessError, match=r"processes \d+ \d+ have done nothing for 0.4 s: .*; start again"):
        list(run_ordered(time.sleep, [(600,)] * 4, 2))


# ---- Dask ----


class FakeDask:
    """Stands in for the used parts of `distributed` and `dask_jobqueue`; a task runs when its result is requested."""

    def __init__(self, monkeypatch):
        self.begun, self.cancelled, self.clusters = [], [], []
        dask = self

        class Cluster:
            def __init__(self, **options):
                self.options, self.jobs, self.is_open = options, None, False

            def __enter__(self):
                self.is_open = True
                return self

            def __exit__(self, *_):
                self.is_open = False

            def scale(self, jobs):
                self.jobs = jobs

        class Client(Cluster):
            def __init__(self, cluster):
                super().__init__()
                dask.clusters.append(cluster)

            def submit(self, function, *task, pure):
                assert not pure, "Dask would take the tasks' results from an earlier command"
                dask.begun.append(task)
                return SimpleNamespace(result=lambda: function(*task), task=task)

            def cancel(self, futures):
                dask.cancelled += [future.task for future in futures]

        monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Client, LocalCluster=Cluster))
        monkeypatch.setitem(sys.modules, "dask_jobqueue", SimpleNamespace(SLURMCluster=Cluster))


def test_a_command_that_leaves_cancels_what_it_gave_to_a_cluster(monkeypatch):
    dask = FakeDask(monkeypatch)
    with scheduler("dask", 2, "tcp://host:8786") as run:
        results = run(abs, [(-number,) for number in range(5)])
        assert [next(results), next(results)] == [0, 1]
        assert dask.begun == [(-number,) for number in range(5)] and not dask.cancelled
        results.close()
    assert dask.cancelled == [(-2,), (-3,), (-4,)] and dask.clusters == ["tcp://host:8786"]
    with scheduler("dask", 2, "tcp://host:8786") as run:
        assert list(run(abs, [(-7,), (8,)])) == [7, 8]
        with pytest.raises(TypeError):
            list(run(abs, [("a",), (1,), (2,)]))
    assert dask.cancelled[3:] == [("a",), (1,), (2,)], "after a failure too"


def test_a_cluster_of_ones_own_has_as_many_workers_as_asked_for_and_ends(monkeypatch):
    dask = FakeDask(monkeypatch)
    with scheduler("dask", 3):
        local = dask.clusters[-1]
        assert local.is_open and (local.options["n_workers"], local.options["threads_per_worker"]) == (3, 1)
    with scheduler("slurm", 5):
        slurm = dask.clusters[-1]
        assert slurm.is_open and (slurm.jobs, slurm.options["processes"]) == (5, 1)
        assert slurm.options["job_script_prologue"] == [f'export PYTHONPATH="{REPOSITORY}:$PYTHONPATH"']
    assert not local.is_open and not slurm.is_open


def test_the_local_scheduler_runs_tasks_in_its_number_of_processes():
    with scheduler("local", 2) as run:
        pids = {pid for pid, _ in run(twice, tasks(9))}
    assert os.getpid() not in pids and len(pids) <= 2


def test_what_cannot_be_scheduled_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    for arguments, text in (
        (("local", 2, "tcp://a:1"), "--scheduler-address=tcp://a:1 is of a Dask scheduler; give --scheduler dask"),
        (("dask", 2), "distributed is not installed; .*dask.*, or leave out --scheduler"),
    ):
        with pytest.raises(ValueError, match=text), scheduler(*arguments):
            pass

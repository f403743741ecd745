"""Two nodes with separate networks: the launcher started by hand, and scripts/run_pretraining.sh, which finds
addresses.

bash scripts/run_tests.sh tests/cluster      needs root and iproute2
"""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import workplace
from workplace import Host, two_hosts

from tests.support.full_counts import IS_FULL
from tests.support.waiting import wait_until

REASON = workplace.why_not()
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"no network namespaces: {REASON}")
STEPS = "30"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("two_hosts")
    workplace.make(made)
    return made


def script(folder: Path, name: str, *more: str) -> list[str]:
    """Return the command of run_pretraining.sh for phase 1 of the tiny training, on the CPU."""
    return [
        *shlex.split(
            f"bash {workplace.REPOSITORY / 'scripts/run_pretraining.sh'} --config large --phase1 --device cpu "
            f"--no-amp --num-workers 0 --seed 7 --max-steps {STEPS} --vocab-file {folder / 'vocab.txt'} "
            f"--input-dir {folder / 'shards1'} --batch-size 4 --global-batch-size 16 --num-steps-per-checkpoint 10 "
            f"--output-dir {folder / name}"
        ),
        *workplace.flags(folder, 1),
        *more,
    ]


def start(command: list[str], folder: Path, log: str, **environment: str) -> subprocess.Popen:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PADDLE_", "FLAGS_"))}
    with open(folder / log, "w") as output:
        return subprocess.Popen(
            command,
            cwd=folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**clean, "BERT_PYTHON": sys.executable, "OMP_NUM_THREADS": "1", **environment},
        )


def finish(processes: list[subprocess.Popen], logs: list[Path], seconds: float = 300) -> list[int]:
    """Return exit codes; a process that still runs after `seconds` is ended with its own group."""
    deadline = time.monotonic() + seconds
    try:
        return [process.wait(max(1.0, deadline - time.monotonic())) for process in processes]
    except subprocess.TimeoutExpired:
        raise AssertionError("\n".join(log.read_text()[-3000:] for log in logs)) from None
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture(scope="module")
def on_one_host(folder) -> dict[str, str]:
    """Return the sha256 of the weights that two ranks on one host reach."""
    process = start(script(folder, "one_host", "--num-processes", "2"), folder, "one_host.log")
    assert finish([process], [folder / "one_host.log"]) == [0], (folder / "one_host.log").read_text()
    return workplace.weights_sha256(folder / "one_host", 1)


def test_the_script_trains_across_two_hosts_as_on_one(folder, on_one_host):
    """The proxy leads nowhere: a launcher that asked it for the other node would wait for ever."""
    with two_hosts() as hosts:
        logs = [folder / f"script{rank}.log" for rank in range(2)]
        nodes = ["--num-nodes", "2", "--num-processes", "1", "--master", f"{hosts[0].address}:6071"]
        processes = []
        for rank in (1, 0):  # the second node is up first, and waits
            command = hosts[rank].command(script(folder, "script", *nodes, "--node-rank", str(rank)))
            processes.append(start(command, folder, logs[rank].name, http_proxy="http://10.231.0.99:3128"))
            time.sleep(3)
        assert finish(processes, logs) == [0, 0], logs[0].read_text() + logs[1].read_text()
    assert f"waiting for the first node at {hosts[0].address}:6071" in logs[1].read_text()
    assert workplace.weights_sha256(folder / "script", 1) == on_one_host


def test_a_lost_host_ends_the_other_and_the_same_command_continues(folder, on_one_host):
    """One node ends as by a loss of power: its processes end at once, without closing their connections."""
    with two_hosts() as hosts:
        logs = [folder / f"lost{rank}.log" for rank in range(2)]
        nodes = ["--num-nodes", "2", "--num-processes", "1", "--master", f"{hosts[0].address}:6072"]

        def both() -> list[subprocess.Popen]:
            return [
                start(host.command(script(folder, "lost", *nodes, "--node-rank", str(rank))), folder, logs[rank].name)
                for rank, host in enumerate(hosts)
            ]

        processes = both()
        wait_until((folder / "lost/bert-tiny/phase1/10/manifest.json").exists, 200)
        for pid in pids_of(hosts[1]):
            os.kill(pid, signal.SIGKILL)
        codes = finish(processes, logs, 200)
        assert 0 not in codes, codes
        assert finish(both(), logs) == [0, 0], logs[0].read_text() + logs[1].read_text()
    assert "continuing " in logs[0].read_text()
    reached = workplace.weights_sha256(folder / "lost", 1)
    assert {name: reached.get(name) for name in on_one_host} == on_one_host


TROUBLES = ("packets dropped for 1 s", "packets dropped for 30 s", "a node stopped for 8 s", "a full /dev/shm")
TROUBLES += ("packets dropped for 300 s",) * IS_FULL


def pids_of(host: Host) -> list[int]:
    listed = subprocess.run(["ip", "netns", "pids", host.name], capture_output=True, text=True, check=True).stdout
    return [int(pid) for pid in listed.split()]


@contextlib.contextmanager
def troubled(trouble: str, hosts: tuple[Host, Host]) -> Iterator[None]:
    """Make the network lose all packets, or the second node stand still, for some seconds."""
    if "packets" in trouble:  # they are sent to a card that is not there
        wrong = ["lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev"]
        for host, other in (hosts, hosts[::-1]):
            workplace.ip("-n", host.name, "neigh", "replace", other.address, *wrong, host.device)
    stopped = pids_of(hosts[1]) if "stopped" in trouble else []
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    if "packets" in trouble:
        for host, other in (hosts, hosts[::-1]):
            workplace.ip("-n", host.name, "neigh", "delete", other.address, "dev", host.device)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_run_in_trouble_goes_on_or_ends_in_time_with_the_cause(folder, on_one_host, trouble):
    name = trouble.replace(" ", "-").replace("/", "")
    with two_hosts() as hosts:
        logs = [folder / f"{name}{rank}.log" for rank in range(2)]
        nodes = ["--num-nodes", "2", "--num-processes", "1", "--master", f"{hosts[0].address}:6073"]
        seconds = next((int(word) for word in trouble.split() if word.isdecimal()), 0)

        def both() -> list[subprocess.Popen]:
            commands = [script(folder, name, *nodes, "--node-rank", str(rank)) for rank in range(2)]
            if "shm" in trouble:  # each host has mounts of its own
                full = "mount -t tmpfs -o size=4k none /dev/shm && head -c 9999 /dev/zero > /dev/shm/full; exec "
                commands = [["sh", "-c", full + shlex.join(command)] for command in commands]
            return [start(h.command(c), folder, log.name) for h, c, log in zip(hosts, commands, logs, strict=True)]

        processes = both()
        metrics = folder / name / "phase1/metrics.jsonl"
        wait_until(lambda: metrics.exists() or processes[0].poll() is not None, 200)
        with troubled(trouble, hosts):
            time.sleep(seconds)
        codes = finish(processes, logs, 300)
        if codes != [0, 0]:
            said = [log.read_text() for log in logs]
            assert 0 not in codes and any("rror" in text for text in said), said
            assert finish(both(), logs) == [0, 0], logs[0].read_text() + logs[1].read_text()
    assert workplace.weights_sha256(folder / name, 1) == on_one_host

"""Starts real ranks with Paddle's launcher, as a user does."""

import contextlib
import fcntl
import os
import shlex
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from bert import REPOSITORY
from bert.commands import classify, glue, ner, squad, vectors
from bert.commands.pretrain import LAUNCHER
from bert.launching.arguments import CommandLine, read_command_line

RANKS = REPOSITORY / "tests" / "ranks"
COMMANDS = {"squad": squad, "glue": glue, "classify": classify, "ner": ner, "vectors": vectors}
_LOCKED: list[contextlib.ExitStack] = []
LAUNCHERS = {task: command.LAUNCHER for task, command in COMMANDS.items()}


def line_of(*words: str) -> CommandLine:
    """Return the command line of scripts/run_pretraining.sh."""
    return read_command_line(LAUNCHER, words)


def launch(
    script: Path, *arguments: str, log_dir: Path, nproc: int = 2, options: tuple[str, ...] = (), timeout: float = 300.0
) -> None:
    """Run `script` in `nproc` ranks on this host; AssertionError with the ranks' output when it fails."""
    process = start(script, *arguments, log_dir=log_dir, nproc=nproc, options=options)
    wait([process], [log_dir], timeout)


def launch_two_hosts(script: Path, *arguments: str, log_dir: Path, timeout: float = 300.0) -> None:
    """Start two launchers that meet on loopback, one rank each, as two hosts would."""
    master = ("--master", f"127.0.0.1:{free_ports(1)[0]}", "--nnodes", "2")
    logs = [log_dir / f"host{number}" for number in range(2)]
    processes = [
        start(script, *arguments, log_dir=log, nproc=1, options=(*master, "--rank", str(number)))
        for number, log in enumerate(logs)
    ]
    wait(processes, logs, timeout)


def start(script: Path, *arguments: str, log_dir: Path, nproc: int, options: tuple[str, ...]) -> subprocess.Popen:
    command = [
        *shlex.split(f"{sys.executable} -m paddle.distributed.launch --nproc_per_node {nproc} --log_dir {log_dir}"),
        *options,
        str(script),
        *arguments,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PADDLE_", "FLAGS_"))}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait(processes: list[subprocess.Popen], logs: list[Path], timeout: float) -> None:
    try:
        output = "".join(process.communicate(timeout=timeout)[0] for process in processes)
    finally:
        for process in processes:
            process.terminate()  # the launcher takes its ranks along
    if any(process.returncode for process in processes):
        ranks = [path.read_text()[-3000:] for log in logs for path in sorted(log.glob("workerlog.*"))]
        raise AssertionError("\n".join([output[-2000:], *ranks]))


def free_ports(count: int) -> list[int]:
    """Return neighbouring ports that no other test of this machine has while this process lives.

    They are below those that the system hands out itself (32768), which another program may get at any time.
    """
    folder = Path(tempfile.gettempdir(), f"bert-test-ports-{os.getuid()}")
    folder.mkdir(exist_ok=True)
    for first in range(21_000, 32_000 - count, count):
        ports = range(first, first + count)
        with contextlib.suppress(OSError), contextlib.ExitStack() as files:
            for port in ports:
                file = files.enter_context(open(folder / str(port), "w"))
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                with socket.socket() as listener:
                    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    listener.bind(("127.0.0.1", port))
            _LOCKED.append(files.pop_all())
            return list(ports)
    raise AssertionError("no port is free")

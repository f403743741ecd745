"""Runs commands as a user types them into a shell in the root of a clone, and ends all their processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import psutil

SECONDS = 600.0  # of a command on a busy machine


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Return variables of a shell whose `python` is the clone's, or else the interpreter of these tests."""
    programs = [folder / ".venv/bin", Path(sys.executable).parent]
    path = os.pathsep.join([*(str(place) for place in programs if place.is_dir()), os.environ["PATH"]])
    return {**os.environ, "PATH": path, **variables}


def start(
    line: str, folder: Path, stdin: int | None = subprocess.DEVNULL, stderr: int = subprocess.STDOUT, **variables: str
) -> subprocess.Popen[str]:
    """Start a shell's command in a session of its own; its output is text in a pipe."""
    return subprocess.Popen(
        ["bash", "-c", line],
        cwd=folder,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
        env=environment(folder, **variables),
    )


def finished(process: subprocess.Popen[str], text: str | None = None, timeout: float = 1500) -> tuple[int, str]:
    """Return (exit code, standard output); after `timeout` seconds the command is killed with all its processes."""
    try:
        output, _ = process.communicate(text, timeout=timeout)
    except subprocess.TimeoutExpired:
        kill_all(process)
        raise
    return process.returncode, output


def run(line: str, folder: Path, timeout: float = SECONDS, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, whatever its exit code; standard output and error are apart."""
    process = start(line, folder, stderr=subprocess.PIPE, **variables)
    try:
        output, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        left = processes_in(folder)
        kill_all(process)
        shown = "".join(process.communicate())[-4000:]
        raise AssertionError(f"{line}\ntook over {timeout:g} s:\n{shown}\nprocesses:\n{left}") from None
    return subprocess.CompletedProcess(line, process.returncode, output, errors)


def output_of(line: str, folder: Path, *parts: str, code: int = 0, timeout: float = SECONDS, **variables: str) -> str:
    """Return the standard output of a command; check its exit code, and that the `parts` are in the output."""
    done = run(line, folder, timeout, **variables)
    shown = done.stdout[-4000:] + done.stderr[-4000:]
    assert done.returncode == code and "Traceback" not in shown, f"{line}\nended with {done.returncode}:\n{shown}"
    missing = [part for part in parts if part not in done.stdout]
    assert not missing, f"{line}\n{missing} are not in\n{done.stdout[-4000:]}"
    return done.stdout


@contextmanager
def started(line: str, folder: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command in the block; nothing of it outlives the block."""
    process = start(f"exec {line}", folder, **variables)
    end = Timer(SECONDS, kill_all, [process])
    end.start()
    try:
        yield process
    finally:
        end.cancel()
        kill_all(process)
        process.wait()


def processes_in(folder: Path) -> str:
    """Return a line for each process in a folder, which tells where it waits, after a command that did not end."""
    lines = []
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()).is_relative_to(folder):
                waits = Path(f"/proc/{process.pid}/wchan").read_text()
                times, words = process.cpu_times(), " ".join(process.cmdline())
                lines.append(
                    f"{process.pid} of {process.ppid()}, {process.status()}, {times.user + times.system:.0f} CPU s, "
                    f"{process.num_threads()} threads, {waits}: {words[:200]}"
                )
        except (psutil.Error, OSError):
            continue
    return "\n".join(lines)


def kill_all(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """Return the output of the process up to the line that has the text."""
    seen = ""
    for line in process.stdout or ():
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"ended without {text!r}:\n{seen[-4000:]}")


def interrupted(line: str, folder: Path, text: str, **variables: str) -> tuple[str, str]:
    """Type Ctrl-C once the line with the text is printed; return the output up to there, and the rest.

    The command must end with the exit code that says: the same command resumes.
    """
    from bert.exit_codes import INTERRUPTED

    with started(line, folder, **variables) as process:
        seen = read_until(process, text)
        os.killpg(process.pid, signal.SIGINT)
        rest, _ = process.communicate()
    assert process.returncode == INTERRUPTED, f"{line}\nended with {process.returncode}:\n{seen[-3000:]}{rest}"
    return seen, rest

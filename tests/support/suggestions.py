"""Commands that the outputs of commands suggest: collected, and run as they were printed."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path

# On a line of its own behind spaces, or behind a colon and two spaces; three spaces or a comment end it.
_SUGGESTION = re.compile(r"(?:^ +|:  )((?:bash \S*scripts/|\S*python\S* |\S*visualdl ).*?)(?:   .*)?$", re.M)
SENTENCES = "The function returns the [MASK] of the list.\nUse this to open the [MASK].\n"
PAIRS = "Where is the list?\tThe function returns the list to the caller.\n"
LABELLED = "text,label\n" + "".join(f"line {n} of the {kind},{kind}\n" for n in range(30) for kind in ("list", "tree"))
_PORT = "8137"


def suggestions(output: str) -> list[str]:
    return _SUGGESTION.findall(re.sub(r" \\\n +", " ", output))  # a long command goes on in the next line


def environment(**variables: str) -> dict[str, str]:
    """In which `python` is the one of these tests."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, **variables}


def start(line: str, folder: Path, stdin: int | None = subprocess.DEVNULL) -> subprocess.Popen:
    """A shell's command, in a session of its own."""
    return subprocess.Popen(
        ["bash", "-c", f"exec {line}"],
        cwd=folder,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env=environment(),
    )


def finished(process: subprocess.Popen, text: str | None = None, timeout: float = 1500) -> tuple[int, str]:
    """(exit code, output)."""
    try:
        output, _ = process.communicate(text, timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, output


def try_all(outputs: Iterable[str], folder: Path, known: Iterable[str] = ()) -> list[str]:
    """Run every suggestion of the outputs, and those of their own outputs; returns what was run.

    Args:
        folder: the current folder of the commands that made the outputs.
        known: commands that were run before.
    """
    tried = list(known)
    waiting = [line for output in outputs for line in suggestions(output)]
    while waiting:
        line = waiting.pop(0)
        if line not in tried:
            tried.append(line)
            waiting += suggestions(try_one(line, folder))
    return tried


def try_one(line: str, folder: Path) -> str:
    """The output of a suggested command; of a longer training only the plan is made, VisualDL ends when it answers."""
    if "visualdl" in line.split()[0]:
        _try_visualdl(line, folder)
        return ""
    if "YOUR.csv" in line:
        (folder / "YOUR.csv").write_text(LABELLED)
    if "YOUR.txt" in line:
        (folder / "YOUR.txt").write_text(SENTENCES)
    if ("run_pretraining.sh" in line or "YOUR.csv" in line) and not line.endswith(("--dry-run", "--help")):
        line += " --dry-run"
    code, output = finished(start(line, folder, subprocess.PIPE), SENTENCES)
    if code == 2 and "separated by a tab" in output:  # a model of pairs says how they are given
        code, output = finished(start(line, folder, subprocess.PIPE), PAIRS)
    assert code == 0 and "Traceback" not in output, f"{line}\n{output}"
    return output


def _try_visualdl(line: str, folder: Path) -> None:
    process = start(f"{line} --port {_PORT}", folder)
    try:
        for _ in range(60):
            time.sleep(1)
            try:
                request = urllib.request.Request(
                    f"http://127.0.0.1:{_PORT}/app/scalar", headers={"Accept-Language": "en"}
                )
                with urllib.request.urlopen(request, timeout=5) as page:
                    assert page.status == 200
                    return
            except OSError:
                assert process.poll() is None, process.communicate()[0]
        raise AssertionError(f"no answer from {line}")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

"""Collects commands that other commands' outputs suggest, and runs them as printed."""

import re
import subprocess
import time
import urllib.request
from collections.abc import Iterable
from pathlib import Path

from tests.support.launching import free_ports
from tests.support.shell import finished, start, started

# On a line of its own behind spaces, or behind a colon and two spaces; three spaces or a comment end it.
_SUGGESTION = re.compile(r"(?:^ +|:  )((?:bash \S*scripts/|\S*python\S* |\S*visualdl ).*?)(?:   .*)?$", re.M)
SENTENCES = "The function returns the [MASK] of the list.\nUse this to open the [MASK].\n"
PAIRS = "Where is the list?\tThe function returns the list to the caller.\n"
LABELLED = "text,label\n" + "".join(f"line {n} of the {kind},{kind}\n" for n in range(30) for kind in ("list", "tree"))


def suggestions(output: str) -> list[str]:
    return _SUGGESTION.findall(re.sub(r" \\\n +", " ", output))  # a long command goes on in the next line


def try_all(outputs: Iterable[str], folder: Path, known: Iterable[str] = ()) -> list[str]:
    """Run every suggestion of the outputs, and the suggestions of their own outputs; return the commands that ran.

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
    """Return the output of a suggested command; long trainings are planned or short, VisualDL ends when it answers."""
    if "visualdl" in line.split()[0]:
        _try_visualdl(line, folder)
        return ""
    if "YOUR.csv" in line:
        (folder / "YOUR.csv").write_text(LABELLED)
    if "YOUR.txt" in line:
        (folder / "YOUR.txt").write_text(SENTENCES)
    if ("run_pretraining.sh" in line or "YOUR.csv" in line) and not line.endswith(("--dry-run", "--help")):
        line += " --dry-run"
    if "run_squad.sh" in line and "--epochs" not in line:
        line += " --epochs 1"
    code, output = finished(start(line, folder, subprocess.PIPE), SENTENCES)
    if code == 2 and "separated by a tab" in output:  # a model of pairs says how they are given
        code, output = finished(start(line, folder, subprocess.PIPE), PAIRS)
    assert code == 0 and "Traceback" not in output, f"{line}\n{output}"
    return output


def _try_visualdl(line: str, folder: Path) -> None:
    (port,) = free_ports(1)
    with started(f"{line} --port {port}", folder) as process:
        answer_of(f"http://127.0.0.1:{port}/app/scalar", process)


def answer_of(url: str, process: subprocess.Popen[str], part: str = "") -> str:
    """Return a new server's answer once the `part` is in it; AssertionError after a minute, or when it ends."""
    request = urllib.request.Request(url, headers={"Accept-Language": "en"})
    deadline, shown = time.monotonic() + 60, ""
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        try:
            with urllib.request.urlopen(request, timeout=5) as page:
                shown = page.read().decode(errors="replace")
        except OSError as error:
            shown = str(error)
        else:
            if part in shown:
                return shown
        time.sleep(0.05)
    raise AssertionError(f"{url} has no {part!r} after a minute: {shown[-1000:]}")

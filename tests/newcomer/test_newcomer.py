"""A newcomer's way: one command on a folder of text, stopped and started again, then every command that it suggests.

Minutes each. BERT_NEWCOMER_HOURS is the time that the trainings are given (default 0.1); BERT_NEWCOMER_REPORT is a file
that gets two lines for each folder: what was chosen and what was learned.
"""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from bert import REPOSITORY, exit_codes
from tests.newcomer import folders

HOURS = float(os.environ.get("BERT_NEWCOMER_HOURS", "0.1"))
# Commands stand on lines of their own, behind spaces; a comment may follow behind three of them.
SUGGESTION = re.compile(r"^ +((?:bash scripts/|\S*python\S* |\S*visualdl ).*?)(?:   .*)?$", re.M)
SENTENCES = "The function returns the [MASK] of the list.\nUse this to open the [MASK].\n"

pytestmark = pytest.mark.slow


def start(line: str, stdin: int | None = subprocess.DEVNULL, **environment: str) -> subprocess.Popen:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        ["bash", "-c", f"exec {line}"],
        cwd=REPOSITORY,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        env={**os.environ, "PATH": path, **environment},
    )


def finished(process: subprocess.Popen, text: str | None = None, timeout: float = 1500) -> tuple[int, str]:
    try:
        output, _ = process.communicate(text, timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    return process.returncode, output


def interrupted_after(line: str, seconds: float) -> tuple[int, str]:
    """The line's exit code and output, with Ctrl-C after so many seconds."""
    process = start(line)
    time.sleep(seconds)
    assert process.poll() is None, process.communicate()[0]
    os.killpg(process.pid, signal.SIGINT)
    return finished(process)


def try_suggestion(line: str) -> None:
    """Run a suggested command as printed; of a longer training only the plan is made, VisualDL ends when it answers."""
    if "visualdl" in line.split()[0]:
        try_visualdl(line)
    elif "--text" in line:
        code, output = finished(start(f"{line} --dry-run"))
        assert code == 0, output
    else:
        code, output = finished(start(line, subprocess.PIPE), SENTENCES)
        assert code == 0 and "Traceback" not in output, f"{line}\n{output}"


def try_visualdl(line: str) -> None:
    process = start(f"{line} --port 8137")
    try:
        for _ in range(60):
            time.sleep(1)
            try:
                request = urllib.request.Request("http://127.0.0.1:8137/app/scalar", headers={"Accept-Language": "en"})
                with urllib.request.urlopen(request, timeout=5) as page:
                    assert page.status == 200
                    return
            except OSError:
                assert process.poll() is None, process.communicate()[0]
        raise AssertionError(f"no answer from {line}")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize(("kind", "megabytes"), [("odd", 0.8), ("articles", 1), ("large", 40)])
def test_one_command_on_a_folder(tmp_path, kind, megabytes):
    texts = folders.documents(tmp_path / "corpus", megabytes)
    make = {"odd": folders.odd_files, "articles": folders.articles, "large": folders.one_large_file}[kind]
    text, results = make(tmp_path / "my text", texts), tmp_path / "results"
    line = f"bash scripts/run_pretraining.sh --text {shlex.quote(str(text))} --output-dir {results} --hours {HOURS}"

    code, output = finished(start(f"{line} --dry-run"))
    assert code == 0 and "epochs" in output, output
    assert not list(results.rglob("*.safetensors"))

    code, output = interrupted_after(line, min(0.5 * HOURS * 3600, 90))
    assert code in (exit_codes.INTERRUPTED, exit_codes.CTRL_C), output
    assert "Traceback" not in output and "SIGTERM" not in output, output

    begun = time.monotonic()
    code, output = finished(start(line), timeout=HOURS * 3600 * 4 + 600)
    assert code == 0 and "Traceback" not in output, output
    report(kind, output, time.monotonic() - begun)
    if kind == "odd":
        assert "scan.pdf" in "".join(path.read_text() for path in results.rglob("report.json"))

    code, again = finished(start(line))
    assert code == 0 and "lready done" in again, again

    suggestions = SUGGESTION.findall(output)
    assert len(suggestions) >= 5, output
    for suggestion in dict.fromkeys(suggestions):
        try_suggestion(suggestion)


def report(kind: str, output: str, seconds: float) -> None:
    """Check the two lines of the result and keep them."""
    lines = re.findall(r"^(?:chosen|learned): .*$", output, re.M)
    assert [line.split(":")[0] for line in lines] == ["chosen", "learned"], output
    found = f"{kind}, {HOURS:g} h, last start {seconds:.0f} s\n  " + "\n  ".join(lines)
    print(found)
    if file := os.environ.get("BERT_NEWCOMER_REPORT"):
        with open(file, "a", encoding="utf-8") as stream:
            stream.write(found + "\n")

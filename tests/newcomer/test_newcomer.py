"""A newcomer's way: one command on a folder of text, stopped and started again, then every command that it suggests.

Minutes each. BERT_NEWCOMER_HOURS is the time that the trainings are given (default 0.1); BERT_NEWCOMER_REPORT is a file
that gets the time and two lines for each folder: what was chosen and what was learned. tests/documents/ runs every
command of the documents, and what the outputs of those suggest.
"""

import os
import re
import shlex
import signal
import time
from pathlib import Path

import pytest

from bert import REPOSITORY, exit_codes
from tests.newcomer import folders
from tests.support.shell import finished, start
from tests.support.suggestions import suggestions, try_all

HOURS = float(os.environ.get("BERT_NEWCOMER_HOURS", "0.1"))
MAKERS = {"odd": folders.odd_files, "articles": folders.articles, "large": folders.one_large_file}
# What a training suggests: training on, three uses of the model (fills, vectors, fine-tuning), an export, the curves.
LEAST_SUGGESTIONS = 6


def interrupted_after(line: str, seconds: float) -> tuple[int, str]:
    """Return the line's exit code and output, with Ctrl-C after this many seconds."""
    process = start(f"exec {line}", REPOSITORY)
    time.sleep(seconds)
    assert process.poll() is None, process.communicate()[0]
    os.killpg(process.pid, signal.SIGINT)
    return finished(process)


@pytest.mark.parametrize(("kind", "megabytes"), [("odd", 0.8), ("articles", 1), ("large", 40)])
def test_one_command_on_a_folder(tmp_path, kind, megabytes):
    texts = folders.documents(tmp_path / "corpus", megabytes)
    text, results = MAKERS[kind](tmp_path / "my text", texts), tmp_path / "my results"
    folder = shlex.quote(str(results))
    line = f"bash scripts/run_pretraining.sh --text {shlex.quote(str(text))} --output-dir {folder} --hours {HOURS}"

    code, output = finished(start(f"{line} --dry-run", REPOSITORY))
    assert code == 0 and "epochs" in output, output
    assert not list(results.rglob("*.safetensors"))

    code, output = interrupted_after(line, min(0.5 * HOURS * 3600, 90))
    assert code in (exit_codes.INTERRUPTED, exit_codes.CTRL_C), output
    assert "Traceback" not in output and "SIGTERM" not in output, output

    begun = time.monotonic()
    code, output = finished(start(line, REPOSITORY), timeout=HOURS * 3600 * 4 + 600)
    assert code == 0 and "Traceback" not in output, output
    report(kind, output, time.monotonic() - begun)
    if kind == "odd":
        assert "scan.pdf" in "".join(path.read_text() for path in results.rglob("report.json"))

    code, again = finished(start(line, REPOSITORY))
    assert code == 0 and "lready done" in again and "Trained before, in " in again, again

    assert len(suggestions(output)) >= LEAST_SUGGESTIONS, output
    tried = try_all([output, again], REPOSITORY)
    assert len(tried) > LEAST_SUGGESTIONS, f"the fine-tuning suggests how to use its model: {tried}"


def report(kind: str, output: str, seconds: float) -> None:
    """Check the lines of the result and keep them."""
    lines = re.findall(r"^(?:chosen|learned): .*$", output, re.M)
    assert [line.split(":")[0] for line in lines] == ["chosen", "learned"], output
    found = f"{kind}, {HOURS:g} h, last start {seconds:.0f} s\n  " + "\n  ".join(lines)
    print(found)
    if file := os.environ.get("BERT_NEWCOMER_REPORT"):
        with open(Path(file), "a", encoding="utf-8") as stream:
            stream.write(found + "\n")

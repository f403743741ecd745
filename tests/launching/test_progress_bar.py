"""Output of the ranks that cannot be written does not end the training."""

import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY

PASSING_ON = """
import sys
from pathlib import Path
from bert.launching.process_runner import Display
display = Display(Path(sys.argv[1]), None)
for number in range(9999):
    display(f"line {number}\\n".encode())
display.close()
"""


@pytest.mark.parametrize("broken", ["log", "folder", "stdout"])
def test_output_that_goes_nowhere_does_not_end_the_training(tmp_path, broken):
    (tmp_path / "file").write_text("")
    log = {"log": Path("/dev/full"), "folder": tmp_path / "file" / "log", "stdout": tmp_path / "log"}[broken]
    found = subprocess.Popen(
        [sys.executable, "-c", PASSING_ON, str(log)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if broken == "stdout":
        found.stdout.close()  # as `| head` does
        assert "console output failed and is switched off" in found.stderr.read()
        assert found.wait(timeout=60) == 0 and len(log.read_text().splitlines()) == 9999
        return
    stdout, stderr = found.communicate(timeout=60)
    assert found.returncode == 0 and len(stdout.splitlines()) == 9999
    assert stderr.count("failed and is switched off") == 1

"""Own text as its user starts it: the real data, measurement and training."""

import json
import signal
import subprocess
import sys

import pytest

from bert import REPOSITORY
from tests.own_text.odd_files import odd_files


@pytest.mark.long  # the documents' own command is run by the gate, without the interruption
def test_a_folder_of_odd_files_becomes_a_model_is_interrupted_and_extended(tmp_path):
    odd_files(tmp_path / "odd")
    line = [sys.executable, "-m", "bert.commands", "pretraining", "--text", "odd", "--output-dir", "out"]

    def start(*words):
        variables = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), "HOME": str(tmp_path)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        options = ["--log-freq", "1", "--eval-samples", "64", *words]
        return subprocess.Popen([*line, *options], cwd=tmp_path, env=variables, **pipes)

    process = start("--max-steps", "400")
    seen = []
    while not (seen and seen[-1].startswith("step 5/")):
        seen.append(next(process.stdout))
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=300)
    assert process.returncode == 75, "".join(seen) + rest
    assert "is not text (PDF signature)" in "".join(seen) and "saved step" in rest

    process = start("--max-steps", "20")  # shortened
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    assert "importing the text" not in output and "The training is at update" in output
    assert "masked words of held-out sentences" in output and "nearest sentences" in output
    assert "chosen: quickstart" in output and "learned: held-out masked-LM loss" in output
    suggested = [text.strip() for text in output.splitlines() if "   # " in text]
    assert len(suggested) >= 5
    for line in [text for text in suggested if "run_export.py" in text or "--encode" in text]:
        piped = f"cd {tmp_path} && echo 'One sentence.' | {line}"
        done = subprocess.run(["bash", "-c", piped], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr

    process = start("--max-steps", "30")
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0 and "continuing at step" in output, output
    assert json.loads((tmp_path / "out/phase1/summary.json").read_text())["steps"] == 30

"""Pre-training as a newcomer meets it: the quickstart and own text, stopped and continued, killed in a save."""

import json
import os
import re
import signal
import time
from pathlib import Path

from bert.files import checksum_of
from tests.journeys.commands import kill_all, output_of, read_until, started
from tests.journeys.conftest import tiny_training


def test_the_quickstart_is_interrupted_after_a_save_and_the_same_command_ends_with_the_table(clone):
    line = (
        "bash scripts/run_pretraining.sh --phase1-max-steps 16 --phase2-max-steps 4 --num-steps-per-checkpoint 6 "
        "--num-processes 2"
    )
    with started(line, clone) as quickstart:
        seen = read_until(quickstart, "/phase1/6")
        os.killpg(quickstart.pid, signal.SIGINT)
        rest, _ = quickstart.communicate()
    assert quickstart.returncode == 75 and "starting with 2 ranks" in seen, seen + rest
    (stopped,) = re.findall(r"saved step (\d+); the same command resumes", rest)
    output = output_of(line, clone, "unigram entropy, to be below (nats)", "next-sentence accuracy", "Next, try:")
    assert "collecting text" not in output and f"step {stopped}" in output and "phase 2" in output
    summary = json.loads((clone / "results/quickstart/summary.json").read_text())
    assert [summary[phase]["steps"] for phase in ("phase1", "phase2")] == [16, 4]
    assert (clone / "results/quickstart/loss.png").read_bytes().startswith(b"\x89PNG")
    assert "Already done" in output_of(line, clone)


def test_a_folder_of_odd_files_is_trained_on_stopped_and_continued(clone, data, tmp_path):
    line = (
        f"bash scripts/run_pretraining.sh --text {data}/raw --output-dir '{tmp_path}/my results' --max-steps 60 "
        "--eval-samples 32 --log-freq 1 --num-processes 1"
    )
    with started(line, clone) as training:
        seen = read_until(training, "step 3/")
        os.killpg(training.pid, signal.SIGINT)
        rest, _ = training.communicate()
    assert training.returncode == 75 and "saved step" in rest, seen + rest
    assert "scan.pdf" in seen and "--vocab-size" in seen, seen  # a row of the plan names its flag
    output = output_of(line, clone, "chosen: ", "learned: held-out masked-LM loss", "Next, try:")
    assert "importing the text" not in output and "masked words" in output and "nearest sentences" in output
    assert json.loads((tmp_path / "my results/summary.json").read_text())["phase1"]["steps"] == 60


def files_of(folder: Path) -> dict[str, str]:
    """Checksums of what a checkpoint of the run holds of parameters and optimizer."""
    return {path.name: checksum_of(path.read_bytes()) for path in folder.glob("*.safetensors")}


def test_a_run_killed_inside_a_save_ends_in_the_bytes_of_one_that_was_not(clone, data, tmp_path):
    flags = f"{tiny_training(data)} --hidden-size 256 --max-steps 12 --num-steps-per-checkpoint 1 --num-processes 1"
    for name in ("whole", "killed"):
        line = f"bash scripts/run_pretraining.sh {flags} --output-dir {tmp_path}/{name}"
        saved = tmp_path / name / "tiny/phase1"
        if name == "killed":
            with started(line, clone) as training:
                while not (saved / "3").exists() or not any(saved.glob(".*")):  # what is written has no name yet
                    assert training.poll() is None, training.communicate()[0]
                    time.sleep(0.0005)
                kill_all(training)
            assert not (saved / "12").exists()
        output = output_of(line, clone)
    assert re.search(r"(continuing|resum\w+)\s+\S+\s+at\s+step\s+[3-9]\b", output), output
    whole, killed = (files_of(tmp_path / name / "tiny/phase1/12") for name in ("whole", "killed"))
    assert len(whole) == 2 and whole == killed

"""run_pretraining.sh, run_squad.sh and run_glue.sh with the name of a published model, from a hub on this machine.

The model is a tiny one under the name of bert-large-cased, whose weights no pin holds.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY
from tests.support.fake_hub import hub, num_requests, tiny_model, weights
from tests.support.faulty_server import Served, serving
from tests.support.launching import launch

pytestmark = pytest.mark.long
NAME = "bert-large-cased"
SETTINGS = f"--from-pretrained-params {NAME} --device cpu --max-steps 2 --no-visualdl".split()


@pytest.fixture
def served(tmp_path, monkeypatch):
    files = hub(f"google-bert/{NAME}", tiny_model())
    with serving(files) as url:
        for name in ("PYTHONPATH", "HF_TOKEN", "HF_HUB_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_ENDPOINT", url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("BERT_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("BERT_PYTHON", sys.executable)
        yield files


def run(script: str, *words: object, code: int = 0) -> str:
    command = ["bash", f"scripts/{script}", *SETTINGS, *map(str, words)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def downloads(served: dict[str, Served]) -> list[str | None]:
    """Return the byte ranges of the weights that were requested."""
    return [request.get("Range") for request in weights(served).requests]


def test_glue_on_two_ranks_fetches_once_and_works_offline_then(tmp_path, served, monkeypatch):
    weights(served).drops = [5000]
    shown = run("run_glue.sh", "--max-seq-length", 32, "--num-gpus", 2, "--output-dir", tmp_path / "out")
    assert f"starting from the weights of {NAME}" in shown and f"glue/{NAME}" not in shown
    assert len(downloads(served)) == 2  # the dropped one and its repetition, for both ranks
    assert (tmp_path / "out" / NAME / "glue-custom" / "2").is_dir()
    asked = num_requests(served)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    convert("run_convert.py", "--from", "--to-format", tmp_path / "to")
    assert num_requests(served) == asked


def test_ranks_without_the_launcher_share_one_download(tmp_path, served):
    weights(served).pause_seconds = 0.05
    words = [*SETTINGS, "--config", "quickstart_sentiment", "--max-seq-length", "32", "--batch-size", "8"]
    words += ["--output-dir", tmp_path / "out"]
    launch(REPOSITORY / "run_glue.py", *map(str, words), log_dir=tmp_path / "logs")
    assert downloads(served) == [None]
    logs = "".join(path.read_text() for path in (tmp_path / "logs").glob("workerlog.*"))
    assert f"fetching google-bert/{NAME}" in logs


def test_a_mistyped_folder_asks_no_hub(tmp_path, served):
    Path(tmp_path / "results/phase1").mkdir(parents=True)
    os.symlink(REPOSITORY / "data", tmp_path / "data")
    settings = ["--config", "quickstart_sentiment", "--from-pretrained-params", "./results/phse1"]
    command = [sys.executable, str(REPOSITORY / "run_glue.py"), *settings]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "did you mean results/phase1?" in done.stderr and not num_requests(served)


def convert(script: str, source: str, to_format: str, target: Path) -> None:
    command = [sys.executable, script, source, NAME, "--to", str(target), to_format, "paddlenlp"]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=120)
    assert (target / "model_state.pdparams").is_file()


def test_an_export_takes_a_name(tmp_path, served):
    convert("run_export.py", "--checkpoint", "--format", tmp_path / "to")
    assert downloads(served) == [None]

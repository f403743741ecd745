"""Runs started as in NVIDIA's README, with a tiny model on the CPU: places of files, and content of log lines."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert import REPOSITORY
from tests.support import corpora, tiny
from tests.support.squad_files import file_of, paragraph, question

pytestmark = pytest.mark.long
TRAINED = {"e2e_train_time", "training_sequences_per_second"}


def typed(line: str, folder: Path) -> str:
    """Return the output of a script with its words, in a shell without GPUs whose data is below `folder`."""
    variables = {
        "BERT_PYTHON": sys.executable,
        "BERT_PREP_WORKING_DIR": str(folder / "data"),
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        ["bash", "-c", f"bash {REPOSITORY}/scripts/{line}"],
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def lines_of(report: Path) -> list[dict]:
    return [json.loads(line.removeprefix("DLLL "))["data"] for line in report.read_text().splitlines()]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory) -> Path:
    """Return the folder of both phases, trained by 29 words; the shards are made on demand, as in NVIDIA's README."""
    folder = tmp_path_factory.mktemp("theirs")
    (folder / "code").mkdir()
    (folder / "code/run_pretraining.py").symlink_to(REPOSITORY / "run_pretraining.py")
    corpora.write_source(folder / "data/wikipedia", num_documents=120)
    (folder / "data/vocab").mkdir()
    vocabulary = corpora.write_vocabulary(folder / "data/vocab/bert-large-uncased-vocab.txt")
    sizes = {"vocab_size": len(vocabulary.read_text().splitlines()), "max_position_embeddings": 512}
    (folder / "tiny.json").write_text(tiny.MODEL.model_copy(update=sizes).to_json())
    data = folder / "data/pretrain"
    typed(
        "run_pretraining.sh 4 6e-3 fp32 1 0.2843 4 2 true 2 42 job 2 4e-3 0.128 3 2 "
        f"{data}/phase1/unbinned/parquet/ {data}/phase2/bin_size_64/parquet/ {folder}/code None "
        f"{folder}/data/wikipedia/source/ 1 1 1 0.9 64 static tiny.json false",
        folder,
    )
    return folder


@pytest.mark.parametrize(("phase", "steps", "batch"), [(1, [2, 4], 8), (2, [2, 3], 4)])
def test_pretraining_leaves_their_files_and_lines(pretrained, phase, steps, batch):
    results = pretrained / "code/results"
    folder = results / f"bert-large-uncased/phase{phase}"
    assert sorted(int(path.name) for path in folder.iterdir() if path.is_dir()) == steps
    progress = json.loads((folder / str(steps[-1]) / "bert_paddle_progress.json").read_text())
    assert progress["step"] == steps[-1] and progress["epoch"] >= 0 and progress["stage"] == f"phase{phase}"
    (log_file,) = results.glob(f"job.paddle_bert_pretraining_phase{phase}_fp32_gbs{batch}.*.log")
    assert "saved" in log_file.read_text()
    _, *lines, end = lines_of(results / f"dllogger_p{phase}.json")
    updates = [line for line in lines if "loss" in line]
    assert len(updates) == steps[-1]  # a line for each, as their script passes --log-freq 1
    assert all({"learning_rate", "step_cost", "step_samples", "seqs_per_sec"} <= line.keys() for line in updates)
    assert {"final_loss", "raw_train_time", *TRAINED} <= end.keys()


def test_squad_leaves_their_files_and_lines(pretrained):
    squad, out = pretrained / "squad/v1.1", pretrained / "squad_out"
    squad.mkdir(parents=True, exist_ok=True)
    texts = [("The river runs to the sea.", "the sea"), ("Old boats wait under bridges.", "bridges")]
    paragraphs = [
        paragraph(text, question(f"q{number}", "Where?", (answer, text.index(answer))))
        for number, (text, answer) in enumerate(texts * 4)
    ]
    for part in ("train", "dev"):
        file_of(squad / f"{part}-v1.1.json", *paragraphs)
    start = pretrained / "code/results/bert-large-uncased/phase2/3"
    shown = typed(
        f"run_squad.sh {start} 2 4 1e-4 0.2 fp32 1 1 {squad} vocab/bert-large-uncased-vocab.txt {out} train_eval None",
        pretrained,
    )
    folder = out / "bert-large-uncased/squad"
    for name in ("predictions.json", "nbest_predictions.json"):
        assert json.loads((folder / name).read_text()).keys() == {f"q{number}" for number in range(8)}
    assert (folder / "4/bert_paddle.safetensors").is_file() and "  F1  " in shown
    assert "predictions of dev-v1.1.json are in" in (out / "logfile.txt").read_text()
    end = lines_of(out / "dllogger_1_fp32.json")[-1]
    assert {"inference_sequences_per_second", "exact_match", "F1", *TRAINED} <= end.keys()

"""Documented commands for the user's text: shards by hand, a model in one command, vectors and search."""

import json
import re
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bert.files import checksum_of
from tests.documents.document import command, output_of, try_suggestions
from tests.documents.made_data import stories
from tests.newcomer.folders import odd_files
from tests.support.shell import interrupted, kill_all, read_until, run, started
from tests.support.warm_python import COLD

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("own text")]


@pytest.fixture(scope="module")
def text(clone) -> Path:
    """Make mine/raw: fifteen files of as many kinds."""
    return odd_files(clone / "mine/raw", stories(130))


@pytest.fixture(scope="module")
def shards(clone, text) -> list[str]:
    """Return the outputs of the commands that made mine/phase1 and mine/phase2 from the text."""
    lines = [
        command(".venv/bin/python -m data.import_text"),
        command(".venv/bin/python -m data.train_vocabulary"),
        command(".venv/bin/python -m data.preprocess_bert_pretrain --text mine/train/source --output-dir mine/phase1"),
        command(
            ".venv/bin/python -m data.preprocess_bert_pretrain --text mine/held_out/source --output-dir mine/phase1"
        ),
        command(".venv/bin/python -m data.preprocess_bert_pretrain --text mine/train/source --output-dir mine/phase2"),
        command(
            ".venv/bin/python -m data.preprocess_bert_pretrain --text mine/held_out/source --output-dir mine/phase2"
        ),
    ]
    return [output_of(lines[0], clone, **COLD), *(output_of(line, clone) for line in lines[1:])]


def test_raw_files_become_shards_that_the_inspection_and_pyarrow_read(clone, shards):
    imported, vocabulary, train, held_out, *_ = shards
    assert "scan.pdf" in imported and "train: " in imported and "held_out: " in imported
    texts = "".join(path.read_text().lower() for path in (clone / "mine/train/source").rglob("*.txt"))
    assert "caf\u00e9" in texts  # of a file in Latin-1
    tokens = (clone / "mine/vocab.txt").read_text().splitlines()
    assert tokens[0] == "[PAD]" and {"river", "storm"} < set(tokens) and f"{len(tokens)} tokens in " in vocabulary
    files = sorted((clone / "mine/phase1/train").glob("*.parquet"))
    rows = sum(pq.read_metadata(file).num_rows for file in files)
    assert f"{rows} samples in {len(files)} shards" in train and "1 shards" in held_out
    assert {"A", "B", "is_random_next", "num_tokens"} <= set(pq.read_schema(files[0]).names)
    inspected = output_of(command(".venv/bin/python -m data.inspect"), clone)
    for part in ("no problem found", "masked: 1", "padding to the longest"):
        assert part in inspected, inspected
    output_of(command("bash scripts/run_pretraining.sh --config base") + " --dry-run", clone, "x 8 ranks")


def test_a_run_killed_inside_a_save_ends_in_the_bytes_of_one_that_was_not(clone, shards, tmp_path):
    words = len((clone / "mine/vocab.txt").read_text().splitlines())
    flags = (
        "--config quickstart_phase1 --input-dir mine/phase1/train --eval-dir mine/phase1/held_out --vocab-file "
        f"mine/vocab.txt --vocab-size {words} --hidden-size 256 --num-hidden-layers 2 --num-attention-heads 2 "
        "--intermediate-size 64 --max-position-embeddings 128 --max-seq-length 128 --masking static "
        "--max-predictions-per-seq 20 --batch-size 4 --global-batch-size 8 --bert-model tiny --device cpu "
        "--no-visualdl --max-steps 12 --num-steps-per-checkpoint 1 --num-processes 1"
    )
    for name in ("whole", "killed"):
        line = f"bash scripts/run_pretraining.sh {flags} --output-dir {tmp_path}/{name}"
        saved = tmp_path / name / "tiny/phase1"
        if name == "killed":
            with started(line, clone, **COLD) as training:
                while not (saved / "3").exists() or not any(saved.glob(".*")):  # what is written has no name yet
                    assert training.poll() is None, training.communicate()[0]
                    time.sleep(0.0005)
                kill_all(training)
            assert not (saved / "12").exists()
        output = output_of(line, clone)
    assert re.search(r"(continuing|resum\w+)\s+\S+\s+at\s+step\s+[3-9]\b", output), output
    whole, killed = (_checksums(tmp_path / name / "tiny/phase1/12") for name in ("whole", "killed"))
    assert len(whole) == 2 and whole == killed


def _checksums(folder: Path) -> dict[str, str]:
    """Return the checksums of a checkpoint's files of parameters and optimizer."""
    return {path.name: checksum_of(path.read_bytes()) for path in folder.glob("*.safetensors")}


@pytest.fixture(scope="module")
def learned(clone, text) -> tuple[str, str, str]:
    """Return the training's output before Ctrl-C, after it, and at the next start; the model is results/mine."""
    line = command("bash scripts/run_pretraining.sh --text mine/raw --hours 8")
    line = line.replace("--hours 8", "--max-steps 20 --eval-samples 32 --log-freq 1")  # updates stand for the hours
    seen, rest = interrupted(line, clone, "step 3/", **COLD)
    return seen, rest, output_of(line, clone)


def test_a_folder_of_odd_files_is_trained_on_stopped_and_continued(clone, learned):
    seen, rest, output = learned
    assert "saved step" in rest
    assert "scan.pdf" in seen and "--vocab-size" in seen, seen  # a row of the plan names its flag
    assert "importing the text" not in output
    for part in ("chosen: ", "learned: held-out masked-LM loss", "Next, try:", "masked words", "nearest sentences"):
        assert part in output, output
    assert json.loads((clone / "results/mine/summary.json").read_text())["phase1"]["steps"] == 20


def test_training_from_given_weights_and_other_networks_are_planned(clone, text, learned):
    line = command("bash scripts/run_pretraining.sh --text mine/raw --hours 2")
    output_of(line.replace("bert-base-uncased", "results/mine") + " --dry-run", clone, "of the weights")
    modern = command("bash scripts/run_pretraining.sh --text mine/raw --model-type modernbert")
    output_of(modern + " --dry-run", clone, "ModernBERT")


@pytest.fixture(scope="module")
def vectors(clone, text, quickstart) -> None:
    """Make results/vectors-raw."""
    line = command("bash scripts/run_vectors.sh --text").replace("--hours 0.2", "--epochs 1")
    output_of(line, clone, "BM25", "recall", timeout=900)


def test_documents_are_made_searchable(clone, vectors):
    output_of(command(".venv/bin/python run_export.py --model results/vectors-raw"), clone, "changes:")
    assert (clone / "results/sentences/modules.json").is_file()
    output_of(command(".venv/bin/python run_predict.py results/vectors-raw docs/howto/data.md --encode"), clone)
    output_of(command(".venv/bin/python run_predict.py results/vectors-raw --nearest"), clone)
    output_of(command(".venv/bin/python -m bert.reporting results/vectors-raw"), clone)


def test_an_index_of_documents_is_kept_searched_and_served(clone, vectors):
    output_of(command(".venv/bin/python -m bert.indexing results/vectors-raw mine/raw"), clone)
    assert (clone / "results/index-raw/manifest.json").is_file()
    asked = command(".venv/bin/python -m bert.indexing results/vectors-raw --index results/index-raw")
    assert len(output_of(asked, clone).splitlines()) >= 2
    line = command(".venv/bin/python -m bert.serving results/vectors-raw").replace("--port 8001", "--port 0")
    with started(line, clone, **COLD) as server:
        url = re.search(r"http://(\S+:\d+)", read_until(server, " is ready: "))[1]

        def typed(line: str) -> dict:
            done = run(line.replace("localhost:8001", url), clone)
            assert done.returncode == 0, done
            return json.loads(done.stdout)

        found = typed(command("curl -s localhost:8001/search"))["hits"]
        assert len(found) == 3 and all(hit["source"].startswith("raw/") and hit["sentence"]["text"] for hit in found)
        before = typed(command("curl -s localhost:8001/index"))
        assert typed(command("curl -s localhost:8001/index/add"))["ids"] == ["a-1"]
        assert typed("curl -s localhost:8001/index")["passages"] == before["passages"] + 1
        assert typed(command("curl -s localhost:8001/index/delete"))["deleted"] == 1


def test_what_the_outputs_suggest_runs(clone, learned):
    tried = try_suggestions(clone)
    parts = ("visualdl --logdir", "run_predict.py", "run_export.py", "run_classify.sh --train YOUR")
    missing = [part for part in parts if not any(part in line for line in tried)]
    assert not missing, tried

"""Documented commands of fine-tuning: questions, labels, entities, GLUE; prediction and server."""

import json
import re
import shlex
import signal
import time

import numpy as np
import pandas as pd
import psutil
import pytest
import requests

from tests.documents.document import DIVISOR, SHORT, command, example, output_of, try_suggestions
from tests.documents.made_data import SIGNS, write_entities, write_notes, write_paraphrases, write_questions
from tests.support.shell import read_until, run, started
from tests.support.waiting import wait_until
from tests.support.warm_python import COLD

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("fine-tuning")]
FEW = "--device cpu --no-visualdl --learning-rate 1e-2"
HELD_OUT = "data/examples/sentiment/held_out.tsv"


@pytest.fixture(scope="module")
def reader(clone, quickstart) -> str:
    """Return the output of the quickstart of questions; its model is in results/squad_quickstart."""
    line = command("bash scripts/run_squad.sh") + SHORT
    return output_of(line, clone, "starting from the pre-trained weights", "  F1  ", timeout=1500, **COLD)


def test_questions_are_answered(clone, reader):
    summary = json.loads((clone / "results/squad_quickstart/squad/summary.json").read_text())
    assert (summary["F1"] > 4 or DIVISOR > 1) and summary["exact_match"] <= summary["F1"]
    output_of(command(".venv/bin/python run_squad.py --do-predict"), clone)
    assert len(json.loads((clone / "results/answers/squad/predictions.json").read_text())) == 107
    typed = "Anna Lindqvist opened her bakery in 1987.\n\nWho opened the bakery?\n"
    output_of(f"printf '{typed}' | {command('.venv/bin/python run_squad.py --interactive')}", clone, "%]")
    output_of(f".venv/bin/python -c {shlex.quote(example('from bert.inference.heads'))}", clone)
    assert '"answers": [' in output_of(command("printf 'Who opened it?"), clone)


def test_questions_of_ones_own_are_learned_scored_and_asked(clone, quickstart, tmp_path):
    write_questions(tmp_path / "train.json", 120, 1)
    identities = write_questions(tmp_path / "dev.json", 20, 2)
    line = command("bash scripts/run_squad.sh --config squad_small --train-file")
    for documented, own in (
        ("results/squad_quickstart/data/train.json", "train.json"),
        ("results/squad_quickstart/data/held_out.json", "dev.json"),
    ):
        assert documented in line
        line = line.replace(documented, str(tmp_path / own))
    line += f" --epochs 4 --max-seq-length 48 --doc-stride 16 --max-query-length 12 {FEW}"
    output_of(line, clone, "  F1  ")
    results = clone / "results/asked/squad"
    summary = json.loads((results / "summary.json").read_text())
    assert 60 < summary["exact_match"] <= summary["F1"] <= 100
    assert [*json.loads((results / "predictions.json").read_text())] == identities
    output_of(line, clone, "is trained: step")
    asked = tmp_path / "asked.tsv"
    asked.write_text("Near what is it?\tThe dog sees the boat near the bridge.\n")
    assert '"bridge' in output_of(f".venv/bin/python run_predict.py results/asked {asked}", clone, '"answers"')


@pytest.fixture(scope="module")
def judge(clone, quickstart) -> str:
    """Return the output of the quickstart of sentences; its model is in results/glue_quickstart/sentiment."""
    line = command("bash scripts/run_glue.sh") + SHORT
    return output_of(line, clone, "starting from the pre-trained weights", "  macro f1  ", timeout=900)


def test_sentences_are_judged(clone, judge):
    summary = json.loads((clone / "results/glue_quickstart/sentiment/glue-custom/summary.json").read_text())
    assert summary["finished"] and 0 <= summary["eval_macro_f1"] <= 1
    output_of(command(".venv/bin/python run_glue.py --task-name custom"), clone)
    assert len((clone / "results/judged/glue-custom/predictions.tsv").read_text().splitlines()) == 101
    assert '"probabilities": {' in output_of(command("echo 'What a great film!'"), clone)


def test_a_model_is_served_survives_its_model_process_and_leaves_nothing(clone, judge):
    output_of(command("bash scripts/setup.sh serve"), clone)
    line = command(".venv/bin/python -m bert.serving results/glue_quickstart/sentiment")
    with started(line.replace("--port 8000", "--port 0"), clone, **COLD) as server:
        url = re.search(r"http://(\S+:\d+)", read_until(server, " is ready: "))[1]

        def typed(line: str) -> str:
            done = run(line.replace("localhost:8000", url), clone)
            assert done.returncode == 0, done
            return done.stdout

        first = json.loads(typed(command("curl -s localhost:8000/predict")))
        assert first["results"][0]["label"]
        assert json.loads(typed(command("curl -s localhost:8000/ready"))) == {"status": "ready"}
        assert "bert_requests_total" in typed(command("curl -s localhost:8000/metrics"))
        client = shlex.quote(example("import requests\n\ntexts"))
        assert typed(f".venv/bin/python -c {client}").startswith("['")

        everything = psutil.Process(server.pid).children(recursive=True)
        (worker,) = [child for child in everything if "spawn_main" in " ".join(child.cmdline())]
        worker.kill()
        asked, deadline = {"inputs": [{"text": "What a great film!"}]}, time.monotonic() + 120
        while (answer := requests.post(f"http://{url}/predict", json=asked, timeout=60)).status_code != 200:
            assert answer.status_code == 503 and time.monotonic() < deadline, answer.text
            time.sleep(0.05)
        assert answer.json() == first
        everything += psutil.Process(server.pid).children(recursive=True)
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        wait_until(lambda: not any(map(_is_alive, everything)))  # multiprocessing's tracker ends a moment later


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_server_is_measured(clone):
    line = command("bash scripts/benchmark_serving.sh").replace("--seconds 8", "--seconds 2")
    output_of(line, clone, "| 64 | one at a time |")


@pytest.fixture(scope="module")
def finder(clone, quickstart) -> str:
    """Return the output of the quickstart of entities; its model is in results/glue_quickstart/entities."""
    line = command("bash scripts/run_ner.sh") + SHORT
    return output_of(line, clone, "starting from the pre-trained weights", "  f1  ", timeout=900)


def test_entities_are_found(clone, finder):
    summary = json.loads((clone / "results/glue_quickstart/entities/ner/summary.json").read_text())
    assert summary["finished"] and 0 <= summary["eval_f1"] <= 1
    assert '"entities": [' in output_of(command("echo 'Anna Lindqvist visited"), clone)


def test_entities_of_ones_own_are_learned_scored_and_found(clone, quickstart, tmp_path):
    write_entities(tmp_path / "train.conll", 120, 1)
    write_entities(tmp_path / "held_out.conll", 20, 2)
    line = command("bash scripts/run_ner.sh --train-file").replace("data/examples/entities", str(tmp_path))
    output_of(f"{line} --epochs 4 --max-seq-length 48 {FEW}", clone, "  f1  ")
    assert json.loads((clone / "results/names/ner/summary.json").read_text())["eval_f1"] > 0.9
    (tmp_path / "new.txt").write_text("The dog follows near the river.\n")
    shown = output_of(f".venv/bin/python run_predict.py results/names {tmp_path}/new.txt", clone)
    (record,) = [json.loads(text) for text in shown.splitlines() if text.startswith("{")]
    assert [(each["text"], each["type"]) for each in record["entities"]] == [("dog", "PER"), ("river", "LOC")]


def test_several_seeds_make_one_table(clone, quickstart):
    line = command("bash scripts/run_glue.sh --config quickstart_pairs")
    output_of(line, clone, "2 trainings in results/seeds/glue", "| accuracy |", timeout=900)
    assert "0 left" in output_of(f"{line} --dry-run", clone)


def test_glue_on_two_ranks_is_glue_on_one(clone, quickstart, tmp_path):
    write_paraphrases(tmp_path / "MRPC", 64, 21)
    line = command("bash scripts/run_glue.sh --task-name mrpc --download").replace(
        "bert-base-uncased", "results/quickstart"
    )
    line = line.replace("--download", f"--data-dir {tmp_path}/MRPC")
    runs = []
    for ranks in (1, 2):
        shown = output_of(
            f"{line}{ranks} --num-processes {ranks} --batch-size 4 --global-batch-size 8 --epochs 2 --log-freq 1 "
            "--hidden-dropout-prob 0 --attention-probs-dropout-prob 0 --max-seq-length 32 --device cpu --no-visualdl",
            clone,
            f"{ranks} rank",
            "  accuracy  ",
        )
        assert "starting from the weights of results/quickstart" in shown
        (record,) = (clone / f"results/mrpc{ranks}").rglob("metrics.jsonl")
        rows = [json.loads(row) for row in record.read_text().splitlines()]
        losses = [row["loss"] for row in rows if "loss" in row]
        predicted = pd.read_csv(record.with_name("dev_predictions.tsv"), sep="\t")
        runs.append((losses, predicted["prediction"].tolist()))
    (one, predicted_by_one), (two, predicted_by_two) = runs
    assert len(one) == 16 and np.allclose(one, two, rtol=1e-4, atol=1e-6), (one, two)
    assert predicted_by_one == predicted_by_two and len(predicted_by_one) == 21


@pytest.fixture(scope="module")
def labels(clone, quickstart) -> str:
    """Return the output of a training on labelled lines with a threshold; its model is in results/labels."""
    line = command(
        "bash scripts/run_classify.sh --train data/examples/sentiment/train.tsv --model results/quickstart --positive"
    )
    return output_of(line + SHORT, clone, "  accuracy  ", timeout=1800)


def test_labelled_lines_become_a_classifier(clone, quickstart, labels):
    dry = command(
        "bash scripts/run_classify.sh --train data/examples/sentiment/train.tsv --model results/quickstart --dry"
    )
    output_of(dry, clone, "held out: 48 of 240")
    scores = json.loads((clone / "results/labels/glue-custom/scores.json").read_text())
    assert scores["classes"]["negative"]["recall"] >= 0.9 and "negative" in scores["threshold"]
    output_of(command("bash scripts/run_classify.sh --eval"), clone, "  accuracy  ")
    output_of(command(".venv/bin/python run_predict.py results/labels") + " < /dev/null", clone)
    output_of(command(".venv/bin/python -m bert.reporting results/labels"), clone)


def test_labelled_lines_are_cross_validated(clone, quickstart):
    line = command(
        "bash scripts/run_classify.sh --train data/examples/sentiment/train.tsv --model results/quickstart --cross"
    )
    output_of(line, clone, "recall", timeout=1800)
    assert (clone / "results/parts/cross_validation.md").read_text().count("| positive | 0.") == 1


def test_a_table_of_labels_becomes_a_model_and_a_predicted_table(clone, quickstart, tmp_path):
    """The commands open the README; a spreadsheet of Windows wrote the table, and a folder's name has a space."""
    write_notes(tmp_path / "train.csv", 240, ("id", "patient", "note", "urgency"), "cp1252", 1)
    results = f"'{tmp_path}/my results'"
    line = command(
        "bash scripts/run_classify.sh --train data/examples/sentiment/train.tsv --model results/quickstart "
        "--output-dir results/praise"
    )
    line = line.replace("data/examples/sentiment/train.tsv", f"{tmp_path}/train.csv").replace("results/praise", results)
    wanted = "--group-column patient --positive-label urgent --wanted-recall 0.9 --best-by auc:urgent --balance"
    output = " ".join(output_of(f"{line} {wanted} {FEW}", clone).split())
    for part in (
        "text 'note', classes 'urgency'",
        "equal patient together",
        "cp125",
        "urgent is predicted from a prob",
        "baseline, seconds",
        "Both are without the threshold.",
    ):
        assert part in output, output
    scores = json.loads((tmp_path / "my results/glue-custom/scores.json").read_text())
    assert scores["classes"]["urgent"]["recall"] >= 0.9 and set(scores["classes"]) == set(SIGNS)
    assert scores["accuracy"] >= 0.9

    write_notes(tmp_path / "new.csv", 30, ("id", "note"), "utf-8-sig", 3)
    line = command(".venv/bin/python run_predict.py results/praise").replace(
        "results/praise.csv", f"{tmp_path}/out.csv"
    )
    output_of(line.replace("results/praise", results).replace(HELD_OUT, f"{tmp_path}/new.csv"), clone)
    found = pd.read_csv(tmp_path / "out.csv", sep=";", encoding="utf-8-sig")
    assert found["id"].tolist() == [f"N{row}" for row in range(30)]
    said = [next(kind for kind, sign in SIGNS.items() if sign in note) for note in found["note"]]
    assert (found["label"] == said).mean() >= 0.9
    assert found[[f"probability_{kind}" for kind in SIGNS]].sum(axis=1).between(0.999, 1.001).all()
    margin = found["probability_urgent"] - scores["threshold"]["urgent"]  # which training chose
    is_told = margin.abs() > 1e-6  # the table has six digits
    assert is_told.sum() >= 20 and ((found["label"] == "urgent") == (margin > 0))[is_told].all()


def test_what_the_outputs_suggest_runs(clone, quickstart, reader, judge, finder, labels):
    tried = try_suggestions(clone)
    parts = [f"run_predict.py results/{model}" for model in ("squad_quickstart", "glue_quickstart", "labels")]
    missing = [part for part in parts if not any(part in line for line in tried)]
    assert not missing, tried

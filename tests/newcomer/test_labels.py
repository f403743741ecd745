"""From a table of labelled notes to a table of predictions, an export and an evaluation, as a newcomer types it."""

import csv
import json
import random
import re
import shlex

import pandas as pd
import pytest

import run_export
import run_predict
from bert import REPOSITORY
from bert.api import predict
from tests.inference.models import model
from tests.support.suggestions import finished, start

WORDS = {"urgent": "word1 word2", "soon": "word3 word4", "routine": "word5 word6"}
SHARES = {"routine": 0.7, "soon": 0.2, "urgent": 0.1}

pytestmark = pytest.mark.long


def notes(path, number, columns, delimiter, encoding, seed):
    """A table of notes whose classes are of different sizes; every patient has four notes."""
    draw = random.Random(seed)
    with open(path, "w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(columns)
        for row in range(number):
            kind = draw.choices([*SHARES], [*SHARES.values()])[0]
            filler = " ".join(f"word{draw.randint(7, 19)}" for _ in range(3))
            values = {
                "id": f"N{row}",
                "patient": f"P{row // 4}",
                "note": f"{WORDS[kind]}, {filler} \u00fc",
                "urgency": kind,
            }
            writer.writerow([values[name] for name in columns])
    return path


def kinds(notes):
    """What the words of the notes say."""
    return [next(kind for kind, words in WORDS.items() if words in note) for note in notes]


def test_from_labelled_lines_to_predictions(tmp_path, capsys):
    weights = model(tmp_path / "model", "pretraining")
    notes(tmp_path / "train.csv", 240, ("id", "patient", "note", "urgency"), ";", "cp1252", 1)
    notes(tmp_path / "dev.csv", 80, ("note", "urgency"), ",", "utf-8", 2)
    notes(tmp_path / "new.csv", 30, ("id", "note"), ";", "utf-8-sig", 3)
    results = tmp_path / "my results"
    line = (
        f"bash scripts/run_classify.sh --train {tmp_path}/train.csv --model {weights} --output-dir "
        f"{shlex.quote(str(results))} --group-column patient --positive-label urgent --wanted-recall 0.9 "
        "--best-by auc:urgent --balance --device cpu --learning-rate 1e-2 --no-visualdl"
    )
    code, output = finished(start(line, REPOSITORY), timeout=900)
    assert code == 0 and "urgent is predicted from a probability of" in output and "read as cp125" in output, output
    assert "text 'note', classes 'urgency'" in output and "equal patient together" in output, output
    scores = json.loads((results / "glue-custom/scores.json").read_text())
    assert scores["classes"]["urgent"]["recall"] >= 0.9 and set(scores["classes"]) == set(SHARES)
    assert scores["accuracy"] >= 0.9 and "verdict" not in scores
    held_out = pd.read_csv(results / "glue-custom/dev_predictions.tsv", sep="\t")
    assert len(held_out) == sum(map(sum, scores["confusion"])) and (held_out["label"] == kinds(held_out["text"])).all()
    assert (held_out["label"] == held_out["prediction"]).mean() == pytest.approx(scores["accuracy"])

    assert run_predict.main([str(results), str(tmp_path / "new.csv"), "--output", str(tmp_path / "out.csv")]) == 0
    found = pd.read_csv(tmp_path / "out.csv", sep=";", encoding="utf-8-sig")
    assert found["id"].tolist() == [f"N{row}" for row in range(30)]
    assert (found["label"] == kinds(found["note"])).mean() >= 0.9 and found["label"].nunique() == len(SHARES)
    assert found[[f"probability_{kind}" for kind in SHARES]].sum(axis=1).between(0.999, 1.001).all()
    is_urgent = found["probability_urgent"] >= scores["threshold"]["urgent"]
    assert ((found["label"] == "urgent") == is_urgent).all()

    dev = pd.read_csv(tmp_path / "dev.csv")
    labels = [result["label"] for result in predict(results, dev["note"])]
    right = (dev["urgency"] == labels).mean()
    evaluate = (
        f"bash scripts/run_classify.sh --model {shlex.quote(str(results))} --output-dir {tmp_path}/scores --eval "
    )
    code, output = finished(start(f"{evaluate}{tmp_path}/dev.csv --device cpu", REPOSITORY), timeout=900)
    assert code == 0, output
    summary = json.loads((tmp_path / "scores/glue-custom/summary.json").read_text())
    assert right >= 0.9 and summary["eval_accuracy"] == pytest.approx(right)  # same columns
    code, output = finished(start(f"{evaluate}{tmp_path}/new.csv --device cpu", REPOSITORY), timeout=900)
    assert code == 2 and re.search("new.csv: no column 'urgency', only .*'id', 'note'", output), output
    export = ["--checkpoint", str(results), "--to", str(tmp_path / "export"), "--format", "paddle-inference"]
    assert run_export.main(export) == 0
    capsys.readouterr()
    assert run_predict.main([str(tmp_path / "export"), str(tmp_path / "new.csv")]) == 0
    exported = capsys.readouterr().out.splitlines()
    assert [row.split(";")[2] for row in exported[1:]] == found["label"].tolist()  # the threshold went with it

"""Labels, questions, entities and GLUE: from a file to scores and predictions."""

import json
import random
from pathlib import Path

import numpy as np
import pandas as pd

from tests.journeys.commands import output_of
from tests.journeys.conftest import FEW, NOUNS, SIGNS, VERBS, words, write_notes


def test_a_table_of_labels_becomes_a_model_and_a_predicted_table(clone, classifier, tmp_path):
    output, results = (classifier / "output").read_text(), classifier / "my results"
    for part in (
        "text 'note', classes 'urgency'",
        "equal patient together",
        "cp125",
        "urgent is predicted from a prob",
        "baseline, seconds",
        "Both are without the threshold.",
    ):
        assert part in " ".join(output.split()), output
    scores = json.loads((results / "glue-custom/scores.json").read_text())
    assert scores["classes"]["urgent"]["recall"] >= 0.9 and set(scores["classes"]) == set(SIGNS)
    assert scores["accuracy"] >= 0.9

    write_notes(tmp_path / "new.csv", 30, ("id", "note"), "utf-8-sig", 3)
    table = tmp_path / "predicted.csv"
    output_of(f".venv/bin/python run_predict.py '{results}' {tmp_path}/new.csv --output {table}", clone)
    found = pd.read_csv(table, sep=";", encoding="utf-8-sig")
    assert found["id"].tolist() == [f"N{row}" for row in range(30)]
    said = [next(kind for kind, sign in SIGNS.items() if sign in note) for note in found["note"]]
    assert (found["label"] == said).mean() >= 0.9
    assert found[[f"probability_{kind}" for kind in SIGNS]].sum(axis=1).between(0.999, 1.001).all()
    is_urgent = found["probability_urgent"] >= round(scores["threshold"]["urgent"], 6)  # as the table has them
    assert ((found["label"] == "urgent") == is_urgent).all()  # the threshold that training chose


def write_questions(path: Path, number: int, seed: int) -> list[str]:
    """A file in SQuAD's format; the answer is what follows "near the"."""
    draw = random.Random(seed)
    paragraphs = []
    for place in range(number):
        answer = draw.choice(NOUNS)
        context = f"The {draw.choice(NOUNS)} {draw.choice(VERBS)} the {draw.choice(NOUNS)} near the {answer}."
        entry = {"text": answer, "answer_start": context.rindex(answer)}
        asked = {"id": f"q{place}", "question": "Near what is it?", "answers": [entry]}
        paragraphs.append({"context": context, "qas": [asked]})
    path.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}))
    return [f"q{place}" for place in range(number)]


def test_questions_are_learned_scored_and_asked(clone, model, tmp_path):
    write_questions(tmp_path / "train.json", 120, 1)
    identities = write_questions(tmp_path / "dev.json", 20, 2)
    windows = "--max-seq-length 48 --doc-stride 16 --max-query-length 12"
    line = (
        f"bash scripts/run_squad.sh --config squad_small --train-file {tmp_path}/train.json --predict-file "
        f"{tmp_path}/dev.json --from-pretrained-params {model} --output-dir {tmp_path}/out --epochs 4 {windows} {FEW}"
    )
    output_of(line, clone, "  F1  ")
    summary = json.loads((tmp_path / "out/squad/summary.json").read_text())
    assert 60 < summary["exact_match"] <= summary["F1"] <= 100
    assert [*json.loads((tmp_path / "out/squad/predictions.json").read_text())] == identities
    output_of(line, clone, "is trained: step")
    asked = tmp_path / "asked.tsv"
    asked.write_text("Near what is it?\tThe dog sees the boat near the bridge.\n")
    assert '"bridge' in output_of(f".venv/bin/python run_predict.py {tmp_path}/out {asked}", clone, '"answers"')


def write_sentences(path: Path, number: int, seed: int) -> None:
    """Sentences in CoNLL's form; the first noun is a person, the last a place."""
    draw = random.Random(seed)
    with open(path, "w") as file:
        for _ in range(number):
            first, verb, last = draw.choice(NOUNS), draw.choice(VERBS), draw.choice(NOUNS)
            file.write(f"The O\n{first} B-PER\n{verb} O\nnear O\nthe O\n{last} B-LOC\n. O\n\n")


def test_entities_are_learned_scored_and_found(clone, model, tmp_path):
    write_sentences(tmp_path / "train.conll", 120, 1)
    write_sentences(tmp_path / "dev.conll", 20, 2)
    files = f"--train-file {tmp_path}/train.conll --eval-file {tmp_path}/dev.conll"
    line = (
        f"bash scripts/run_ner.sh {files} --from-pretrained-params {model} --output-dir {tmp_path}/out --epochs 4 "
        f"--max-seq-length 48 {FEW}"
    )
    output_of(line, clone, "  f1  ")
    assert json.loads((tmp_path / "out/ner/summary.json").read_text())["eval_f1"] > 0.9
    (tmp_path / "new.txt").write_text("The dog follows near the river.\n")
    shown = output_of(f".venv/bin/python run_predict.py {tmp_path}/out {tmp_path}/new.txt", clone)
    (record,) = [json.loads(text) for text in shown.splitlines() if text.startswith("{")]
    assert [(each["text"], each["type"]) for each in record["entities"]] == [("dog", "PER"), ("river", "LOC")]


def test_glue_on_two_ranks_is_glue_on_one(clone, model, tmp_path):
    draw = random.Random(5)
    for name, number in (("train", 64), ("dev", 21)):
        kinds = [draw.choice([0, 1]) for _ in range(number)]
        rows = [f"{words(draw, 4)} {['rain', 'sun'][kind]} {words(draw, 2)}\t{kind}\n" for kind in kinds]
        (tmp_path / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(rows))
    runs = []
    for ranks in (1, 2):
        out = tmp_path / f"out{ranks}"
        line = (
            f"bash scripts/run_glue.sh --task-name sst-2 --data-dir {tmp_path} --from-pretrained-params {model} "
            f"--output-dir {out} --num-processes {ranks} --batch-size 4 --global-batch-size 8 --epochs 2 --log-freq 1 "
            f"--hidden-dropout-prob 0 --attention-probs-dropout-prob 0 --max-seq-length 32 {FEW}"
        )
        output_of(line, clone, f"{ranks} rank", "  accuracy  ")
        (run,) = out.rglob("metrics.jsonl")
        rows = [json.loads(row) for row in run.read_text().splitlines()]
        losses = [row["loss"] for row in rows if "loss" in row]
        predicted = pd.read_csv(run.with_name("dev_predictions.tsv"), sep="\t")
        runs.append((losses, predicted["prediction"].tolist()))
    (one, predicted_by_one), (two, predicted_by_two) = runs
    assert len(one) == 16 and np.allclose(one, two, rtol=1e-4, atol=1e-6), (one, two)
    assert predicted_by_one == predicted_by_two and len(predicted_by_one) == 21
